"""Checkpoints of model and optimizer."""

import tempfile
from pathlib import Path

import tensorflow as tf
import tf_keras

from electra_tf.config.errors import UserError
from electra_tf.objectives.base import Objective
from electra_tf.train.run_directory import RunDirectory


def training_checkpoint(objective: Objective) -> tf.train.Checkpoint:
    """Everything that the next update depends on: weights, moments, and the step (the optimizer's `iterations`)."""
    return tf.train.Checkpoint(objective=objective, optimizer=objective.optimizer)


class Checkpoints:
    """The checkpoints of one run: the last few in `checkpoints/`, those kept for ever in `milestones/`.

    Every worker of a cluster has to take part in a save; all but the chief write to a temporary place and lose it.

    Args:
        keep: how many of the last ones stay.
    """

    def __init__(self, objective: Objective, run: RunDirectory, chief: bool, keep: int):
        self._checkpoint = training_checkpoint(objective)
        self._run = run
        self._elsewhere = None if chief else tempfile.TemporaryDirectory(prefix="electra_tf_worker_")
        self._milestones = run.milestones if chief else Path(self._elsewhere.name) / "milestones"
        self._manager = tf.train.CheckpointManager(
            self._checkpoint,
            str(run.checkpoints if chief else self._elsewhere.name),
            max_to_keep=keep,
            step_counter=objective.optimizer.iterations,
            checkpoint_name="step",
        )

    def restore_latest(self) -> int:
        """Restores the newest checkpoint, strictly, if there is one. Returns the step: 0 where there is none.

        Raises: UserError: if the checkpoint is damaged or not of this model.
        """
        latest = self._run.latest_checkpoint()
        if latest is None:
            return 0
        restore_strictly(self._checkpoint, latest)
        return int(self._checkpoint.optimizer.iterations.numpy())

    def save(self, step: int) -> None:
        """Writes `checkpoints/step-N` and removes the oldest beyond the last few."""
        self._manager.save(checkpoint_number=step)

    def write_milestone(self, step: int) -> None:
        """Writes `milestones/step-N`, which is never removed."""
        self._checkpoint.write(str(self._milestones / f"step-{step}"))


def restore_strictly(checkpoint: tf.train.Checkpoint, path: str) -> None:
    """Restores everything that `checkpoint` tracks; what the file holds beside it is left aside.

    Raises: UserError: if something is missing there, of another shape, or damaged.
    """
    status = None
    try:
        status = checkpoint.restore(path)
        status.assert_existing_objects_matched()
    except (AssertionError, ValueError, IndexError, tf.errors.OpError) as error:  # IndexError: a file cut short
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"{path} does not fit this run or is damaged: {reason}; remove its files to go on from the one before, or "
            "give a new --model_dir"
        ) from None
    finally:
        if status is not None:
            status.expect_partial()  # else TensorFlow lists at exit what was left aside


def seed_everything(seed: int) -> None:
    """Fixes the initial values: Keras draws them from its global seed, in the order the variables are created."""
    tf_keras.utils.set_random_seed(seed)


def milestone_steps(num_steps: int, fractions: tuple[float, ...]) -> tuple[int, ...]:
    """The steps of the milestones: each share of the training, rounded, at least 1."""
    return tuple(sorted({max(1, round(fraction * num_steps)) for fraction in fractions if fraction > 0}))
