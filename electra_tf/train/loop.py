"""A run, whatever task it trains: `train` has the order of its steps, from the data to the last checkpoint."""

import contextlib
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from electra_tf.config.errors import TrainingStopped, UserError
from electra_tf.config.schema import RunConfig
from electra_tf.data.corpus import damaged_data_reported
from electra_tf.files import read_rewritten, write_atomically
from electra_tf.models.layers import seed_initial_values
from electra_tf.tasks.base import InputStage, Task
from electra_tf.train.checkpoints import Checkpoints, steps_in
from electra_tf.train.code import changed_versions, code_of
from electra_tf.train.device_loop import DeviceLoop, MeanMetrics
from electra_tf.train.distribution import (
    describe_devices,
    is_chief,
    peak_of_run,
    require_same_step,
    worker_failures_reported,
)
from electra_tf.train.lock import locked
from electra_tf.train.metrics import metric_names
from electra_tf.train.plateau_alarm import PlateauAlarm
from electra_tf.train.reporting import BestScore, Reporter, explain_nonfinite, require_metric
from electra_tf.train.run_directory import RunDirectory
from electra_tf.train.schedule import missed_peak
from electra_tf.train.signals import Interruption
from electra_tf.train.start import Start, begin_run, record_start, recorded_start
from electra_tf.train.step import compile_task, compiles_steps
from electra_tf.train.timeline import Segment, due_after, next_stop, segment_at, segments_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """A run on disk and what it trains.

    Attributes:
        build_task: builds the task with its variables; called under the strategy's scope.
        loop: that of a built task in its initial state. Runs that differ only in their seed share it, so a step is
            traced once. None: `build_task` is called.
        given: the settings that the user gave; None: those that `config` was made from.
    """

    config: RunConfig
    directory: RunDirectory
    strategy: tf.distribute.Strategy
    build_task: Callable[[], Task]
    loop: DeviceLoop | None = None
    given: dict | None = None

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the run's files."""
        return is_chief(self.strategy)

    def build(self) -> Task:
        """The compiled task with its initial weights, under the strategy."""
        seed_initial_values(self.config.train.seed)
        with self.strategy.scope():
            return compile_task(self.build_task())


def train(
    run: Run,
    open_stages: Callable[[], Sequence[InputStage]],
    *,
    start: Start | None = None,
    stop_at_step: int | None = None,
    interruption: Interruption | None = None,
) -> MeanMetrics:
    """Trains from the newest checkpoint of the run, or from the start, and evaluates at the end.

    The order after a step is: report, milestone, checkpoint, evaluation. So a kill during a long evaluation loses no
    steps; the call that continues the run repeats the evaluation with the same weights.

    Args:
        open_stages: opens the input.
        start: the initial state of a new run; None: random weights.
        stop_at_step: ends this call early; the schedule stays that of `train.num_steps`.
        interruption: receives signals; None: no signal ends the call early.
    Returns: the metrics of the last evaluation; empty if the data has no held-out split.
    Raises: UserError: if the data or an earlier run in the directory does not fit, or another process trains there; the
        files of the directory stay as they were. Interrupted: by a signal; the same call continues the run.
        TrainingStopped: losses are no longer finite, or another worker was lost.
    """
    with contextlib.ExitStack() as stack:
        if run.is_chief:  # in a cluster for all
            run.directory.create()
            stack.enter_context(locked(run.directory))
        stack.enter_context(worker_failures_reported(run.strategy))
        stack.enter_context(damaged_data_reported())
        call = _prepare(run, open_stages, start or Start(), stop_at_step, interruption or Interruption(), stack)
        loop, config, first_step = call.loop, run.config, call.loop.task.completed_steps
        _require_finite_enough(call, first_step)
        step, metrics = first_step, _catch_up_on_evaluation(call, first_step)
        while step < call.last_step and not call.best.has_stalled():
            segment = segment_at(call.segments, step + 1)
            if step in (first_step, segment.first_step):
                begin, batches = step, _begin_segment(call, segment, step)
            # The first step compiles: its time must not count for the rates of the others.
            stop = step + 1 if step == begin else next_stop(step, config, call.segments, call.last_step)
            began = time.monotonic()
            is_stopping, is_nonfinite, last_metrics = loop.train(segment.task, batches, stop - step)
            step = loop.task.completed_steps
            if is_nonfinite and config.train.on_nonfinite == "stop":
                _save(call, step)
                raise TrainingStopped(explain_nonfinite(segment.task, step, last_metrics))
            _report_and_save(call, segment, step)
            if is_stopping:
                _end_early(call, step)
            if step == begin + 1:
                logger.info("step %d: took %.1f s, with its compilation", step, time.monotonic() - began)
                call.reporter.start_interval(step)
            if "evaluation" in due_after(step, config, call.segments) or step == call.last_step:
                metrics = _evaluate(call, step) or metrics
        if call.best.has_stalled():
            _save(call, step)  # as after the last step of a run
            patience = config.evaluation.patience
            logger.info("step %d: training ends: none of the last %d evaluations was better", step, patience)
        if verdict := metrics and loop.task.verdict(metrics):
            logger.info(verdict)
        return metrics


