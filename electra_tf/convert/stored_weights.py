"""Copies stored weights into variables, strictly: every one of them, each of its shape, or none."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError

_MOST_NAMES = 6  # that one line of a message lists


class StoredWeight(NamedTuple):
    """Where the value of a variable is to be found.

    Attributes:
        name: as a person would call it.        stored_name: as the store calls it.
    """

    name: str
    stored_name: str
    variable: tf.Variable


class ArrayReader:
    """Arrays by name, read as a checkpoint is."""

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        self._arrays = arrays

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        return {name: list(array.shape) for name, array in self._arrays.items()}

    def get_tensor(self, name: str) -> np.ndarray:
        return self._arrays[name]


def assign_strictly(source: str, reader, weights: Sequence[StoredWeight]) -> list[str]:
    """Assigns every variable its stored value. Of a position table that is longer there, the first rows are taken.

    Args:
        source: what messages call the store.
        reader: of a checkpoint, by `tf.train.load_checkpoint`, or an `ArrayReader`.
    Returns: notes for the log, one line each: which tables were cut.
    Raises: UserError: if anything is missing, of another shape or no finite number, naming it; then nothing was
        assigned.
    """
    shapes = reader.get_variable_to_shape_map()
    require_none_missing(source, [weight.name for weight in weights if weight.stored_name not in shapes])
    if problems := list(filter(None, (_mismatch(weight, list(shapes[weight.stored_name])) for weight in weights))):
        raise UserError(f"{source}: {list_briefly(problems, separator='; ')}")
    values = sound_values(source, {weight.name: reader.get_tensor(weight.stored_name) for weight in weights})
    notes = []
    for weight in weights:
        rows, stored_rows = weight.variable.shape[:1], shapes[weight.stored_name][:1]
        value = values[weight.name]
        if rows != stored_rows:
            value = value[: rows[0]]
            notes.append(f"{weight.name}: the first {rows[0]} of {stored_rows[0]} positions")
        weight.variable.assign(value)
    return notes


def sound_values(source: str, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Weights by name as float32, whatever their precision.

    Raises: UserError: if one is of no floating-point type or holds NaN or infinity, naming it.
    """
    if odd := [name for name, value in values.items() if not tf.as_dtype(np.asarray(value).dtype).is_floating]:
        raise UserError(f"{source}: {list_briefly(odd)} holds no floating-point numbers; give a model's own weights")
    with np.errstate(over="ignore"):  # becomes infinity, which is refused
        sound = {name: np.asarray(value, np.float32) for name, value in values.items()}
    if broken := [name for name, value in sound.items() if not np.isfinite(value).all()]:
        raise UserError(
            f"{source}: {list_briefly(broken)} holds NaN or infinity, its training has failed; give an earlier "
            "checkpoint, or copy the file again"
        )
    return sound


def require_none_missing(source: str, missing: Sequence[str]) -> None:
    """Raises: UserError: if names are missing from a store, naming them."""
    if not missing:
        return
    hint = "is it of another objective or of fewer layers?"
    if all(name.startswith("generator") for name in missing):
        hint = (
            "a discriminator alone cannot go on with ELECTRA's training: give a checkpoint of the pre-training, which "
            "has the generator too and of the same size, set the sizes of objective.generator to its own, or start a "
            "random one with --fresh_generator"
        )
    raise UserError(f"{source} holds no variable {list_briefly(missing)}; {hint}")


def list_briefly(texts: Iterable[str], separator: str = ", ") -> str:
    """The first few, and how many more there are."""
    texts = list(texts)
    more = len(texts) - _MOST_NAMES
    return separator.join(texts[:_MOST_NAMES]) + (f"{separator}and {more} more" if more > 0 else "")


def _mismatch(weight: StoredWeight, stored_shape: list[int]) -> str | None:
    """What is wrong with a shape and what to do; None if it fits."""
    shape = weight.variable.shape.as_list()
    if stored_shape == shape:
        return None
    found = f"{weight.name} has shape {stored_shape}, the model's is {shape}"
    same_columns = stored_shape[1:] == shape[1:] and len(shape) == 2
    if weight.name.endswith("position_embeddings") and same_columns:
        if stored_shape[0] > shape[0]:
            return None
        return f"{found}: too few positions; set encoder.max_position_embeddings to {stored_shape[0]} or less"
    if weight.name.endswith("word_embeddings") and same_columns:
        return f"{found}: the vocabularies differ in size; use data that was built with its vocabulary"
    return found
