"""Predictions for GLUE's test sets by the best seed of each task, as the site takes them."""

import logging
import os

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.glue import GLUE_TASKS, read_glue
from electra_tf.finetuning.finetuned import load_finetuned
from electra_tf.finetuning.prediction import predict_texts
from electra_tf.finetuning.summary import best_seed
from electra_tf.tasks.finetune.submission import RowPredictions, write_submission

logger = logging.getLogger(__name__)


def submit(
    summaries: dict[str, dict],
    directories: dict[str, str],
    data_dir: str,
    output_dir: str,
    strategy: tf.distribute.Strategy,
) -> None:
    """Writes `submission/` with the files of GLUE's site. The dev set chooses the seed; the test sets choose nothing.

    Args:
        summaries: of the tasks that were fine-tuned, by name.        directories: of these tasks, alike.
    Raises: UserError: if a test set is missing, or a seed's checkpoint was not kept.
    """
    predictions: dict[tuple[str, str], RowPredictions] = {}
    for name, summary in summaries.items():
        if name not in GLUE_TASKS:
            raise UserError(f"--submission is for GLUE tasks, not for {name}")
        seed = best_seed(summary)
        with strategy.scope():
            model = load_finetuned(os.path.join(directories[name], f"seed_{seed}"))
        logger.info("%s: the test set is predicted by seed %d, the best on the dev set", name, seed)
        # The diagnostic set is predicted by the model of MNLI.
        for task in (GLUE_TASKS[name], *([GLUE_TASKS["ax"]] if name == "mnli" else [])):
            for split in task.leaderboard:
                examples = read_glue(task, data_dir, split)
                values = predict_texts(model, examples, strategy)
                predictions[task.name, split] = RowPredictions(examples.ids, values)
    directory = os.path.join(output_dir, "submission")
    for remark in write_submission(directory, predictions, "majority"):
        logger.warning(remark)
    logger.info("wrote %s; WNLI is its majority label throughout", directory)
