"""Predicts new text with a fine-tuned model, and the test sets of GLUE's site."""

import io
import logging
import os
import zipfile
from collections.abc import Mapping, Sequence

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.bucketing import fitting_batch_size
from electra_tf.data.tables import tsv
from electra_tf.files import store_errors, write_atomically
from electra_tf.tasks.finetune.benchmarks import GLUE_TASKS, Benchmark, read_glue
from electra_tf.tasks.finetune.data import FinetuningStage, TaskData
from electra_tf.tasks.finetune.examples import Examples
from electra_tf.tasks.finetune.kind import NewColumns, Outputs
from electra_tf.tasks.finetune.kinds import KINDS
from electra_tf.tasks.finetune.scores import class_table
from electra_tf.tasks.finetune.seeds import FinetunedModel, Job, load_seed
from electra_tf.tasks.finetune.summary import best_seed, score_table
from electra_tf.train.device_loop import DeviceLoop

logger = logging.getLogger(__name__)

ZIP_FILE = "submission.zip"
_WNLI_MAJORITY = "0"

TestSets = dict[tuple[str, str], Examples]  # by task and test split
LeaderboardRows = Mapping[tuple[str, str], Sequence[tuple[str, str]]]  # by task and test split: id, label or number


def predict_file(
    model: FinetunedModel,
    input_file: str,
    output_file: str,
    text_columns: tuple[str, ...] | None,
    strategy: tf.distribute.Strategy,
    label_column: str | None = None,
) -> str:
    """Writes a model's predictions for the examples in a file, beside their labels if the file has them.

    Args:
        text_columns: the names of the columns with text; None for those of the training file.
        label_column: the column of the labels; None for that of the training file, which may be missing or empty.
    Returns: tables of the scores for the terminal; "" without labels.
    Raises: UserError: the input cannot be read or has a label that the model does not know, or the output cannot be
        written.
    """
    data = data_of(model, input_file, text_columns, label_column)
    if directory := os.path.dirname(output_file):  # fails now, not after hours of predictions
        with store_errors(f"--output_file={output_file}", "cannot be written"):
            tf.io.gfile.makedirs(directory)
    evaluated = data.evaluated(outputs_of(model, data, strategy))
    write_atomically(output_file, evaluated.table)
    logger.info("wrote %s: %d predictions by %s", output_file, data.num_evaluated, model.source)
    if not data.has_labels:
        return ""
    reports = [class_table(report, input_file) for report in evaluated.reports.values()]
    return "\n\n".join([score_table(model.config.name, data.primary_metric, evaluated.metrics), *reports])


def outputs_of(
    model: FinetunedModel, data: TaskData, strategy: tf.distribute.Strategy, loop: DeviceLoop | None = None
) -> Outputs:
    """Returns the model's outputs for the evaluated splits; empty if these have no rows. None: a new loop."""
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
    loop = loop or DeviceLoop(model.task, strategy)
    return stage.in_row_order(loop.evaluate(stage.evaluation_batches, stage.num_evaluation_batches).outputs)


def data_of(
    model: FinetunedModel,
    path: str | os.PathLike,
    text_columns: tuple[str, ...] | None = None,
    label_column: str | None = None,
) -> TaskData:
    """The data to predict from a file or a `Table`. Args, Raises: see `predict_file`."""
    task = model.config.task
    for name, value in (("text_columns", text_columns), ("label_column", label_column)):
        if value is not None and not hasattr(task, name):
            raise UserError(f"--{name} has no effect with {model.source}, a model of {task.kind}; remove it")
    if text_columns and task.text_columns and len(text_columns) != len(task.text_columns):
        raise UserError(
            f"--text_columns {' '.join(text_columns)}: {model.source} was trained with {len(task.text_columns)}, "
            f"{' and '.join(task.text_columns)}; give as many"
        )
    examples = KINDS[task.kind].read(path, model.config, NewColumns(text_columns, label_column))
    return TaskData(model.config, model.tokenizer, None, {"input": examples})


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
                data = TaskData(model.config, model.tokenizer, None, {split: test_sets[key]})
                rows = data.evaluated(outputs_of(model, data, job.strategy)).rows
                predictions[key] = [(row["id"], str(row["prediction"])) for row in rows]
    with store_errors(directory, "cannot be written"):
        tf.io.gfile.makedirs(directory)
    for file, content in submission_files(predictions).items():
        write_atomically(os.path.join(directory, file), content)
    logger.info("wrote %s; every row of WNLI has the majority label", directory)


def submission_files(predictions: LeaderboardRows) -> dict[str, bytes]:
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


def _predicted_by(name: str) -> list[Benchmark]:
    """The tasks whose test sets a model predicts: the model of MNLI also predicts the diagnostic set."""
    return [GLUE_TASKS[name], *([GLUE_TASKS["ax"]] if name == "mnli" else [])]


def _tsv(rows: Sequence[tuple[str, str]], task: Benchmark) -> bytes:
    if not task.labels:
        rows = [(name, f"{min(max(float(value), task.smallest), task.largest):.3f}") for name, value in rows]
    names = dict(zip(task.labels, task.tsv_labels, strict=False))
    rows = [(name, names.get(value, value)) for name, value in rows]
    return tsv([("index", "prediction"), *rows])
