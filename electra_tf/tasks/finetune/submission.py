"""Predictions for GLUE's test sets by the best seed of each task: the files that its site takes."""

import io
import logging
import os
import zipfile
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import tensorflow as tf

from electra_tf.config.errors import UserError, first_line
from electra_tf.tasks.finetune.glue import GLUE_TASKS, GlueTask, read_glue
from electra_tf.tasks.finetune.prediction import predict_texts
from electra_tf.tasks.finetune.seeds import Job, load_seed
from electra_tf.tasks.finetune.summary import best_seed
from electra_tf.tasks.finetune.text_examples import TextExamples

ZIP_FILE = "submission.zip"
_WNLI_MAJORITY = "0"
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)  # zip's first; equal predictions give equal bytes


class RowPredictions(NamedTuple):
    """What a model says of the rows of a test set.

    Attributes:
        ids: of the rows, as the test file calls them.
        values: a label for each row, as `GlueTask.labels` writes it; of STS-B a number, also as a text.
    """

    ids: Sequence[str]
    values: Sequence[str] | Sequence[float]


def write_submission(
    directory: str | os.PathLike,
    predictions: Mapping[tuple[str, str], RowPredictions],
    wnli: Literal["majority", "predictions"] = "majority",
) -> list[str]:
    """Writes the TSV of each test set that there are predictions for, and all of them as `submission.zip`.

    Args:
        directory: is made if there is none.
        predictions: by task and test split, ("mnli", "test_matched") say; the MNLI model predicts ("ax", "test").
        wnli: "majority" writes the label "0" in all rows of WNLI, also without predictions of it: 65.1 % accuracy, more
            than plain classifiers reach, since WNLI contradicts its own training split; "predictions" writes them.
    Returns: what the user should know: the files that are missing, and those of another number of rows than the site's
        test sets have; the site takes neither.
    Raises: UserError: the directory cannot be written.
    """
    predictions = dict(predictions)
    if wnli == "majority":
        predictions["wnli", "test"] = _majority_of_wnli(predictions.get(("wnli", "test")))
    contents, remarks, missing = {}, [], []
    for task in GLUE_TASKS.values():
        for split, (file, num_rows) in task.leaderboard.items():
            if (task.name, split) not in predictions:
                missing.append(file)
                continue
            rows = predictions[task.name, split]
            contents[file] = _tsv(rows, task)
            if len(rows.ids) != num_rows:
                remarks.append(f"{file} has {len(rows.ids)} rows, the site's test set {num_rows}")
    if missing:
        remarks.append(f"the site wants all eleven files; missing: {', '.join(missing)}")
    try:
        _write_all(os.fspath(directory), contents | {ZIP_FILE: _zip(contents)})
    except tf.errors.OpError as error:
        raise UserError(f"cannot write the submission: {first_line(error)}; give another directory") from None
    return remarks


def _majority_of_wnli(predicted: RowPredictions | None) -> RowPredictions:
    _, num_rows = GLUE_TASKS["wnli"].leaderboard["test"]
    ids = [str(row) for row in range(num_rows)] if predicted is None else predicted.ids
    return RowPredictions(ids, [_WNLI_MAJORITY] * len(ids))


def _tsv(rows: RowPredictions, task: GlueTask) -> bytes:
    lines = ["index\tprediction"]
    for name, value in zip(rows.ids, rows.values, strict=True):
        if task.problem == "regression":
            value = f"{min(max(float(value), task.smallest), task.largest):.3f}"
        lines.append(f"{name}\t{value}")
    return ("\n".join(lines) + "\n").encode()


def _zip(contents: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for file, content in contents.items():
            archive.writestr(zipfile.ZipInfo(file, _ZIP_DATE), content, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def _write_all(directory: str, contents: Mapping[str, bytes]) -> None:
    tf.io.gfile.makedirs(directory)
    for file, content in contents.items():
        with tf.io.gfile.GFile(os.path.join(directory, file), "wb") as stream:
            stream.write(content)


logger = logging.getLogger(__name__)


TestSets = dict[tuple[str, str], TextExamples]  # by task and split


def read_test_sets(names: Sequence[str], data_dir: str) -> TestSets:
    """The test sets that the models of these tasks predict. Raises: UserError: if one is missing."""
    tasks = [task for name in names for task in _predicted_by(name)]
    return {(task.name, split): read_glue(task, data_dir, split) for task in tasks for split in task.leaderboard}


def _predicted_by(name: str) -> list[GlueTask]:
    """The tasks whose test sets the model of a task predicts: of MNLI's the diagnostic set too."""
    return [GLUE_TASKS[name], *([GLUE_TASKS["ax"]] if name == "mnli" else [])]


def submit(jobs: Mapping[str, Job], summaries: Mapping[str, dict], test_sets: TestSets, output_dir: str) -> None:
    """Writes `submission/` with the files of GLUE's site. The dev set chooses the seed; the test sets choose nothing.

    Args:
        jobs, summaries: of the tasks that were fine-tuned, by name.
        test_sets: of `read_test_sets`.
    Raises: UserError: if a seed's checkpoint was not kept.
    """
    predictions: dict[tuple[str, str], RowPredictions] = {}
    for name, summary in summaries.items():
        seed = best_seed(summary)
        model = load_seed(jobs[name], seed)
        logger.info("%s: the test set is predicted by seed %d, the best on the dev set", name, seed)
        for task in _predicted_by(name):
            for split in task.leaderboard:
                examples = test_sets[task.name, split]
                values = predict_texts(model, examples, jobs[name].strategy)
                predictions[task.name, split] = RowPredictions(examples.ids, values)
    directory = os.path.join(output_dir, "submission")
    for remark in write_submission(directory, predictions, "majority"):
        logger.warning(remark)
    logger.info("wrote %s; WNLI is its majority label throughout", directory)
