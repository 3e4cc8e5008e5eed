"""Predictions of a fine-tuned model for new text."""

import logging

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.squad import read_questions
from electra_tf.data.tables import TextExamples, read_examples
from electra_tf.data.tagged import read_words
from electra_tf.export.finetuned import Finetuned, load_finetuned, null_threshold
from electra_tf.runs.files import exists, write_atomically
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
    outputs = outputs_of(model, data, strategy)
    write_atomically(output_file, data.prediction_table(outputs))
    num_examples = int(data.evaluation.example_index[-1]) + 1
    logger.info("wrote %s: %d predictions by %s", output_file, num_examples, model.source)


def predict_texts(model: Finetuned, examples: TextExamples, strategy: tf.distribute.Strategy) -> list[str]:
    """The predicted label, or number, of each example."""
    data = SentenceData(model.config, model.tokenizer, None, {"input": examples}, score=None, primary_metric="")
    (predicted,) = data.predicted_texts(outputs_of(model, data, strategy)).values()
    return [text for _, text in predicted]


def outputs_of(model: Finetuned, data: TaskData, strategy: tf.distribute.Strategy) -> Outputs:
    """The model's outputs for the evaluated split of some data, in the order of its rows."""
    static = isinstance(strategy, tf.distribute.TPUStrategy)
    stage = FinetuningStage(model.config, data, model.tokenizer, b"", static_shapes=static)
    evaluator = Evaluator(model.task, strategy, StopRequest(strategy))
    batches: dict[str, list[np.ndarray]] = evaluator.evaluate(
        stage.evaluation_batches, len(stage.evaluation_order)
    ).outputs
    return stage.in_row_order(batches)


def _data_of(model: Finetuned, model_dir: str, path: str, text_columns: tuple[str, ...] | None) -> TaskData:
    config, tokenizer, kind = model.config, model.tokenizer, model.config.task.kind
    if kind == "question_answering":
        threshold = null_threshold(model_dir, config)
        return QuestionData(config, tokenizer, None, read_questions(path), path, null_threshold=threshold)
    if kind == "tagging":
        return TaggingData(config, tokenizer, None, read_words(path))
    columns = text_columns or config.task.text_columns
    examples = read_examples(path, columns, None, kind)
    return SentenceData(config, tokenizer, None, {"input": examples}, score=None, primary_metric="")
