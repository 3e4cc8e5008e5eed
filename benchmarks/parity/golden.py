"""Reads golden sets, which hold what the authors' code computed, and measures differences."""

import json
import lzma
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

Arrays = dict[str, np.ndarray]
_ENCODER_SETTINGS = {
    "vocab_size": "vocab_size",
    "embedding_size": "embedding_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
    "type_vocab_size": "type_vocab_size",
    "layer_norm_epsilon": "layer_norm_eps",
    "hidden_dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}


class Comparison(NamedTuple):
    """Differences by name, with their common tolerance."""

    what: str
    differences: dict[str, float]
    tolerance: float

    def largest(self) -> tuple[str, float]:
        """The name and value of the largest difference. NaN, which must fail, is infinite."""
        values = {name: math.inf if math.isnan(value) else value for name, value in self.differences.items()}
        name = max(values, key=values.__getitem__)
        return name, values[name]


def encoder_settings(settings: dict) -> dict:
    """The settings of our `EncoderConfig` from a set's config.json, which has the authors' names."""
    return {ours: settings[theirs] for ours, theirs in _ENCODER_SETTINGS.items()}


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
    if set(golden) != set(ours):
        raise AssertionError(f"{what} differ: {sorted(set(golden) ^ set(ours))[:5]}")


def largest(values: np.ndarray) -> float:
    return float(np.max(values, initial=0.0))


def relative_above_1(ours, expected) -> float:
    """The largest difference, relative to the larger of 1 and the expected value."""
    expected = np.asarray(expected, np.float64)
    return largest(np.abs(np.asarray(ours, np.float64) - expected) / np.maximum(1.0, np.abs(expected)))
