"""A run, whatever task it trains: `train` has the order of its steps, from the newest checkpoint to the last one."""

import contextlib
import json
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import tensorflow as tf

from electra_tf.config.errors import TrainingStopped, UserError
from electra_tf.config.schema import RunConfig
from electra_tf.data.corpus import damaged_data_reported
from electra_tf.files import read_rewritten, write_atomically
from electra_tf.tasks.base import Evaluation, Stage, Task
from electra_tf.train.checkpoints import Checkpoints, steps_in
from electra_tf.train.code import changed_versions, code_of
from electra_tf.train.device_loop import DeviceLoop
from electra_tf.train.distribution import (
    describe_devices,
    is_chief,
    peak_of_run,
    require_same_step,
    worker_failures_reported,
)
from electra_tf.train.metrics import metric_names
from electra_tf.train.plateau_alarm import PlateauAlarm
from electra_tf.train.reporting import BestScore, Reporter, explain_nonfinite, require_metric
from electra_tf.train.run_directory import RunDirectory
from electra_tf.train.schedule import missed_peak
from electra_tf.train.signals import Interruption
from electra_tf.train.start import Start, record_start
from electra_tf.train.step import compiles_steps
from electra_tf.train.timeline import due_after, next_stop, stage_at, stages_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """A run on disk: its settings, its directory and its devices.

    Attributes:
        given: the settings that the user gave; None: those that `config` was made from.
    """

    config: RunConfig
    directory: RunDirectory
    strategy: tf.distribute.Strategy
    given: dict[str, Any] | None = None

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the run's files."""
        return is_chief(self.strategy)

    def begins(self) -> bool:
        """Whether the run in the directory begins, because it has no checkpoint. Reads only.

        Raises: UserError: the directory holds something else, or a run with other settings.
        """
        newest = max(steps_in(self.directory.checkpoints), default=None)
        self.directory.require_usable()
        self.directory.require_startable(self.config, newest)
        return newest is None

    @contextlib.contextmanager
    def opened(self, stages: Sequence[Stage]) -> Iterator[bool]:
        """Holds the run's directory for this process, in which the run begins or continues with this input.

        Yields: as `begins`.
        Raises: UserError: settings, data or an earlier run in the directory do not fit, or another process trains
            there; the files of the directory stay as they were. TrainingStopped: another worker was lost.
        """
        if self.config.evaluation.best_metric and not stages[-1].num_evaluation_batches:
            raise UserError("evaluation.best_metric needs held-out examples, and the last stage has none; remove it")
        with contextlib.ExitStack() as stack:
            if not self.is_chief:  # in a cluster the chief does it for all
                begins = not steps_in(self.directory.checkpoints)
            else:
                self.directory.create()
                stack.enter_context(self.directory.locked())
                if not (begins := self.begins()):
                    self.directory.require_same_tokenizer(stages[0].tokenizer)
                    self.directory.require_same_data([stage.data_hash for stage in stages])
            stack.enter_context(worker_failures_reported(self.strategy))
            stack.enter_context(damaged_data_reported())
            yield begins


def train(
    run: Run,
    loop: DeviceLoop[Task],
    stages: Sequence[Stage],
    *,
    start: Start | None = None,
    stop_at_step: int | None = None,
    interruption: Interruption | None = None,
) -> Evaluation:
    """Trains from the newest checkpoint of an `opened` run, or from the task's present weights; evaluates at the end.

    The order after a step is: report, milestone, checkpoint, evaluation. So a kill during a long evaluation loses no
    steps; the call that continues the run repeats the evaluation with the same weights.

    Args:
        loop: that of the run's task, which is compiled.
        start: where the weights of a new run are from; None: they are random.
        stop_at_step: ends this call early; the schedule stays that of `train.num_steps`.
        interruption: receives signals; None: no signal ends the call early.
    Returns: the last evaluation, or the metrics that an earlier call has reported of it; empty if the data has no
        held-out split.
    Raises: UserError: the directory cannot be written, or its checkpoints do not fit. Interrupted: by a signal; the
        same call continues the run. TrainingStopped: losses are no longer finite.
    """
    interruption = interruption or Interruption()
    training = _Training(run, loop, stages, start or Start(), stop_at_step, interruption)
    task, config, first_step = loop.task, run.config, training.first_step
    has_progress = lambda: task.completed_steps > first_step  # noqa: E731
    with contextlib.closing(training.reporter), interruption.deferred(loop.request_stop, has_progress):
        training.require_finite_enough(first_step)
        # An earlier call may have been killed between its last checkpoint and the evaluation.
        step, evaluation = first_step, training.evaluate_if_due(first_step) or Evaluation({})
        while step < training.last_step and not training.best.has_stalled():
            stage = stage_at(training.stages, step + 1)
            if step in (first_step, stage.first_step):
                begin, batches = step, training.begin_stage(stage, step)
            # The first step compiles: its time must not count for the rates of the others.
            stop = step + 1 if step == begin else next_stop(step, config, training.stages, training.last_step)
            began = time.monotonic()
            is_stopping, is_nonfinite, last_metrics = loop.train(stage.task, batches, stop - step)
            step = task.completed_steps
            if is_nonfinite and config.train.on_nonfinite == "stop":
                training.save(step)
                raise TrainingStopped(explain_nonfinite(stage.task, step, last_metrics))
            training.report_and_save(stage, step)
            if is_stopping:
                training.end_early(step)
            if step == begin + 1:
                logger.info("step %d: took %.1f s, with its compilation", step, time.monotonic() - began)
                training.reporter.start_interval(step)
            evaluation = training.evaluate_if_due(step) or evaluation
        if training.best.has_stalled():
            training.save(step)  # as after the last step of a run
            patience = config.evaluation.patience
            logger.info("step %d: training ends: none of the last %d evaluations was better", step, patience)
        if verdict := evaluation.metrics and task.verdict(evaluation.metrics):
            logger.info(verdict)
        return evaluation