class _Call(NamedTuple):
    """What the steps of one call of `train` work with.

    Attributes:
        last_step: of this call; at most the run's last step.
    """

    run: Run
    loop: DeviceLoop
    segments: tuple[Segment, ...]
    last_step: int
    checkpoints: Checkpoints
    reporter: Reporter
    best: BestScore
    interruption: Interruption


def _prepare(
    run: Run,
    open_stages: Callable[[], Sequence[InputStage]],
    start: Start,
    stop_at_step: int | None,
    interruption: Interruption,
    stack: contextlib.ExitStack,
) -> _Call:
    """Opens the data, builds the task and restores or begins the run. Args, Raises: see `train`.

    Args:
        stack: closes what is opened here.
    """
    directory = run.directory
    newest = max(steps_in(directory.checkpoints), default=None)
    if run.is_chief:
        directory.require_startable(run.config, newest)
    stages = open_stages()
    _require_fitting_data(run, stages, is_started=newest is not None)
    start = recorded_start(directory, newest is not None, start)
    loop = run.loop or DeviceLoop(run.build(), run.strategy)
    code = code_of(loop.task)
    versions = changed_versions(directory, code) if newest is not None else {}
    loop.task.adopt_tokenizer(stages[0].tokenizer)
    _require_best_metric(run.config, loop.task, stages[-1])
    keep = run.config.train.keep_checkpoints
    checkpoints = Checkpoints(loop.task, directory, run.is_chief, keep, metrics=loop.metrics)
    stack.callback(checkpoints.close)
    report = begin_run(loop.task, stages, start) if checkpoints.restore_latest() is None else []
    first_step = loop.task.completed_steps
    require_same_step(run.strategy, first_step)
    loop.task.adopt_data(stages[0].data)  # not earlier: `initialize` may have set the statistics of another text
    if run.is_chief:  # after everything that may refuse
        directory.write_config(run.config, run.given)
        directory.write_tokenizer(stages[0].tokenizer)
        directory.write_data(stages)
        write_atomically(directory.code_file, json.dumps(code).encode())
        if report or (start.init_from and not read_rewritten(directory.warm_start_file)):
            record_start(directory, start, first_step if report else 0, report)
    if report:
        logger.info("\n".join(report))
        checkpoints.save(first_step)  # the start stays the same, even if the source changes
    last_step = min(run.config.train.num_steps, stop_at_step or run.config.train.num_steps)
    _announce(run, loop.task, stages, first_step, last_step)
    segments = segments_of(loop.task, stages)
    best = _best_so_far(run, segments, first_step)
    reporter = _open_reporter(run, loop.task, first_step, last_step)
    stack.callback(reporter.close)
    if versions:
        reporter.versions(first_step, versions)
    stack.enter_context(interruption.deferred(loop.request_stop, lambda: loop.task.completed_steps > first_step))
    return _Call(run, loop, segments, last_step, checkpoints, reporter, best, interruption)


