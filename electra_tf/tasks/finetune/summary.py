"""Summaries over seeds and tasks, and the scores of milestones. The paper reports the median over seeds."""

import json
import math
import os
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from electra_tf.config.schema import lower_is_better
from electra_tf.data.tables import markdown_table
from electra_tf.files import names_in, write_atomically
from electra_tf.flops.budget import RunCost
from electra_tf.tasks.finetune.benchmarks import PAPER_TASKS, SQUAD_TASKS

SUMMARY, RESULT = "summary.json", "result.json"  # of all seeds, and in the directory of each
_STATISTICS: dict[str, Callable[[list[float]], float | None]] = {
    "median": statistics.median,
    "mean": statistics.fmean,
    "sigma": lambda values: statistics.stdev(values) if len(values) > 1 else None,
    "min": min,
    "max": max,
}


def summarize(
    name: str, primary_metric: str, results: Mapping[int, Mapping[str, Any]], init_from: str | None
) -> dict[str, Any]:
    """Returns the content of a task's summary.json. It holds no times, so equal runs have equal files.

    Args:
        results: by seed, the content of its result.json. All or none have scores of the test file.
    """
    in_order = [results[seed] for seed in sorted(results)]
    summary = {
        "task": name,
        "primary_metric": primary_metric,
        "init_from": init_from,
        "statistics": _statistics([result["metrics"] for result in in_order]),
    }
    if "test" in in_order[0]:
        test = {"file": in_order[0]["test"]["file"]}
        summary["test"] = {**test, "statistics": _statistics([result["test"]["metrics"] for result in in_order])}
    # The reports of all classes stay in result.json.
    return {**summary, "seeds": [{k: v for k, v in result.items() if k != "reports"} for result in in_order]}


def write_summary(directory: str, summary: Mapping[str, Any]) -> None:
    write_atomically(os.path.join(directory, SUMMARY), json.dumps(summary, indent=1, allow_nan=False).encode())


def seeds_in(output_dir: str | os.PathLike[str]) -> list[int]:
    """The numbers of the directories `seed_N/`, in order."""
    numbers = (name.removeprefix("seed_") for name in names_in(output_dir) if name.startswith("seed_"))
    return sorted(int(number) for number in numbers if number.isdecimal())


def seed_scores(summary: Mapping[str, Any]) -> dict[int, float]:
    """Returns the primary metric by seed; for `glue`, the mean over the tasks; NaN if a value is missing.

    A seed that only some of the tasks have, because an earlier command was interrupted, is left out.
    """
    tasks = summary.get("tasks", [summary])
    by_seed: dict[int, list[float]] = {}
    for task in tasks:
        for result in task["seeds"]:
            value = result["metrics"][task["primary_metric"]]
            by_seed.setdefault(result["seed"], []).append(math.nan if value is None else value)
    return {seed: statistics.fmean(values) for seed, values in by_seed.items() if len(values) == len(tasks)}


def score_file(model_dir: str | os.PathLike[str], task: str) -> str:
    """Returns the path of a fine-tuning task's scores in a pre-training run's directory."""
    return os.path.join(model_dir, f"finetuning_{task}.json")


def milestone_scores(scores: Mapping[int, Mapping[int, float]], cost: RunCost) -> list[dict[str, Any]]:
    """Returns a row for each pre-training step: its cost, and the scores of the models fine-tuned from it.

    Args:
        scores: by pre-training step, then by fine-tuning seed; NaN for a missing value.
    Returns: for each step its FLOPs in both conventions; median and range over the seeds, None if a seed has no value;
        and each seed's score.
    """
    rows = []
    for step, by_seed in sorted(scores.items()):
        spent, values = cost.spent(step), list(by_seed.values())
        spread = {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}
        rows.append(
            {
                "step": step,
                "paper_flops": float(spent.paper),
                "hardware_flops": spent.hardware.total,
                **(spread if all(map(math.isfinite, values)) else dict.fromkeys(spread)),
                "scores": {str(seed): value if math.isfinite(value) else None for seed, value in by_seed.items()},
            }
        )
    return rows


