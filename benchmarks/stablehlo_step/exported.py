"""The files of an exported step, and the timing of steps. Imports NumPy and the standard library alone.

manifest.json       arguments and results of the program in order; sizes, FLOPs of a step and peaks of devices
step.stablehlo      the training step: (batch, state) -> (metrics, state)
batches.npz         a few masked batches
state.npz           with `export --state`: the state before the first step
"""

import argparse
import json
import os
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

MANIFEST, STEP, BATCHES, STATE = "manifest.json", "step.stablehlo", "batches.npz", "state.npz"


class StepFiles:
    """An exported step of one replica.

    Attributes:
        manifest: see `benchmarks.stablehlo_step.export`.
    Raises: ValueError: for the step of one of several replicas, which only `tpu` compiles.
    """

    def __init__(self, directory: str | os.PathLike):
        self.directory = Path(directory)
        self.manifest = json.loads((self.directory / MANIFEST).read_text(encoding="utf-8"))
        if self.manifest["replicas"] > 1:
            raise ValueError(
                f"{directory} is the step of one of {self.manifest['replicas']} replicas; export it with --replicas=1"
            )

    @property
    def program(self) -> bytes:
        return (self.directory / STEP).read_bytes()

    def batches(self) -> list[list[np.ndarray]]:
        """The masked batches, each with its arrays in the order of the program's arguments."""
        with np.load(self.directory / BATCHES) as columns:
            named = [columns[each["name"]] for each in self.manifest["batch"]]
        return [list(batch) for batch in zip(*named, strict=True)]

    def state(self) -> list[np.ndarray]:
        """The state before the first step, in the order of the program's arguments."""
        with np.load(self.directory / STATE) as stored:
            return [stored[each["name"]] for each in self.manifest["state"]]


def add_timing_flags(flag: Callable) -> None:
    """Adds the flags of `timed_rounds` and `report` to a parser, whose `add_argument` is `flag`."""
    flag("--rounds", type=int, default=5, metavar="N", help="timed rounds; the median is reported (default: 5)")
    flag("--steps", type=int, default=20, metavar="N", help="steps of a round (default: 20)")
    flag("--warmup", type=int, default=5, metavar="N", help="untimed steps before the rounds (default: 5)")
    flag("--peak_flops", type=float, metavar="FLOP/S", help="peak of the device (default: the published one)")
    flag("--output", metavar="FILE", help="file to which lines of JSON are added")


def timed_rounds(run: Callable[[], object], wait: Callable[[], None], flags: argparse.Namespace) -> list[float]:
    """Seconds a step in each round, after the untimed steps.

    Args:
        run: begins a step.        wait: returns when the device is done.        flags: of `add_timing_flags`.
    """
    for _ in range(flags.warmup):
        run()
    seconds = []
    for _ in range(flags.rounds):
        wait()
        before = time.perf_counter()
        for _ in range(flags.steps):
            run()
        wait()
        seconds.append((time.perf_counter() - before) / flags.steps)
    return seconds


def published_peak(manifest: dict, device: str) -> float | None:
    """FLOP/s of a device by its driver's name, in the step's precision; None if unknown."""
    return next((peak for pattern, peak in manifest["peak_flops"].items() if re.search(pattern, device)), None)


def report(manifest: dict, seconds: list[float], flags: argparse.Namespace, device: str, **facts) -> None:
    """Writes the row of a timed step. The utilization counts the model's matrix products only.

    Args:
        seconds: of `timed_rounds`.        flags: of `add_timing_flags`.        facts: further entries of the row.
    """
    median, products = statistics.median(seconds), (manifest["flops"] or {}).get("products")
    rate, peak = products and products / median, flags.peak_flops or published_peak(manifest, device)
    names = ("objective", "precision", "trainable_parameters", "batch_size", "max_seq_length")
    row = {
        **facts,
        **{name: manifest[name] for name in names},
        "device": device,
        "seconds_a_step": median,
        "seconds_of_rounds": seconds,
        "examples_per_second": manifest["batch_size"] / median,
        "flops_per_second": rate,
        "peak_flops": peak,
        "utilization": rate and peak and rate / peak,
    }
    write_row(row, flags.output)


def write_row(row: dict, output: str | None) -> None:
    """Prints the known numbers and words of a row, and adds the row to a file of JSON lines."""
    for name, value in row.items():
        if isinstance(value, str | int | float):
            print(f"{name}: {value:,.6g}" if isinstance(value, float) else f"{name}: {value}", flush=True)
    if output:
        with Path(output).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
