"""Predictions for GLUE's test sets by the best seed of each task, as the site takes them."""

import logging
import os
from collections.abc import Sequence

import tensorflow as tf

from electra_tf.data.glue import GLUE_TASKS, GlueTask, read_glue
from electra_tf.data.tables import TextExamples
from electra_tf.export.finetuned import load_finetuned
from electra_tf.finetuning.prediction import predict_texts
from electra_tf.finetuning.summary import best_seed
from electra_tf.tasks.finetune.submission import RowPredictions, write_submission

logger = logging.getLogger(__name__)


TestSets = dict[tuple[str, str], TextExamples]  # by task and split


def read_test_sets(names: Sequence[str], data_dir: str) -> TestSets:
    """The test sets that the models of these tasks predict. Raises: UserError: if one is missing."""
    tasks = [task for name in names for task in _predicted_by(name)]
    return {(task.name, split): read_glue(task, data_dir, split) for task in tasks for split in task.leaderboard}


def _predicted_by(name: str) -> list[GlueTask]:
    """The tasks whose test sets the model of a task predicts: of MNLI's the diagnostic set too."""
    return [GLUE_TASKS[name], *([GLUE_TASKS["ax"]] if name == "mnli" else [])]


def submit(
    summaries: dict[str, dict],
    directories: dict[str, str],
    test_sets: TestSets,
    output_dir: str,
    strategy: tf.distribute.Strategy,
) -> None:
    """Writes `submission/` with the files of GLUE's site. The dev set chooses the seed; the test sets choose nothing.

    Args:
        summaries: of the tasks that were fine-tuned, by name.        directories: of these tasks, alike.
        test_sets: of `read_test_sets`.
    Raises: UserError: if a seed's checkpoint was not kept.
    """
    predictions: dict[tuple[str, str], RowPredictions] = {}
    for name, summary in summaries.items():
        seed = best_seed(summary)
        with strategy.scope():
            model = load_finetuned(os.path.join(directories[name], f"seed_{seed}"))
        logger.info("%s: the test set is predicted by seed %d, the best on the dev set", name, seed)
        for task in _predicted_by(name):
            for split in task.leaderboard:
                examples = test_sets[task.name, split]
                values = predict_texts(model, examples, strategy)
                predictions[task.name, split] = RowPredictions(examples.ids, values)
    directory = os.path.join(output_dir, "submission")
    for remark in write_submission(directory, predictions, "majority"):
        logger.warning(remark)
    logger.info("wrote %s; WNLI is its majority label throughout", directory)
