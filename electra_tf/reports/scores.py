"""Scores of a run's milestones after fine-tuning, beside the FLOPs of their pre-training.

`run_finetuning.py --milestones` writes them, into the run's directory too, where report.py reads them.
"""

import math
import os
from collections.abc import Mapping, Sequence

from electra_tf.files import names_in, read_json
from electra_tf.tasks.finetune.summary import score_file


def scored_tasks(model_dir: str | os.PathLike) -> list[str]:
    """The tasks of which a pre-training run's directory holds scores."""
    begin, end = os.path.basename(score_file("", "*")).split("*")
    names = (name for name in sorted(names_in(model_dir)) if name.startswith(begin) and name.endswith(end))
    return [name.removeprefix(begin).removesuffix(end) for name in names]


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
