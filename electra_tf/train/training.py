"""The steps of a run with its reports, evaluations, checkpoints and milestones at the steps where they are due."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from electra_tf.config.errors import TrainingStopped
from electra_tf.tasks.base import InputStage, Task
from electra_tf.tasks.health import HealthMonitor, alarm_after
from electra_tf.train.checkpoints import Checkpoints, steps_in
from electra_tf.train.device_loop import DeviceLoop, MeanMetrics
from electra_tf.train.distribution import peak_of_run
from electra_tf.train.metrics import metric_names
from electra_tf.train.nonfinite import explain_nonfinite
from electra_tf.train.reporting import BestScore, Reporter
from electra_tf.train.run_directory import RunDirectory
from electra_tf.train.signals import Interruption
from electra_tf.train.timeline import StepTriggers, TrainingPhase, phases_of, span_after, span_at

logger = logging.getLogger(__name__)


class _Span(NamedTuple):
    """Steps of one input stage and one training phase, after `first_step`, with the batches that they read."""

    first_step: int
    stage: InputStage
    phase: TrainingPhase
    batches: Any


@dataclass
class Training:
    """The part of a run that one call trains, from the step of its checkpoint on.

    The order after a step is: report, milestone, checkpoint, evaluation. So a kill during a long evaluation loses no
    steps; the call that continues the run repeats the evaluation with the same weights.

    Attributes:
        loop: the loop of the task. Its variables and metrics are restored already.
        writes: whether this process writes reports.
    """

    loop: DeviceLoop
    stages: Sequence[InputStage]
    triggers: StepTriggers
    checkpoints: Checkpoints
    directory: RunDirectory
    writes: bool
    interruption: Interruption

    def __post_init__(self):
        self.task, self.metrics = self.loop.task, self.loop.metrics
        self._phases = phases_of(self.task)
        self._train = self.task.config.train
        self._first_step = self.task.completed_steps
        cost = self.task.cost if self.writes else None
        trains = self._first_step < self.triggers.last_step
        peak = peak_of_run(self._train, self.loop.strategy) if cost is not None and trains else None
        if peak is not None:
            logger.info("utilisation (mfu) is relative to %s", peak)
        self._health = HealthMonitor(alarm_after(self._train), self.task.health_checks, self.directory.start_step)
        for report in self.directory.reports("train"):
            if report["step"] <= self._first_step:
                self._health.observe(report["step"], report)
        # After the reports have been read, because the reporter removes those of later steps.
        directory = self.directory if self.writes else None
        self._reporter = Reporter(directory, self._first_step, self._train.num_steps, cost, peak)
        self._evaluation: MeanMetrics = {}
        self._best = BestScore(self.task.config.evaluation)
        kept = steps_in(self.directory.best)
        for report in self.directory.reports("held_out"):
            if report["step"] <= self._first_step:
                self._compare(report["step"], report, is_kept=report["step"] in kept)

    def run(self) -> MeanMetrics:
        """Trains up to the last step of the triggers. Returns the last evaluation's metrics.

        Raises: Interrupted: a signal ended it, after a checkpoint. TrainingStopped: training cannot continue.
        """
        with self.interruption.deferred(self.loop.request_stop, lambda: self.task.completed_steps > self._first_step):
            try:
                self._require_finite_enough(self._first_step)
                self._catch_up_on_evaluation()
                step = self._first_step
                while step < self.triggers.last_step and not self._best.has_stalled():
                    if step in (self._first_step, *self.triggers.span_ends):
                        span = self._begin_span(step)
                    # A span's first step compiles: its time must not count for the rates of the others.
                    stop = step + 1 if step == span.first_step else self.triggers.next_stop(step)
                    began = time.monotonic()
                    stops, is_nonfinite, metrics = self.loop.train(span.phase.task, span.batches, stop - step)
                    if is_nonfinite and self._train.on_nonfinite == "stop":
                        self._stop_before_nonfinite(span.phase.task, metrics)
                    step = self.task.completed_steps
                    self._after_steps(span, step)
                    if stops:
                        self._end_early(step)
                    if step == span.first_step + 1:
                        logger.info("step %d: took %.1f s, with its compilation", step, time.monotonic() - began)
                        self._reporter.start_interval(step)
                    if self.triggers.evaluates(step):
                        self._evaluate(step)
                if self._best.has_stalled():
                    self._save(step)  # as after the last step of a run
                    patience = self.task.config.evaluation.patience
                    logger.info("step %d: training ends: none of the last %d evaluations was better", step, patience)
                if verdict := self._evaluation and self.task.verdict(self._evaluation):
                    logger.info(verdict)
                return self._evaluation
            finally:
                self._reporter.close()
                self.checkpoints.close()

    def _begin_span(self, step: int) -> _Span:
        """Prepares the phase that begins at this step, and opens the batches of the stage."""
        stage, phase = span_after(self.stages, step), span_after(self._phases, step)
        if step == phase.first_step:
            phase.task.begin()
        if step == stage.first_step and self.writes:
            self._announce(stage)
        batches = self.loop.read(lambda context: stage.training_batches(step, context))
        return _Span(step, stage, phase, batches)

    def _announce(self, stage: InputStage) -> None:
        """Logs the beginning of a stage with longer sequences than all before it, whose first metrics are worse."""
        earlier = [each.max_seq_length for each in self.stages if each.last_step <= stage.first_step]
        if earlier and max(earlier) < stage.max_seq_length:
            logger.info(
                "step %d: %s begins, with sequences of %d tokens after %d; held-out metrics get worse until the "
                "positions from %d on are learnt",
                stage.first_step, stage.name, stage.max_seq_length, max(earlier), max(earlier),
            )  # fmt: skip

    def _after_steps(self, span: _Span, step: int) -> None:
        """Reports, keeps a milestone and saves, whichever is due after a step."""
        if self.triggers.reports(step):
            metrics: dict[str, float] = self.metrics.close(metric_names(span.phase.task))
            metrics |= self._reporter.rates(step, span.stage.batch_size, span.stage.max_seq_length)
            self._reporter.train(step, metrics)
            for message in self._health.observe(step, metrics):
                self._reporter.alarm(step, message)
        with self._reporter.pause():
            if self.triggers.keeps_milestone(step):
                self.checkpoints.save_milestone(step)
            if self.triggers.saves(step):
                self._save(step)
        self._require_finite_enough(step)

    def _save(self, step: int) -> None:
        """Writes the reports, then a checkpoint. In the other order, a kill in between would lose the reports."""
        self._reporter.flush()
        self.checkpoints.save(step)

    def _catch_up_on_evaluation(self) -> None:
        """Evaluates the first step if an earlier call was killed between its checkpoint and its evaluation."""
        step = self._first_step
        if step > 0 and self.triggers.evaluates(step):
            self._evaluation = self.directory.evaluation_at(step)
            if not self._evaluation:
                self._evaluate(step)
            self._keep_if_best(step)

    def _evaluate(self, step: int) -> None:
        stage, task = span_at(self.stages, step), span_at(self._phases, step).task
        if stage.num_evaluation_batches == 0:
            return
        with self._reporter.pause():
            evaluation = self.loop.evaluate(stage.evaluation_batches, stage.num_evaluation_batches, task)
        if evaluation is None:
            self._end_early(step)
        metrics = self._evaluation = evaluation.metrics | stage.output_metrics(evaluation.outputs)
        self._reporter.evaluation(step, metrics)
        self._compare(step, metrics)
        self._keep_if_best(step)

    def _compare(self, step: int, metrics: MeanMetrics, is_kept: bool = False) -> None:
        """Takes an evaluation for `best/` and `patience`, if it is of the last phase and the last stage.

        Earlier ones are of another objective, or of texts of another length, so their values do not compare.

        Args:
            is_kept: `best/` holds the checkpoint of this step, perhaps by other settings.
        """
        is_last = all(span_at(spans, step) is spans[-1] for spans in (self._phases, self.stages))
        if is_last and (is_kept or self.triggers.evaluates_in_every_call(step)):
            self._best.observe(step, metrics)

    def _keep_if_best(self, step: int) -> None:
        if self._best.is_best(step):
            self.checkpoints.save_best(step)

    def _end_early(self, step: int) -> None:
        """Raises: Interrupted: after a checkpoint of this step."""
        self._save(step)
        logger.info("step %d: checkpoint written; the same command continues the run", step)
        raise self.interruption.interrupted()

    def _stop_before_nonfinite(self, phase: Task, metrics: dict[str, tf.Tensor]) -> None:
        """Raises: TrainingStopped: after a checkpoint of the last finite step."""
        step = self.task.completed_steps
        self._save(step)
        raise TrainingStopped(explain_nonfinite(phase, step, metrics))

    def _require_finite_enough(self, step: int) -> None:
        """Raises: TrainingStopped: if more steps were left out than the configuration allows."""
        allowed = self._train.max_nonfinite_steps
        count = self.metrics.nonfinite_steps_of_run() if self._train.on_nonfinite == "skip" else 0
        if count > allowed:
            self._save(step)
            raise TrainingStopped(
                f"by step {step} the losses or gradients of {count} steps were not finite, and "
                f"train.max_nonfinite_steps is {allowed}; start a new run from an earlier milestone (--init_from) with "
                "a lower optimizer.learning_rate, or raise train.max_nonfinite_steps"
            )
