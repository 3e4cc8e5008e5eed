"""The files for GLUE's site: a TSV file of predictions for each test set, and a zip of them."""

import io
import logging
import os
import zipfile
from collections.abc import Mapping, Sequence

import tensorflow as tf

from electra_tf.data.tables import tsv
from electra_tf.files import store_errors, write_atomically
from electra_tf.tasks.finetune.glue import GLUE_TASKS, GlueTask, read_glue
from electra_tf.tasks.finetune.prediction import outputs_of
from electra_tf.tasks.finetune.seeds import Job, load_seed
from electra_tf.tasks.finetune.sentence import SentenceData
from electra_tf.tasks.finetune.summary import best_seed
from electra_tf.tasks.finetune.text_examples import TextExamples

logger = logging.getLogger(__name__)

ZIP_FILE = "submission.zip"
_WNLI_MAJORITY = "0"

TestSets = dict[tuple[str, str], TextExamples]  # by task and test split
Predictions = Mapping[tuple[str, str], Sequence[tuple[str, str]]]  # ids with labels or numbers


def read_test_sets(names: Sequence[str], data_dir: str) -> TestSets:
    """Reads the test sets for the models of these tasks. Raises: UserError: one is missing."""
    tasks = [task for name in names for task in _predicted_by(name)]
    return {(task.name, split): read_glue(task, data_dir, split) for task in tasks for split in task.leaderboard}


def write_submission(jobs: Mapping[str, Job], summaries: Sequence[dict], test_sets: TestSets, directory: str) -> None:
    """Predicts each test set with the model of the best seed on the dev set, and writes the files for GLUE's site.

    Args:
        jobs: the finished jobs, by task.
        summaries: the summaries of the same tasks.
        test_sets: the result of `read_test_sets`.
    Raises: UserError: a seed's checkpoint was not kept, or the directory cannot be written.
    """
    predictions = {}
    for summary in summaries:
        job, seed = jobs[summary["task"]], best_seed(summary)
        model = load_seed(job, seed)
        logger.info("%s: seed %d, the best on the dev set, predicts the test set", job.config.name, seed)
        for task in _predicted_by(job.config.name):
            for split in task.leaderboard:
                key = task.name, split
                data = SentenceData(model.config, model.tokenizer, None, {split: test_sets[key]})
                predictions[key] = data.predicted_labels(outputs_of(model, data, job.strategy))
    with store_errors(directory, "cannot be written"):
        tf.io.gfile.makedirs(directory)
    for file, content in submission_files(predictions).items():
        write_atomically(os.path.join(directory, file), content)
    logger.info("wrote %s; every row of WNLI has the majority label", directory)


def submission_files(predictions: Predictions) -> dict[str, bytes]:
    """Returns the content of the TSV files, and of the zip with all of them, by file name.

    WNLI gets its majority label in all rows, even without predictions. The accuracy is 65.1 %, more than plain
    classifiers reach, because WNLI's test set contradicts its training set. A warning names missing files and files
    with a wrong number of rows, which the site would refuse.
    """
    _, num_rows = GLUE_TASKS["wnli"].leaderboard["test"]
    ids = [name for name, _ in predictions.get(("wnli", "test"), ())] or list(map(str, range(num_rows)))
    predictions = {**predictions, ("wnli", "test"): [(name, _WNLI_MAJORITY) for name in ids]}
    contents, missing = {}, []
    for task in GLUE_TASKS.values():
        for split, (file, num_rows) in task.leaderboard.items():
            if (task.name, split) not in predictions:
                missing.append(file)
                continue
            rows = predictions[task.name, split]
            contents[file] = _tsv(rows, task)
            if len(rows) != num_rows:
                logger.warning("%s has %d rows, the site's test set has %d", file, len(rows), num_rows)
    if missing:
        logger.warning("the site accepts only all eleven files; missing: %s", ", ".join(missing))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for file, content in contents.items():
            archive.writestr(file, content, zipfile.ZIP_DEFLATED)
    return contents | {ZIP_FILE: stream.getvalue()}


def _predicted_by(name: str) -> list[GlueTask]:
    """The tasks whose test sets a model predicts: the model of MNLI also predicts the diagnostic set."""
    return [GLUE_TASKS[name], *([GLUE_TASKS["ax"]] if name == "mnli" else [])]


def _tsv(rows: Sequence[tuple[str, str]], task: GlueTask) -> bytes:
    if task.problem == "regression":
        rows = [(name, f"{min(max(float(value), task.smallest), task.largest):.3f}") for name, value in rows]
    return tsv([("index", "prediction"), *rows])
