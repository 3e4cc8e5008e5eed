"""The directory of an exported step: what lies where. Imports NumPy and the standard library alone.

manifest.json       what the programs take and give, in order; the configuration, FLOPs of a step and peaks of devices
step.stablehlo      the training step: (batch, state) -> (metrics, state)
batches.npz         a few masked batches
state.npz           the state at the first step, if it was asked for
mask.stablehlo      masking: (input_ids, segment_lengths, step) -> batch, where there is a data set
examples.npz        examples of a data set, and which of them each step reads
"""

import json
import os
import zipfile
from pathlib import Path

import numpy as np

MANIFEST, STEP, MASK = "manifest.json", "step.stablehlo", "mask.stablehlo"
BATCHES, STATE, EXAMPLES = "batches.npz", "state.npz", "examples.npz"

_REQUIRED = (
    *("objective", "precision", "replicas", "batch_size", "max_seq_length", "trainable_parameters", "flops"),
    *("peak_flops", "versions", "first_step", "batch", "metrics", "state", "step_variable"),
)


class BadInput(Exception):
    """A mistake that the user can correct, as `electra_tf.config.errors.UserError` is where that can be imported."""


def first_line(error: Exception) -> str:
    """What an error says, without the rest: as in `electra_tf.config.errors`."""
    return str(error).partition("\n")[0]


class StepFiles:
    """An exported step.

    Attributes:
        manifest: see `benchmarks.stablehlo_step.export`.
    Raises: BadInput: if the directory holds none.
    """

    def __init__(self, directory: str | os.PathLike):
        self.directory = Path(directory)
        try:
            self.manifest = json.loads(self.read(MANIFEST))
        except ValueError:
            self.manifest = None
        whole = isinstance(self.manifest, dict)
        missing = [name for name in _REQUIRED if name not in self.manifest] if whole else ["object of JSON"]
        if missing:
            raise BadInput(f"{self.directory / MANIFEST} is damaged: no {missing[0]}; export the step again")

    def require_one_replica(self) -> None:
        """Raises: BadInput: if the step is one of several replicas, which `tpu_compile` alone compiles."""
        if self.manifest["replicas"] > 1:
            raise BadInput(f"{self.directory} is the step of one of {self.manifest['replicas']} replicas; export one's")

    def read(self, name: str) -> bytes:
        """The content of a file. Raises: BadInput: if it is not there."""
        try:
            return (self.directory / name).read_bytes()
        except OSError as error:
            raise BadInput(
                f"{self.directory / name} cannot be read ({error.strerror}); export the step again"
            ) from None

    def batches(self) -> list[list[np.ndarray]]:
        """The masked batches: of each the arrays in the order of the program's arguments."""
        columns = read_arrays(self.directory / BATCHES)
        return [list(batch) for batch in zip(*(columns[each["name"]] for each in self.manifest["batch"]), strict=True)]


def read_arrays(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by name. Raises: BadInput: if it is none, or not whole."""
    try:
        with np.load(path) as stored:
            return dict(stored.items())
    except (OSError, ValueError, EOFError, KeyError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise BadInput(
            f"{path} cannot be read as .npz ({reason}); give another one, or export the step again"
        ) from None


def write_arrays(path: str | os.PathLike, arrays: dict[str, np.ndarray], compressed: bool = False) -> None:
    """Writes an .npz file as a whole or not at all."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "wb") as file:
        (np.savez_compressed if compressed else np.savez)(file, **arrays)
    os.replace(temporary, path)


def state_from(path: str | os.PathLike, manifest: dict) -> dict[str, np.ndarray]:
    """The state in an .npz file; what it leaves out of the optimizer is as at the beginning of a training.

    Raises: BadInput: if it lacks anything else, or something has another shape or type.
    """
    stored, state = read_arrays(path), {}
    for each in manifest["state"]:
        name, shape = each["name"], tuple(each["shape"])
        if name not in stored and name.startswith("optimizer/") and name != manifest["step_variable"]:
            stored[name] = np.full(shape, (each["initial"] or {}).get("constant", 0), each["dtype"])
        if name not in stored or (stored[name].shape, stored[name].dtype.name) != (shape, each["dtype"]):
            found = f"{stored[name].dtype} {list(stored[name].shape)}" if name in stored else "nothing"
            raise BadInput(
                f"{path} does not fit this step: {name} should be {each['dtype']} {list(shape)}, found {found}; give "
                "the state of a step that was exported with the same settings"
            )
        state[name] = stored[name]
    return state
