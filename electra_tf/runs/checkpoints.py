"""Checkpoints of a run, by TensorFlow's CheckpointManager on any filesystem that TensorFlow writes.

A checkpoint holds everything that the next update depends on. TensorFlow stores a CRC-32C of every tensor and compares
it when the tensor is read, so `damage` reads all tensors before a checkpoint is restored: damage is reported, and the
checkpoint before is used.

TensorFlow writes `step-N_temp/` first, then moves the data out of it, then writes `step-N.index`, then removes the
directory. So as long as `step-N_temp` exists the checkpoint is unfinished, whatever other files it has.
"""

import contextlib
import logging
import os
import re
import tempfile

import absl.logging
import tensorflow as tf

from electra_tf.config.errors import UserError, first_line
from electra_tf.files import names_in, write_atomically
from electra_tf.runs.directory import RunDirectory
from electra_tf.runs.lock import require_held
from electra_tf.tasks.base import Task

logger = logging.getLogger(__name__)

_NAME = "step"
_PREFIX = re.compile(rf"{_NAME}-(\d{{1,10}})")  # steps are numbers of 32 bits
_FILE = re.compile(rf"{_PREFIX.pattern}\.(index|data-.*)")
_UNFINISHED = re.compile(rf"{_NAME}-(\d+)(_temp|\.part).*")  # the second on s3://, which cannot rename a directory


class Checkpoints:
    """The checkpoints of one run: the last few in `checkpoints/`, those kept for ever in `milestones/`.

    Every worker of a cluster must take part in a save, as reading some variables is a joint operation; all but the
    chief write to a temporary directory.

    Args:
        task: compiled.        chief: whether this process writes the run's files.
        keep: how many of the last stay.
        tracked: state of the run beside the task and its optimizer.
    """

    def __init__(self, task: Task, run: RunDirectory, chief: bool, keep: int, **tracked: tf.Module):
        # At every write it logs how long the variables took to be assigned to files.
        absl.logging.set_verbosity(absl.logging.WARNING)
        self._checkpoint = tf.train.Checkpoint(task=task, optimizer=task.optimizer, **tracked)
        self._run = run
        self._scratch = None if chief else tempfile.TemporaryDirectory(prefix="electra_tf_worker_")
        kept = {run.checkpoints: keep, run.milestones: None, run.best: 1}
        self._managers = {directory: self._manager(directory, count) for directory, count in kept.items()}
        self._saved: set[str] = set()  # prefixes of what this process has written or restored
        self._failure: str | None = None  # of the newest save

    def restore_latest(self) -> int | None:
        """Restores the newest whole checkpoint, strictly; damaged newer ones are warned of, one line each.

        Returns: the step; None if there is no checkpoint at all.
        Raises: UserError: if there are checkpoints and none is whole, or if it is not of this run.
        """
        if (prefix := newest_whole(self._run.checkpoints)) is None:
            return None
        restore_strictly(self._checkpoint, prefix)
        self._saved.add(prefix)
        return step_of(prefix)

    def save(self, step: int) -> None:
        """Writes `checkpoints/step-N`, unless this process has written or restored it; removes the oldest.

        A store that is full or faulty costs this checkpoint only: a warning says so, and those before stay.

        Raises: UserError: if another process has taken the run over.
        """
        self._save(self._run.checkpoints, step)

    def save_milestone(self, step: int) -> None:
        """Writes `milestones/step-N`, which is never removed. The same holds as for `save`."""
        self._save(self._run.milestones, step)

    def save_best(self, step: int) -> None:
        """Writes `best/step-N` in place of the one there. The same holds as for `save`."""
        self._save(self._run.best, step)

    def skip(self, step: int, reason: str) -> None:
        """Notes that the checkpoint of a step could not be written; warns, as the training goes on."""
        self._failure = f"the checkpoint of step {step} could not be written ({reason})"
        logger.warning("%s; training goes on", self._failure)

    def close(self) -> None:
        """Raises: UserError: if the newest checkpoint that was to be saved could not be written."""
        if self._scratch is not None:
            self._scratch.cleanup()
        if self._failure is not None:
            remedy = "give the same command again"
            if not steps_in(self._run.checkpoints):
                remedy = f"give a new {self._run.flag}, or copy a checkpoint from {self._run.milestones} there"
            raise UserError(f"{self._failure}; make room and {remedy}")

    def _manager(self, directory: str, keep: int | None) -> tf.train.CheckpointManager:
        if self._scratch is not None:
            directory = os.path.join(self._scratch.name, os.path.basename(directory))
        else:
            _remove_unfinished(directory)
            _register(directory)
        return tf.train.CheckpointManager(self._checkpoint, directory, max_to_keep=keep, checkpoint_name=_NAME)

    def _save(self, directory: str, step: int) -> None:
        prefix = checkpoint_prefix(directory, step)
        if prefix in self._saved:
            return
        require_held(self._run)
        try:
            self._managers[directory].save(step, check_interval=False)
        except tf.errors.OpError as error:
            self.skip(step, first_line(error))
            if self._scratch is None:
                with contextlib.suppress(tf.errors.OpError):
                    _remove_unfinished(directory)
            return
        self._saved.add(prefix)
        self._failure = None


