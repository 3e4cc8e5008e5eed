"""The results of runs by step and by FLOPs; runs that differ in their seed only are one group."""

import json
import math
import os
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from electra_tf.config.errors import UserError
from electra_tf.flops.budget import RunCost, known_cost
from electra_tf.runs.directory import lasting_settings
from electra_tf.tasks.pretrain.config import PretrainingConfig

_FINETUNED = "finetuned_"


def score_metric(task: str) -> str:
    """The name among a run's metrics of its score after fine-tuning on a task."""
    return f"{_FINETUNED}{task}"


def finetuned_task(metric: str) -> str | None:
    """The task whose score a metric is; None for another metric."""
    return metric.removeprefix(_FINETUNED) if metric.startswith(_FINETUNED) else None


@dataclass(frozen=True)
class RunResults:
    """One run.

    Attributes:
        name: of its directory.
        metrics: of the held-out split, by step, rising, then by name. Metrics without a value are left out.
        data: the data set of each stage; None if the directory does not record it.
        init_from: where the initial weights came from; None: random.
        scores: by the metrics of `score_metric`, then by step: one score for each seed of fine-tuning.
        notes: what its record says beside, as JSON takes it.
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
        """None for an objective, one from outside, that does not describe its steps."""
        return known_cost(self.config)

    @property
    def last_step(self) -> int:
        return max(self.metrics)

    def values(self, metric: str) -> dict[int, tuple[float, ...]]:
        """A metric by step: one value, or of scores one for each seed of fine-tuning."""
        if metric in self.scores:
            return self.scores[metric]
        return {step: (values[metric],) for step, values in self.metrics.items() if metric in values}


class Point(NamedTuple):
    """One metric of several runs at one step: its median, and the range over the runs and their fine-tuning seeds."""

    step: int
    median: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ in their seed only, and so have one cost."""

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
        """The last step at which all of them were evaluated."""
        return min(run.last_step for run in self.runs)

    def points(self, metric: str) -> list[Point]:
        """The metric at every step at which all runs have a finite value of it."""
        by_step = {step: self.values(metric, step) for step in self.runs[0].values(metric)}
        return [
            Point(step, statistics.median(values), min(values), max(values))
            for step, values in sorted(by_step.items())
            if values and all(map(math.isfinite, values))
        ]

    def values(self, metric: str, step: int) -> list[float]:
        """The values behind a point; none if a run has none."""
        by_run = [run.values(metric).get(step, ()) for run in self.runs]
        return [value for values in by_run for value in values] if all(by_run) else []

    def last(self, metric: str) -> Point | None:
        """The metric at the last step; None if it is not known there."""
        return next((point for point in self.points(metric) if point.step == self.last_step), None)


def group_runs(runs: Iterable[RunResults]) -> list[RunGroup]:
    """Groups runs that differ in their seed only, in the order of their first ones.

    Runs with other data, other initial weights, or other settings that affect the weights, are in other groups. The
    label of a group is the common beginning of its directories' names, without the seed at the end.

    Raises: UserError: if two runs have the same seed too.
    """
    groups: dict[str, list[RunResults]] = {}
    for run in runs:
        settings = lasting_settings(run.config.model_dump(mode="json"))
        settings["train"].pop("seed")
        groups.setdefault(json.dumps([settings, run.data, run.init_from], sort_keys=True), []).append(run)
    for members in groups.values():
        if len({run.config.train.seed for run in members}) < len(members):
            names = ", ".join(run.name for run in members)
            raise UserError(f"of the runs {names} two have the same configuration and seed; give each run once")
    labels = _distinct_labels(list(groups.values()))
    return [RunGroup(label, tuple(members)) for label, members in zip(labels, groups.values(), strict=True)]


def _distinct_labels(groups: list[list[RunResults]]) -> list[str]:
    """The label of each group; equal ones get the names of all runs in the group, or else its number."""
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
