"""What a run has reported, read again from its metrics.jsonl."""

import json
import os

from electra_tf.config.errors import UserError
from electra_tf.files import read_bytes

_SHOWN_BYTES = 60  # of a line that cannot be read


def reports_of(metrics_file: str | os.PathLike, split: str) -> list[dict]:
    """The lines of a split in order, without a last line that a kill has cut off.

    Raises: UserError: if the file cannot be read, or another line is no report.
    """
    lines = (read_bytes(metrics_file) or b"").splitlines()
    reports = []
    for number, line in enumerate(lines, start=1):
        report = _parsed(line)
        if report is None and number == len(lines):
            break
        if _step_of(report, otherwise=-1) < 0 or not isinstance(report.get("split"), str):
            raise UserError(
                f"{metrics_file}, line {number}: expected a JSON object with a whole number as step and a text as "
                f"split, found {line[:_SHOWN_BYTES].decode(errors='replace')!r}; mend the line or remove it"
            )
        reports.append(report)
    return [report for report in reports if report["split"] == split]


def evaluation_at(metrics_file: str | os.PathLike, step: int) -> dict[str, float]:
    """The held-out metrics that were reported for a step, NaN where one had no value; empty if there are none.

    Raises: UserError: as `reports_of`.
    """
    reports = [report for report in reports_of(metrics_file, "held_out") if report["step"] == step]
    metrics = {name: value for name, value in (reports or [{}])[-1].items() if name not in ("step", "split")}
    return {name: float("nan") if value is None else value for name, value in metrics.items()}


def lines_until(content: bytes, step: int) -> list[bytes]:
    """The lines of a file of reports without those of later steps and those that a kill has cut off."""
    return [line for line in content.splitlines() if _step_of(_parsed(line), otherwise=step + 1) <= step]


def _parsed(line: bytes) -> object:
    """The value of a line; None if it is not JSON, as the last line of a killed run may be."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _step_of(report: object, otherwise: int) -> int:
    """The step of a report; `otherwise` if that is no report."""
    step = report.get("step") if isinstance(report, dict) else None
    return step if isinstance(step, int) and not isinstance(step, bool) else otherwise
