"""Reads golden sets, which hold what the authors' code computed, and measures differences."""

import json
import lzma
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from electra_tf.weights.hugging_face.layouts import ELECTRA

Arrays = dict[str, np.ndarray]
Differences = dict[str, float]  # by name, as the golden files have it


class Comparison(NamedTuple):
    """Differences by name, with their common tolerance."""

    what: str
    differences: Differences
    tolerance: float

    def largest(self) -> tuple[str, float]:
        """The name and value of the largest difference. NaN, which must fail, is infinite."""
        values = {name: math.inf if math.isnan(value) else value for name, value in self.differences.items()}
        name = max(values, key=values.__getitem__)
        return name, values[name]


def encoder_settings(settings: dict) -> dict:
    """The settings of our `EncoderConfig` from a set's config.json, which has the authors' names."""
    return {ours: settings[theirs] for theirs, ours in ELECTRA.settings.items() if theirs in settings}


def read_json(path: Path) -> dict:
    """A golden JSON file, compressed or not."""
    content = path.read_bytes()
    return json.loads(lzma.decompress(content) if path.suffix == ".xz" else content)


def read_lines(path: Path) -> list[dict]:
    """A compressed golden file of JSON lines."""
    return [json.loads(line) for line in lzma.decompress(path.read_bytes()).decode().split("\n") if line]


def load_arrays(path: Path) -> Arrays:
    """The arrays of an .npz file. NumPy refuses pickled ones."""
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def require_same_names(golden, ours, what: str) -> None:
    """Raises: AssertionError: a name is only on one side."""
    assert set(golden) == set(ours), f"{what} differ: {sorted(set(golden) ^ set(ours))[:5]}"


def largest(values: np.ndarray) -> float:
    return float(np.max(values, initial=0.0))


def relative_above_1(ours, expected) -> float:
    """The largest difference, relative to the larger of 1 and the expected value."""
    expected = np.asarray(expected, np.float64)
    return largest(np.abs(np.asarray(ours, np.float64) - expected) / np.maximum(1.0, np.abs(expected)))
