"""What is asked of a run without training it: its sizes, and its newest checkpoint's held-out metrics."""

import logging
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.corpus import damaged_data_reported
from electra_tf.data.manifest import seen_held_out_text
from electra_tf.tasks.base import InputStage, Task
from electra_tf.train.checkpoints import latest_intact, restore_strictly, step_of, steps_in
from electra_tf.train.device_loop import DeviceLoop
from electra_tf.train.loop import Run
from electra_tf.train.timeline import segment_at, segments_of

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
        prefix = latest_intact(run.directory.checkpoints)
        restore_strictly(tf.train.Checkpoint(task=task), prefix)
        step = step_of(prefix)
        segment = segment_at(segments_of(task, stages), step)
        stage = segment.stage
        if stage.num_evaluation_batches == 0:
            raise UserError(f"{stage.source} has no held-out split; build it with --held_out_fraction")
        trained = run.directory.hold_outs[: stages.index(stage) + 1]
        if seen := seen_held_out_text([*trained, (stage.source, stage.hold_out)]):
            logger.warning("warning: %s", seen)
        stage, model = input_of(stage), model_of(segment.task)
        loop, num_batches = DeviceLoop(model, run.strategy), stage.num_evaluation_batches
        evaluation = loop.evaluate(stage.evaluation_batches, num_batches, sources=stage.sources)
        return {"step": step, **evaluation.metrics, **stage.output_metrics(evaluation.outputs)}


def describe(run: Run, initialize: Callable[[Task], list[str]] | None = None) -> dict:
    """Builds the model under the strategy and returns its sizes and settings, for `--dry_run`. Writes nothing.

    Args:
        initialize: sets a new task's weights and returns lines for the log; what it raises is reported before the run
            starts.
    """
    run.directory.require_usable()
    newest = max(steps_in(run.directory.checkpoints), default=None)
    run.directory.require_startable(run.config, newest)
    task, train = run.build(), run.config.train
    if newest is None and initialize is not None:
        for line in initialize(task):
            logger.info(line)
    return {
        "trainable_parameters": int(sum(np.prod(variable.shape) for variable in task.trainable_variables)),
        "global_batch_size": train.batch_size,
        "replicas": run.strategy.num_replicas_in_sync,
        "tokens_per_step": train.batch_size * run.config.data.max_seq_length,
        "config": run.config.model_dump(mode="json"),
    }
