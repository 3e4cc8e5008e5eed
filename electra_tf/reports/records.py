"""A run as one small JSON file: what its directory and its fine-tuning say, without weights, for version control.

From a record the FLOPs can be counted again (it has the resolved configuration), and report.py reads it like the run's
directory.
"""

import json
import os
import reprlib
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from electra_tf.config.errors import UserError
from electra_tf.files import read_json, write_atomically
from electra_tf.reports.runs import RunResults, score_metric
from electra_tf.reports.scores import scores_by_step
from electra_tf.tasks.pretrain.config import parse_config

_SUFFIX = ".json"
_DIGITS = 6


class _Part(BaseModel):
    """Keys that are not named here may be anything."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _Row(_Part):
    step: Annotated[int, Field(ge=0)]
    scores: dict[str, float | None]


class _Task(_Part):
    task: str
    results: list[_Row]


class _Notes(_Part):
    tokens_per_second: float = 0.0
    as_masked_lm: dict[str, float] = {}


class _Record(_Part):
    name: str
    config: dict[str, Any]
    data: list[str] | None
    init_from: str | None
    # The keys of JSON are text.
    held_out: Annotated[dict[Annotated[int, Field(ge=0, strict=False)], dict[str, float]], Field(min_length=1)]
    finetuned: list[_Task]
    notes: _Notes


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
        record = _Record.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        found = "missing" if first["type"] == "missing" else reprlib.repr(first["input"])
        raise UserError(
            f"{path} is no record of a run: {place} is {found}: {first['msg']}; give one that "
            "experiments.replication has written, or the run's directory"
        ) from None
    return RunResults(
        name=record.name,
        config=parse_config(record.config, os.fspath(path)),
        metrics=dict(sorted(record.held_out.items())),
        data=record.data,
        init_from=record.init_from,
        scores={score_metric(each["task"]): scores_by_step(each["results"]) for each in content["finetuned"]},
        notes=content["notes"],
    )


def _rounded(value: Any) -> Any:
    """A value with its floats rounded to `_DIGITS` significant digits, and keys as text."""
    if isinstance(value, dict):
        return {str(key): _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(entry) for entry in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
