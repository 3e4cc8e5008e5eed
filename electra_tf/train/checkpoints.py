"""Checkpoints of a run, by `tf.train.Checkpoint` on any filesystem that TensorFlow writes.

A checkpoint holds everything that the next update depends on. If the newest one is damaged, the run continues from the
one before: see `latest_intact`.

TensorFlow writes `step-N_temp/` first, then moves the data out of it, then writes `step-N.index`, then removes the
directory. So a checkpoint is unfinished as long as `step-N_temp` exists. The file `checkpoint` is only for
`tf.train.latest_checkpoint`. (`tf.train.CheckpointManager` cannot begin where a power cut has left that file empty, and
removes older checkpoints before the new one is on the disk.)
"""

import logging
import os
import re
import tempfile
from collections.abc import Callable
from typing import NamedTuple

import absl.logging
import tensorflow as tf

from electra_tf.config.errors import UserError, first_line
from electra_tf.files import (
    absolute_path,
    exists,
    is_directory,
    is_hub,
    is_remote,
    make_directory,
    names_in,
    remove,
    sync,
    write_atomically,
)
from electra_tf.tasks.base import Task
from electra_tf.train.run_directory import RunDirectory

logger = logging.getLogger(__name__)

_NAME = "step"
_FILE = re.compile(rf"{_NAME}-(\d{{1,10}})\.(index|data-.*)")  # steps are numbers of 32 bits
_UNFINISHED = re.compile(rf"{_NAME}-(\d+)_temp")
# A path may be the name of a checkpoint's file, as a shell completes it.
_FILE_ENDING = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")

# Errors of a device or a store, for which a file cannot be blamed; a full GPU gives one of the first two.
_OTHERS_FAULTS = (tf.errors.ResourceExhaustedError, tf.errors.InternalError, tf.errors.UnavailableError)


class Checkpoints:
    """Saves and restores the checkpoints of one run: `checkpoints/`, `milestones/` and `best/`.

    Every worker of a cluster must take part in a save, because reading some variables is a joint operation.

    Args:
        task: compiled.
        chief: whether this process writes the run's files; another one writes to a temporary directory.
        keep: the number of checkpoints to keep in `checkpoints/`.
        tracked: other state to save, besides the task and its optimizer. What a checkpoint lacks of it stays as it is.
    """

    def __init__(self, task: Task, run: RunDirectory, chief: bool, keep: int, **tracked: tf.Module):
        # TensorFlow logs a line about its files at every write.
        absl.logging.set_verbosity(absl.logging.WARNING)
        self._state = tf.train.Checkpoint(task=task, optimizer=task.optimizer)
        self._tracked = tf.train.Checkpoint(**tracked)
        self._all = tf.train.Checkpoint(task=task, optimizer=task.optimizer, **tracked)
        self._run, self._is_chief = run, chief
        self._keep = {run.checkpoints: keep, run.best: 1}
        for directory in (run.checkpoints, run.milestones, run.best) if chief else ():
            _remove_unfinished(directory)
        self._saved: set[str] = set()  # prefixes that this process has written or restored

    def restore_latest(self) -> int | None:
        """Restores the newest checkpoint that is not damaged, see `latest_intact`.

        Returns: its step; None if there is no checkpoint at all.
        Raises: UserError: if all are damaged, or if it does not fit this run.
        """
        if (prefix := latest_intact(self._run.checkpoints, self._restore)) is None:
            return None
        self._saved.add(prefix)
        return step_of(prefix)

    def save(self, step: int, directory: str | None = None) -> None:
        """Writes `step-N`, unless this process has written or restored it, and then removes those that are too many.

        Args:
            directory: of the run: `checkpoints` (as None), `milestones`, of which none is removed, or `best`, of which
                one stays.
        """
        directory = directory or self._run.checkpoints
        prefix = checkpoint_prefix(directory, step)
        if prefix in self._saved:
            return
        if self._is_chief:
            make_directory(directory)
            self._all.write(prefix)
            self._finish(directory, step)
        else:
            with tempfile.TemporaryDirectory(prefix="electra_tf_worker_") as scratch:
                self._all.write(os.path.join(scratch, _NAME))
        self._saved.add(prefix)

    def _restore(self, prefix: str) -> str | None:
        """Restores a checkpoint. Returns: its `damage`; None if it was whole, and so is read only once."""
        try:
            restore_strictly(self._state, prefix, self._tracked)
        except UserError:
            if (reason := damage(prefix)) is None:
                raise
            return reason
        return None

    def _finish(self, directory: str, step: int) -> None:
        """Waits until a checkpoint is on the disk, and removes the oldest."""
        for path in () if is_remote(directory) else (*_files_of(directory, step), directory):
            sync(path)
        # Those of later steps are damaged, or of an evaluation that the run repeats: the first ones to go.
        steps = sorted(steps_in(directory), key=lambda other: (other <= step, other))
        first_kept = max(0, len(steps) - self._keep.get(directory, len(steps)))
        state = [f'model_checkpoint_path: "{_NAME}-{step}"']
        state += [f'all_model_checkpoint_paths: "{_NAME}-{kept}"' for kept in steps[first_kept:]]
        write_atomically(os.path.join(directory, "checkpoint"), "\n".join(state).encode())
        for path in (path for old in steps[:first_kept] for path in _files_of(directory, old)):
            remove(path)


