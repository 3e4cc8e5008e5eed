"""A run from its configuration to its last checkpoint, whatever task it trains."""

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import RunConfig
from electra_tf.data.corpus import damaged_data_reported
from electra_tf.files import is_remote, read_json, write_atomically
from electra_tf.models.layers import seed_initial_values
from electra_tf.tasks.base import InputStage, Task
from electra_tf.text.vocabulary import StoredTokenizer
from electra_tf.train.checkpoints import Checkpoints, check_data, continue_from, steps_in
from electra_tf.train.device_loop import DeviceLoop
from electra_tf.train.distribution import describe_devices, is_chief, require_same_step, worker_failures_reported
from electra_tf.train.reporting import require_metric
from electra_tf.train.run_directory import RunDirectory, locked
from electra_tf.train.schedule import ignored_warmup, missed_peak
from electra_tf.train.signals import Interruption
from electra_tf.train.step import compile_task, compiles_steps
from electra_tf.train.timeline import StepTriggers, phases_of, span_after
from electra_tf.train.training import Training

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """A run on disk and what it trains.

    Attributes:
        build_task: builds the task with its variables; called under the strategy's scope.
        loop: that of a built task in its initial state. Runs that differ only in their seed share it, so a step is
            traced once. None: `build_task` is called.
    """

    config: RunConfig
    directory: RunDirectory
    strategy: tf.distribute.Strategy
    build_task: Callable[[], Task]
    loop: DeviceLoop | None = None

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the run's files."""
        return is_chief(self.strategy)

    def build(self) -> Task:
        """The compiled task with its initial weights, under the strategy."""
        seed_initial_values(self.config.train.seed)
        with self.strategy.scope():
            return compile_task(self.build_task())


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


def train(
    run: Run,
    stages: Callable[[], Sequence[InputStage]],
    *,
    stop_at_step: int | None = None,
    init_from: str | os.PathLike | None = None,
    initialize: Callable[[Task, str | None, StoredTokenizer], list[str]] | None = None,
    with_optimizer: bool = False,
    interruption: Interruption | None = None,
) -> dict[str, float]:
    """Trains from the newest checkpoint of the run, or from the start, and evaluates at the end.

    Args:
        stages: opens the input.
        stop_at_step: ends this call early; the schedule stays that of `train.num_steps`.
        init_from: the source of a new run's initial weights, which the run records; None: as `initialize` sets them.
        initialize: sets a new task's weights from the source (None without one), given the data's tokenizer. Returns
            lines for the log and the run's record; none if the weights stay random, as without this function.
        with_optimizer: instead of `initialize`, take the optimizer and the step from the source too; it is a run.
        interruption: receives signals; None: no signal ends the call early.
    Returns: the metrics of the last evaluation; empty if the data has no held-out split.
    Raises: UserError: if the data or an earlier run in the directory does not fit, or another process trains there; the
        files of the directory stay as they were. Interrupted: by a signal; the same call continues the run.
        TrainingStopped: losses are no longer finite, or another worker was lost.
    """
    with _held(run), worker_failures_reported(run.strategy), damaged_data_reported():
        directory = run.directory
        newest = max(steps_in(directory.checkpoints), default=None)
        is_started = newest is not None
        if run.is_chief:
            directory.require_startable(run.config, newest)
        opened = stages()
        if run.config.evaluation.best_metric and not opened[-1].num_evaluation_batches:
            raise UserError("evaluation.best_metric needs held-out examples, and the last stage has none; remove it")
        if run.is_chief and is_started:
            directory.require_same_tokenizer(opened[0].tokenizer)
            directory.require_same_data([stage.identity for stage in opened])
        start = _start_of(directory, is_started, init_from, with_optimizer)
        loop = run.loop or DeviceLoop(run.build(), run.strategy)
        loop.task.adopt_tokenizer(opened[0].tokenizer)
        last_phase, best_metric = phases_of(loop.task)[-1].task, run.config.evaluation.best_metric
        if best_metric is not None and (known := last_phase.evaluation_metrics()):
            require_metric(best_metric, known)
        keep = run.config.train.keep_checkpoints
        checkpoints = Checkpoints(loop.task, directory, run.is_chief, keep, metrics=loop.metrics)
        first_step, lines = checkpoints.restore_latest() or 0, []
        begin = continue_from if start.with_optimizer else initialize
        if begin is not None and not is_started:
            lines = begin(loop.task, start.source, opened[0].tokenizer)
            first_step = loop.task.completed_steps
        if not is_started:
            check_data(opened, start.source, None if start.with_optimizer else run.config.train.seed)
        require_same_step(run.strategy, first_step)
        loop.task.adopt_data(opened[0].data)  # after `begin`, which may have set the statistics of another text
        if run.is_chief:  # after everything that may refuse
            directory.adopt_config(run.config)
            directory.adopt_tokenizer(opened[0].tokenizer)
            directory.adopt_data([stage.identity for stage in opened], [stage.hold_out for stage in opened])
        if lines:
            _record_start(run, start, first_step, lines)
            checkpoints.save(first_step)  # the start stays the same, even if the source changes
        triggers = _announce(run, loop.task, opened, first_step, stop_at_step)
        interruption = interruption or Interruption()
        return Training(loop, opened, triggers, checkpoints, directory, run.is_chief, interruption).run()


