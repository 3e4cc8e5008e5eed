"""The steps of a run with its reports, evaluations, checkpoints and milestones at the steps where they are due."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from electra_tf.config.errors import TrainingStopped, UserError
from electra_tf.runs.checkpoints import Checkpoints
from electra_tf.runs.directory import RunDirectory
from electra_tf.runs.interruption import Interruption
from electra_tf.runs.lock import require_held
from electra_tf.runs.reported_lines import evaluation_at, reports_of
from electra_tf.runs.reporting import Reporter
from electra_tf.tasks.base import InputStage
from electra_tf.train.best_score import BestScore
from electra_tf.train.device_peak import peak_of_run
from electra_tf.train.health import HealthMonitor, alarm_after, explain_nonfinite
from electra_tf.train.metrics import metric_names
from electra_tf.train.timeline import StepTriggers, TrainingPhase, phases_of, span_after, span_at
from electra_tf.train.trainer import Loops, MeanMetrics

logger = logging.getLogger(__name__)


@dataclass
class Training:
    """The part of a run that one call does, from the step of its checkpoint on.

    After a step the order is: report, milestone, checkpoint, evaluation. So all that belongs to a checkpoint's step
    exists before it, except the evaluation, which a continuing call does with the same weights if it is missing. A
    long evaluation thus puts no steps at risk.

    Attributes:
        loops: of the task, which is restored with its metrics.
        directory: of the run.        writes: whether this process writes reports; `checkpoints` knows for itself.
    """

    loops: Loops
    stages: Sequence[InputStage]
    triggers: StepTriggers
    checkpoints: Checkpoints
    directory: RunDirectory
    writes: bool
    interruption: Interruption

    def __post_init__(self):
        self.task, self.metrics = self.loops.task, self.loops.metrics
        self._phases = phases_of(self.task)
        self._train = self.task.config.train
        self._first_step = self._step()
        cost, peak = self.task.cost if self.writes else None, None
        if cost is not None and self._first_step < self.triggers.last_step:  # measuring it takes a second or two
            peak = peak_of_run(self._train, self.loops.strategy)
        if peak is not None:
            logger.info("utilisation is relative to %.4g FLOP/s, %s", *peak)
        self._health = HealthMonitor(alarm_after(self._train), self.task.health_checks)
        for report in reports_of(self.directory.metrics_file, "train"):
            if report["step"] <= self._first_step:
                self._health.observe(report["step"], report)
        # After the reports have been read: it drops those of later steps.
        directory = self.directory if self.writes else None
        self._reporter = Reporter(directory, self._first_step, self._train.num_steps, cost, peak)
        self._stop_request = self.loops.stop_request
        self._evaluation: MeanMetrics = {}
        self._best = BestScore(self.task.config.evaluation)
        for report in reports_of(self.directory.metrics_file, "held_out"):
            if report["step"] <= self._first_step:
                self._best.observe(report["step"], report)

    def run(self) -> MeanMetrics:
        """Trains up to the last step of the triggers. Returns the last evaluation's metrics.

        Raises: Interrupted: a signal ended it, after a checkpoint. TrainingStopped: it must not go on.
        """

        def has_progress() -> bool:
            return self._step() > self._first_step

        with self.interruption.deferred(self._stop_request.make, has_progress):
            try:
                self._require_finite_enough(self._first_step)
                self._catch_up_on_evaluation()
                while self._step() < self.triggers.last_step and not self._best.has_stalled():
                    step = self._step()
                    self._train_span(span_after(self.stages, step), span_after(self._phases, step))
                if verdict := self._evaluation and self.task.verdict(self._evaluation):
                    logger.info(verdict)
                return self._evaluation
            finally:
                try:
                    self._reporter.close()
                finally:
                    self.checkpoints.close()

    def _train_span(self, stage: InputStage, phase: TrainingPhase) -> None:
        """Trains to the end of a stage or of a phase, whichever comes first, or of the call."""
        step = first_step = self._step()
        if self._stop_request.is_decided():
            self._end_early(step)
        if step == phase.first_step:
            phase.task.begin()
        trainer = self.loops.trainer(phase.task)
        trainer.read(lambda context: stage.training_batches(first_step, context))
        # The first step compiles: its time must not count for the rates of the others.
        stop = first_step + 1
        while step < min(stage.last_step, phase.last_step, self.triggers.last_step):
            early_end = trainer.train(stop - step)
            step = self._step()
            if early_end.nonfinite and self._train.on_nonfinite == "stop":
                self._stop_before_nonfinite(stage, phase, step)
            self._after_steps(stage, phase, step)
            if early_end.stop_requested:
                self._end_early(step)
            if stop == first_step + 1:
                self._reporter.start_interval(step)
            if self.triggers.evaluates(step):
                self._evaluate(step)
                if self._best.has_stalled():
                    self._save(step)  # as at the run's last step, whenever checkpoints are due
                    logger.info("step %d: training ends, as evaluation.patience says", step)
                    return
            if self._stop_request.is_decided():
                self._end_early(step)
            stop = self.triggers.next_stop(step)

    def _after_steps(self, stage: InputStage, phase: TrainingPhase, step: int) -> None:
        """Does what is due after a step, up to its checkpoint."""
        if self.triggers.reports(step):
            metrics: dict[str, float] = self.metrics.close(metric_names(phase.task))
            metrics |= self._reporter.rates(step, stage.batch_size, stage.max_seq_length)
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
        """Saves a checkpoint once the reports before it are written; without them it would lose them for ever."""
        require_held(self.directory)
        try:
            self._reporter.flush()
        except UserError as error:
            self.checkpoints.skip(step, str(error))
            return
        self.checkpoints.save(step)

    def _catch_up_on_evaluation(self) -> None:
        """Evaluates if an earlier call was killed between its last checkpoint and that step's evaluation."""
        step = self._first_step
        if step > 0 and self.triggers.evaluates(step):
            self._evaluation = evaluation_at(self.directory.metrics_file, step)
            if not self._evaluation:
                self._evaluate(step)
            self._keep_if_best(step)

    def _evaluate(self, step: int) -> None:
        stage, task = span_at(self.stages, step), span_at(self._phases, step).task
        if stage.num_evaluation_batches == 0:
            return
        evaluator = self.loops.evaluator(task)
        with self._reporter.pause():
            evaluation = evaluator.evaluate(stage.evaluation_batches, stage.num_evaluation_batches)
        if evaluation is None:
            self._end_early(step)
        metrics = self._evaluation = evaluation.metrics | stage.output_metrics(evaluation.outputs)
        self._reporter.evaluation(step, metrics)
        self._best.observe(step, metrics)
        self._keep_if_best(step)

    def _keep_if_best(self, step: int) -> None:
        if self._best.is_best(step):
            self.checkpoints.save_best(step)

    def _end_early(self, step: int) -> None:
        """Raises: Interrupted: after a checkpoint of this very step. UserError: if that cannot be written."""
        self._save(step)
        self.checkpoints.close()  # or the reason why it could not be written
        logger.info("step %d: checkpoint written; the same command continues the run", step)
        raise self.interruption.interrupted()

    def _stop_before_nonfinite(self, stage: InputStage, phase: TrainingPhase, step: int) -> None:
        """Raises: TrainingStopped: after a checkpoint of the state before the step that is not finite."""
        self._save(step)

        def batches_from(first_step: int):
            return self.loops.strategy.distribute_datasets_from_function(
                lambda context: stage.training_batches(first_step, context)
            )

        raise TrainingStopped(explain_nonfinite(phase.task, self.loops.strategy, batches_from, step))

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

    def _step(self) -> int:
        return int(self.task.optimizer.iterations.numpy())
