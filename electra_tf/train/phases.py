"""The parts of a training that differ in what is trained. Their input goes on: its parts are the stages."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from electra_tf.tasks.base import Objective


@dataclass(frozen=True)
class TrainingPhase:
    """The steps after `first_step` up to and with `last_step` of the run, and the objective that they train."""

    first_step: int
    last_step: int
    objective: Objective


def phases_of(objective: Objective) -> tuple[TrainingPhase, ...]:
    """The phases of a run, one after the other; most have one."""
    config, objectives = objective.config, objective.phases
    if len(objectives) == 1:
        return (TrainingPhase(0, config.train.num_steps, objectives[0]),)
    lengths = (phase.num_steps for phase in config.objective.phases(config))
    ends = itertools.pairwise(itertools.accumulate(lengths, initial=0))
    return tuple(TrainingPhase(*span, part) for span, part in zip(ends, objectives, strict=True))


def phase_after(phases: Sequence[TrainingPhase], step: int) -> TrainingPhase:
    """The phase whose steps come after `step`; the last one where the run is over."""
    return next((phase for phase in phases if step < phase.last_step), phases[-1])


def phase_at(phases: Sequence[TrainingPhase], step: int) -> TrainingPhase:
    """The phase that `step` was trained in: at a phase's last step that phase, not the next."""
    return next((phase for phase in phases if step <= phase.last_step), phases[-1])
