"""Writes a trained model in any format."""

import os

from electra_tf.config.errors import UserError
from electra_tf.files import UNFINISHED, names_in, written_whole
from electra_tf.weights.hugging_face.sentence_transformers import write_sentence_transformers
from electra_tf.weights.hugging_face.writer import write_bert, write_hugging_face
from electra_tf.weights.stored_model import StoredModel
from electra_tf.weights.tf1 import write_tf1

_WRITERS = {
    "hugging_face": write_hugging_face,
    "bert": write_bert,
    "sentence_transformers": write_sentence_transformers,
    "tf1": write_tf1,
}


def require_empty(output_dir: str) -> None:
    """Raises: UserError: the directory has files."""
    if set(names_in(output_dir or ".")) - {UNFINISHED}:
        raise UserError(f"output_dir={output_dir} is not empty; give a new directory")


def write_model(model: StoredModel, format: str, output_dir: str | os.PathLike[str]) -> list[str]:
    """Writes a model to a new or empty directory, which stays as it was if that fails.

    Args:
        format: one of `electra_tf.weights.FORMATS`.
    Returns: lines for the log: what was written, and facts that its users need.
    Raises: UserError: the directory is not empty or cannot be written, or the format cannot hold the model.
    """
    output_dir = os.fspath(output_dir)
    if format in ("bert", "tf1") and (block := model.encoder.block) != "bert":
        raise UserError(f"{model.source} has encoder.block {block}, and {format} has no such network")
    require_empty(output_dir)
    with written_whole(output_dir) as place:
        lines = _WRITERS[format](model, place)
    if model.pooling != "mean" and format != "sentence_transformers":
        lines.append(f"warning: {format} does not keep the pooling of the source, {model.pooling}")
    return [line.replace(place, output_dir.rstrip("/")) for line in lines]
