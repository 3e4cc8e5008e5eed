"""A run from its configuration to its last checkpoint, whatever task it trains."""

import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
import tf_keras

from electra_tf.config.errors import UserError
from electra_tf.config.schema import RunConfig
from electra_tf.data.corpus import damaged_data_reported
from electra_tf.runs.checkpoints import Checkpoints, newest_whole, restore_strictly, step_of, steps_in
from electra_tf.runs.directory import RunDirectory
from electra_tf.runs.interruption import Interruption
from electra_tf.runs.lock import locked
from electra_tf.runs.training import Training
from electra_tf.runs.warm_start import start_weights
from electra_tf.tasks.base import InputStage, Task
from electra_tf.train.distribution import is_chief
from electra_tf.train.schedule import missed_peak
from electra_tf.train.step import compile_task
from electra_tf.train.timeline import StepTriggers, phases_of, span_after, span_at
from electra_tf.train.trainer import Evaluator, Loops, StopRequest
from electra_tf.train.workers import worker_failures_reported

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_LINES = 10.0


@dataclass(frozen=True)
class Run:
    """What a command that trains or evaluates works with.

    Attributes:
        build_task: gives the task with its variables created; called under the strategy's scope.
        loops: of a task that is there already, in its initial state; then `build_task` is not called. So several runs
            that differ in their seed trace a step once.
        force: take over a remote directory that another process is named as holding.
    """

    config: RunConfig
    directory: RunDirectory
    strategy: tf.distribute.Strategy
    build_task: Callable[[], Task]
    force: bool = False
    loops: Loops | None = None

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the run's files."""
        return is_chief(self.strategy)

    def build(self) -> Task:
        """The compiled task with its initial weights, under the strategy."""
        # Keras draws initial values from its global seed, in the order the variables are created.
        tf_keras.utils.set_random_seed(self.config.train.seed)
        with self.strategy.scope():
            return compile_task(self.build_task())


def describe(run: Run) -> dict:
    """What `--dry_run` prints: the model is built under the strategy, no data is read."""
    with _held(run):
        run.directory.adopt_config(run.config, is_started=bool(steps_in(run.directory.checkpoints)))
    task, train = run.build(), run.config.train
    return {
        "trainable_parameters": int(sum(np.prod(variable.shape) for variable in task.trainable_variables)),
        "global_batch_size": train.batch_size,
        "replicas": run.strategy.num_replicas_in_sync,
        "tokens_per_step": train.batch_size * run.config.data.max_seq_length,
        "config": run.directory.config_file,
    }


def train(
    run: Run,
    stages: Callable[[], Sequence[InputStage]],
    *,
    stop_at_step: int | None = None,
    init_from: str | os.PathLike | None = None,
    fresh_generator: bool = False,
    interruption: Interruption | None = None,
) -> dict[str, float]:
    """Trains from the newest checkpoint of the run, or from the start, and evaluates at the end.

    Args:
        stages: opens the input.
        stop_at_step: ends this call early; the schedule stays that of `train.num_steps`.
        init_from: the checkpoint, run or folder that a new run takes its initial weights from.
        fresh_generator: those of the generator are random all the same.
        interruption: listens for signals; None: nothing ends the call early.
    Returns: the metrics of the last evaluation; empty where the data has no held-out split.
    Raises: UserError: if the data or an earlier run in the directory does not fit, or another process trains there.
        Interrupted: a signal came; the same call continues the run. TrainingStopped: losses are no longer finite, or
        another worker is gone.
    """
    with _held(run), worker_failures_reported(run.strategy), damaged_data_reported():
        directory = run.directory
        is_started = bool(steps_in(directory.checkpoints))
        if run.is_chief:
            directory.adopt_config(run.config, is_started)
        opened = stages()
        if run.is_chief:
            directory.adopt_tokenizer(*opened[0].tokenizer, is_started)
            directory.adopt_data([stage.identity for stage in opened], is_started)
        loops = run.loops or Loops(run.build(), run.strategy)
        task = loops.task
        task.adopt_data(opened[0].data)
        keep = run.config.train.keep_checkpoints
        checkpoints = Checkpoints(task, directory, run.is_chief, keep, metrics=loops.metrics)
        restored_step = checkpoints.restore_latest()
        if is_started and restored_step is None:
            raise UserError(f"{directory.checkpoints} held checkpoints a moment ago and holds none now; start again")
        start_weights(task, directory, checkpoints, is_started, init_from, run.is_chief, fresh_generator)
        first_step, num_steps = restored_step or 0, run.config.train.num_steps
        last_step = min(num_steps, stop_at_step or num_steps)
        _announce(run, task, span_after(opened, first_step), first_step, last_step)
        span_ends = sorted({span.last_step for span in (*opened, *phases_of(task))})
        triggers = StepTriggers(run.config.train, run.config.evaluation, tuple(span_ends), last_step)
        interruption = interruption or Interruption()
        return Training(loops, opened, triggers, checkpoints, directory, run.is_chief, interruption).run()


def evaluate(
    run: Run,
    stages: Sequence[InputStage],
    model_of: Callable[[Task], Task] = lambda task: task,
    input_of: Callable[[InputStage], InputStage] = lambda stage: stage,
) -> dict[str, float]:
    """The held-out metrics of the run's newest checkpoint, on the input stage and by the phase of its step.

    Reads only: it may be called while the run trains.

    Args:
        model_of: what is evaluated, from the restored task.        input_of: on what, from the stage.
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
    """Restores the newest checkpoint, again if a run that trains meanwhile has just removed it for a newer one."""
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


@contextlib.contextmanager
def _held(run: Run) -> Iterator[None]:
    """Keeps other writers out of the run's directory; of a cluster the chief does so for all.

    Raises: UserError: if another process holds it, or it holds something other than a run.
    """
    if not run.is_chief:
        yield
        return
    run.directory.create()
    with locked(run.directory, run.force):
        yield


def _announce(run: Run, task: Task, stage: InputStage, first_step: int, last_step: int) -> None:
    replicas = run.strategy.num_replicas_in_sync
    if first_step >= last_step:
        logger.info(
            "the run is at step %d already, this call was to end at %d: nothing to train", first_step, last_step
        )
        return
    if warning := missed_peak(run.config.optimizer.warmups(task.schedule_steps), task.schedule_steps):
        logger.warning(warning)
    logger.info(
        "%s%s, steps %d to %d of %d; batch %d = %d replicas x %d; %d training examples, %d evaluation batches",
        f"continuing at step {first_step}" if first_step else "starting",
        f" in {stage.name}" if stage.name else "",
        first_step,
        last_step,
        run.config.train.num_steps,
        stage.batch_size,
        replicas,
        stage.batch_size // replicas,
        stage.num_training_examples,
        stage.num_evaluation_batches,
    )


class _ProgressLines:
    """Logs, every few seconds, how far an evaluation is, its speed and the time left."""

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


def to_json(values: dict) -> str:
    """One JSON object; a metric without a value (nothing counted) is null."""
    return json.dumps({name: None if value != value else value for name, value in values.items()}, indent=1)
