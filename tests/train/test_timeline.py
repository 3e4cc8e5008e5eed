"""The stages of a run, and the steps of reports, evaluations, checkpoints and milestones."""

import pytest

from electra_tf.train.timeline import due_after, milestone_steps, next_stop, stage_at, stages_of
from tests.toy import ToyStage, toy_config
from tests.train.runs import TwoPhases


def config(every_steps: int = 10):
    """20 steps: reports every 6, saves every 8, evaluations every 10, a milestone at 15."""
    train = {"num_steps": 20, "log_every_steps": 6, "save_every_steps": 8, "milestone_fractions": (0.75,)}
    return toy_config(train=train, evaluation={"every_steps": every_steps})


def due(what: str, ends: tuple[int, ...] = (20,), every_steps: int = 10) -> list[int]:
    stages = [ToyStage(toy_config(), last_step=end) for end in ends]
    return [step for step in range(1, 21) if what in due_after(step, config(every_steps), stages)]


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
        step = next_stop(step, config(), [ToyStage(config())], last_step)
        found.append(step)
    assert found == stops


def test_each_is_due_at_its_multiples_and_reports_and_evaluations_at_the_end_of_a_stage():
    assert due("report", (7, 20)) == [1, 6, 7, 12, 18, 20]
    assert due("checkpoint") == [8, 16]
    assert due("milestone") == [15]
    assert due("evaluation", (7, 20)) == [7, 10, 20]
    assert due("evaluation", every_steps=0) == [20]


def test_a_run_is_cut_at_the_end_of_each_phase_and_of_each_stage():
    task = TwoPhases(toy_config())
    short, long = ToyStage(toy_config(), name="a", last_step=5), ToyStage(toy_config(), name="b", first_step=5)
    cut = stages_of(task, (short, long))
    assert [(part.first_step, part.last_step, part.name) for part in cut] == [(0, 3, "a"), (3, 5, "a"), (5, 8, "b")]
    assert [part.task for part in cut] == [task.first, task, task]
    assert [stage_at(cut, step) for step in (1, 3, 4, 5, 6, 8, 9)] == [*cut[:1] * 2, *cut[1:2] * 2, *cut[2:] * 3]
    assert [task.phase_at(step) for step in (1, 3, 4, 8, 9)] == [task.first] * 2 + [task] * 3


@pytest.mark.parametrize(
    ("num_steps", "fractions", "steps"),
    [
        (1_000_000, (0.0625, 0.125, 0.25, 0.5, 1.0), (62_500, 125_000, 250_000, 500_000, 1_000_000)),
        (3, (0.0625, 0.5, 1.0), (1, 2, 3)),
        (10, (0.0, 1.0), (10,)),
    ],
)
def test_milestones_are_fractions_of_num_steps(num_steps, fractions, steps):
    train = {"num_steps": num_steps, "milestone_fractions": fractions}
    assert milestone_steps(toy_config(train=train)) == set(steps)
