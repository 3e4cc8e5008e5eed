"""Reads the results of fine-tunings, finished or not: the curves of each seed, and a table of their scores."""

import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from electra_tf.config.errors import UserError
from electra_tf.config.loader import read_values
from electra_tf.files import exists, read_json
from electra_tf.reports.runs import Point, held_out_metrics
from electra_tf.reports.tables import cell, markdown_table, require_metrics
from electra_tf.tasks.finetune.summary import SUMMARY, seeds_in
from electra_tf.train.run_directory import RunDirectory

DEV_LOSS = "loss"


@dataclass(frozen=True)
class SeedResults:
    """The results of one seed.

    Attributes:
        number: the seed.
        training_loss: by step, the mean loss of a batch's row since the line before; a row of padding counts as 0.
        metrics: those of the dev set by step (ascending), then by name, without null values.
        kept_step: the step whose weights were kept and scored; None until the seed is done.
        scores: the scores of that step, and those of the test file with `test ` before their names.
    """

    number: int
    training_loss: dict[int, float]
    metrics: dict[int, dict[str, float]]
    kept_step: int | None
    scores: dict[str, float]

    def curve(self, metric: str) -> dict[int, float]:
        """The values of a metric by step."""
        return {step: values[metric] for step, values in self.metrics.items() if metric in values}


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
    for what, name in (("tasks", "task"), ("metrics", "primary_metric")):
        if len(values := sorted({getattr(each, name) for each in finetunings})) > 1:
            raise UserError(f"the fine-tunings are of several {what}, {' and '.join(values)}; report each by itself")
    return finetunings


def chosen_curves(finetunings: Sequence[FinetuningResults], names: Sequence[str] | None = None) -> list[str]:
    """The metrics to draw: `names`, or by default the primary metric. Raises: UserError: no seed has one of these."""
    seeds = [seed for each in finetunings for seed in each.seeds]
    require_metrics(names or (), {name for seed in seeds for values in seed.metrics.values() for name in values})
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
    numbers = _seeds_in(path)
    config = read_values(RunDirectory(os.path.join(path, f"seed_{numbers[0]}")).settings_file)[0]
    # The training's `loss` is a sum over a batch; the mean of its rows, padding as 0, has the name of the task's kind.
    kind = config.get("task", {}).get("kind")
    seeds = tuple(_read_seed(os.path.join(path, f"seed_{number}"), number, kind) for number in numbers)
    metrics = [name for seed in seeds for values in seed.metrics.values() for name in values if name != DEV_LOSS]
    if not metrics:
        raise UserError(f"{path} has no evaluation yet; each seed is evaluated after an epoch")
    # Until the first seed is done, there is no summary; the first metric is nearly always the primary one.
    primary = read_json(os.path.join(path, SUMMARY)).get("primary_metric", metrics[0])
    return FinetuningResults("/".join(path.split("/")[-2:]), config.get("name", ""), primary, seeds)


def _read_seed(path: str, number: int, kind: str | None) -> SeedResults:
    directory, result = RunDirectory(path), read_json(os.path.join(path, "result.json"))
    reports = directory.reports("train")
    training_loss = {each["step"]: each[kind] for each in reports if each.get(kind) is not None}
    tested = {f"test {name}": value for name, value in result.get("test", {}).get("metrics", {}).items()}
    scores = {name: value for name, value in {**result.get("metrics", {}), **tested}.items() if value is not None}
    return SeedResults(number, training_loss, held_out_metrics(directory), result.get("step"), scores)


def _seeds_in(path: str | os.PathLike) -> list[int]:
    """The seeds with a metrics.jsonl in a directory, in order."""
    return [seed for seed in seeds_in(path) if exists(os.path.join(path, f"seed_{seed}", "metrics.jsonl"))]
