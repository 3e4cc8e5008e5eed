"""The files of a golden set, and of the directory of the sets, which also has vocab.txt and inputs/."""

import json
import lzma
from pathlib import Path

import numpy as np

from electra_tf.config.errors import UserError

Arrays = dict[str, np.ndarray]


def read_json(path: Path) -> dict:
    """A golden JSON file, compressed or not."""
    content = _content(path)
    try:
        return json.loads(lzma.decompress(content) if path.suffix == ".xz" else content)
    except (lzma.LZMAError, ValueError) as error:
        raise UserError(f"{path}: {error}; it is no golden file: make it anew") from None


def read_lines(path: Path) -> list[dict]:
    """A golden file of JSON lines."""
    return [json.loads(line) for line in lzma.decompress(_content(path)).decode().split("\n") if line]


def load_arrays(path: Path) -> Arrays:
    """The arrays of an .npz file; one that would need pickle is rejected by NumPy."""
    if not path.is_file():
        raise _missing(path)
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise _missing(path) from None


def _missing(path: Path) -> UserError:
    return UserError(f"{path} is not there; a golden set has one: complete the set, or leave it out with --only")
