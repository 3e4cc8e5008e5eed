"""Reads the results of fine-tunings, finished or not, and makes a table of their scores."""

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


@dataclass(frozen=True)
class FinetuningResults:
    """The results of one fine-tuning.

    Attributes:
        name: the last two parts of its path.
        scores: by finished seed, in the order of their numbers: the scores of the kept checkpoint, without null values,
            and those of the test file with `test ` before their names.
    """

    name: str
    task: str
    scores: dict[int, dict[str, float]]


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
    """Reads fine-tunings of one task. Raises: UserError: they are of several."""
    finetunings = [_read_finetuning(os.fspath(path).rstrip("/")) for path in paths]
    if len(tasks := sorted({each.task for each in finetunings})) > 1:
        raise UserError(f"the fine-tunings are of several tasks, {' and '.join(tasks)}; report each by itself")
    return finetunings


def finetunings_table(finetunings: Sequence[FinetuningResults]) -> str:
    """One row for each fine-tuning: the median and the range of each score over its finished seeds."""
    names = list(dict.fromkeys(name for each in finetunings for scores in each.scores.values() for name in scores))
    rows = []
    for each in finetunings:
        columns = ([scores[name] for scores in each.scores.values() if name in scores] for name in names)
        cells = [
            cell(Point(0, statistics.median(column), min(column), max(column))) if column else "" for column in columns
        ]
        rows.append([each.name, ", ".join(map(str, each.scores)), *cells])
    return markdown_table(["fine-tuning", "finished seeds", *names], rows)


def _read_finetuning(path: str) -> FinetuningResults:
    numbers = _seeds_in(path)
    config = read_values(RunDirectory(os.path.join(path, f"seed_{numbers[0]}")).settings_file)[0]
    results = {number: read_json(os.path.join(path, f"seed_{number}", "result.json")) for number in numbers}
    scores = {number: _scores(result) for number, result in results.items() if result}
    return FinetuningResults("/".join(path.split("/")[-2:]), config.get("name", ""), scores)


def _scores(result: dict) -> dict[str, float]:
    tested = {f"test {name}": value for name, value in result.get("test", {}).get("metrics", {}).items()}
    return {name: value for name, value in {**result.get("metrics", {}), **tested}.items() if value is not None}


def _seeds_in(path: str | os.PathLike) -> list[int]:
    """The seeds with a metrics.jsonl in a directory, in order."""
    return [seed for seed in seeds_in(path) if exists(os.path.join(path, f"seed_{seed}", "metrics.jsonl"))]