def _begin_segment(call: _Call, segment: Segment, step: int) -> Any:
    """Prepares the phase if it begins at this step, and opens the batches. Returns: an iterator for `DeviceLoop`."""
    stage, number = segment.stage, call.segments.index(segment)
    before = call.segments[number - 1] if number else None
    if step == segment.first_step and (before is None or before.task is not segment.task):
        segment.task.begin()
    earlier = [other.stage.max_seq_length for other in call.segments[:number]]
    is_longer = step == segment.first_step and earlier and max(earlier) < stage.max_seq_length
    if is_longer and call.run.is_chief:
        logger.info(
            "step %d: %s begins, with sequences of %d tokens after %d; held-out metrics get worse until the "
            "positions from %d on are learnt",
            step, stage.name, stage.max_seq_length, max(earlier), max(earlier),
        )  # fmt: skip
    return call.loop.read(lambda context: stage.training_batches(step, context))


def _report_and_save(call: _Call, segment: Segment, step: int) -> None:
    """Reports, keeps a milestone and saves, whichever is due after a step."""
    due, reporter = due_after(step, call.run.config, call.segments), call.reporter
    if "report" in due:
        metrics = call.loop.metrics.close(metric_names(segment.task))
        reporter.train(step, metrics, segment.stage.batch_size, segment.stage.max_seq_length)
    with reporter.pause():
        if "milestone" in due:
            call.checkpoints.save(step, call.run.directory.milestones)
        if "checkpoint" in due or step == call.last_step:
            _save(call, step)
    _require_finite_enough(call, step)


def _save(call: _Call, step: int) -> None:
    """Writes the reports, then a checkpoint. In the other order, a kill in between would lose the reports."""
    call.reporter.flush()
    call.checkpoints.save(step)


def _end_early(call: _Call, step: int) -> None:
    """Raises: Interrupted: after a checkpoint of this step."""
    _save(call, step)
    logger.info("step %d: checkpoint written; the same command continues the run", step)
    raise call.interruption.interrupted()


def _require_finite_enough(call: _Call, step: int) -> None:
    """Raises: TrainingStopped: if more steps were left out than the configuration allows, after a checkpoint."""
    settings = call.run.config.train
    count = call.loop.metrics.nonfinite_steps_of_run() if settings.on_nonfinite == "skip" else 0
    if count > settings.max_nonfinite_steps:
        _save(call, step)
        raise TrainingStopped(
            f"by step {step} the losses or gradients of {count} steps were not finite, and train.max_nonfinite_steps "
            f"is {settings.max_nonfinite_steps}; start a new run from an earlier milestone (--init_from) with a lower "
            "optimizer.learning_rate, or raise train.max_nonfinite_steps"
        )


def _catch_up_on_evaluation(call: _Call, step: int) -> MeanMetrics:
    """Evaluates the first step if an earlier call was killed between its checkpoint and its evaluation."""
    is_due = "evaluation" in due_after(step, call.run.config, call.segments) or step == call.last_step
    if step == 0 or not is_due:
        return {}
    metrics = call.run.directory.evaluation_at(step) or _evaluate(call, step)
    if call.best.is_best(step):
        call.checkpoints.save(step, call.run.directory.best)
    return metrics


def _evaluate(call: _Call, step: int) -> MeanMetrics:
    """Evaluates and reports; empty without a held-out split. Raises: Interrupted: a signal has ended it."""
    segment = segment_at(call.segments, step)
    stage = segment.stage
    if stage.num_evaluation_batches == 0:
        return {}
    with call.reporter.pause():
        evaluation = call.loop.evaluate(
            stage.evaluation_batches, stage.num_evaluation_batches, segment.task, stage.sources
        )
    if evaluation is None:
        _end_early(call, step)
    metrics = evaluation.metrics | stage.output_metrics(evaluation.outputs)
    call.reporter.evaluation(step, metrics)
    if _decides_on_best(call.run, call.segments, step):
        call.best.observe(step, metrics)
    if call.best.is_best(step):
        call.checkpoints.save(step, call.run.directory.best)
    return metrics


