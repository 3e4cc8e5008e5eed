"""Reads the results of runs: from their directories, or from their records."""

import logging
import os
from collections.abc import Iterable
from dataclasses import replace

from electra_tf.config.errors import UserError
from electra_tf.files import read_json
from electra_tf.reports.records import is_record, read_record
from electra_tf.reports.runs import RunResults, score_metric
from electra_tf.reports.scores import read_scores
from electra_tf.runs.directory import run_in
from electra_tf.runs.reported_lines import reports_of
from electra_tf.tasks.pretrain.config import load_config

logger = logging.getLogger(__name__)


def read_runs(model_dirs: Iterable[str | os.PathLike]) -> list[RunResults]:
    """Reads runs, finished or not; one that has not been evaluated yet is left out with a warning.

    Raises: UserError: if a directory holds no run, or none of them was evaluated yet.
    """
    runs = []
    for model_dir in map(os.fspath, model_dirs):
        run = read_run(model_dir)
        if run.metrics:
            runs.append(run)
        else:
            logger.warning("%s is left out: it holds no evaluation yet", model_dir)
    if not runs:
        raise UserError("none of the runs holds an evaluation yet; let one reach its first")
    return runs


def read_scored_runs(model_dirs: Iterable[str | os.PathLike], task: str) -> list[RunResults]:
    """Reads runs with their scores after fine-tuning on a task; a run without them is left out with a warning.

    Raises: UserError: if a directory holds no run, or none of them was fine-tuned on the task.
    """
    runs = []
    for model_dir in map(os.fspath, model_dirs):
        run, metric = read_run(model_dir), score_metric(task)
        scores = run.scores.get(metric, {}) if is_record(model_dir) else read_scores(model_dir, task)
        if scores:
            runs.append(replace(run, scores={metric: scores}))
        else:
            logger.warning("%s is left out: it holds no scores of %s", model_dir, task)
    if not runs:
        raise UserError(
            f"none of the runs was fine-tuned on {task}; run_finetuning.py --milestones --task={task} does that"
        )
    return runs


def read_run(model_dir: str | os.PathLike) -> RunResults:
    """Reads a run's directory, finished or not, or its record. Raises: UserError: if it holds no run."""
    if is_record(model_dir):
        return read_record(model_dir)
    directory = run_in(model_dir)
    metrics: dict[int, dict[str, float]] = {}
    for report in reports_of(directory.metrics_file, "held_out"):
        values = {name: value for name, value in report.items() if name != "split" and value is not None}
        for name, value in values.items():
            if not isinstance(value, int | float):
                raise UserError(f"{directory.metrics_file} has {name} {value!r}; expected a number; copy the run again")
        metrics.setdefault(values.pop("step"), {}).update(values)
    return RunResults(
        name=os.path.basename(directory.path.rstrip("/")),
        config=load_config(directory.config_file),
        metrics=dict(sorted(metrics.items())),
        data=read_json(directory.data_file).get("data"),
        init_from=read_json(directory.warm_start_file).get("init_from"),
    )
