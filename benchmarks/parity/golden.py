"""Reads golden sets, which hold what the authors' code computed, and measures differences."""

import json
import lzma
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from electra_tf.weights.hugging_face.layouts import ELECTRA

# A gradient below this share of the largest one is zero in theory, and holds rounding noise: up to 3e-8 of it in the
# sets, where every other gradient has 5e-4 or more.
_NOISE = 1e-6

Arrays = dict[str, np.ndarray]
Differences = dict[str, float]  # by name, as the golden files have it


class Comparison(NamedTuple):
    """Differences by name, with their common tolerance. For counts of what differs it is 0."""

    what: str
    differences: Differences
    tolerance: float

    def largest(self) -> tuple[str, float]:
        """The name and value of the largest difference. NaN, which must fail, is infinite."""
        values = {name: math.inf if math.isnan(value) else value for name, value in self.differences.items()}
        name = max(values, key=values.__getitem__)
        return name, values[name]


class GoldenSet:
    """The files of a golden set. Beside sets of fine-tuning are vocab.txt and the raw files in inputs/."""

    def __init__(self, directory: Path):
        self.directory, self.settings = directory, read_json(directory / "config.json")

    def has(self, file: str) -> bool:
        return (self.directory / file).exists()

    def json(self, file: str) -> dict:
        return read_json(self.directory / file)

    def arrays(self, file: str) -> Arrays:
        """The arrays of an .npz file. NumPy refuses pickled ones."""
        with np.load(self.directory / file, allow_pickle=False) as archive:
            return dict(archive)

    def features(self, split: str | None = None) -> list[dict]:
        """The authors' features of a split's examples, or of all."""
        lines = read_lines(self.directory / "features.jsonl.xz")
        return [line for line in lines if split in (None, line["split"])]

    def input_file(self, name: str) -> Path:
        return self.directory.parent / "inputs" / name

    @property
    def encoder_settings(self) -> dict:
        """The settings of our `EncoderConfig`."""
        return {ours: self.settings[theirs] for theirs, ours in ELECTRA.settings.items() if theirs in self.settings}

    @property
    def optimizer_settings(self) -> dict:
        """The settings of our optimizer that have one meaning in pre-training and in fine-tuning."""
        optimizer = self.settings["optimizer"]
        return {
            "learning_rate": self.settings["learning_rate"],
            **{name: optimizer[name] for name in ("beta_1", "beta_2", "epsilon")},
            "exclude_from_weight_decay": optimizer["exclude_from_weight_decay_regexes"],
        }


def read_json(path: Path) -> dict:
    """A golden JSON file, compressed or not."""
    content = path.read_bytes()
    return json.loads(lzma.decompress(content) if path.suffix == ".xz" else content)


def read_lines(path: Path) -> list[dict]:
    """A compressed golden file of JSON lines."""
    return [json.loads(line) for line in lzma.decompress(path.read_bytes()).decode().split("\n") if line]


def require_same_names(golden, ours, what: str) -> None:
    """Raises: AssertionError: a name is only on one side."""
    assert set(golden) == set(ours), f"{what} differ: {sorted(set(golden) ^ set(ours))[:5]}"


def largest(values: np.ndarray) -> float:
    return float(np.max(values, initial=0.0))


def relative_above_1(ours, expected) -> float:
    """The largest difference, relative to the larger of 1 and the expected value."""
    expected = np.asarray(expected, np.float64)
    return largest(np.abs(np.asarray(ours, np.float64) - expected) / np.maximum(1.0, np.abs(expected)))


def relative(ours: Mapping[str, np.ndarray], expected: Arrays, size: Callable[[np.ndarray], float]) -> Differences:
    """Each array's difference over its expected size; over the largest of all where it is zero in theory.

    Args:
        size: the norm of an array: `np.linalg.norm`, or the largest entry.
    """
    sizes = {name: float(size(values.astype(np.float64))) for name, values in expected.items()}
    most = max(sizes.values())
    differences = {}
    for name, values in expected.items():
        scale = sizes[name] if sizes[name] > _NOISE * most else most
        differences[name] = float(size(np.asarray(ours[name], np.float64) - values)) / scale
    return differences


def largest_entry(values: np.ndarray) -> float:
    return largest(np.abs(values))
