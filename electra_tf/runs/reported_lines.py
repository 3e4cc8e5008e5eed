"""What a run has reported, read again from its metrics.jsonl."""

import json
from pathlib import Path

from electra_tf.config.errors import UserError

_SHOWN_BYTES = 60  # of a line that cannot be read


def reports_of(metrics_file: Path, split: str) -> list[dict]:
    """The lines of a split, in their order; without the last of all if a kill has torn it.

    Raises: UserError: if the file cannot be read, or another line is no report.
    """
    return [report for report in _reports(metrics_file) if report["split"] == split]


def evaluation_at(metrics_file: Path, step: int) -> dict[str, float] | None:
    """The held-out metrics that were reported for a step, NaN where one had no value; None if there are none.

    Raises: UserError: as `reports_of`.
    """
    found = [report for report in reports_of(metrics_file, "held_out") if report["step"] == step]
    if not found:
        return None
    metrics = {name: value for name, value in found[-1].items() if name not in ("step", "split")}
    return {name: float("nan") if value is None else value for name, value in metrics.items()}


def lines_until(jsonl_file: Path, step: int) -> tuple[bytes, bytes]:
    """What a file of reports holds, and that without the lines of later steps and those that are torn.

    Raises: UserError: if the file cannot be read.
    """
    content = _content(jsonl_file)
    kept = (line for line in content.splitlines() if _step_of(_parsed(line), after=step + 1) <= step)
    return content, b"".join(line + b"\n" for line in kept)


def _reports(metrics_file: Path) -> list[dict]:
    lines = _content(metrics_file).splitlines()
    reports = []
    for number, line in enumerate(lines, start=1):
        report = _parsed(line)
        if report is None and number == len(lines):
            break
        if _step_of(report, after=-1) < 0 or not isinstance(report.get("split"), str):
            raise UserError(
                f"{metrics_file}, line {number}: expected a JSON object with a whole number as step and a text as "
                f"split, found {line[:_SHOWN_BYTES].decode(errors='replace')!r}; mend the line or remove it"
            )
        reports.append(report)
    return reports


def _content(file: Path) -> bytes:
    """The bytes of a file; none if there is no file."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}; a run's reports belong there") from None


def _parsed(line: bytes) -> object:
    """The value of a line; None if it has none, as the torn last line of a killed run."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _step_of(report: object, after: int) -> int:
    """The step of a report; `after` if that is no report."""
    step = report.get("step") if isinstance(report, dict) else None
    return step if isinstance(step, int) and not isinstance(step, bool) else after
