"""TensorBoard's event files, written so that a run continued from a checkpoint shows no step twice."""

import contextlib
import os
import socket
import time
from pathlib import Path

import tensorflow as tf

_EVENT_FILES = "events.out.tfevents.*"


class EventWriter:
    """Appends scalars to an event file of its own: one event a report, each on disk when `write` returns.

    `tf.summary` would write an event a scalar, and from a thread of its own: after a kill it is open which of them are
    there.

    Args:
        directory: created; None for workers that write nothing.
    """

    def __init__(self, directory: Path | None):
        self._directory = directory
        self._writer: tf.io.TFRecordWriter | None = None
        self._path, self._num_bytes = Path(), 0  # of the open file: where it is, and how long with its whole events

    def write(self, step: int, values: dict[str, float]) -> None:
        """Writes one event. `values`: scalars by their tags.

        Raises: OSError or tf.errors.OpError: if the disk does not take it; nothing of it is there then.
        """
        if self._directory is None:
            return
        event = tf.compat.v1.Event(wall_time=time.time(), step=step)
        for tag, value in values.items():
            event.summary.value.add(tag=tag, simple_value=value)
        try:
            if self._writer is None:
                self._open(self._directory)
            self._append(event)
        except tf.errors.OpError:
            self._give_up_file()
            raise

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        # As TensorBoard wants it: sorted by name, the files follow each other in time.
        name = f"events.out.tfevents.{time.time_ns() // 1000:020d}.{socket.gethostname()}.{os.getpid()}"
        self._path, self._num_bytes = directory / name, 0
        self._writer = tf.io.TFRecordWriter(str(self._path))
        self._append(tf.compat.v1.Event(wall_time=time.time(), file_version="brain.Event:2"))

    def _append(self, event: tf.compat.v1.Event) -> None:
        self._writer.write(event.SerializeToString())
        self._writer.flush()
        self._num_bytes = self._path.stat().st_size

    def _give_up_file(self) -> None:
        """Ends the file after its last whole event; the next one begins another file."""
        with contextlib.suppress(tf.errors.OpError):
            self.close()
        self._writer = None
        if self._num_bytes:
            os.truncate(self._path, self._num_bytes)
        else:
            self._path.unlink(missing_ok=True)


def drop_events_after(directory: Path, step: int) -> None:
    """Removes the events of steps after `step`, and what a kill has torn: a continued run writes them again."""
    for path in sorted(directory.glob(_EVENT_FILES)):
        kept, dropped = [], 0
        try:
            for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
                is_later = tf.compat.v1.Event.FromString(record).step > step
                dropped += is_later
                kept += [] if is_later else [record]
        except tf.errors.DataLossError:
            dropped += 1
        if dropped:
            _rewrite(path, kept)


def _rewrite(path: Path, records: list[bytes]) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with tf.io.TFRecordWriter(str(temporary)) as writer:
        for record in records:
            writer.write(record)
    os.replace(temporary, path)
