"""Summaries over seeds and tasks, and the scores of milestones. The paper reports the median over seeds."""

import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence

from electra_tf.files import write_atomically
from electra_tf.flops.budget import RunCost
from electra_tf.tasks.finetune.glue import PAPER_TASKS

SUMMARY = "summary.json"


def summarize(name: str, primary_metric: str, results: Mapping[int, dict], init_from: str | None) -> dict:
    """Returns the content of a task's summary.json. It holds no times, so equal runs have equal files.

    Args:
        results: by seed, the content of its result.json.
    """
    metrics = results[min(results)]["metrics"]
    return {
        "task": name,
        "primary_metric": primary_metric,
        "init_from": init_from,
        "statistics": {
            metric: _statistics([results[seed]["metrics"][metric] for seed in sorted(results)]) for metric in metrics
        },
        "seeds": [results[seed] for seed in sorted(results)],
    }


def write_summary(directory: str, summary: dict) -> None:
    """Writes `summary.json` into a directory."""
    write_atomically(os.path.join(directory, SUMMARY), json.dumps(summary, indent=1, allow_nan=False).encode())


def seed_scores(summary: Mapping) -> dict[int, float]:
    """Returns the primary metric by seed; for `glue`, the mean over the tasks; NaN if a value is missing.

    Args:
        summary: the content of a summary.json.
    """
    by_seed: dict[int, list[float]] = {}
    for task in summary.get("tasks", [summary]):
        for result in task["seeds"]:
            value = result["metrics"][task["primary_metric"]]
            by_seed.setdefault(result["seed"], []).append(math.nan if value is None else value)
    return {seed: statistics.fmean(values) for seed, values in by_seed.items()}


def score_file(model_dir: str | os.PathLike, task: str) -> str:
    """Returns the path of a fine-tuning task's scores in a pre-training run's directory."""
    return os.path.join(model_dir, f"finetuning_{task}.json")


def milestone_scores(scores: Mapping[int, Mapping[int, float]], cost: RunCost | None) -> list[dict]:
    """Returns a row for each pre-training step: its cost, and the scores of the models fine-tuned from it.

    Args:
        scores: by pre-training step, then by fine-tuning seed; NaN for a missing value.
        cost: the cost of the pre-training run; None if unknown.
    Returns: for each step its FLOPs in both conventions, None if unknown; median and range over the seeds, None if a
        seed has no value; and each seed's score.
    """
    rows = []
    for step, by_seed in sorted(scores.items()):
        spent = None if cost is None else cost.spent(step)
        rows.append(
            {
                "step": step,
                "paper_flops": None if spent is None else float(spent.paper),
                "hardware_flops": None if spent is None else spent.hardware.total,
                **spread(list(by_seed.values())),
                "scores": {str(seed): value if math.isfinite(value) else None for seed, value in by_seed.items()},
            }
        )
    return rows


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Returns median, lowest and highest value; all None if a value is not finite."""
    if not all(map(math.isfinite, values)):
        return dict.fromkeys(("median", "lowest", "highest"))
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def best_seed(summary: dict) -> int:
    """Returns the seed with the highest primary metric; the lowest such seed if several are equal."""
    scores = {result["seed"]: result["metrics"][summary["primary_metric"]] for result in summary["seeds"]}
    return max(sorted(scores), key=lambda seed: -math.inf if scores[seed] is None else scores[seed])


def glue_summary(summaries: Sequence[dict]) -> dict:
    """Returns the content of summary.json for `glue`; its average is None unless all eight tasks have a median."""
    medians = {each["task"]: each["statistics"][each["primary_metric"]]["median"] for each in summaries}
    of_paper = [medians.get(task) for task in PAPER_TASKS]
    return {
        "glue_average": None if None in of_paper else statistics.fmean(of_paper),
        "medians": medians,
        "tasks": list(summaries),
    }


def table(summaries: Sequence[dict]) -> str:
    """Returns a line for each metric of each task, in percent except for losses; `*` marks the primary metric."""
    lines = [f"{'task':<16} {'metric':<24} {'median':>8} {'mean':>8} {'sigma':>7} {'min':>8} {'max':>8} {'n':>3}"]
    for summary in summaries:
        for metric, values in summary["statistics"].items():
            mark = " *" if metric == summary["primary_metric"] else ""
            # SQuAD's official scores are in percent already.
            is_share = metric not in ("loss", "mse") and not summary["task"].startswith("squad")
            scale = 100.0 if is_share else 1.0
            numbers = {name: _shown(values[name], scale) for name in ("median", "mean", "sigma", "min", "max")}
            lines.append(
                f"{summary['task']:<16} {metric + mark:<24} {numbers['median']:>8} {numbers['mean']:>8} "
                f"{numbers['sigma']:>7} {numbers['min']:>8} {numbers['max']:>8} {values['n']:>3}"
            )
    return "\n".join(lines)


def _statistics(values: Sequence[float | None]) -> dict:
    """Median, mean, sample standard deviation, range and count; only the count if a value is missing."""
    if None in values:
        return {**dict.fromkeys(("median", "mean", "sigma", "min", "max")), "n": len(values)}
    return {
        "median": statistics.median(values),
        "mean": statistics.fmean(values),
        "sigma": statistics.stdev(values) if len(values) > 1 else None,
        "min": min(values),
        "max": max(values),
        "n": len(values),
    }


def _shown(value: float | None, scale: float) -> str:
    return "-" if value is None else f"{value * scale:.2f}"
