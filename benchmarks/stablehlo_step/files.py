"""The directory of an exported step. Imports NumPy and the standard library alone.

manifest.json       what the program takes and gives, in order; the configuration, FLOPs of a step and peaks of devices
step.stablehlo      the training step: (batch, state) -> (metrics, state)
batches.npz         a few masked batches
state.npz           the state at the first step, if it was asked for
"""

import json
import os
from pathlib import Path

import numpy as np

MANIFEST, STEP, BATCHES, STATE = "manifest.json", "step.stablehlo", "batches.npz", "state.npz"


class StepFiles:
    """An exported step of one replica.

    Attributes:
        manifest: see `benchmarks.stablehlo_step.export`.
    Raises: ValueError: if it is the step of one of several replicas, which `tpu_compile` alone compiles.
    """

    def __init__(self, directory: str | os.PathLike):
        self.directory = Path(directory)
        self.manifest = json.loads((self.directory / MANIFEST).read_text(encoding="utf-8"))
        if self.manifest["replicas"] > 1:
            raise ValueError(f"{directory} is the step of one of {self.manifest['replicas']} replicas; export one's")

    @property
    def program(self) -> bytes:
        return (self.directory / STEP).read_bytes()

    def batches(self) -> list[list[np.ndarray]]:
        """The masked batches: of each the arrays in the order of the program's arguments."""
        with np.load(self.directory / BATCHES) as columns:
            named = [columns[each["name"]] for each in self.manifest["batch"]]
        return [list(batch) for batch in zip(*named, strict=True)]

    def state_from(self, path: str | os.PathLike) -> list[np.ndarray]:
        """The state in an .npz file, in the order of the program's arguments.

        Raises: ValueError: if an array has another shape or type than this step's.
        """
        with np.load(path) as stored:
            state = [stored[each["name"]] for each in self.manifest["state"]]
        for each, values in zip(self.manifest["state"], state, strict=True):
            if (list(values.shape), values.dtype.name) != (each["shape"], each["dtype"]):
                raise ValueError(f"{path}: {each['name']} is not {each['dtype']} {each['shape']} as in this step")
        return state
