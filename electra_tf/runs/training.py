"""The steps of a run with its reports, evaluations, checkpoints and milestones in their places."""

import logging
from collections.abc import Sequence

import tensorflow as tf

from electra_tf.config.errors import TrainingStopped
from electra_tf.flops.budget import RunCost, known_cost
from electra_tf.runs.checkpoint import Checkpoints
from electra_tf.runs.interruption import Interruption
from electra_tf.runs.reported_lines import evaluation_at, reports_of
from electra_tf.runs.reporting import TrainingReporter
from electra_tf.runs.run_directory import RunDirectory
from electra_tf.tasks.base import Objective
from electra_tf.train.device_peak import Peak, peak_of_run
from electra_tf.train.health import HealthMonitor, explain_nonfinite
from electra_tf.train.metrics import MetricAccumulator, metric_names
from electra_tf.train.phases import TrainingPhase, phase_after, phase_at, phases_of
from electra_tf.train.pretrainer import Evaluator, MeanMetrics, Pretrainer
from electra_tf.train.stages import StageInput, evaluation_stage, training_stage
from electra_tf.train.step_triggers import StepTriggers
from electra_tf.train.stop_request import StopRequest

logger = logging.getLogger(__name__)


class Training:
    """One call's share of a run, from the step its checkpoint stands at.

    After a step the order is: report, milestone, checkpoint, evaluation. So what belongs to a checkpoint's step is
    there before the checkpoint is, but for the evaluation, which the call that continues makes up for with the same
    weights. A long evaluation thus puts no steps at risk.

    Args:
        objective: compiled, restored.
        window: restored.
        directory: of the run.
        writes: whether this process writes reports; the checkpoints know for themselves.
    """

    def __init__(
        self,
        objective: Objective,
        strategy: tf.distribute.Strategy,
        stages: Sequence[StageInput],
        timetable: StepTriggers,
        window: MetricAccumulator,
        checkpoints: Checkpoints,
        directory: RunDirectory,
        writes: bool,
        interruption: Interruption,
    ):
        self._objective = objective
        self._strategy = strategy
        self._stages = stages
        self._phases = phases_of(objective)
        self._timetable = timetable
        self._window = window
        self._checkpoints = checkpoints
        self._directory = directory
        self._interruption = interruption
        self._config = objective.config
        self._first_step = self._step()
        cost, peak_flops = self._cost_and_peak() if writes else (None, None)
        self._reporter = TrainingReporter(
            directory if writes else None, self._first_step, self._config.train.num_steps, cost, peak_flops
        )
        self._health = HealthMonitor(self._config)
        for report in reports_of(directory.metrics_file, "train"):
            self._health.observe(report["step"], report)
        self._stop_request = StopRequest(strategy)
        self._evaluator: tuple[StageInput, Objective, Evaluator] | None = None
        self._evaluation: MeanMetrics = {}

    def run(self) -> MeanMetrics:
        """Trains up to the timetable's last step. Returns the last evaluation's metrics.

        Raises: Interrupted: a signal ended it, after a checkpoint. TrainingStopped: it must not go on.
        """

        def has_progress() -> bool:
            return self._step() > self._first_step

        with self._interruption.deferred(self._stop_request.make, has_progress):
            try:
                self._require_finite_enough(self._first_step)
                self._make_up_for_evaluation()
                while self._step() < self._timetable.last_step:
                    step = self._step()
                    self._train_part(training_stage(self._stages, step), phase_after(self._phases, step))
                return self._evaluation
            finally:
                try:
                    self._reporter.close()
                finally:
                    self._checkpoints.close()

    def _train_part(self, entry: StageInput, phase: TrainingPhase) -> None:
        """Trains to the end of a stage or of a phase, whichever comes first, or of the call."""
        step = first_step = self._step()
        if self._stop_request.is_decided():
            self._end_early(step)
        if step == phase.first_step:
            phase.objective.begin()
        pretrainer = Pretrainer(
            phase.objective,
            self._strategy,
            self._window,
            self._stop_request,
            batches=lambda context: entry.training(first_step, context),
        )
        # The first step compiles; the rates and the time left are to be those of the others.
        stop = first_step + 1
        while step < min(entry.stage.last_step, phase.last_step, self._timetable.last_step):
            early_end = pretrainer.train(stop - step)
            step = self._step()
            if early_end.nonfinite and self._config.train.on_nonfinite == "stop":
                self._stop_before_nonfinite(entry, phase, step)
            self._after_steps(entry, phase, step)
            if early_end.stop_requested:
                self._end_early(step)
            if stop == first_step + 1:
                self._reporter.start_interval(step)
            if self._timetable.evaluates(step):
                self._evaluate(step)
            if self._stop_request.is_decided():
                self._end_early(step)
            stop = self._timetable.next_stop(step)

    def _after_steps(self, entry: StageInput, phase: TrainingPhase, step: int) -> None:
        """Does what is due after a step, up to its checkpoint."""
        if self._timetable.reports(step):
            self._report(entry, phase, step)
        with self._reporter.pause():
            if self._timetable.keeps_milestone(step):
                self._checkpoints.write_milestone(step)
            if self._timetable.saves(step):
                self._save(step)
        self._require_finite_enough(step)

    def _report(self, entry: StageInput, phase: TrainingPhase, step: int) -> None:
        metrics: dict[str, float] = self._window.close(metric_names(phase.objective))
        metrics |= self._reporter.rates(step, entry.stage.batch_size, entry.stage.config.data.max_seq_length)
        self._reporter.train(step, metrics)
        for message in self._health.observe(step, metrics):
            self._reporter.alarm(step, message)

    def _save(self, step: int) -> None:
        self._checkpoints.save(step, first=self._reporter.sync)

    def _make_up_for_evaluation(self) -> None:
        """Evaluates if an earlier call was killed between its last checkpoint and that step's evaluation."""
        step = self._first_step
        if step > 0 and self._timetable.evaluates(step):
            self._evaluation = evaluation_at(self._directory.metrics_file, step) or {}
            if not self._evaluation:
                self._evaluate(step)

    def _evaluate(self, step: int) -> None:
        entry, objective = evaluation_stage(self._stages, step), phase_at(self._phases, step).objective
        if entry.num_evaluation_batches == 0:
            return
        if self._evaluator is None or self._evaluator[0] is not entry or self._evaluator[1] is not objective:
            evaluator = Evaluator(objective, self._strategy, self._stop_request, entry.held_out)
            self._evaluator = entry, objective, evaluator
        with self._reporter.pause():
            metrics = self._evaluator[-1].evaluate(entry.num_evaluation_batches)
        if metrics is None:
            self._end_early(step)
        self._evaluation = metrics
        self._reporter.evaluation(step, metrics)

    def _end_early(self, step: int) -> None:
        """Raises: Interrupted: after a checkpoint of this very step. UserError: if the disk does not take it."""
        self._save(step)
        self._checkpoints.close()  # or the reason why it could not be written
        logger.info("step %d: checkpoint written; the same command continues the run", step)
        raise self._interruption.interrupted()

    def _stop_before_nonfinite(self, entry: StageInput, phase: TrainingPhase, step: int) -> None:
        """Raises: TrainingStopped: after a checkpoint of the state before the step that came to nothing."""
        self._save(step)
        self._checkpoints.wait()

        def batches_from(first_step: int):
            return self._strategy.distribute_datasets_from_function(lambda context: entry.training(first_step, context))

        raise TrainingStopped(explain_nonfinite(phase.objective, self._strategy, batches_from, step))

    def _require_finite_enough(self, step: int) -> None:
        """Raises: TrainingStopped: if more steps were left out than the configuration allows."""
        allowed = self._config.train.max_nonfinite_steps
        found = self._window.nonfinite_steps_of_run() if self._config.train.on_nonfinite == "skip" else 0
        if found > allowed:
            self._save(step)
            raise TrainingStopped(
                f"by step {step} the losses or gradients of {found} steps were not finite, and "
                f"train.max_nonfinite_steps is {allowed}; start a new run from an earlier milestone (--init_from) with "
                "a lower optimizer.learning_rate, or raise train.max_nonfinite_steps"
            )

    def _cost_and_peak(self) -> tuple[RunCost | None, Peak | None]:
        """What the steps of the run take, and what its devices could reach together."""
        cost = known_cost(self._config)
        if cost is None:
            name = self._config.objective.name
            logger.info("FLOPs are not reported: the settings of objective %s do not describe its `phases`", name)
            return None, None
        peak = peak_of_run(self._config.train, self._strategy)
        if peak is not None:
            logger.info("utilisation is of %.4g FLOP/s, %s", *peak)
        return cost, peak

    def _step(self) -> int:
        return int(self._objective.optimizer.iterations.numpy())
