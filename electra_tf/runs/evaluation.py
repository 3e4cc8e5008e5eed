"""Evaluates a run's newest checkpoint, also while the run trains."""

import logging
import time
from collections.abc import Callable, Sequence

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.corpus import damaged_data_reported
from electra_tf.runs.checkpoints import newest_whole, restore_strictly, step_of, steps_in
from electra_tf.runs.run import Run
from electra_tf.tasks.base import InputStage, Task
from electra_tf.train.timeline import phases_of, span_at
from electra_tf.train.trainer import Evaluator, StopRequest

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_LINES = 10.0


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
        model_of: makes the model to evaluate from the restored phase.
        input_of: makes the input to evaluate it on from the stage.
    Raises: UserError: without a checkpoint, without a held-out split, or if settings or data are not the run's.
    """
    with damaged_data_reported():
        if not steps_in(run.directory.checkpoints):
            raise UserError(f"{run.directory.checkpoints} holds no checkpoint to evaluate; train first")
        run.directory.require_same_run(run.config)
        run.directory.require_same_tokenizer(*stages[0].tokenizer)
        task = run.build()
        step = _restore_beside_training(task, run)
        stage = span_at(stages, step)
        if stage.num_evaluation_batches == 0:
            raise UserError(f"{stage.source} has no held-out split; build it with --held_out_fraction")
        stage, model = input_of(stage), model_of(span_at(phases_of(task), step).task)
        evaluator = Evaluator(model, run.strategy, StopRequest(run.strategy))
        count, size = stage.num_evaluation_batches, stage.evaluation_batch_size
        evaluation = evaluator.evaluate(stage.evaluation_batches, count, _ProgressLines(count, size))
        return {"step": step, **evaluation.metrics, **stage.output_metrics(evaluation.outputs)}


def _restore_beside_training(task: Task, run: Run) -> int:
    """Restores the newest checkpoint; again if a run that trains meanwhile has just replaced it by a newer one."""
    while True:
        steps = steps_in(run.directory.checkpoints)
        try:
            prefix = newest_whole(run.directory.checkpoints)
            if prefix is None:
                raise UserError(f"{run.directory.checkpoints} holds no checkpoint to evaluate; train first")
            restore_strictly(tf.train.Checkpoint(task=task), prefix)
            return step_of(prefix)
        except UserError:
            if steps_in(run.directory.checkpoints) == steps:
                raise


class _ProgressLines:
    """Logs every few seconds how many examples are evaluated, the speed and the time left."""

    def __init__(self, num_batches: int, batch_size: int):
        self._num_batches, self._batch_size = num_batches, batch_size
        self._last_line = time.monotonic()
        self._first_done: float | None = None  # after the first batch, which compiles

    def __call__(self, batches_done: int) -> None:
        now = time.monotonic()
        if self._first_done is None:
            self._first_done = now
        elif now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            seconds_each = (now - self._first_done) / (batches_done - 1)
            logger.info(
                "%d of %d examples | %.1f examples/s | %.0f s left",
                batches_done * self._batch_size,
                self._num_batches * self._batch_size,
                self._batch_size / seconds_each,
                (self._num_batches - batches_done) * seconds_each,
            )
