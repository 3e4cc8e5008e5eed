"""Results of runs, read from their directories; runs that differ in their seed only are one group."""

import json
import logging
import math
import os
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from electra_tf.config.errors import UserError
from electra_tf.files import read_json
from electra_tf.flops.budget import RunCost, known_cost
from electra_tf.runs.directory import lasting_settings, run_in
from electra_tf.runs.json_lines import reports_of
from electra_tf.tasks.finetune.summary import score_file
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config

logger = logging.getLogger(__name__)

_FINETUNED = "finetuned_"


def score_metric(task: str) -> str:
    """The name among a run's metrics of its score after fine-tuning on a task."""
    return f"{_FINETUNED}{task}"


def finetuned_task(metric: str) -> str | None:
    """The task whose score a metric is; None for another metric."""
    return metric.removeprefix(_FINETUNED) if metric.startswith(_FINETUNED) else None


@dataclass(frozen=True)
class RunResults:
    """The results of one run.

    Attributes:
        name: the name of its directory.
        metrics: held-out metrics by step, in rising order, then by name; without metrics that have no value.
        data: the data set of each input stage; None if the directory does not record it.
        init_from: the source of the initial weights; None: random.
        scores: by the names that `score_metric` gives, then by step: one score for each seed of fine-tuning.
        notes: further JSON values; empty for a run that was read from its directory.
    """

    name: str
    config: PretrainingConfig
    metrics: dict[int, dict[str, float]]
    data: list[str] | None = None
    init_from: str | None = None
    scores: dict[str, dict[int, tuple[float, ...]]] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def cost(self) -> RunCost | None:
        """None for an objective that does not describe its steps."""
        return known_cost(self.config)

    @property
    def last_step(self) -> int:
        return max(self.metrics)

    def values(self, metric: str) -> dict[int, tuple[float, ...]]:
        """The values of a metric by step: one, or for scores one for each seed of fine-tuning."""
        if metric in self.scores:
            return self.scores[metric]
        return {step: (values[metric],) for step, values in self.metrics.items() if metric in values}


def read_run(model_dir: str | os.PathLike) -> RunResults:
    """Reads a run's directory, finished or not. Raises: UserError: if it holds no run."""
    directory = run_in(model_dir)
    metrics: dict[int, dict[str, float]] = {}
    for report in reports_of(directory.metrics_file, "held_out"):
        values = {name: value for name, value in report.items() if name != "split" and value is not None}
        metrics.setdefault(values.pop("step"), {}).update(values)
    return RunResults(
        name=os.path.basename(directory.path.rstrip("/")),
        config=load_config(directory.config_file),
        metrics=dict(sorted(metrics.items())),
        data=read_json(directory.data_file).get("data"),
        init_from=read_json(directory.warm_start_file).get("init_from"),
    )


def read_runs(model_dirs: Iterable[str | os.PathLike]) -> list[RunResults]:
    """Reads runs; leaves out, with a warning, each one without an evaluation.

    Raises: UserError: if a directory holds no run, or no run has an evaluation.
    """
    runs = []
    for model_dir in model_dirs:
        run = read_run(model_dir)
        if run.metrics:
            runs.append(run)
        else:
            logger.warning("%s is left out: it holds no evaluation yet", model_dir)
    if not runs:
        raise UserError("none of the runs holds an evaluation yet")
    return runs


def scores_by_step(rows: Sequence[Mapping]) -> dict[int, tuple[float, ...]]:
    """The scores in the rows of `milestone_scores`: one for each seed, NaN where it has no value."""
    return {
        int(row["step"]): tuple(math.nan if value is None else float(value) for value in row["scores"].values())
        for row in rows
    }


def read_scores(model_dir: str | os.PathLike, task: str) -> dict[int, tuple[float, ...]]:
    """The scores of a run after fine-tuning on a task, by step; empty if there are none."""
    return scores_by_step(read_json(score_file(model_dir, task)).get("results", ()))


def read_scored_runs(model_dirs: Iterable[str | os.PathLike], task: str) -> list[RunResults]:
    """Reads runs with their scores after fine-tuning on a task; leaves out, with a warning, each one without scores.

    Raises: UserError: if a directory holds no run, or no run was fine-tuned on the task.
    """
    runs = []
    for model_dir in model_dirs:
        run, scores = read_run(model_dir), read_scores(model_dir, task)
        if scores:
            runs.append(replace(run, scores={score_metric(task): scores}))
        else:
            logger.warning("%s is left out: it holds no scores of %s", model_dir, task)
    if not runs:
        raise UserError(
            f"none of the runs was fine-tuned on {task}; run_finetuning.py --milestones --task={task} does that"
        )
    return runs


class Point(NamedTuple):
    """The values of one metric at one step, over all runs of a group and their fine-tuning seeds."""

    step: int
    median: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ in their seed only, and so have the same cost."""

    label: str
    runs: tuple[RunResults, ...]

    @property
    def cost(self) -> RunCost | None:
        return self.runs[0].cost

    @property
    def seeds(self) -> list[int]:
        return sorted(run.config.train.seed for run in self.runs)

    @property
    def last_step(self) -> int:
        """The last step at which all runs were evaluated."""
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
        """All values of a metric at a step; empty if one run has none."""
        by_run = [run.values(metric).get(step, ()) for run in self.runs]
        return [value for values in by_run for value in values] if all(by_run) else []

    def last(self, metric: str) -> Point | None:
        """The metric at the last step; None without a value there."""
        return next((point for point in self.points(metric) if point.step == self.last_step), None)


def group_runs(runs: Iterable[RunResults]) -> list[RunGroup]:
    """Groups runs that differ in their seed only, in the order of each group's first run.

    Runs of a group have the same data, initial weights, and settings that affect the weights. The label of a group is
    the common beginning of its directories' names, without the seed at the end.

    Raises: UserError: if two runs are equal in all of that and in their seed.
    """
    groups: dict[str, list[RunResults]] = {}
    for run in runs:
        settings = lasting_settings(run.config.model_dump(mode="json"))
        settings["train"].pop("seed")
        groups.setdefault(json.dumps([settings, run.data, run.init_from], sort_keys=True), []).append(run)
    for members in groups.values():
        if len({run.config.train.seed for run in members}) < len(members):
            names = ", ".join(run.name for run in members)
            raise UserError(f"two of the runs {names} have the same configuration and seed; give each run once")
    labels = _distinct_labels(list(groups.values()))
    return [RunGroup(label, tuple(members)) for label, members in zip(labels, groups.values(), strict=True)]


def _distinct_labels(groups: list[list[RunResults]]) -> list[str]:
    """The label of each group. Equal labels get the names of the group's runs added, then the group's number."""
    labels = [_label(members) for members in groups]
    names = [", ".join(run.name for run in members) for members in groups]
    for additions in (names, range(1, len(groups) + 1)):
        shared = {label for label in labels if labels.count(label) > 1}
        pairs = zip(labels, additions, strict=True)
        labels = [f"{label} ({addition})" if label in shared else label for label, addition in pairs]
    return labels


def _label(runs: Sequence[RunResults]) -> str:
    # Only the run's own seed is removed: the number of electra_15 stays.
    names = [re.sub(rf"[-_.](seed[-_.]?)?{run.config.train.seed}$", "", run.name) for run in runs]
    return os.path.commonprefix(names).rstrip("-_.") or runs[0].name
