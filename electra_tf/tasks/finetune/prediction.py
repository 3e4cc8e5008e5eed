"""Predictions of a fine-tuned model for new text."""

import logging
import os

import numpy as np
import tensorflow as tf

from electra_tf.files import store_errors, write_atomically
from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.tasks.finetune.data import FinetuningStage, Outputs, TaskData
from electra_tf.tasks.finetune.glue import GLUE_TASKS, read_glue_texts
from electra_tf.tasks.finetune.question_answering import QuestionData
from electra_tf.tasks.finetune.seeds import FinetunedModel
from electra_tf.tasks.finetune.sentence import SentenceData
from electra_tf.tasks.finetune.squad import read_questions
from electra_tf.tasks.finetune.tagged import read_words
from electra_tf.tasks.finetune.tagging import TaggingData
from electra_tf.tasks.finetune.text_examples import TextExamples, read_examples
from electra_tf.train.trainer import Evaluator, StopRequest

logger = logging.getLogger(__name__)


def predict_file(
    model: FinetunedModel,
    input_file: str,
    output_file: str,
    text_columns: tuple[str, ...] | None,
    strategy: tf.distribute.Strategy,
    null_threshold: float | None = None,
) -> None:
    """Writes what a model predicts for a file.

    Args:
        text_columns: of the file; None for those of the training file.
        null_threshold: null odds above which a question is left unanswered; None: that of the settings.
    Raises: UserError: if the input cannot be read.
    """
    data = _data_of(model, input_file, text_columns, null_threshold)
    if directory := os.path.dirname(output_file):  # now, and not after hours of predictions
        with store_errors(f"--output_file={output_file}", "cannot be written"):
            tf.io.gfile.makedirs(directory)
    outputs = outputs_of(model, data, strategy)
    write_atomically(output_file, data.prediction_table(outputs))
    logger.info("wrote %s: %d predictions by %s", output_file, data.num_evaluated, model.source)


def predict_texts(model: FinetunedModel, examples: TextExamples, strategy: tf.distribute.Strategy) -> list[str]:
    """The predicted label, or number, of each example."""
    data = SentenceData(model.config, model.tokenizer, None, {"input": examples}, score=None, primary_metric="")
    (predicted,) = data.predicted_texts(outputs_of(model, data, strategy)).values()
    return [text for _, text in predicted]


def outputs_of(model: FinetunedModel, data: TaskData, strategy: tf.distribute.Strategy) -> Outputs:
    """The model's outputs for the evaluated split of some data, in the order of its rows; none if it has no row."""
    if not data.evaluation.num_rows:
        return {}
    static = isinstance(strategy, tf.distribute.TPUStrategy)
    config = _with_divisible_batches(model.config, strategy.num_replicas_in_sync)
    stage = FinetuningStage(config, data, model.tokenizer, b"", static_shapes=static)
    evaluator = Evaluator(model.task, strategy, StopRequest(strategy))
    batches: dict[str, list[np.ndarray]] = evaluator.evaluate(
        stage.evaluation_batches, len(stage.evaluation_order)
    ).outputs
    return stage.in_row_order(batches)


def _with_divisible_batches(config: FinetuningConfig, num_replicas: int) -> FinetuningConfig:
    """With evaluation batches that may be larger: a model need not predict on the replicas it was trained on."""
    size = config.evaluation.batch_size or config.train.batch_size
    evaluation = config.evaluation.model_copy(update={"batch_size": size + -size % num_replicas})
    return config.model_copy(update={"evaluation": evaluation})


def _data_of(
    model: FinetunedModel, path: str, text_columns: tuple[str, ...] | None, null_threshold: float | None
) -> TaskData:
    config, tokenizer, kind = model.config, model.tokenizer, model.config.task.kind
    if kind == "question_answering":
        return QuestionData(config, tokenizer, None, read_questions(path), path, null_threshold=null_threshold)
    if kind == "tagging":
        return TaggingData(config, tokenizer, None, read_words(path))
    if config.name in GLUE_TASKS and path.lower().endswith(".tsv"):
        examples = read_glue_texts(GLUE_TASKS[config.name], path, text_columns)
    else:
        examples = read_examples(path, text_columns or config.task.text_columns, None, kind)
    return SentenceData(config, tokenizer, None, {"input": examples}, score=None, primary_metric="")
