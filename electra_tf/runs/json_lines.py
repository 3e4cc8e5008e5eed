"""Files of JSON objects, one a line: metrics.jsonl, the record of a run, and alarms.jsonl. Written and read here."""

import errno
import json
import logging
import os

from electra_tf.config.errors import UserError
from electra_tf.files import is_remote, read_bytes, store_errors, write_atomically

logger = logging.getLogger(__name__)


class JsonLines:
    """Appends JSON objects to a file, one a line. First removes the lines of steps that a continued run repeats.

    On a local disk each line is appended at once and as a whole, so a kill cuts off at most the last one. A remote
    store cannot append: there the file is rewritten at each `flush`, which comes before each checkpoint. Lines that a
    full disk refuses are kept and written with the next line.

    Args:
        last_step: lines of later steps are removed.
    """

    def __init__(self, path: str, last_step: int):
        self._path = path
        self._pending: list[bytes] = []
        self._has_warned = False
        before = read_bytes(path) or b""
        kept = [line for line in before.splitlines() if _step_of(line, otherwise=last_step + 1) <= last_step]
        content = b"".join(line + b"\n" for line in kept)
        if content != before:  # also where only the last line's end is missing
            write_atomically(path, content)
        self._written = kept if is_remote(path) else []

    def append(self, values: dict) -> None:
        self._pending.append(json.dumps(values).encode())
        if is_remote(self._path):
            return
        try:
            self.flush()
            self._has_warned = False
        except UserError as error:
            if not self._has_warned:
                logger.warning("%s; the report is kept and written later", error)
            self._has_warned = True

    def flush(self) -> None:
        """Writes what is pending. Raises: UserError: if the filesystem refuses it."""
        if not self._pending:
            return
        content = b"".join(line + b"\n" for line in self._written + self._pending)
        if is_remote(self._path):
            write_atomically(self._path, content)
            self._written += self._pending
        else:
            _append(self._path, content)
        self._pending = []


def _append(path: str, content: bytes) -> None:
    """Appends to a local file as a whole or not at all. Raises: UserError."""
    with store_errors(path, "cannot be written"), open(path, "ab", buffering=0) as stream:
        size = stream.tell()
        try:
            if stream.write(content) < len(content):  # a disk that is nearly full takes a part
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            stream.truncate(size)
            raise


def reports_of(metrics_file: str | os.PathLike, split: str) -> list[dict]:
    """The lines of a split in order, without a last line that a kill has cut off.

    Raises: UserError: if another line is no JSON.
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