def steps_in(directory: str) -> list[int]:
    """The steps of the finished checkpoints in a directory, ascending, damaged ones included."""
    names = names_in(directory)
    return sorted({int(match[1]) for match in map(_FILE.fullmatch, names) if match} - _unfinished_steps(names))


def step_of(prefix: str) -> int:
    """The step in a checkpoint's name, `step-N`."""
    return int(os.path.basename(prefix).removeprefix(f"{_NAME}-"))


def damage(prefix: str) -> str | None:
    """Reads every tensor of a checkpoint, which TensorFlow compares with its checksum.

    Returns: TensorFlow's error in one line; None if the checkpoint is whole.
    """
    try:
        reader = tf.compat.v1.train.NewCheckpointReader(prefix)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except _OTHERS_FAULTS:
        raise
    except (tf.errors.OpError, ValueError, IndexError, RuntimeError) as error:
        names_in(os.path.dirname(prefix))  # raises if the store does not answer: then the file is not damaged
        return first_line(error)
    return None


def latest_intact(directory: str, damage_of: Callable[[str], str | None] = damage) -> str | None:
    """Finds the newest checkpoint that is not damaged, and logs a warning for each damaged one that it passes over.

    A run thus continues from the checkpoint before a damaged one, and repeats the steps between them.

    Args:
        damage_of: finds the damage of the checkpoint with a prefix.
    Returns: the checkpoint's prefix; None if there is no checkpoint at all.
    Raises: UserError: if all checkpoints are damaged. The run must not start again from random weights.
    """
    damages: dict[str, str] = {}
    for step in reversed(steps_in(directory)):
        prefix = checkpoint_prefix(directory, step)
        if (reason := damage_of(prefix)) is None:
            for other, what in damages.items():
                logger.warning("%s is damaged: %s; %s is used instead", other, what, os.path.basename(prefix))
            return prefix
        damages[prefix] = reason
    if damages:
        listed = ", ".join(f"{os.path.basename(prefix)}: {what}" for prefix, what in damages.items())
        raise UserError(
            f"{directory}: all checkpoints are damaged ({listed}); copy one from milestones/, or begin a new run"
        )
    return None


