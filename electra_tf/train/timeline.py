"""The steps at which a run reports, evaluates and saves. They do not depend on interruptions.

A run has input stages, each with its own data (`electra_tf.tasks.base.InputStage`), and training phases, each with its
own task. Both are spans of steps.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from electra_tf.config.schema import RunConfig, TrainConfig
from electra_tf.tasks.base import Task


class Span(Protocol):
    """The steps after `first_step` up to and including `last_step`."""

    first_step: int
    last_step: int


SpanT = TypeVar("SpanT", bound=Span)


@dataclass(frozen=True)
class TrainingPhase:
    """A span of steps and the task that they train."""

    first_step: int
    last_step: int
    task: Task


def phases_of(task: Task) -> tuple[TrainingPhase, ...]:
    """The training phases of a run in order; most runs have one."""
    ends = itertools.pairwise(itertools.accumulate(task.phase_steps, initial=0))
    return tuple(TrainingPhase(*span, part) for span, part in zip(ends, task.phases, strict=True))


def span_after(spans: Sequence[SpanT], step: int) -> SpanT:
    """The span that contains step + 1; at the end of the run the last span."""
    return next((span for span in spans if step < span.last_step), spans[-1])


def span_at(spans: Sequence[SpanT], step: int) -> SpanT:
    """The span that contains `step`."""
    return next((span for span in spans if step <= span.last_step), spans[-1])


@dataclass(frozen=True)
class StepTriggers:
    """The steps after which the host reports, evaluates or saves.

    Attributes:
        span_ends: the last step of each input stage and each training phase, ascending.
        last_step: the last step of this call; at most the run's last step.
    """

    config: RunConfig
    span_ends: tuple[int, ...]
    last_step: int

    @property
    def train(self) -> TrainConfig:
        return self.config.train

    def reports(self, step: int) -> bool:
        """True at multiples of `log_every_steps`, at step 1 (the untrained model's loss), and at the end of a span."""
        return step == 1 or step % self.train.log_every_steps == 0 or step in self.span_ends

    def evaluates(self, step: int) -> bool:
        return self.evaluates_in_every_call(step) or step == self.last_step

    def evaluates_in_every_call(self, step: int) -> bool:
        """True unless the evaluation of this step depends on where a call of the run ends."""
        every = self.config.evaluation.every_steps
        return (every > 0 and step > 0 and step % every == 0) or step in self.span_ends

    def saves(self, step: int) -> bool:
        return step % self.train.save_every_steps == 0 or step == self.last_step

    def keeps_milestone(self, step: int) -> bool:
        return step in self._milestones

    def next_stop(self, step: int) -> int:
        """The first step after `step`, and at most `last_step`, after which something is due."""
        periods = (self.train.log_every_steps, self.train.save_every_steps, self.config.evaluation.every_steps)
        stops = [(step // period + 1) * period for period in periods if period]
        stops += [single for single in (1, *self._milestones, *self.span_ends, self.last_step) if single > step]
        return min(stops)

    @property
    def _milestones(self) -> tuple[int, ...]:
        """The last step before the decay is one too, because a run can be extended from it."""
        stable = [self.config.stable_steps] if self.config.stable_steps else []
        return tuple(sorted({*milestone_steps(self.train.num_steps, self.train.milestone_fractions), *stable}))


def milestone_steps(num_steps: int, fractions: tuple[float, ...]) -> tuple[int, ...]:
    """The steps of the milestones: each fraction of the training, rounded, at least 1."""
    return tuple(sorted({max(1, round(fraction * num_steps)) for fraction in fractions if fraction > 0}))
