"""A run as one small JSON file: what its directory and its fine-tuning say, without weights, for version control.

From a record the FLOPs can be counted again (it has the resolved configuration), and report.py reads it like the run's
directory.
"""

import json
import os
from collections.abc import Sequence
from typing import Any

from electra_tf.config.errors import UserError
from electra_tf.files import read_json, write_atomically
from electra_tf.reports.runs import RunResults, score_metric
from electra_tf.reports.scores import scores_by_step
from electra_tf.tasks.pretrain.config import parse_config

_SUFFIX = ".json"
_DIGITS = 6


def is_record(path: str | os.PathLike) -> bool:
    """Whether a path is a record's, and not that of a run's directory."""
    return os.fspath(path).endswith(_SUFFIX)


def write_record(path: str | os.PathLike, run: RunResults, finetuned: Sequence[dict]) -> None:
    """Writes a run's record, or replaces it. Numbers that were measured are rounded to 6 digits, keys sorted.

    Args:
        run: its `scores` are not used.
        finetuned: of each task: `task`, `metric`, and as `results` the rows of `milestone_scores`.
    """
    content = {
        "name": run.name,
        "config": run.config.model_dump(mode="json"),
        "data": run.data,
        "init_from": run.init_from,
        "held_out": _rounded(run.metrics),
        "finetuned": _rounded(finetuned),
        "notes": _rounded(run.notes),
    }
    write_atomically(os.fspath(path), (json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n").encode())


def read_record(path: str | os.PathLike) -> RunResults:
    """Reads a record. Raises: UserError: if there is none, or it is damaged."""
    content = read_json(os.fspath(path))
    try:
        metrics = {int(step): dict(values) for step, values in content["held_out"].items()}
        return RunResults(
            name=content["name"],
            config=parse_config(content["config"], os.fspath(path)),
            metrics=dict(sorted(metrics.items())),
            data=content["data"],
            init_from=content["init_from"],
            scores={score_metric(each["task"]): scores_by_step(each["results"]) for each in content["finetuned"]},
            notes=content["notes"],
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UserError(
            f"{path} is no record of a run; give one that benchmarks.replication has written, or the run's directory"
        ) from None


def _rounded(value: Any) -> Any:
    """A value with its floats rounded to `_DIGITS` significant digits, and keys as text."""
    if isinstance(value, dict):
        return {str(key): _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(entry) for entry in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
