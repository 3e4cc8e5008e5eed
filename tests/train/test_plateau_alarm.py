"""The alarm while a run trains."""

import json
import math

import pytest

from electra_tf.train.plateau_alarm import PlateauAlarm
from tests.toy import toy_config

GOOD, BAD = {"loss": 1.0}, {"loss": 3.0}


def problem_of(metrics: dict[str, float]) -> str | None:
    return f"the loss is {metrics['loss']:g}" if metrics.get("loss", 0.0) > 2.0 else None


def alarm_of(after: int = 600, num_steps: int = 10**6, **options) -> PlateauAlarm:
    train = toy_config(train={"alarm_after_steps": after, "num_steps": num_steps}).train
    return PlateauAlarm(train, problem_of, **options)


def alarms(alarm: PlateauAlarm, reports: list[dict], every: int = 200) -> list[tuple[int, str]]:
    """(report, message) of each alarm."""
    observed = [(number, alarm.observe(every * number, report)) for number, report in enumerate(reports, 1)]
    return [(number, message) for number, message in observed if message]


SINCE = "since step {} the loss is 3"


@pytest.mark.parametrize(
    ("reports", "every", "expected"),
    [
        ([BAD] * 9, 200, {3: 1}),  # once
        ([BAD, BAD, GOOD, *[BAD] * 4], 200, {6: 601}),  # the count starts anew
        ([*[BAD] * 4, GOOD, *[BAD] * 4], 200, {3: 1, 8: 1001}),
        # A report without a finite value ends an episode.
        ([BAD, BAD, {"loss": None}, {"loss": math.nan}, BAD], 200, {}),
        ([GOOD, BAD, BAD], 1000, {2: 1001}),  # reports are further apart
    ],
)
def test_the_alarm_is_raised_once_for_each_time_that_the_problem_lasts_long_enough(reports, every, expected):
    assert alarms(alarm_of(), reports, every) == [(report, SINCE.format(since)) for report, since in expected.items()]


@pytest.mark.parametrize(
    ("after", "num_steps", "due"),
    [(5000, 10**6, 5000), (5000, 1600, 800), (5000, 150, 500), (300, 1600, 300), (0, 1600, None)],
)
def test_the_alarm_of_a_short_run_is_due_after_half_of_its_steps_but_not_in_its_first_500(after, num_steps, due):
    found = [100 * report for report, _ in alarms(alarm_of(after, num_steps), [BAD] * 100, every=100)]
    assert found == ([] if due is None else [due])


def test_an_alarm_that_observes_the_reports_again_raises_the_same():
    reports = [GOOD, *[BAD] * 4, GOOD, *[BAD] * 4]
    stored = [json.loads(json.dumps({"step": 1, "split": "train", **report})) for report in reports]
    expected = [(4, SINCE.format(201)), (9, SINCE.format(1201))]
    for stop in range(len(reports)):
        assert alarms(alarm_of(), [*stored[:stop], *reports[stop:]]) == expected


def test_a_run_that_goes_on_from_another_has_its_own_first_step():
    alarm = alarm_of(first_step=1000)
    assert [alarm.observe(step, BAD) for step in (1200, 1400, 1600)] == [None, None, "since step 1001 the loss is 3"]
