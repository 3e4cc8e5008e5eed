"""The segments of a run, and the steps at which it reports, evaluates and saves, however often it is interrupted."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from electra_tf.config.schema import RunConfig
from electra_tf.tasks.base import InputStage, Task


class Segment(NamedTuple):
    """The steps after `first_step` up to and including `last_step`: they read one input stage and train one task.

    Attributes:
        task: one of the training phases of the run's task.
    """

    first_step: int
    last_step: int
    stage: InputStage
    task: Task


def segments_of(task: Task, stages: Sequence[InputStage]) -> tuple[Segment, ...]:
    """The segments of a run in order; most runs have one."""
    ends = sorted({0, *itertools.accumulate(task.phase_steps), *(stage.last_step for stage in stages)})
    stages_at = [next((stage for stage in stages if last <= stage.last_step), stages[-1]) for last in ends[1:]]
    spans = zip(itertools.pairwise(ends), stages_at, strict=True)
    return tuple(Segment(first, last, stage, task.phase_at(last)) for (first, last), stage in spans)


def segment_at(segments: Sequence[Segment], step: int) -> Segment:
    """The segment that contains a step, counted from 1; after the end of the run the last one."""
    return next((segment for segment in segments if step <= segment.last_step), segments[-1])


def due_after(step: int, config: RunConfig, segments: Sequence[Segment]) -> set[str]:
    """What is due after a step, wherever a call of the run ends: report, milestone, checkpoint, evaluation.

    A report is also due after step 1 (the untrained model's loss), and a report and an evaluation at the end of a
    segment.
    """
    train, every = config.train, config.evaluation.every_steps
    ends_segment = any(step == segment.last_step for segment in segments)
    due = {
        "report": step == 1 or step % train.log_every_steps == 0 or ends_segment,
        "milestone": step in _milestones(config),
        "checkpoint": step % train.save_every_steps == 0,
        "evaluation": step > 0 and (ends_segment or (every > 0 and step % every == 0)),
    }
    return {name for name, is_due in due.items() if is_due}


def next_stop(step: int, config: RunConfig, segments: Sequence[Segment], last_step: int) -> int:
    """The first step after `step`, and at most `last_step`, after which something is due."""
    periods = (config.train.log_every_steps, config.train.save_every_steps, config.evaluation.every_steps)
    stops = [(step // period + 1) * period for period in periods if period]
    single = (1, *_milestones(config), *(segment.last_step for segment in segments), last_step)
    return min(*stops, *(stop for stop in single if stop > step))


def _milestones(config: RunConfig) -> set[int]:
    """The last step before the decay is one too, because a run can be extended from it."""
    stable = {config.stable_steps} if config.stable_steps else set()
    return {*milestone_steps(config.train.num_steps, config.train.milestone_fractions), *stable}


def milestone_steps(num_steps: int, fractions: tuple[float, ...]) -> tuple[int, ...]:
    """The steps of the milestones: each fraction of the training, rounded, at least 1."""
    return tuple(sorted({max(1, round(fraction * num_steps)) for fraction in fractions if fraction > 0}))
