"""Reads the results of fine-tunings, finished or not, and makes a table of their scores."""

import os
import statistics
from collections.abc import Iterable

from electra_tf.data.tables import markdown_table
from electra_tf.files import exists, read_json
from electra_tf.reports.runs import Point
from electra_tf.reports.tables import cell
from electra_tf.tasks.finetune.summary import seeds_in


def is_finetuning(path: str | os.PathLike[str]) -> bool:
    """True for the output directory of electra-tf finetune, which holds its seeds."""
    return any(exists(os.path.join(path, f"seed_{seed}", "metrics.jsonl")) for seed in seeds_in(path))


def finetunings_table(paths: Iterable[str]) -> str:
    """One row for each fine-tuning, under the last two parts of its path: its scores over its finished seeds.

    These are the median and the range of each score of the kept checkpoints, and of the test file with `test ` before
    its name.
    """
    finetunings = {path.rstrip("/"): scores_by_seed(path) for path in paths}
    names = list(dict.fromkeys(name for seeds in finetunings.values() for scores in seeds.values() for name in scores))
    rows = []
    for path, seeds in finetunings.items():
        columns = ([scores[name] for scores in seeds.values() if name in scores] for name in names)
        cells = [
            cell(Point(0, statistics.median(column), min(column), max(column))) if column else "" for column in columns
        ]
        rows.append(["/".join(path.split("/")[-2:]), ", ".join(map(str, seeds)), *cells])
    return markdown_table(["fine-tuning", "finished seeds", *names], rows)


def scores_by_seed(path: str) -> dict[int, dict[str, float]]:
    """The scores in result.json of each finished seed, those of the test file included, without null values."""
    finished = {}
    for seed in seeds_in(path):
        if result := read_json(os.path.join(path, f"seed_{seed}", "result.json")):
            tested = {f"test {name}": value for name, value in result.get("test", {}).get("metrics", {}).items()}
            values = {**result.get("metrics", {}), **tested}
            finished[seed] = {name: value for name, value in values.items() if value is not None}
    return finished
