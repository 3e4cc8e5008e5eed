"""Writes and reads files of JSON objects, one a line: metrics.jsonl and alarms.jsonl of a run.

Each object has its line's number as `line`, so that lost lines are noticed; see `lost_lines`.
"""

import json
import os

from electra_tf.config.errors import UserError
from electra_tf.files import is_remote, read_bytes, store_errors, write_atomically


class JsonLines:
    """Appends JSON objects to a file, one a line. First removes the lines of steps that a continued run repeats.

    Lines are appended to a local file at once, so a kill cuts off at most the last one. A remote store cannot append:
    there `flush`, which is called before each checkpoint, writes the whole file again.

    Args:
        last_step: lines of later steps are removed.
    """

    def __init__(self, path: str, last_step: int):
        self._path = path
        before = read_bytes(path) or b""
        kept = [line + b"\n" for line in before.splitlines() if _step_of(line, otherwise=last_step + 1) <= last_step]
        content = b"".join(kept)
        if content != before:  # also where only the last line's end is missing
            write_atomically(path, content)
        self._lines = kept  # of a remote file
        self._num_written = len(kept)
        self._number = 0
        for line in kept:
            self._number = json.loads(line).get("line", self._number + 1)

    def append(self, values: dict) -> None:
        """Adds a line. Raises: UserError: it cannot be written."""
        self._number += 1
        line = json.dumps({"line": self._number, **values}).encode() + b"\n"
        if is_remote(self._path):
            self._lines.append(line)
            return
        with store_errors(self._path, "cannot be written"), open(self._path, "ab") as stream:
            stream.write(line)

    def flush(self) -> None:
        """Writes a remote file, if it has new lines. Raises: UserError: it cannot be written."""
        if len(self._lines) > self._num_written:
            write_atomically(self._path, b"".join(self._lines))
            self._num_written = len(self._lines)


def reports_of(metrics_file: str | os.PathLike, split: str) -> list[dict]:
    """The reports of a split in order, without a last line that a kill has cut off.

    Raises: UserError: if another line is not JSON.
    """
    reports = [line for line in _lines_of(metrics_file) if line["split"] == split]
    return [{name: value for name, value in report.items() if name != "line"} for report in reports]


def lost_lines(
    metrics_file: str | os.PathLike, log_every_steps: int, checkpoint: int, first_step: int = 0
) -> str | None:
    """A warning that metrics.jsonl of a run has lost lines; None if it has lost none.

    The numbers of the lines show which were lost between others, whatever the settings were; lines of older versions
    have no numbers. At the end there must be a line for every report before the newest checkpoint.

    Args:
        log_every_steps: of the newest call.        checkpoint: the step of the newest checkpoint; 0 without one.
        first_step: the step with which the run began.
    Raises: UserError: a line is not JSON.
    """
    number, steps, gaps = 0, [first_step], []  # steps: of the training reports
    for line in _lines_of(metrics_file):
        found = line.get("line", number + 1)
        if found > number + 1:
            count = found - number - 1
            gaps.append(f"{count} line{'s' * (count > 1)} between steps {steps[-1]} and {line['step']}")
        number = found
        if line["split"] == "train":
            steps.append(line["step"])
    # The period may have been longer until the newest call, which may have ended before its first report.
    period = max(log_every_steps, steps[-1] - steps[-2] if len(steps) > 2 else 0)
    if steps[-1] < checkpoint // period * period:
        gaps.append(f"all lines after step {steps[-1]}, up to the checkpoint of step {checkpoint}")
    return f"{metrics_file} has lost {'; '.join(gaps)}" if gaps else None


def _lines_of(path: str | os.PathLike) -> list[dict]:
    lines = (read_bytes(path) or b"").splitlines()
    values = []
    for number, line in enumerate(lines, start=1):
        try:
            values.append(json.loads(line))
        except ValueError as error:
            if number < len(lines):
                raise UserError(f"{path}, line {number} is damaged: {error}; remove it") from None
    return values


def evaluation_at(metrics_file: str | os.PathLike, step: int) -> dict[str, float]:
    """The held-out metrics that were reported for a step, NaN where one had no value; empty if there are none."""
    reports = [report for report in reports_of(metrics_file, "held_out") if report["step"] == step]
    metrics = {name: value for name, value in (reports or [{}])[-1].items() if name not in ("step", "split")}
    return {name: float("nan") if value is None else value for name, value in metrics.items()}


def _step_of(line: bytes, otherwise: int) -> int:
    """The step of a line; `otherwise` if a kill has cut it off."""
    try:
        return json.loads(line)["step"]
    except ValueError:
        return otherwise
