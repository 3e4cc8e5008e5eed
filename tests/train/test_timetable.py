"""Which steps end with what."""

import pytest

from electra_tf.train.timeline import StepTriggers, milestone_steps


@pytest.fixture
def timetable(tiny_config):
    """20 steps: reports every 6, saves every 8, evaluations every 10, a milestone at 15."""
    config = tiny_config(
        train={"num_steps": 20, "log_every_steps": 6, "save_every_steps": 8, "milestone_fractions": (0.75,)},
        evaluation={"every_steps": 10},
    )

    def build(last_step: int = 20, stage_ends: tuple[int, ...] = (20,)) -> StepTriggers:
        return StepTriggers(config.train, config.evaluation, stage_ends, last_step)

    return build


def stops(timetable: StepTriggers, first_step: int = 0) -> list[int]:
    found, step = [], first_step
    while step < timetable.last_step:
        step = timetable.next_stop(step)
        found.append(step)
    return found


def due(question) -> list[int]:
    return [step for step in range(21) if question(step)]


def test_the_host_is_asked_after_every_step_that_ends_with_something(timetable):
    assert stops(timetable()) == [1, 6, 8, 10, 12, 15, 16, 18, 20]


def test_a_run_that_continues_stops_where_the_whole_one_does(timetable):
    assert stops(timetable(), first_step=9) == [10, 12, 15, 16, 18, 20]


def test_a_call_that_ends_early_stops_there(timetable):
    assert stops(timetable(last_step=11)) == [1, 6, 8, 10, 11]


def test_reports_stand_at_the_first_step_at_multiples_and_at_the_end_of_a_stage(timetable):
    assert due(timetable(stage_ends=(7, 20)).reports) == [0, 1, 6, 7, 12, 18, 20]


def test_reports_do_not_depend_on_where_a_call_ends(timetable):
    assert not timetable(last_step=11).reports(11)


def test_checkpoints_stand_at_multiples_and_where_the_call_ends(timetable):
    assert due(timetable(last_step=11).saves) == [0, 8, 11, 16]


def test_evaluations_stand_at_multiples_and_where_a_stage_or_the_call_ends(timetable):
    assert due(timetable(last_step=13, stage_ends=(7, 20)).evaluates) == [7, 10, 13, 20]


def test_without_a_period_only_the_ends_are_evaluated(tiny_config):
    config = tiny_config(train={"num_steps": 20})
    assert due(StepTriggers(config.train, config.evaluation, (20,), 20).evaluates) == [20]


@pytest.mark.parametrize(
    ("num_steps", "fractions", "steps"),
    [
        (1_000_000, (0.0625, 0.125, 0.25, 0.5, 1.0), (62_500, 125_000, 250_000, 500_000, 1_000_000)),
        (3, (0.0625, 0.5, 1.0), (1, 2, 3)),
        (10, (0.0, 1.0), (10,)),
    ],
)
def test_milestones_are_shares_of_the_training(num_steps, fractions, steps):
    assert milestone_steps(num_steps, fractions) == steps
