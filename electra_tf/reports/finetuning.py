"""Reads the results of fine-tunings, finished or not: the curves of each seed, and a table of their scores."""

import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from electra_tf.config.errors import UserError
from electra_tf.config.loader import read_values
from electra_tf.files import exists, read_json
from electra_tf.reports.runs import Point
from electra_tf.reports.tables import cell, markdown_table
from electra_tf.tasks.finetune.summary import SUMMARY, seeds_in
from electra_tf.train.run_directory import RunDirectory

TRAINING_LOSS, DEV_LOSS = "training loss", "loss"


@dataclass(frozen=True)
class SeedResults:
    """The results of one seed.

    Attributes:
        number: the seed.
        curves: by name, the values by step: `TRAINING_LOSS`, the mean loss of a batch's row since the line before, in
            which a row of padding counts as 0, and the metrics of the dev set.
        kept_step: the step whose weights were kept and scored; None until the seed is done.
        scores: the scores of that step, and those of the test file with `test ` before their names.
    """

    number: int
    curves: dict[str, dict[int, float]]
    kept_step: int | None
    scores: dict[str, float]


@dataclass(frozen=True)
class FinetuningResults:
    """The results of one fine-tuning.

    Attributes:
        name: the last two parts of its path.
        primary_metric: the one that the task reports.
        seeds: in the order of their numbers.
    """

    name: str
    task: str
    primary_metric: str
    seeds: tuple[SeedResults, ...]


def is_finetuning(path: str | os.PathLike) -> bool:
    """True for the output directory of electra-tf finetune, which holds its seeds.

    Raises: UserError: it is one of its seeds, or holds the directories of several tasks.
    """
    if RunDirectory(path).is_finetuned:
        raise UserError(f"{path} is one seed of a fine-tuning; give the directory that holds its seeds")
    if "tasks" in read_json(os.path.join(path, SUMMARY)):
        raise UserError(f"{path} holds a fine-tuning for each task of GLUE; give some of them, such as {path}/mrpc")
    return bool(_seeds_in(path))


def read_finetunings(paths: Iterable[str | os.PathLike]) -> list[FinetuningResults]:
    """Reads fine-tunings of one task. Raises: UserError: they are of several tasks, or one has no evaluation yet."""
    finetunings = [_read_finetuning(os.fspath(path).rstrip("/")) for path in paths]
    if len(tasks := sorted({each.task for each in finetunings})) > 1:
        raise UserError(f"the fine-tunings are of several tasks, {' and '.join(tasks)}; report each task by itself")
    if len(metrics := sorted({each.primary_metric for each in finetunings})) > 1:
        raise UserError(f"the fine-tunings report {' and '.join(metrics)}; report those of one metric together")
    return finetunings


def chosen_curves(finetunings: Sequence[FinetuningResults], names: Sequence[str] | None = None) -> list[str]:
    """The metrics to draw: `names`, or by default the primary metric. Raises: UserError: no seed has one of these."""
    known = {name for each in finetunings for seed in each.seeds for name in seed.curves} - {TRAINING_LOSS, DEV_LOSS}
    if unknown := next((name for name in names or () if name not in known), None):
        raise UserError(f"--metric: no seed has {unknown!r}; there are: {', '.join(sorted(known))}")
    return list(names or [finetunings[0].primary_metric])


def finetunings_table(finetunings: Sequence[FinetuningResults]) -> str:
    """One row for each fine-tuning: the median and the range of each score over its finished seeds."""
    scores = list(dict.fromkeys(name for each in finetunings for seed in each.seeds for name in seed.scores))
    rows = []
    for each in finetunings:
        finished = [seed for seed in each.seeds if seed.kept_step is not None]
        columns = ([seed.scores[name] for seed in finished if name in seed.scores] for name in scores)
        cells = [
            cell(Point(0, statistics.median(column), min(column), max(column))) if column else "" for column in columns
        ]
        rows.append([each.name, ", ".join(str(seed.number) for seed in finished), *cells])
    return markdown_table(["fine-tuning", "finished seeds", *scores], rows)


def _read_finetuning(path: str) -> FinetuningResults:
    seeds = tuple(_read_seed(os.path.join(path, f"seed_{number}"), number) for number in _seeds_in(path))
    metrics = [name for seed in seeds for name in seed.curves if name not in (TRAINING_LOSS, DEV_LOSS)]
    if not metrics:
        raise UserError(f"{path} has no evaluation yet; each seed is evaluated after an epoch")
    task = read_values(os.path.join(path, f"seed_{seeds[0].number}", "config.yaml"))[0].get("name", "")
    # Until the first seed is done, there is no summary; the first metric is nearly always the primary one.
    primary = read_json(os.path.join(path, SUMMARY)).get("primary_metric", metrics[0])
    return FinetuningResults("/".join(path.split("/")[-2:]), task, primary, seeds)


def _read_seed(path: str, number: int) -> SeedResults:
    directory, result = RunDirectory(path), read_json(os.path.join(path, "result.json"))
    kind = read_values(directory.config_file)[0].get("task", {}).get("kind")
    curves: dict[str, dict[int, float]] = {}
    # The training's `loss` is a sum over a batch; the mean of its rows, padding as 0, has the name of the task's kind.
    for report in directory.reports("train"):
        if report.get(kind) is not None:
            curves.setdefault(TRAINING_LOSS, {})[report["step"]] = report[kind]
    for report in directory.reports("held_out"):
        for name, value in report.items():
            if name not in ("step", "split") and value is not None:
                curves.setdefault(name, {})[report["step"]] = value
    tested = {f"test {name}": value for name, value in result.get("test", {}).get("metrics", {}).items()}
    scores = {name: value for name, value in {**result.get("metrics", {}), **tested}.items() if value is not None}
    return SeedResults(number, curves, result.get("step"), scores)


def _seeds_in(path: str | os.PathLike) -> list[int]:
    """The seeds with a metrics.jsonl in a directory, in order."""
    return [seed for seed in seeds_in(path) if exists(os.path.join(path, f"seed_{seed}", "metrics.jsonl"))]
