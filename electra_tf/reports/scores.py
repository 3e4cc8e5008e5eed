"""Scores of a run's milestones after fine-tuning, beside the FLOPs of their pre-training.

`run_finetuning.py --milestones` writes them, into the run's directory too, where report.py reads them.
"""

import math
import os
import statistics
from collections.abc import Mapping, Sequence

from electra_tf.files import names_in, read_json
from electra_tf.flops.budget import RunCost


def score_file(model_dir: str | os.PathLike, task: str) -> str:
    """The file with the scores of a task in a pre-training run's directory."""
    return os.path.join(model_dir, f"finetuning_{task}.json")


def scored_tasks(model_dir: str | os.PathLike) -> list[str]:
    """The tasks of which a pre-training run's directory holds scores."""
    begin, end = os.path.basename(score_file("", "*")).split("*")
    names = (name for name in sorted(names_in(model_dir)) if name.startswith(begin) and name.endswith(end))
    return [name.removeprefix(begin).removesuffix(end) for name in names]


def milestone_scores(scores: Mapping[int, Mapping[int, float]], cost: RunCost | None) -> list[dict]:
    """Steps with what they cost and what the fine-tuned models score, as JSON takes it.

    Args:
        scores: by step of pre-training, then by seed of fine-tuning; NaN where a seed has no value.
        cost: of the pre-training run; None if it is not known.
    Returns: for each step its FLOPs in both conventions, null if not known; the median and the range over seeds, null
        where a seed has no value; and each seed's score.
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
    """The median and the range of some values; without a number if one of them has none."""
    if not all(map(math.isfinite, values)):
        return dict.fromkeys(("median", "lowest", "highest"))
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def scores_by_step(rows: Sequence[Mapping]) -> dict[int, tuple[float, ...]]:
    """The scores in the rows of `milestone_scores`; NaN where a seed has no value."""
    return {
        int(row["step"]): tuple(math.nan if value is None else float(value) for value in row["scores"].values())
        for row in rows
    }


def read_scores(model_dir: str | os.PathLike, task: str) -> dict[int, tuple[float, ...]]:
    """The scores of a run's fine-tuned milestones, by step; empty if none was fine-tuned on the task.

    A score is NaN where a seed has no value.
    """
    return scores_by_step(read_json(score_file(model_dir, task)).get("results", ()))
