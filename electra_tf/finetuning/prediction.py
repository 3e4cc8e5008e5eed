"""Predictions of a fine-tuned model for new text."""

import logging
import os

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.glue import GLUE_TASKS, read_glue_texts
from electra_tf.data.squad import read_questions
from electra_tf.data.tables import TextExamples, read_examples
from electra_tf.data.tagged import read_words
from electra_tf.export.finetuned import Finetuned, load_finetuned, null_threshold
from electra_tf.files import exists, store_errors, write_atomically
from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.tasks.finetune.data import FinetuningStage, Outputs, TaskData
from electra_tf.tasks.finetune.question_data import QuestionData
from electra_tf.tasks.finetune.sentence_data import SentenceData
from electra_tf.tasks.finetune.tagging_data import TaggingData
from electra_tf.train.trainer import Evaluator, StopRequest

logger = logging.getLogger(__name__)


def predict_file(
    model_dir: str,
    input_file: str,
    output_file: str,
    text_columns: tuple[str, ...] | None,
    strategy: tf.distribute.Strategy,
) -> None:
    """Writes what the model of a seed's directory predicts for a file.

    Args:
        text_columns: of the file; None for those of the training file.
    Raises: UserError: if the output exists, or the input or the model cannot be read.
    """
    if exists(output_file):
        raise UserError(f"--output_file={output_file} exists; give another name")
    with strategy.scope():
        model = load_finetuned(model_dir)
    data = _data_of(model, model_dir, input_file, text_columns)
    if directory := os.path.dirname(output_file):  # now, and not after hours of predictions
        with store_errors(f"--output_file={output_file}", "cannot be written"):
            tf.io.gfile.makedirs(directory)
    outputs = outputs_of(model, data, strategy)
    write_atomically(output_file, data.prediction_table(outputs))
    logger.info("wrote %s: %d predictions by %s", output_file, data.num_evaluated, model.source)


def predict_texts(model: Finetuned, examples: TextExamples, strategy: tf.distribute.Strategy) -> list[str]:
    """The predicted label, or number, of each example."""
    data = SentenceData(model.config, model.tokenizer, None, {"input": examples}, score=None, primary_metric="")
    (predicted,) = data.predicted_texts(outputs_of(model, data, strategy)).values()
    return [text for _, text in predicted]


def outputs_of(model: Finetuned, data: TaskData, strategy: tf.distribute.Strategy) -> Outputs:
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


def _data_of(model: Finetuned, model_dir: str, path: str, text_columns: tuple[str, ...] | None) -> TaskData:
    config, tokenizer, kind = model.config, model.tokenizer, model.config.task.kind
    if kind == "question_answering":
        threshold = null_threshold(model_dir, config)
        return QuestionData(config, tokenizer, None, read_questions(path), path, null_threshold=threshold)
    if kind == "tagging":
        return TaggingData(config, tokenizer, None, read_words(path))
    if config.name in GLUE_TASKS and path.lower().endswith(".tsv"):
        examples = read_glue_texts(GLUE_TASKS[config.name], path, text_columns)
    else:
        examples = read_examples(path, text_columns or config.task.text_columns, None, kind)
    return SentenceData(config, tokenizer, None, {"input": examples}, score=None, primary_metric="")
