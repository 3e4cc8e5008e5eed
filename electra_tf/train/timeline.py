"""The stages of a run, and the steps at which it reports, evaluates and saves, however often it is interrupted."""

import copy
import itertools
from collections.abc import Sequence
from typing import TypeVar

from electra_tf.config.schema import RunConfig
from electra_tf.tasks.base import Stage, Task

StageT = TypeVar("StageT", bound=Stage)


def stages_of(task: Task, stages: Sequence[StageT]) -> tuple[StageT, ...]:
    """The stages of a run, each with the phase of its task that it trains; one that has two phases becomes two."""
    parts: list[StageT] = []
    for last_step in sorted({*itertools.accumulate(task.phase_steps), *(stage.last_step for stage in stages)}):
        part = copy.copy(stage_at(stages, last_step))
        part.first_step, part.last_step = parts[-1].last_step if parts else 0, last_step
        part.task = task.phase_at(last_step)
        parts.append(part)
    return tuple(parts)


def stage_at(stages: Sequence[StageT], step: int) -> StageT:
    """The stage that contains a step, counted from 1; after the end of the run the last one."""
    return next((stage for stage in stages if step <= stage.last_step), stages[-1])


def due_after(step: int, config: RunConfig, stages: Sequence[Stage]) -> set[str]:
    """What is due after a step, wherever a call of the run ends: report, milestone, checkpoint, evaluation.

    A report is also due after step 1 (the untrained model's loss), and a report and an evaluation at the end of a
    stage.
    """
    train, every = config.train, config.evaluation.every_steps
    ends_stage = any(step == stage.last_step for stage in stages)
    due = {
        "report": step == 1 or step % train.log_every_steps == 0 or ends_stage,
        "milestone": step in milestone_steps(config),
        "checkpoint": step % train.save_every_steps == 0,
        "evaluation": step > 0 and (ends_stage or (every > 0 and step % every == 0)),
    }
    return {name for name, is_due in due.items() if is_due}


def next_stop(step: int, config: RunConfig, stages: Sequence[Stage], last_step: int) -> int:
    """The first step after `step`, and at most `last_step`, after which something is due."""
    periods = (config.train.log_every_steps, config.train.save_every_steps, config.evaluation.every_steps)
    stops = [(step // period + 1) * period for period in periods if period]
    single = (1, *milestone_steps(config), *(stage.last_step for stage in stages), last_step)
    return min(*stops, *(stop for stop in single if stop > step))


def milestone_steps(config: RunConfig) -> set[int]:
    """The steps of the milestones: each fraction of the training, rounded, at least 1.

    The last step before the decay is one too, because a run can be extended from it.
    """
    num_steps, fractions = config.train.num_steps, config.train.milestone_fractions
    return {max(1, round(each * num_steps)) for each in fractions if each > 0} | ({config.stable_steps} - {0})