def best_seed(summary: Mapping[str, Any]) -> int:
    """Returns the seed with the best primary metric; the lowest such seed if several are equal."""
    scores = _primary_scores(summary)
    return max(sorted(scores), key=scores.__getitem__)


def median_seed(summary: Mapping[str, Any]) -> int:
    """Returns the seed whose primary metric is the median; of an even number of seeds, the lower of the two."""
    scores = _primary_scores(summary)
    return sorted(scores, key=scores.__getitem__)[(len(scores) - 1) // 2]


def _primary_scores(summary: Mapping[str, Any]) -> dict[int, float]:
    """The primary metric by seed, negative if its lowest value is the best; -inf for a missing value."""
    metric = summary["primary_metric"]
    sign = -1 if lower_is_better(metric) else 1
    scores = {result["seed"]: result["metrics"][metric] for result in summary["seeds"]}
    return {seed: -math.inf if value is None else sign * value for seed, value in scores.items()}


def glue_summary(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the content of summary.json for `glue`; its average is None unless all eight tasks have a median."""
    medians = {each["task"]: each["statistics"][each["primary_metric"]]["median"] for each in summaries}
    of_paper: list[Any] = [medians.get(task) for task in PAPER_TASKS]
    return {
        "glue_average": None if None in of_paper else statistics.fmean(of_paper),
        "medians": medians,
        "tasks": list(summaries),
    }


def table(summaries: Sequence[Mapping[str, Any]]) -> str:
    """Returns a line for each metric of each task, in percent except for losses; `*` marks the primary metric.

    The metrics of a test file stand below those of the dev set.
    """
    rows = []
    for summary in summaries:
        task, primary = summary["task"], summary["primary_metric"]
        for split, scores in (("", summary), ("test ", summary.get("test", {"statistics": {}}))):
            for metric, values in scores["statistics"].items():
                cells = _cells(task, metric, primary, [values[name] for name in _STATISTICS], split)
                rows.append([*cells, str(values["n"])])
    return markdown_table(["task", "metric", *_STATISTICS, "n"], rows)


def score_table(task: str, primary_metric: str, metrics: Mapping[str, float]) -> str:
    """Returns a line for each metric, as `table` does for the statistics of several seeds."""
    rows = [_cells(task, metric, primary_metric, [value]) for metric, value in metrics.items()]
    return markdown_table(["task", "metric", "score"], rows)


def is_in_percent(task: str) -> bool:
    """Whether the scores of a task are in percent already, as SQuAD's official ones are."""
    return task in (*SQUAD_TASKS, "question_answering")  # a converted model has the name of its kind


def shown(value: float | None, scale: float = 1.0, form: str = ".2f") -> str:
    """A number as text, `-` for a missing one."""
    return "-" if value is None or math.isnan(value) else format(value * scale, form)


def _cells(task: str, metric: str, primary_metric: str, values: Iterable[float | None], split: str = "") -> list[str]:
    scale = 1.0 if lower_is_better(metric) or is_in_percent(task) else 100.0
    mark = " *" if metric == primary_metric else ""
    return [task, f"{split}{metric}{mark}", *(shown(value, scale) for value in values)]


def _statistics(metrics: Sequence[Mapping[str, float | None]]) -> dict[str, dict[str, Any]]:
    """By metric, its statistics over the seeds; all None if a seed has no value."""
    by_metric = {}
    for metric in metrics[0]:
        values = [value for each in metrics if (value := each[metric]) is not None]
        is_known = len(values) == len(metrics)
        of_seeds = {name: function(values) if is_known else None for name, function in _STATISTICS.items()}
        by_metric[metric] = {**of_seeds, "n": len(metrics)}
    return by_metric
