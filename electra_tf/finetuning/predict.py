"""Predicts new text with a fine-tuned model."""

import logging
import os
from typing import Any

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.bucketing import fitting_batch_size
from electra_tf.files import make_directory, store_errors, write_atomically
from electra_tf.tasks.finetune.data import FinetuningStage, TaskData
from electra_tf.tasks.finetune.examples import DataFile, NewColumns
from electra_tf.tasks.finetune.kind import Outputs
from electra_tf.tasks.finetune.kinds import KINDS
from electra_tf.tasks.finetune.scores import class_table
from electra_tf.tasks.finetune.summary import score_table
from electra_tf.train.device_loop import DeviceLoop
from electra_tf.weights.stored_model import StoredModel

logger = logging.getLogger(__name__)


def predict_file(
    model: StoredModel,
    input_file: str,
    output_file: str,
    text_columns: tuple[str, ...] | None,
    strategy: tf.distribute.Strategy,
    label_column: str | None = None,
) -> str:
    """Writes a model's predictions for the examples in a file, beside their labels if the file has them.

    Args:
        model: read under the scope of `strategy`.
        text_columns: the names of the columns with text; None for those of the training file.
        label_column: the column of the labels; None for that of the training file, which may be missing or empty.
    Returns: tables of the scores for the terminal; "" without labels.
    Raises: UserError: the model is not fine-tuned, the input cannot be read or has a label that the model does not
        know, or the output cannot be written.
    """
    data = data_of(model, input_file, text_columns, label_column)
    if directory := os.path.dirname(output_file):  # fails now, not after hours of predictions
        with store_errors(f"output_file={output_file}", "cannot be written"):
            make_directory(directory)
    evaluated = data.evaluated(outputs_of(model, data, strategy))
    write_atomically(output_file, evaluated.table)
    logger.info("wrote %s: %d predictions by %s", output_file, len(evaluated.rows), model.source)
    if data.splits[0].examples.labels is None:
        return ""
    reports = [class_table(report, input_file) for report in evaluated.reports.values()]
    return "\n\n".join([score_table(data.config.name, data.primary_metric, evaluated.metrics), *reports])


def outputs_of(
    model: StoredModel, data: TaskData, strategy: tf.distribute.Strategy, loop: DeviceLoop[Any] | None = None
) -> Outputs:
    """Returns the model's outputs for the evaluated splits; empty if these have no rows. None: a new loop."""
    if not data.evaluation.num_rows:
        return {}
    # The model may come from training on fewer replicas.
    config, train = data.config, data.config.train
    size = config.evaluation.batch_size or train.batch_size // train.gradient_accumulation_steps
    size = fitting_batch_size(data.evaluation.num_rows, size)
    size += -size % (strategy.num_replicas_in_sync * config.rows_together)
    config = config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"batch_size": size})})
    stage = FinetuningStage(config, data, model.tokenizer, strategy)
    if loop is None:
        with strategy.scope():
            loop = DeviceLoop(model.build_task(), strategy)
    evaluation = loop.evaluate(stage)
    assert evaluation is not None  # nothing stops it
    return stage.in_row_order(evaluation.outputs)


def data_of(
    model: StoredModel,
    path: DataFile,
    text_columns: tuple[str, ...] | None = None,
    label_column: str | None = None,
) -> TaskData:
    """The data that a model is to predict, from a file or a `Table`. Args, Raises: see `predict_file`."""
    if model.finetuned is None:
        raise UserError(f"{model.source} is not fine-tuned; give the directory of a fine-tuned seed, OUTPUT/seed_0")
    task = model.finetuned.task
    for name, value in (("text_columns", text_columns), ("label_column", label_column)):
        if value is not None and not hasattr(task, name):
            raise UserError(f"{name} has no effect with {model.source}, a model of {task.kind}; remove it")
    of_training = getattr(task, "text_columns", ())
    if text_columns and of_training and len(text_columns) != len(of_training):
        raise UserError(
            f"text_columns {' '.join(text_columns)}: {model.source} was trained with {len(of_training)}, "
            f"{' and '.join(of_training)}; give as many"
        )
    examples = KINDS[task.kind].read(path, model.finetuned, NewColumns(text_columns, label_column))
    return TaskData(model.finetuned, model.tokenizer, None, {"input": examples})
