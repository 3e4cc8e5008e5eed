"""The files that GLUE's site takes: a TSV for each test set, and the zip of them."""

import io
import os
import zipfile
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import tensorflow as tf

from electra_tf.config.errors import UserError, first_line
from electra_tf.data.glue import GLUE_TASKS, GlueTask

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