def steps_in(directory: str) -> list[int]:
    """The steps, ascending, of the checkpoints in a directory, whole or damaged; unfinished ones do not count."""
    names = names_in(directory)
    return sorted({int(match[1]) for match in map(_FILE.fullmatch, names) if match} - _unfinished_steps(names))


def step_of(prefix: str) -> int:
    """The step in the name of one of our checkpoints. Raises: UserError: if it is not named as they are."""
    match = _PREFIX.fullmatch(os.path.basename(prefix))
    if match is None:
        raise UserError(f"{prefix} is not named as the checkpoint of a run: expected {_NAME}-N; rename its files")
    return int(match[1])


def newest_whole(directory: str) -> str | None:
    """The prefix of the newest checkpoint that is whole; damaged newer ones are warned of, one line each.

    Returns: None if there is no checkpoint at all.
    Raises: UserError: if there are some and none is whole.
    """
    damages: dict[str, str] = {}
    for step in reversed(steps_in(directory)):
        prefix = checkpoint_prefix(directory, step)
        reason = damage(prefix)
        if reason is None:
            for other, what in damages.items():
                logger.warning("%s is damaged: %s; %s is used instead", other, what, os.path.basename(prefix))
            return prefix
        damages[prefix] = reason
    if damages:
        listed = ", ".join(f"{os.path.basename(prefix)}: {what}" for prefix, what in damages.items())
        raise UserError(
            f"{directory} holds no whole checkpoint ({listed}); copy a whole one there, for example from milestones/ "
            "beside it, or begin a new run"
        )
    return None


def damage(prefix: str) -> str | None:
    """What is wrong with a checkpoint, in a few words; None if every tensor reads back as it was written."""
    try:
        reader = tf.compat.v1.train.NewCheckpointReader(prefix)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except (tf.errors.OpError, ValueError, IndexError, RuntimeError) as error:  # the reader has no class of its own
        names_in(os.path.dirname(prefix))  # or the store does not answer, which is no damage
        return first_line(error)
    return None


def restore_strictly(checkpoint: tf.train.Checkpoint, prefix: str) -> None:
    """Restores everything that `checkpoint` tracks; what the files hold beside it is ignored.

    Raises: UserError: if something is missing there or of another shape.
    """
    try:
        status = checkpoint.read(prefix)
        status.expect_partial()  # else TensorFlow lists at exit what was ignored
        status.assert_existing_objects_matched()
    except (AssertionError, ValueError, IndexError, tf.errors.OpError) as error:
        missing = _missing_parts(checkpoint, prefix) if isinstance(error, AssertionError) else None
        raise UserError(
            f"{prefix} does not fit this run: {missing or first_line(error)}; continue it with the version of the "
            "program that wrote it, or begin a new run from its weights with --init_from"
        ) from None


def checkpoint_prefix(directory: str, step: int) -> str:
    """What the names of the files of a step's checkpoint begin with."""
    return os.path.join(directory, f"{_NAME}-{step}")


def _unfinished_steps(names: list[str]) -> set[int]:
    return {int(match[1]) for match in map(_UNFINISHED.fullmatch, names) if match}


def _remove_unfinished(directory: str) -> None:
    """Removes what a kill or a full disk has left of checkpoints that were being written."""
    names = names_in(directory)
    for step in _unfinished_steps(names):
        # The temporary directory last: without it the rest would pass for a damaged checkpoint.
        for name in sorted(name for name in names if re.match(rf"{_NAME}-{step}\D", name)):
            path = os.path.join(directory, name)
            tf.io.gfile.rmtree(path) if tf.io.gfile.isdir(path) else tf.io.gfile.remove(path)


def _register(directory: str) -> None:
    """Lists what a directory holds in TensorFlow's file `checkpoint`, by which the manager removes the oldest.

    A kill may have come between a checkpoint and its entry there; a user may have copied one.
    """
    prefixes = [checkpoint_prefix(directory, step) for step in steps_in(directory)]
    if prefixes:
        # The manager passes over what is not newer than the last it was told to keep for ever, at time 0.
        times = [1.0] * len(prefixes)
        state = tf.compat.v1.train.generate_checkpoint_state_proto(directory, prefixes[-1], prefixes, times)
        write_atomically(os.path.join(directory, "checkpoint"), str(state).encode())


def _missing_parts(checkpoint: tf.train.Checkpoint, prefix: str) -> str | None:
    """Which of the tracked objects the files lack altogether; None if there is none."""
    stored = {name.partition("/")[0] for name, _ in tf.train.list_variables(prefix)}
    parts = sorted(set(tf.train.TrackableView(checkpoint).children(checkpoint)) - stored - {"save_counter"})
    return f"it has no {' and no '.join(parts)}" if parts else None
