"""From the directory of a run to the model that is served: what it was trained for decides."""

import os
from typing import Literal

from electra_tf.config.errors import UserError
from electra_tf.export.answering_model import AnsweringModel
from electra_tf.export.sentence_model import SentenceModel
from electra_tf.export.served_model import ServedModel, ServingShapes
from electra_tf.export.tagging_model import TaggingModel
from electra_tf.export.text_encoder import TextEncoder
from electra_tf.runs.directory import run_in
from electra_tf.runs.restore import load_tokenizer
from electra_tf.tasks.finetune.seeds import FinetunedModel
from electra_tf.weights.run import load_finetuned, load_objective, null_threshold

Precision = Literal["float32", "bfloat16"]


def load_served_model(
    model_dir: str | os.PathLike,
    max_seq_length: int | None = None,
    batch_size: int | None = None,
    pad_to_max_length: bool = False,
    precision: Precision | None = None,
) -> ServedModel:
    """The model of a pre-training run, or of a seed's directory of fine-tuning.

    Args:
        max_seq_length: None for the run's own.        batch_size, pad_to_max_length: as of `ServingShapes`.
        precision: of products and activations; None for the run's own.
    Raises: UserError: if there is no such run, no whole checkpoint in it, or a length that it does not allow.
    """
    if batch_size is not None and batch_size < 1:
        raise UserError(f"--batch_size={batch_size}: expected 1 or more, or no such flag for any number of texts")
    model = load_finetuned(model_dir, precision=precision) if run_in(model_dir).is_finetuned else None
    task = model.task if model else load_objective(model_dir, precision=precision)
    longest = task.config.data.max_seq_length if max_seq_length is None else max_seq_length
    shapes = ServingShapes(longest, batch_size, pad_to_max_length)
    if model is None:
        return TextEncoder(task, load_tokenizer(model_dir), shapes)
    return _finetuned(model, shapes, model_dir)


def _finetuned(model: FinetunedModel, shapes: ServingShapes, model_dir: str | os.PathLike) -> ServedModel:
    arguments = model.task, model.tokenizer, shapes
    kind = model.config.task.kind
    if kind == "question_answering":
        return AnsweringModel(*arguments, null_threshold(model_dir, model.config))
    return TaggingModel(*arguments) if kind == "tagging" else SentenceModel(*arguments)
