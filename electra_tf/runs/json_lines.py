"""Writes and reads files of JSON objects, one a line: metrics.jsonl and alarms.jsonl of a run."""

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

    def append(self, values: dict) -> None:
        """Adds a line. Raises: UserError: it cannot be written."""
        line = json.dumps(values).encode() + b"\n"
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
    """The lines of a split in order, without a last line that a kill has cut off.

    Raises: UserError: if another line is not JSON.
    """
    lines = (read_bytes(metrics_file) or b"").splitlines()
    reports = []
    for number, line in enumerate(lines, start=1):
        try:
            reports.append(json.loads(line))
        except ValueError as error:
            if number < len(lines):
                raise UserError(f"{metrics_file}, line {number} is damaged: {error}; remove it") from None
    return [report for report in reports if report["split"] == split]


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