class _Training:
    """What the steps of one call of `train` work with. It begins or restores the run.

    Args: see `train`.

    Attributes:
        stages: each with the phase of the task that it trains.
        reports: those of metrics.jsonl up to the first step of this call.
        first_step, last_step: of this call, which trains the steps after the first one; at most the run's last step.
    """

    def __init__(
        self,
        run: Run,
        loop: DeviceLoop[Task],
        stages: Sequence[Stage],
        start: Start,
        stop_at_step: int | None,
        interruption: Interruption,
    ):
        self.run, self.loop, self.interruption = run, loop, interruption
        self.config, self.directory, task = run.config, run.directory, loop.task
        code = code_of(task)
        versions = changed_versions(self.directory, code) if steps_in(self.directory.checkpoints) else {}
        self.stages = stages_of(task, stages)
        if (best := self.config.evaluation.best_metric) and (known := self.stages[-1].task.evaluation_metrics()):
            sources = [
                each.source_name for each in stages[-1].sources if each.source_name and each.num_evaluation_batches
            ]
            require_metric(best, [*known, *(f"{source}/{name}" for source in sources for name in known)])
        keep = self.config.train.keep_checkpoints
        self.checkpoints = Checkpoints(task, self.directory, run.is_chief, keep, metrics=loop.metrics)
        self.checkpoints.restore_latest()
        self.first_step, num_steps = task.completed_steps, self.config.train.num_steps
        self.last_step = min(num_steps, stop_at_step or num_steps)
        require_same_step(run.strategy, self.first_step)
        task.adopt_data(stages[0].data)  # not earlier: the source of its weights may have statistics of another text
        self.record(stages, start, code)  # after everything that may refuse
        _announce(run, task, stages, self.first_step, self.last_step)
        self.reporter = self.continued_reporter()
        if versions:
            self.reporter.versions(self.first_step, versions)

    def record(self, stages: Sequence[Stage], start: Start, code: dict[str, Any]) -> None:
        """Writes the facts of the run, and the weights that it begins with if they are another model's."""
        if self.run.is_chief:
            self.directory.write_config(self.config, self.run.given)
            self.directory.write_tokenizer(stages[0].tokenizer)
            self.directory.write_data(stages)
            write_atomically(self.directory.code_file, json.dumps(code).encode())
            if start.report or (start.init_from and not read_rewritten(self.directory.warm_start_file)):
                record_start(self.directory, start, self.first_step if start.report else 0)
        if start.report:
            logger.info("\n".join(start.report))
            self.checkpoints.save(self.first_step)  # the start stays the same, even if the source changes

    def continued_reporter(self) -> Reporter:
        """The reporter of this call, with the alarm and the best evaluation of the earlier ones."""
        self.reports = [report for report in self.directory.reports() if report["step"] <= self.first_step]
        self.best, kept = BestScore(self.config.evaluation), steps_in(self.directory.best)
        alarm = PlateauAlarm(self.config.train, self.loop.task.plateau, self.directory.start_step)
        for report in self.reports:
            step, split = report["step"], report["split"]
            is_kept = stage_at(self.stages, step) is self.stages[-1] and step in kept
            if split == "held_out" and (self.decides_on_best(step) or is_kept):
                self.best.observe(step, report)
            if split == "train":
                alarm.observe(step, report)
        cost = self.loop.task.cost if self.run.is_chief else None
        is_trained = cost is not None and self.first_step < self.last_step
        peak = peak_of_run(self.config.train, self.run.strategy) if is_trained else None
        if peak is not None:
            logger.info("utilisation (mfu) is relative to %.4g FLOP/s", peak)
        directory = self.directory if self.run.is_chief else None
        return Reporter(directory, self.first_step, self.config.train.num_steps, cost, peak, alarm)

    def begin_stage(self, stage: Stage, step: int) -> Any:
        """Prepares the phase if it begins at this step. Returns: an iterator over batches for `DeviceLoop.train`."""
        if step == stage.first_step:
            earlier = self.stages[: self.stages.index(stage)]
            if not earlier or earlier[-1].task is not stage.task:
                stage.task.begin()
            longest = max((other.max_seq_length for other in earlier), default=stage.max_seq_length)
            if longest < stage.max_seq_length and self.run.is_chief:
                logger.info(
                    "step %d: %s begins, with sequences of %d tokens after %d; held-out metrics get worse until the "
                    "positions from %d on are learnt",
                    step, stage.name, stage.max_seq_length, longest, longest,
                )  # fmt: skip
        return self.loop.read(lambda context: stage.training_batches(step, context))

    def report_and_save(self, stage: Stage, step: int) -> None:
        """Reports, keeps a milestone and saves, whichever is due after a step."""
        due = due_after(step, self.config, self.stages)
        if "report" in due:
            metrics = self.loop.metrics.close(metric_names(stage.task))
            num_tokens = stage.mean_seq_length or stage.max_seq_length
            self.reporter.train(stage.task, step, metrics, stage.batch_size, num_tokens)
        with self.reporter.pause():
            if "milestone" in due:
                self.checkpoints.save(step, self.directory.milestones)
            if "checkpoint" in due or step == self.last_step:
                self.save(step)
        self.require_finite_enough(step)

    def save(self, step: int) -> None:
        """Writes the reports, then a checkpoint. In the other order, a kill in between would lose the reports."""
        self.reporter.flush()
        self.checkpoints.save(step)

    def end_early(self, step: int) -> NoReturn:
        """Raises: Interrupted: after a checkpoint of this step."""
        self.save(step)
        logger.info("step %d: checkpoint written; the same command continues the run", step)
        raise self.interruption.interrupted()

    def require_finite_enough(self, step: int) -> None:
        """Raises: TrainingStopped: if more steps were left out than the configuration allows, after a checkpoint."""
        settings = self.config.train
        count = self.loop.metrics.nonfinite_steps_of_run() if settings.on_nonfinite == "skip" else 0
        if count > settings.max_nonfinite_steps:
            self.save(step)
            raise TrainingStopped(
                f"by step {step} the losses or gradients of {count} steps were not finite, and "
                f"train.max_nonfinite_steps is {settings.max_nonfinite_steps}; start a new run from an earlier "
                "milestone (init_from) with a lower optimizer.learning_rate, or raise train.max_nonfinite_steps"
            )

    def evaluate_if_due(self, step: int) -> Evaluation | None:
        """The evaluation of a step, if one is due, by this call or an earlier one; keeps the best checkpoint."""
        is_due = "evaluation" in due_after(step, self.config, self.stages) or step == self.last_step
        if step == 0 or not is_due:
            return None
        reported = self.directory.evaluation_at(step, self.reports)
        evaluation = Evaluation(reported) if reported else self.evaluate(step)
        if self.best.is_best(step):
            self.checkpoints.save(step, self.directory.best)
        return evaluation

    def evaluate(self, step: int) -> Evaluation | None:
        """Evaluates and reports; None without a held-out split. Raises: Interrupted: a signal has ended it."""
        stage = stage_at(self.stages, step)
        if stage.num_evaluation_batches == 0:
            return None
        with self.reporter.pause():
            evaluation = self.loop.evaluate(stage, stage.task)
        if evaluation is None:
            self.end_early(step)
        evaluation = stage.scored(evaluation)
        self.reporter.evaluation(stage.task, step, evaluation.metrics)
        if self.decides_on_best(step):
            self.best.observe(step, evaluation.metrics)
        return evaluation

    def decides_on_best(self, step: int) -> bool:
        """True for an evaluation in the last phase and stage that is due in every call.

        Earlier ones are of another objective, or of texts of another length, so their values do not compare.
        """
        is_last = stage_at(self.stages, step) is self.stages[-1]
        return is_last and "evaluation" in due_after(step, self.config, self.stages)


def _announce(run: Run, task: Task, stages: Sequence[Stage], first_step: int, last_step: int) -> None:
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
