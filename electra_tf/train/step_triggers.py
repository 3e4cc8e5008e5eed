"""After which steps a run reports, evaluates and saves: arithmetic on the step alone, the same for any interruption."""

from dataclasses import dataclass

from electra_tf.config.schema import EvaluationConfig, TrainConfig


@dataclass(frozen=True)
class StepTriggers:
    """The steps at which the host has something to do.

    Attributes:
        stage_ends: the last step of each stage of the input and of each phase of the objective, rising; the last of
            them is the end of the run.
        last_step: where this call ends; at most the run's last step.
    """

    train: TrainConfig
    evaluation: EvaluationConfig
    stage_ends: tuple[int, ...]
    last_step: int

    def reports(self, step: int) -> bool:
        """Step 1 too, the loss of the untrained model, and each part's end: a mean over two inputs says little."""
        return step == 1 or step % self.train.log_every_steps == 0 or step in self.stage_ends

    def evaluates(self, step: int) -> bool:
        every = self.evaluation.every_steps
        return (every > 0 and step > 0 and step % every == 0) or step in (*self.stage_ends, self.last_step)

    def saves(self, step: int) -> bool:
        return step % self.train.save_every_steps == 0 or step == self.last_step

    def keeps_milestone(self, step: int) -> bool:
        return step in self._milestones

    def next_stop(self, step: int) -> int:
        """The first step after `step`, and at most `last_step`, that ends with something to do."""
        periods = (self.train.log_every_steps, self.train.save_every_steps, self.evaluation.every_steps)
        stops = [(step // period + 1) * period for period in periods if period]
        stops += [single for single in (1, *self._milestones, *self.stage_ends, self.last_step) if single > step]
        return min(stops)

    @property
    def _milestones(self) -> tuple[int, ...]:
        return milestone_steps(self.train.num_steps, self.train.milestone_fractions)


def milestone_steps(num_steps: int, fractions: tuple[float, ...]) -> tuple[int, ...]:
    """The steps of the milestones: each share of the training, rounded, at least 1."""
    return tuple(sorted({max(1, round(fraction * num_steps)) for fraction in fractions if fraction > 0}))
