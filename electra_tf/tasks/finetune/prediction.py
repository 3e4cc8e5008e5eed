"""Predicts new text with a fine-tuned model."""

import logging
import os

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.bucketing import fitting_batch_size
from electra_tf.data.tables import Table, read_table
from electra_tf.files import store_errors, write_atomically
from electra_tf.tasks.finetune.choices import read_choices
from electra_tf.tasks.finetune.class_report import class_table
from electra_tf.tasks.finetune.data import FinetuningStage, Outputs, TaskData
from electra_tf.tasks.finetune.glue import GLUE_TASKS, read_glue_texts
from electra_tf.tasks.finetune.multiple_choice import ChoiceData
from electra_tf.tasks.finetune.question_answering import QuestionData
from electra_tf.tasks.finetune.seeds import FinetunedModel
from electra_tf.tasks.finetune.sentence import SentenceData
from electra_tf.tasks.finetune.similarity import SimilarityData
from electra_tf.tasks.finetune.squad import read_questions
from electra_tf.tasks.finetune.summary import score_table
from electra_tf.tasks.finetune.tagged import read_words
from electra_tf.tasks.finetune.tagging import TaggingData
from electra_tf.tasks.finetune.text_examples import UNSTATED_COLUMNS, read_examples
from electra_tf.train.device_loop import Evaluator, StopRequest

logger = logging.getLogger(__name__)


def predict_file(
    model: FinetunedModel,
    input_file: str,
    output_file: str,
    text_columns: tuple[str, ...] | None,
    strategy: tf.distribute.Strategy,
    null_threshold: float | None = None,
    label_column: str | None = None,
) -> str:
    """Writes a model's predictions for the examples in a file, beside their labels if the file has them.

    Args:
        text_columns: the names of the columns with text; None for those of the training file.
        null_threshold: the answer is "" if the null odds are larger; None for the threshold in the settings.
        label_column: the column of the labels; None for that of the training file, which may be missing or empty.
    Returns: tables of the scores for the terminal; "" without labels.
    Raises: UserError: the input cannot be read or has a label that the model does not know, or the output cannot be
        written.
    """
    data = data_of(model, input_file, text_columns, label_column, null_threshold)
    if directory := os.path.dirname(output_file):  # fails now, not after hours of predictions
        with store_errors(f"--output_file={output_file}", "cannot be written"):
            tf.io.gfile.makedirs(directory)
    outputs = outputs_of(model, data, strategy)
    write_atomically(output_file, data.prediction_table(outputs))
    logger.info("wrote %s: %d predictions by %s", output_file, data.num_evaluated, model.source)
    if not data.has_labels:
        return ""
    reports = [class_table(report, input_file) for report in data.reports(outputs).values()]
    return "\n\n".join([score_table(model.config.name, data.primary_metric, data.metrics(outputs)), *reports])


def outputs_of(
    model: FinetunedModel, data: TaskData, strategy: tf.distribute.Strategy, evaluator: Evaluator | None = None
) -> Outputs:
    """Returns the model's outputs for the evaluated splits; empty if these have no rows. None: a new evaluator."""
    if not data.evaluation.num_rows:
        return {}
    # The model may come from training on fewer replicas.
    train = model.config.train
    size = model.config.evaluation.batch_size or train.batch_size // train.gradient_accumulation_steps
    size = fitting_batch_size(data.evaluation.num_rows, size)
    size += -size % (strategy.num_replicas_in_sync * model.config.rows_together)
    evaluation = model.config.evaluation.model_copy(update={"batch_size": size})
    config = model.config.model_copy(update={"evaluation": evaluation})
    stage = FinetuningStage(config, data, model.tokenizer, strategy)
    evaluator = evaluator or Evaluator(model.task, strategy, StopRequest(strategy))
    return stage.in_row_order(evaluator.evaluate(stage.evaluation_batches, stage.num_evaluation_batches).outputs)


def data_of(
    model: FinetunedModel,
    path: str | os.PathLike,
    text_columns: tuple[str, ...] | None,
    label_column: str | None,
    null_threshold: float | None,
) -> TaskData:
    """The data to predict from a file or a `Table`. Args, Raises: see `predict_file`."""
    config, tokenizer, kind = model.config, model.tokenizer, model.config.task.kind
    _require_fitting_columns(model, text_columns, label_column)
    if kind == "question_answering":
        return QuestionData(config, tokenizer, None, read_questions(path), path, null_threshold=null_threshold)
    if kind == "tagging":
        return TaggingData(config, tokenizer, None, read_words(path, config.task.labels))
    if kind == "multiple_choice":
        return ChoiceData(config, tokenizer, None, read_choices(path, may_lack_labels=True))
    task = GLUE_TASKS.get(config.name)
    if task is not None and (isinstance(path, Table) or os.fspath(path).lower().endswith((".tsv", ".parquet"))):
        examples = read_glue_texts(task, path, text_columns, label_column)
    else:
        table, label = read_table(path), label_column or config.task.label_column
        columns = text_columns or config.task.text_columns
        columns = columns or [name for name in UNSTATED_COLUMNS if name == "text" or name in table.columns]
        problem = "regression" if kind == "similarity" else kind
        if getattr(config.task, "is_contrastive", False):
            label = None
        known = ["-1"] if getattr(config.task, "min_value", 0.0) <= -1.0 else getattr(config.task, "labels", [])
        examples = read_examples(table, columns, label, problem, label_column is None, known)
    if kind == "similarity":
        return SimilarityData(config, tokenizer, None, examples, split=None)
    return SentenceData(config, tokenizer, None, {"input": examples})


def _require_fitting_columns(
    model: FinetunedModel, text_columns: tuple[str, ...] | None, label_column: str | None
) -> None:
    """Raises: UserError: the model reads no columns by these names, or another number of texts."""
    task, found = model.config.task, {"--text_columns": text_columns, "--label_column": label_column}
    read = ["--text_columns"] * hasattr(task, "text_columns")
    read += ["--label_column"] * (hasattr(task, "label_column") and not getattr(task, "is_contrastive", False))
    for flag, value in found.items():
        if value is not None and flag not in read:
            raise UserError(f"{flag} has no effect with {model.source}, a model of {task.kind}; remove it")
    if text_columns and task.text_columns and len(text_columns) != len(task.text_columns):
        raise UserError(
            f"--text_columns {' '.join(text_columns)}: {model.source} was trained with {len(task.text_columns)}, "
            f"{' and '.join(task.text_columns)}; give as many"
        )
