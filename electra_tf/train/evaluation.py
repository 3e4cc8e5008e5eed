"""The newest checkpoint of a run, to evaluate it without training it."""

import logging
from collections.abc import Sequence

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.manifest import seen_held_out_text
from electra_tf.tasks.base import Task
from electra_tf.train.checkpoints import latest_intact, restore_strictly, step_of
from electra_tf.train.run_directory import RunDirectory
from electra_tf.train.timeline import StageT, stage_at, stages_of

logger = logging.getLogger(__name__)


def restore_newest(directory: RunDirectory, task: Task, stages: Sequence[StageT]) -> tuple[int, StageT]:
    """Gives a task of the run's model the weights of the run's newest checkpoint.

    Reads only: it may be called while the run trains.

    Args: stages: of the run; their data may be other data sets.
    Returns: the checkpoint's step, and its stage, with the phase of the task that it trains.
    Raises: UserError: if there is no checkpoint or no held-out split, or settings or tokenizer differ from the run's.
    """
    if (prefix := latest_intact(directory.checkpoints)) is None:
        raise UserError(f"{directory.checkpoints} holds no checkpoint to evaluate; train first")
    directory.require_same_run(task.config)
    directory.require_same_tokenizer(stages[0].tokenizer)
    restore_strictly(tf.train.Checkpoint(task=task), prefix)
    step = step_of(prefix)
    stage = stage_at(stages_of(task, stages), step)
    if stage.num_evaluation_batches == 0:
        raise UserError(f"{stage.source} has no held-out split; build it with held_out_fraction")
    begun = sum(stage.first_step < step for stage in stages)
    if seen := seen_held_out_text([*directory.hold_outs[:begun], (stage.source, stage.hold_out)]):
        logger.warning("warning: %s", seen)
    return step, stage
