"""Checkpoints of a run: everything that the next update depends on, saved, restored, and never lost."""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import tensorflow as tf
import tf_keras

from electra_tf.config.errors import UserError
from electra_tf.runs.checkpoint_files import CheckpointFolder
from electra_tf.runs.checkpoint_state import CheckpointState, read_every_tensor, write_tensors
from electra_tf.runs.disk import DISK_ERRORS, disk_reason
from electra_tf.runs.run_directory import RunDirectory
from electra_tf.tasks.base import Objective

logger = logging.getLogger(__name__)


def training_checkpoint(objective: Objective, **tracked: tf.Module | tf.Variable) -> tf.train.Checkpoint:
    """Everything that the next update depends on: weights, moments, and the step (the optimizer's `iterations`).

    Args:
        tracked: what else the run has to go on with.
    """
    return tf.train.Checkpoint(objective=objective, optimizer=objective.optimizer, **tracked)


class Checkpoints:
    """The checkpoints of one run: the last few in `checkpoints/`, those kept for ever in `milestones/`.

    Of a cluster, every worker has to take part in a save. All but the chief only read the state and drop it: reading
    is a joint operation where a variable has a part on each worker.

    Args:
        chief: whether this process writes.
        keep: how many of the last checkpoints stay.
        asynchronous: copy the state, which takes as much host memory again, and write it in a thread while the next
            steps run. Each save waits for the one before. Errors that are not the disk's come up at the next call.
        tracked: state of the run beside the objective and its optimizer.
    """

    def __init__(
        self,
        objective: Objective,
        run: RunDirectory,
        chief: bool,
        keep: int,
        asynchronous: bool = False,
        **tracked: tf.Module | tf.Variable,
    ):
        self._checkpoint = training_checkpoint(objective, **tracked)
        self._folder, self._milestones = CheckpointFolder(run.checkpoints), CheckpointFolder(run.milestones)
        self._chief = chief
        self._state = CheckpointState(self._checkpoint, scratch=self._folder.scratch if chief else None)
        self._keep = keep
        self._writer = ThreadPoolExecutor(1, "checkpoint_writer") if asynchronous and chief else None
        self._writing: Future | None = None
        self._whole: set[str] = set()  # prefixes of what this process has published or restored
        self._failure: str | None = None  # of the newest save

    def restore_latest(self) -> int:
        """Restores the newest whole checkpoint, strictly. Damaged newer ones are warned of, one line each.

        Returns: the step; 0 if there is no checkpoint at all.
        Raises: UserError: if there are checkpoints and none is whole, or if it is not of this run.
        """
        self.wait()
        step = self._folder.newest_whole()
        if step is None:
            return 0
        restore_strictly(self._checkpoint, self._folder.prefix(step))
        self._whole.add(self._folder.prefix(step))
        return step

    def remove_leftovers(self) -> None:
        """Removes what a killed call left half written. Only for the one process that trains; `save` does it too."""
        if self._chief:
            self._folder.remove_leftovers()
            self._milestones.remove_leftovers()

    def save(self, step: int, first: Callable[[], None] = lambda: None) -> None:
        """Writes `checkpoints/step-N`, and then removes the oldest beyond the last few.

        Args:
            first: puts on the disk what the checkpoint stands for; if it cannot, there will be no checkpoint.

        A disk that is full or faulty costs this checkpoint only: a warning says so, and those before stay. What this
        process has written or restored is not written again: the state belongs to the step.
        """
        self._put(self._folder, step, first)

    def write_milestone(self, step: int) -> None:
        """Writes `milestones/step-N`, which is never removed. The same holds as for `save`."""
        self._put(self._milestones, step, lambda: None)

    def wait(self) -> None:
        """Returns when nothing is being written. Raises: what went wrong there, unless it was the disk."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def close(self) -> None:
        """Ends the saving. Call it once the run has saved for the last time, also when it is interrupted.

        Raises: UserError: if the last state that was to be saved is not on the disk.
        """
        try:
            self.wait()
        finally:
            if self._writer is not None:
                self._writer.shutdown()
        if self._failure is not None:
            raise UserError(f"{self._failure}; make room and give the same command again")

    def _put(self, folder: CheckpointFolder, step: int, first: Callable[[], None]) -> None:
        self.wait()
        if folder.prefix(step) in self._whole:
            return
        try:
            first()
            self._state.prepare()
        except DISK_ERRORS as error:
            self._report_failure(folder, step, error)
            return
        if self._writer is not None:
            self._writing = self._writer.submit(self._publish, folder, step, self._state.copy())
        else:
            tensors = self._state.read()
            if self._chief:
                self._publish(folder, step, tensors)

    def _publish(self, folder: CheckpointFolder, step: int, tensors: dict[str, tf.Tensor]) -> None:
        try:
            folder.publish(step, write=lambda prefix: write_tensors(prefix, tensors), verify=read_every_tensor)
            self._whole.add(folder.prefix(step))
            self._failure = None
            if folder is self._folder:
                folder.keep_last(self._keep, step)
        except DISK_ERRORS as error:
            self._report_failure(folder, step, error)

    def _report_failure(self, folder: CheckpointFolder, step: int, error: Exception) -> None:
        self._failure = f"{folder.prefix(step)} could not be written ({disk_reason(error)})"
        steps = self._folder.published_steps()
        newest = f"the newest is step-{steps[-1]}" if steps else "there is none before it"
        logger.warning("%s; training goes on, %s", self._failure, newest)


def restore_strictly(checkpoint: tf.train.Checkpoint, prefix: str) -> None:
    """Restores everything that `checkpoint` tracks; what the files hold beside it is left aside.

    Raises: UserError: if something is missing there or of another shape.
    """
    status = None
    try:
        status = checkpoint.read(prefix)
        status.assert_existing_objects_matched()
    except (AssertionError, ValueError, IndexError, tf.errors.OpError) as error:
        reason = _missing_parts(checkpoint, prefix) or disk_reason(error)
        raise UserError(
            f"{prefix} does not fit this run: {reason}; continue it with the version of the program that wrote it, or "
            "start a new --model_dir from its weights with --init_from"
        ) from None
    finally:
        if status is not None:
            status.expect_partial()  # else TensorFlow lists at exit what was left aside


def _missing_parts(checkpoint: tf.train.Checkpoint, prefix: str) -> str | None:
    """Says which of the tracked parts the files do not know at all; None if there is none."""
    try:
        stored = {name.partition("/")[0] for name in tf.train.load_checkpoint(prefix).get_variable_to_shape_map()}
    except (ValueError, IndexError, tf.errors.OpError):
        return None
    parts = sorted(set(tf.train.TrackableView(checkpoint).children(checkpoint)) - stored - {"save_counter"})
    return f"it has no {' and no '.join(parts)}" if parts else None


def seed_everything(seed: int) -> None:
    """Fixes the initial values: Keras draws them from its global seed, in the order the variables are created."""
    tf_keras.utils.set_random_seed(seed)