class _Start(NamedTuple):
    """Where a run's initial weights are from, and whether the optimizer and the step are from there too."""

    source: str | None
    with_optimizer: bool


def _start_of(
    directory: RunDirectory, is_started: bool, init_from: str | os.PathLike | None, with_optimizer: bool
) -> _Start:
    """The source of the run's initial weights: the given one as an absolute path, else the recorded one, else None.

    Raises: UserError: if the run was started from another source.
    """
    record = read_json(directory.warm_start_file)
    recorded = record.get("init_from")
    if is_started and with_optimizer and not record.get("with_optimizer"):
        raise UserError(
            f"--with_optimizer: the run in {directory.path} was started without it; leave the flag out to continue it, "
            "or give a new --model_dir"
        )
    if init_from is None:
        return _Start(recorded, record.get("with_optimizer", False))
    source = os.fspath(init_from) if is_remote(init_from) else os.path.abspath(init_from)
    if is_started and source != recorded:
        start = f"was started from {recorded}" if recorded else "was started without --init_from"
        raise UserError(
            f"--init_from={init_from}: the run in {directory.path} {start}; leave the flag out to continue it, or give "
            "a new --model_dir"
        )
    return _Start(source, with_optimizer)


def _record_start(run: Run, start: _Start, step: int, lines: list[str]) -> None:
    logger.info("\n".join(lines))
    if run.is_chief:
        record = {"init_from": start.source, "with_optimizer": start.with_optimizer, "step": step, "report": lines}
        content = json.dumps(record, indent=1)
        write_atomically(run.directory.warm_start_file, content.encode())


@contextlib.contextmanager
def _held(run: Run) -> Iterator[None]:
    """Locks the run's directory; in a cluster the chief does so for all.

    Raises: UserError: if another process holds it, or it has files but no run.
    """
    if not run.is_chief:
        yield
        return
    run.directory.create()
    with locked(run.directory):
        yield


def _announce(
    run: Run, task: Task, stages: Sequence[InputStage], first_step: int, stop_at_step: int | None
) -> StepTriggers:
    """Logs which steps this call trains, and returns their triggers."""
    num_steps, replicas = run.config.train.num_steps, run.strategy.num_replicas_in_sync
    last_step = min(num_steps, stop_at_step or num_steps)
    span_ends = sorted({span.last_step for span in (*stages, *phases_of(task))})
    triggers = StepTriggers(run.config, tuple(span_ends), last_step)
    if first_step >= last_step:
        logger.info("the run is at step %d, and this call ends at step %d: nothing to train", first_step, last_step)
        return triggers
    optimizer, evaluation = run.config.optimizer, run.config.evaluation
    for warning in filter(None, (ignored_warmup(optimizer), missed_peak(optimizer, task.schedule_steps))):
        logger.warning(warning)
    if evaluation.patience and not evaluation.every_steps:
        logger.warning("evaluation.patience counts evaluations, which need evaluation.every_steps; set it")
    stage = span_after(stages, first_step)
    logger.info(
        "%s%s, steps %d to %d of %d; batch %d = %d replicas x %d; %d evaluation batches",
        f"continuing at step {first_step}" if first_step else "starting",
        f" in {stage.name}" if stage.name else "",
        *(first_step, last_step, num_steps),
        *(stage.batch_size, replicas, stage.batch_size // replicas),
        stage.num_evaluation_batches,
    )
    compiled = "each step as a whole" if compiles_steps(run.config.train.xla, run.strategy) else "parts of a step"
    logger.info("%s; %s; XLA compiles %s", describe_devices(run.strategy), run.config.train.precision, compiled)
    for stage in stages:
        if stage.num_training_examples is None:
            continue
        passes = (stage.last_step - stage.first_step) * stage.batch_size / stage.num_training_examples
        size = (stage.num_training_examples, stage.num_training_tokens or "unknown")
        logger.info("%s: %.4g passes over %d training examples (%s tokens)", stage.name or "data", passes, *size)
    return triggers
