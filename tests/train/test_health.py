"""Alarms of any task's checks, and why a step was not finite."""

import json
import math

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from electra_tf.train.health import HealthMonitor, alarm_after, explain_nonfinite
from electra_tf.train.step import compile_task
from tests.toy import Regression, ToyStage, toy_config

GOOD, BAD = {"loss": 1.0}, {"loss": 3.0}


def check(metrics: dict[str, float]) -> str | None:
    return f"the loss is {metrics['loss']:g}" if metrics.get("loss", 0.0) > 2.0 else None


def alarms(reports: list[dict], after: int = 30, checks=(check,)) -> list[tuple[int, str]]:
    """(step, message) of the alarms of reports at every tenth step."""
    monitor = HealthMonitor(after, checks)
    return [(step, line) for step, report in enumerate(reports, 1) for line in monitor.observe(10 * step, report)]


@pytest.mark.parametrize(
    ("reports", "found"),
    [
        ([GOOD] * 9, []),
        ([BAD] * 9, [(3, "since step 1 the loss is 3")]),  # once
        ([BAD, BAD, GOOD, *[BAD] * 4], [(6, "since step 31 the loss is 3")]),  # the count starts anew
        ([*[BAD] * 4, GOOD, *[BAD] * 4], [(3, "since step 1 the loss is 3"), (8, "since step 51 the loss is 3")]),
        # A report without a finite value says nothing: it ends what lasted.
        ([BAD, BAD, {"loss": None}, {"loss": math.nan}, BAD], []),
    ],
)
def test_an_alarm_is_raised_once_for_each_time_a_check_fails_for_long_enough(reports, found):
    assert alarms(reports) == found


@pytest.mark.parametrize(
    ("alarm_after_steps", "num_steps", "after"),
    [(5000, 10**6, 5000), (5000, 1600, 800), (5000, 150, 500), (300, 1600, 300), (0, 1600, 0)],
)
def test_a_short_run_is_warned_after_half_of_its_steps_but_not_in_the_first_hundreds(
    alarm_after_steps, num_steps, after
):
    train = toy_config(train={"alarm_after_steps": alarm_after_steps, "num_steps": num_steps}).train
    assert alarm_after(train) == after


def test_zero_steps_is_never_and_each_check_counts_for_itself():
    assert alarms([BAD] * 9, after=0) == []
    assert [line for _, line in alarms([BAD] * 3, checks=(check, lambda metrics: "always"))] == [
        "since step 1 the loss is 3",
        "since step 1 always",
    ]


def test_a_monitor_that_read_the_reports_of_before_raises_the_same_alarms():
    reports = [GOOD, *[BAD] * 4, GOOD, *[BAD] * 4]
    whole = HealthMonitor(30, [check])
    expected = [whole.observe(10 * step, report) for step, report in enumerate(reports, 1)]
    for stop in range(len(reports)):
        continued = HealthMonitor(30, [check])
        for step, report in enumerate(reports[:stop], 1):
            continued.observe(10 * step, json.loads(json.dumps({"step": 10 * step, "split": "train", **report})))
        assert [continued.observe(10 * step, reports[step - 1]) for step in range(stop + 1, 11)] == expected[stop:]


@pytest.fixture
def explained(two_replicas):
    """`explained(damage, replicas, nan_steps)`: the explanation of step 8, after `damage(task)`."""

    def explain(damage=lambda task: None, replicas=1, nan_steps=(), **changes) -> str:
        config = toy_config(**changes)
        strategy = two_replicas if replicas == 2 else tf.distribute.OneDeviceStrategy("CPU:0")
        stage = ToyStage(config, nan_steps=nan_steps)
        tf_keras.utils.set_random_seed(5)
        with strategy.scope():
            task = Regression(config)
            task.create_variables()
            compile_task(task)
            damage(task)

        def batches_from(step: int):
            return strategy.distribute_datasets_from_function(lambda context: stage.training_batches(step, context))

        before = [variable.numpy() for variable in task.variables]
        message = explain_nonfinite(task, strategy, batches_from, 7)
        assert all(np.array_equal(a, b.numpy(), equal_nan=True) for a, b in zip(before, task.variables, strict=True))
        assert "\n" not in message
        return message

    return explain


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_weight_that_is_not_finite_is_named_with_the_gradients(explained, replicas):
    message = explained(lambda task: task.output_layer.bias.assign([math.nan]), replicas)
    assert message.startswith("the loss of step 8 is not finite (squared_error nan, noise ")
    assert "weights that were not finite before: output/bias; " in message
    assert "gradients that are not: output/bias, output/kernel, hidden/bias, hidden/kernel; usual causes" in message


def test_data_that_is_not_finite_leaves_no_weight_to_name(explained):
    message = explained(nan_steps=(7,))
    assert message.startswith("the loss of step 8 is not finite")
    assert "weights that were not finite before" not in message


def test_where_all_is_finite_when_computed_again_the_largest_gradients_are_named(explained):
    message = explained()
    assert message.startswith("the loss or a gradient of step 8 was not finite, but all are when computed again (")
    norms = [float(entry.split()[1]) for entry in message.partition("norms: ")[2].partition("; ")[0].split(", ")]
    assert len(norms) == 4 and norms == sorted(norms, reverse=True) and norms[-1] > 0.0
    assert "a faulty device or memory" in message


def test_a_norm_is_given_where_its_square_overflows(explained):
    message = explained(lambda task: task.output_layer.bias.assign([1e19]))
    assert 1e19 < float(message.partition("norms: ")[2].split()[1].rstrip(",;")) < math.inf


def test_micro_batches_are_computed_again_together(explained):
    losses = [explained(train={"gradient_accumulation_steps": parts}).partition("(")[2].split()[1] for parts in (1, 2)]
    assert losses[0] == losses[1]
