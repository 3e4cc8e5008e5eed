"""The steps of reports, evaluations, checkpoints and milestones."""

import pytest

from electra_tf.train.timeline import StepTriggers, TrainingPhase, milestone_steps, span_after, span_at
from tests.toy import toy_config


def triggers(last_step: int = 20, span_ends: tuple[int, ...] = (20,), every_steps: int = 10) -> StepTriggers:
    """20 steps: reports every 6, saves every 8, evaluations every 10, a milestone at 15."""
    train = {"num_steps": 20, "log_every_steps": 6, "save_every_steps": 8, "milestone_fractions": (0.75,)}
    config = toy_config(train=train, evaluation={"every_steps": every_steps})
    return StepTriggers(config, span_ends, last_step)


def due(question) -> list[int]:
    return [step for step in range(21) if question(step)]


@pytest.mark.parametrize(
    ("first_step", "last_step", "stops"),
    [
        (0, 20, [1, 6, 8, 10, 12, 15, 16, 18, 20]),
        (9, 20, [10, 12, 15, 16, 18, 20]),  # as the whole run does
        (0, 11, [1, 6, 8, 10, 11]),
    ],
)
def test_next_stop_is_the_next_step_with_something_due(first_step, last_step, stops):
    found, step = [], first_step
    while step < last_step:
        step = triggers(last_step).next_stop(step)
        found.append(step)
    assert found == stops


def test_reports_are_due_at_step_1_at_multiples_and_at_the_end_of_a_span():
    assert due(triggers(last_step=11, span_ends=(7, 20)).reports) == [0, 1, 6, 7, 12, 18, 20]


def test_checkpoints_are_due_at_multiples_and_at_the_end_of_the_call():
    assert due(triggers(last_step=11).saves) == [0, 8, 11, 16]


def test_evaluations_are_due_at_multiples_and_at_the_end_of_a_span_or_the_call():
    assert due(triggers(last_step=13, span_ends=(7, 20)).evaluates) == [7, 10, 13, 20]
    assert due(triggers(every_steps=0).evaluates) == [20]
    assert due(triggers(last_step=13, span_ends=(7, 20)).evaluates_in_every_call) == [7, 10, 20]


def test_last_step_of_a_span_belongs_to_it():
    spans = (TrainingPhase(0, 3, "first"), TrainingPhase(3, 8, "second"))
    assert [span_at(spans, step).task for step in (1, 3, 4, 8, 9)] == ["first", "first", "second", "second", "second"]
    assert [span_after(spans, step).task for step in (0, 2, 3, 8)] == ["first", "first", "second", "second"]


@pytest.mark.parametrize(
    ("num_steps", "fractions", "steps"),
    [
        (1_000_000, (0.0625, 0.125, 0.25, 0.5, 1.0), (62_500, 125_000, 250_000, 500_000, 1_000_000)),
        (3, (0.0625, 0.5, 1.0), (1, 2, 3)),
        (10, (0.0, 1.0), (10,)),
    ],
)
def test_milestones_are_fractions_of_num_steps(num_steps, fractions, steps):
    assert milestone_steps(num_steps, fractions) == steps
