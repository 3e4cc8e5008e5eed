"""The results of runs by step and by FLOPs, and of runs that differ in nothing but their seed, taken together."""

import json
import math
import os
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from electra_tf.config.errors import UserError
from electra_tf.flops.budget import Convention, RunCost, known_cost
from electra_tf.runs.directory import RunDirectory, lasting_settings
from electra_tf.runs.reported_lines import reports_of
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config

PROBE_FILE = "linear_probe.json"  # in a run's directory: what benchmarks/linear_probe.py prints
_SEPARATORS_AT_THE_END = re.compile(r"[-_.]+$")


@dataclass(frozen=True)
class RunResults:
    """One run.

    Attributes:
        name: of its directory.
        metrics: by step, rising, then by name: those of the held-out split, of the probe's tasks (`cola`, `sst2`), and
            their mean, `probe_score`. What has no value is left out.
        tokens_per_second: in the last report of the training, padding included; None without one.
        data: the data set of each stage; None in a directory that does not note it.
        init_from: where the initial weights came from; None: from chance.
    """

    name: str
    config: PretrainingConfig
    metrics: dict[int, dict[str, float]]
    tokens_per_second: float | None
    data: tuple[str, ...] | None = None
    init_from: str | None = None

    @cached_property
    def cost(self) -> RunCost | None:
        """None for an objective, one from outside, that does not describe its steps."""
        return known_cost(self.config)

    def flops(self, step: int, convention: Convention) -> float | None:
        """What the first steps took; None if that is not known."""
        return None if self.cost is None else float(self.cost.spent(step).flops(convention))

    @property
    def last_step(self) -> int:
        return max(self.metrics)


def read_run(model_dir: str | os.PathLike) -> RunResults:
    """Reads a run's directory, finished or not.

    Raises: UserError: if it holds no run, or nothing was evaluated yet.
    """
    directory = RunDirectory(model_dir)
    if not directory.config_file.exists():
        raise UserError(f"{directory.path} holds no config.yaml; give the directory of a run")
    metrics: dict[int, dict[str, float]] = {}
    for report in reports_of(directory.metrics_file, "held_out"):
        values = {name: value for name, value in report.items() if name != "split" and value is not None}
        for name, value in values.items():
            if not isinstance(value, int | float):
                raise UserError(f"{directory.metrics_file} has {name} {value!r}; expected a number; copy the run anew")
        metrics.setdefault(values.pop("step"), {}).update(values)
    for step, scores in _probe_scores(directory.path / PROBE_FILE).items():
        metrics.setdefault(step, {}).update(scores)
    if not metrics:
        raise UserError(f"{directory.metrics_file} holds no evaluation; let the run reach its first")
    rates = [report.get("tokens_per_second") for report in reports_of(directory.metrics_file, "train")]
    data = _recorded(directory.data_file, "data")
    return RunResults(
        name=directory.path.name,
        config=load_config(directory.config_file),
        metrics=dict(sorted(metrics.items())),
        tokens_per_second=rates[-1] if rates else None,
        data=None if data is None else tuple(data),
        init_from=_recorded(directory.warm_start_file, "init_from"),
    )


def _recorded(file: Path, name: str):
    """A value of a JSON file that a run has written; None if there is no file."""
    if not file.exists():
        return None
    try:
        return json.loads(file.read_text(encoding="utf-8"))[name]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{file} is not what a training writes there: it has no {name!r}; copy the run anew") from None


def _probe_scores(file: Path) -> dict[int, dict[str, float]]:
    if not file.exists():
        return {}
    try:
        results = json.loads(file.read_text(encoding="utf-8"))["results"]
        scores = {
            result["step"]: {
                task: next(value for name, value in found.items() if name != "strength")
                for task, found in result.items()
                if task != "step"
            }
            for result in results
        }
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        raise UserError(f"{file} is not what benchmarks/linear_probe.py writes; make it anew with --output") from None
    return {step: {**tasks, "probe_score": statistics.fmean(tasks.values())} for step, tasks in scores.items()}


@dataclass(frozen=True)
class Point:
    """One metric of several runs at one step.

    Attributes:
        median, lowest, highest: over the runs.
    """

    step: int
    median: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ in nothing but their seed."""

    label: str
    runs: tuple[RunResults, ...]

    @property
    def seeds(self) -> list[int]:
        return sorted(run.config.train.seed for run in self.runs)

    @property
    def last_step(self) -> int:
        """The last step that all of them were evaluated at."""
        return min(run.last_step for run in self.runs)

    def flops(self, step: int, convention: Convention) -> float | None:
        """What the first steps of each of them took, for they differ in their seed only; None if that is not known."""
        return self.runs[0].flops(step, convention)

    def points(self, metric: str) -> list[Point]:
        """The metric at every step at which all runs have a value of it."""
        steps = [{step for step, values in run.metrics.items() if _has(values, metric)} for run in self.runs]
        points = []
        for step in sorted(set.intersection(*steps)):
            values = [run.metrics[step][metric] for run in self.runs]
            points.append(Point(step, statistics.median(values), min(values), max(values)))
        return points

    def last(self, metric: str) -> Point | None:
        """The metric where the training ends; None if it is not known there."""
        return next((point for point in self.points(metric) if point.step == self.last_step), None)


def _has(values: dict[str, float], metric: str) -> bool:
    return math.isfinite(values.get(metric, math.nan))


def group_runs(runs: Iterable[RunResults]) -> list[RunGroup]:
    """Puts runs together that differ in nothing but their seed, in the order of their first ones.

    A group is called by what the names of its directories have in common, without the seed at their end.

    Runs on other data, or from other initial weights, are others, as are those whose settings differ in what touches
    the weights.

    Raises: UserError: if two runs are the same in their seed too.
    """
    groups: dict[str, list[RunResults]] = {}
    for run in runs:
        groups.setdefault(_without_seed(run), []).append(run)
    for members in groups.values():
        seeds = [run.config.train.seed for run in members]
        if len(set(seeds)) < len(seeds):
            names = ", ".join(run.name for run in members)
            raise UserError(f"of the runs {names} two have the same configuration and seed; give each run once")
    labels = _distinct_labels(list(groups.values()))
    return [RunGroup(label, tuple(members)) for label, members in zip(labels, groups.values(), strict=True)]


def _distinct_labels(groups: list[list[RunResults]]) -> list[str]:
    """What each group is called; groups that would be called alike, by all names in them, or else by their number."""
    labels = [_label(members) for members in groups]
    for named in (lambda place: ", ".join(run.name for run in groups[place]), lambda place: str(place + 1)):
        shared = {label for label in labels if labels.count(label) > 1}
        labels = [f"{label} ({named(place)})" if label in shared else label for place, label in enumerate(labels)]
    return labels


def _label(runs: Sequence[RunResults]) -> str:
    without_seeds = [_name_without_seed(run) for run in runs]
    return _SEPARATORS_AT_THE_END.sub("", os.path.commonprefix(without_seeds)) or runs[0].name


def _name_without_seed(run: RunResults) -> str:
    """The name, but for the run's own seed at its end; another number stays, as that of electra_15."""
    return re.sub(rf"[-_.](seed[-_.]?)?{run.config.train.seed}$", "", run.name)


def _without_seed(run: RunResults) -> str:
    """What runs that differ in nothing but their seed have in common."""
    settings = lasting_settings(run.config)
    settings["train"].pop("seed")
    return json.dumps([settings, run.data, run.init_from], sort_keys=True)
