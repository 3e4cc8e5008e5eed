"""Evaluates a run's newest checkpoint, also while the run trains."""

import logging
from collections.abc import Callable, Sequence

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.corpus import damaged_data_reported
from electra_tf.tasks.base import InputStage, Task
from electra_tf.text.manifest import seen_held_out_text
from electra_tf.train.checkpoints import newest_whole, restore_strictly, step_of, steps_in
from electra_tf.train.device_loop import DeviceLoop
from electra_tf.train.loop import Run
from electra_tf.train.timeline import phases_of, span_at

logger = logging.getLogger(__name__)


def evaluate(
    run: Run,
    stages: Sequence[InputStage],
    model_of: Callable[[Task], Task] = lambda task: task,
    input_of: Callable[[InputStage], InputStage] = lambda stage: stage,
) -> dict[str, float]:
    """The held-out metrics of the run's newest checkpoint, with the input stage and the phase of its step.

    Reads only: it may be called while the run trains.

    Args:
        stages: all input stages of the run.
        model_of: makes the evaluated model from the restored task of the phase.
        input_of: makes the evaluated input from the input stage.
    Raises: UserError: if there is no checkpoint or no held-out split, or settings or tokenizer differ from the run's.
        The data may be another data set.
    """
    with damaged_data_reported():
        if not steps_in(run.directory.checkpoints):
            raise UserError(f"{run.directory.checkpoints} holds no checkpoint to evaluate; train first")
        run.directory.require_same_run(run.config)
        run.directory.require_same_tokenizer(stages[0].tokenizer)
        task = run.build()
        task.adopt_tokenizer(stages[0].tokenizer)
        prefix = newest_whole(run.directory.checkpoints)
        restore_strictly(tf.train.Checkpoint(task=task), prefix)
        step = step_of(prefix)
        stage = span_at(stages, step)
        if stage.num_evaluation_batches == 0:
            raise UserError(f"{stage.source} has no held-out split; build it with --held_out_fraction")
        trained = run.directory.hold_outs[: stages.index(stage) + 1]
        if seen := seen_held_out_text([*trained, (stage.source, stage.hold_out)]):
            logger.warning("warning: %s", seen)
        stage, model = input_of(stage), model_of(span_at(phases_of(task), step).task)
        evaluation = DeviceLoop(model, run.strategy).evaluate(stage.evaluation_batches, stage.num_evaluation_batches)
        return {"step": step, **evaluation.metrics, **stage.output_metrics(evaluation.outputs)}
