"""Reads the files of golden sets, for both parity commands."""

import json
import lzma
from pathlib import Path

import numpy as np

Arrays = dict[str, np.ndarray]


def read_json(path: Path) -> dict:
    """A golden JSON file, compressed or not."""
    content = path.read_bytes()
    return json.loads(lzma.decompress(content) if path.suffix == ".xz" else content)


def read_lines(path: Path) -> list[dict]:
    """A golden file of JSON lines, compressed."""
    return [json.loads(line) for line in lzma.decompress(path.read_bytes()).decode().split("\n") if line]


def load_arrays(path: Path) -> Arrays:
    """The arrays of an .npz file; NumPy refuses one that would need pickle."""
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)