def restore_strictly(checkpoint: tf.train.Checkpoint, prefix: str, optional: tf.train.Checkpoint | None = None) -> None:
    """Restores everything that `checkpoint` tracks, and of `optional` what is there; ignores what else the files hold.

    Raises: UserError: if a variable is missing there or has another shape.
    """
    try:
        status = checkpoint.read(prefix)
        status.expect_partial()  # else TensorFlow lists the ignored variables at exit
        status.assert_existing_objects_matched()
        if optional is not None:
            optional.read(prefix).expect_partial()
    except _OTHERS_FAULTS:
        raise
    except (AssertionError, ValueError, IndexError, tf.errors.OpError) as error:
        lacks = isinstance(error, AssertionError)  # its text is a list of objects
        reason = "it lacks variables of the model or of the optimizer" if lacks else first_line(error)
        raise UserError(
            f"{prefix} does not fit this run: {reason}; continue it with the version that wrote it, or begin a new run "
            "from its weights with init_from"
        ) from None


def checkpoint_prefix(directory: str, step: int) -> str:
    """The path of a step's checkpoint, to which TensorFlow appends `.index` and `.data-*`."""
    return os.path.join(directory, f"{_NAME}-{step}")


def _files_of(directory: str, step: int) -> list[str]:
    return [os.path.join(directory, name) for name in names_in(directory) if name.startswith(f"{_NAME}-{step}.")]


def _unfinished_steps(names: list[str]) -> set[int]:
    return {int(match[1]) for match in map(_UNFINISHED.fullmatch, names) if match}


def _remove_unfinished(directory: str) -> None:
    """Removes the files of checkpoints that a kill or a full disk has left unfinished."""
    names = names_in(directory)
    for step in _unfinished_steps(names):
        # The temporary directory last: without it the other files would look like a damaged checkpoint.
        for name in sorted(name for name in names if re.match(rf"{_NAME}-{step}\D", name)):
            remove(os.path.join(directory, name))


class RunCheckpoint(NamedTuple):
    """A checkpoint of a run.

    Attributes:
        prefix: the path of its files without their endings.
    """

    run: RunDirectory
    prefix: str

    @property
    def step(self) -> int:
        return step_of(self.prefix)


def checkpoint_prefix_of(path: str) -> str | None:
    """The prefix of the checkpoint that a path names, as a prefix or as one of its files; None if there is none."""
    prefix = path if is_directory(path) else _FILE_ENDING.sub("", path)
    return prefix if exists(f"{prefix}.index") and not is_directory(f"{prefix}.index") else None


def find_checkpoint(path: str | os.PathLike[str], flag: str) -> RunCheckpoint | None:
    """The checkpoint of a run that a path names; None if the path belongs to no run.

    Args:
        path: one of these:
            a run's directory, for its newest whole checkpoint (after fine-tuning the best one, if it was kept);
            its `checkpoints/`, `milestones/` or `best/`, for the newest whole one there;
            one of its checkpoints, or a file of it.
        flag: the flag that gives the path, for messages.
    Raises: UserError: if the run has no whole checkpoint.
    """
    path = absolute_path(path)
    if (run := run_at(path)) is None:
        return None
    if (prefix := checkpoint_prefix_of(path)) is not None:
        return RunCheckpoint(run, prefix)
    folders = [path]
    if run.path == path:
        folders = [run.best, run.checkpoints] if run.is_finetuned else [run.checkpoints]
    for folder in folders:
        if (prefix := latest_intact(folder)) is not None:
            return RunCheckpoint(run, prefix)
    raise UserError(
        f"{flag}={path} is a run without a checkpoint; train it first (fine-tuning with keep=none keeps none)"
    )


def run_at(path: str | os.PathLike[str]) -> RunDirectory | None:
    """The run that a path names, see `find_checkpoint`; None if the path belongs to no run."""
    if is_hub(path):
        return None
    path = absolute_path(path)
    if (prefix := checkpoint_prefix_of(path)) is not None:
        return _run_around(os.path.dirname(prefix))
    run = RunDirectory(path)
    return run if exists(run.config_file) else _run_around(path)


def _run_around(folder: str) -> RunDirectory | None:
    """The run of a folder of checkpoints, or of a local link to one; None for another folder."""
    for each in (folder,) if is_remote(folder) else (folder, os.path.realpath(folder)):
        directory, name = os.path.split(each)
        run = RunDirectory(directory)
        if name in ("checkpoints", "milestones", "best") and exists(run.config_file):
            return run
    return None
