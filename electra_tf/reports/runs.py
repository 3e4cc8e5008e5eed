"""Reads the results of runs, and groups the runs that differ only in their seed."""

import json
import logging
import math
import os
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from electra_tf.config.errors import UserError
from electra_tf.files import read_json
from electra_tf.flops.budget import RunCost
from electra_tf.tasks.finetune.summary import score_file
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config
from electra_tf.train.run_directory import lasting_settings, run_in

logger = logging.getLogger(__name__)


def score_metric(task: str) -> str:
    """The metric that holds a run's scores after fine-tuning on a task."""
    return f"{task}, fine-tuned"


@dataclass(frozen=True)
class RunResults:
    """The results of one run.

    Attributes:
        name: the name of its directory.
        metrics: held-out metrics by step (ascending), then by name, without null values.
        data: the data set of each input stage; None if the directory does not record it.
        init_from: the source of the initial weights; None: random.
        scores: one score for each fine-tuning seed, by metric (see `score_metric`), then by step.
    """

    name: str
    config: PretrainingConfig[Any]
    metrics: dict[int, dict[str, float]]
    data: list[str] | None = None
    init_from: str | None = None
    scores: dict[str, dict[int, tuple[float, ...]]] = field(default_factory=dict)

    @cached_property
    def cost(self) -> RunCost:
        return RunCost(self.config)

    @property
    def last_step(self) -> int:
        return max(self.metrics)

    def values(self, metric: str) -> dict[int, tuple[float, ...]]:
        """The values of a metric by step: a single one, or the scores of all fine-tuning seeds."""
        if metric in self.scores:
            return self.scores[metric]
        return {step: (values[metric],) for step, values in self.metrics.items() if metric in values}


def read_run(model_dir: str | os.PathLike[str], task: str | None = None) -> RunResults:
    """Reads a run's directory, finished or not.

    Args:
        task: also read the scores after fine-tuning on this task.
    Raises: UserError: there is no run in the directory.
    """
    directory = run_in(model_dir)
    metrics: dict[int, dict[str, float]] = {}
    for report in directory.reports("held_out"):
        values = {name: value for name, value in report.items() if name != "split" and value is not None}
        metrics.setdefault(values.pop("step"), {}).update(values)
    scores = {}
    if task is not None and (rows := read_json(score_file(model_dir, task)).get("results")):
        scores = {score_metric(task): scores_by_step(rows)}
    return RunResults(
        name=os.path.basename(directory.path.rstrip("/")),
        config=load_config(directory.settings_file),
        metrics=dict(sorted(metrics.items())),
        data=read_json(directory.data_file).get("data"),
        init_from=read_json(directory.warm_start_file).get("init_from"),
        scores=scores,
    )


def scores_by_step(rows: Sequence[Mapping[str, Any]]) -> dict[int, tuple[float, ...]]:
    """The scores in the rows of `milestone_scores`: one for each seed, NaN where it has no value."""
    return {
        int(row["step"]): tuple(math.nan if value is None else float(value) for value in row["scores"].values())
        for row in rows
    }


def read_runs(model_dirs: Iterable[str | os.PathLike[str]], task: str | None = None) -> list[RunResults]:
    """Reads runs. Skips runs without an evaluation or scores, with a warning.

    Args:
        task: read the runs with scores after fine-tuning on this task; None: the runs with an evaluation.
    Raises: UserError: there is no run in a directory, or no run is left.
    """
    lacking = "an evaluation" if task is None else f"scores of {task}"
    runs = []
    for model_dir in model_dirs:
        run = read_run(model_dir, task)
        if run.metrics if task is None else run.scores:
            runs.append(run)
        else:
            logger.warning("%s is skipped: it lacks %s", model_dir, lacking)
    if not runs:
        remedy = "" if task is None else f"; get them with electra-tf finetune --milestones --task={task}"
        raise UserError(f"nothing to report: all runs lack {lacking}{remedy}")
    return runs


class Point(NamedTuple):
    """Median and range of one metric at one step, over all runs of a group and their fine-tuning seeds."""

    step: int
    median: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ only in their seed, and so have the same cost."""

    label: str
    runs: tuple[RunResults, ...]

    @property
    def cost(self) -> RunCost:
        return self.runs[0].cost

    @property
    def seeds(self) -> list[int]:
        return sorted(run.config.train.seed for run in self.runs)

    @property
    def last_step(self) -> int:
        """The last step that all runs have reached."""
        return min(run.last_step for run in self.runs)

    def points(self, metric: str) -> list[Point]:
        """The metric at every step where all runs have a finite value."""
        by_step = {step: self.values(metric, step) for step in self.runs[0].values(metric)}
        return [
            Point(step, statistics.median(values), min(values), max(values))
            for step, values in sorted(by_step.items())
            if values and all(map(math.isfinite, values))
        ]

    def values(self, metric: str, step: int) -> list[float]:
        """All runs' values of a metric at a step; empty if a run has none."""
        by_run = [run.values(metric).get(step, ()) for run in self.runs]
        return [value for values in by_run for value in values] if all(by_run) else []

    def last(self, metric: str) -> Point | None:
        """The metric at the last step; None if it has no value there."""
        return next((point for point in self.points(metric) if point.step == self.last_step), None)


def group_runs(runs: Iterable[RunResults]) -> list[RunGroup]:
    """Groups runs that differ only in their seed, in the order of each group's first run.

    Runs of a group have the same data, initial weights, and settings that affect the weights. A group's label is the
    common beginning of the names of its directories, without the seed at the end. The names, or if these are equal
    too a number, follow equal labels.

    Raises: UserError: two runs of a group have the same seed.
    """
    groups: dict[str, list[RunResults]] = {}
    for run in runs:
        settings = lasting_settings(type(run.config), run.config.model_dump(mode="json"))
        settings.pop("train.seed")
        groups.setdefault(json.dumps([settings, run.data, run.init_from], sort_keys=True), []).append(run)
    names, labels = [", ".join(run.name for run in members) for members in groups.values()], []
    for members, named in zip(groups.values(), names, strict=True):
        if len({run.config.train.seed for run in members}) < len(members):
            raise UserError(f"two of the runs {named} have the same configuration and seed; give each run once")
        # Only the run's own seed is removed: the number of electra_15 stays.
        seedless = [re.sub(rf"[-_.](seed[-_.]?)?{run.config.train.seed}$", "", run.name) for run in members]
        labels.append(os.path.commonprefix(seedless).rstrip("-_.") or members[0].name)
    for additions in (names, range(1, len(groups) + 1)):
        pairs = zip(labels, additions, strict=True)
        labels = [f"{label} ({addition})" if labels.count(label) > 1 else label for label, addition in pairs]
    return [RunGroup(label, tuple(members)) for label, members in zip(labels, groups.values(), strict=True)]