def _decides_on_best(run: Run, segments: Sequence[Segment], step: int) -> bool:
    """True for an evaluation in the last phase and stage that is due in every call.

    Earlier ones are of another objective, or of texts of another length, so their values do not compare.
    """
    return segment_at(segments, step) is segments[-1] and "evaluation" in due_after(step, run.config, segments)


def _best_so_far(run: Run, segments: Sequence[Segment], first_step: int) -> BestScore:
    """With the evaluations up to the first step of a call, also of the checkpoint that `best/` holds."""
    best, kept = BestScore(run.config.evaluation), steps_in(run.directory.best)
    for report in run.directory.reports("held_out"):
        step = report["step"]
        is_last = segment_at(segments, step) is segments[-1]
        if step <= first_step and (_decides_on_best(run, segments, step) or (is_last and step in kept)):
            best.observe(step, report)
    return best


def _require_fitting_data(run: Run, stages: Sequence[InputStage], is_started: bool) -> None:
    """Raises: UserError: if a started run has read other data, or the best evaluation is wanted of none."""
    if run.config.evaluation.best_metric and not stages[-1].num_evaluation_batches:
        raise UserError("evaluation.best_metric needs held-out examples, and the last stage has none; remove it")
    if run.is_chief and is_started:
        run.directory.require_same_tokenizer(stages[0].tokenizer)
        run.directory.require_same_data([stage.data_hash for stage in stages])


def _require_best_metric(config: RunConfig, task: Task, stage: InputStage) -> None:
    """Raises: UserError: if the last phase and stage are known not to have `evaluation.best_metric`."""
    best_metric = config.evaluation.best_metric
    if best_metric is not None and (known := task.phases()[-1].evaluation_metrics()):
        sources = [each.source_name for each in stage.sources if each.source_name and each.num_evaluation_batches]
        require_metric(best_metric, [*known, *(f"{source}/{name}" for source in sources for name in known)])


def _announce(run: Run, task: Task, stages: Sequence[InputStage], first_step: int, last_step: int) -> None:
    """Logs which steps this call trains, and what may be wrong with them."""
    num_steps, replicas = run.config.train.num_steps, run.strategy.num_replicas_in_sync
    if first_step >= last_step:
        logger.info("the run is at step %d, and this call ends at step %d: nothing to train", first_step, last_step)
        return
    evaluation = run.config.evaluation
    if warning := missed_peak(run.config.optimizer, task.schedule_steps):
        logger.warning(warning)
    if evaluation.patience and not evaluation.every_steps:
        logger.warning("evaluation.patience counts evaluations, which need evaluation.every_steps; set it")
    stage = next(stage for stage in stages if first_step < stage.last_step)
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
    for source in (source for stage in stages for source in stage.sources):
        if source.num_training_examples is None:
            continue
        name = (source.name or "data") + (f", {source.share:.4g} {source.source_name}" if source.source_name else "")
        num_examples = (source.last_step - source.first_step) * source.batch_size * source.share
        passes = num_examples / source.num_training_examples
        size = (source.num_training_examples, source.num_training_tokens or "unknown")
        if source.source_name and not source.num_evaluation_batches:
            logger.warning("%s has no held-out text: the metrics of the mixture leave it out", source.source_name)
        logger.info("%s: %.4g passes over %d training examples (%s tokens)", name, passes, *size)


def _open_reporter(run: Run, task: Task, first_step: int, last_step: int) -> Reporter:
    """The reporter of a call. It goes on from the reports up to its first step and removes those of later steps."""
    cost = task.cost if run.is_chief else None
    peak = peak_of_run(run.config.train, run.strategy) if cost is not None and first_step < last_step else None
    if peak is not None:
        logger.info("utilisation (mfu) is relative to %.4g FLOP/s", peak)
    alarm = PlateauAlarm(run.config.train, task.plateau, run.directory.start_step)
    for report in run.directory.reports("train"):
        if report["step"] <= first_step:
            alarm.observe(report["step"], report)
    directory = run.directory if run.is_chief else None
    return Reporter(directory, first_step, run.config.train.num_steps, cost, peak, alarm)
