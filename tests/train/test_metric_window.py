"""Sums over the steps since the last report."""

import math

import pytest
import tensorflow as tf

from electra_tf.train.metrics import MetricAccumulator


def window(on_nonfinite: str = "stop") -> MetricAccumulator:
    return MetricAccumulator(("loss", "masked_lm"), max_nonfinite_steps=2 if on_nonfinite == "skip" else None)


def metrics(loss: float, masked_lm: float, learning_rate: float, nonfinite: float = 0.0) -> dict[str, tf.Tensor]:
    values = {"loss": loss, "masked_lm": masked_lm, "learning_rate": learning_rate, "nonfinite": nonfinite}
    return {name: tf.constant(value) for name, value in values.items()}


@pytest.fixture
def add():
    """`add(window, metrics)`: in a replica context, as the training step does."""
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    return lambda to, step: strategy.run(to.add, args=(step,))


def test_a_report_has_means_and_the_last_learning_rate(add):
    ours = window()
    add(ours, metrics(4.0, 1.0, 0.5))
    add(ours, metrics(8.0, 2.0, 0.25))
    assert ours.close() == {"loss": 6.0, "masked_lm": 1.5, "learning_rate": 0.25}


def test_a_phase_reports_its_own_metrics_alone(add):
    ours = MetricAccumulator(("loss", "masked_lm", "replaced_token"), max_nonfinite_steps=None)
    add(ours, metrics(4.0, 1.0, 0.5))
    assert ours.close(("loss", "masked_lm")) == {"loss": 4.0, "masked_lm": 1.0, "learning_rate": 0.5}
    with pytest.raises(AssertionError, match="the step returns"):
        add(window(), {**metrics(4.0, 1.0, 0.5), "unknown": tf.constant(1.0)})


def test_a_window_is_empty_after_its_report(add):
    ours = window()
    add(ours, metrics(4.0, 1.0, 0.5))
    ours.close()
    add(ours, metrics(7.0, 3.0, 0.25))
    assert ours.close() == {"loss": 7.0, "masked_lm": 3.0, "learning_rate": 0.25}


def test_a_step_that_is_not_finite_is_counted_and_left_out_of_the_means(add):
    ours = window("skip")
    add(ours, metrics(4.0, 1.0, 0.5))
    add(ours, metrics(math.nan, math.inf, 0.25, nonfinite=1.0))
    add(ours, metrics(8.0, 2.0, 0.125))
    assert ours.close() == {"loss": 6.0, "masked_lm": 1.5, "learning_rate": 0.125, "nonfinite_steps": 1}


def test_the_count_of_the_run_outlasts_its_reports(add):
    ours = window("skip")
    for _ in range(3):
        add(ours, metrics(math.nan, 1.0, 0.5, nonfinite=1.0))
        ours.close()
    assert ours.nonfinite_steps_of_run() == 3


def test_a_window_without_a_finite_step_has_no_means(add):
    ours = window("skip")
    add(ours, metrics(math.nan, 1.0, 0.5, nonfinite=1.0))
    report = ours.close()
    assert math.isnan(report["loss"]) and math.isnan(report["masked_lm"])
    assert report["nonfinite_steps"] == 1


def test_where_the_run_ends_before_a_step_it_leaves_no_trace(add):
    ours, without = window("stop"), window("stop")
    add(ours, metrics(4.0, 1.0, 0.5))
    add(without, metrics(4.0, 1.0, 0.5))
    add(ours, metrics(math.nan, 1.0, 0.25, nonfinite=1.0))
    assert [v.numpy().tolist() for v in ours.variables] == [v.numpy().tolist() for v in without.variables]


def test_a_window_goes_on_from_a_checkpoint(add, tmp_path):
    ours, later = window(), window()
    add(ours, metrics(4.0, 1.0, 0.5))
    path = tf.train.Checkpoint(window=ours).write(str(tmp_path / "window"))
    tf.train.Checkpoint(window=later).read(path).assert_consumed()
    add(later, metrics(8.0, 2.0, 0.25))
    assert later.close() == {"loss": 6.0, "masked_lm": 1.5, "learning_rate": 0.25}


def test_the_run_must_not_go_on_after_a_step_that_is_not_finite(add):
    ours = window("stop")
    assert [bool(add(ours, metrics(4.0, 1.0, 0.5, nonfinite=nonfinite))) for nonfinite in (0.0, 1.0)] == [False, True]


def test_the_run_may_skip_as_many_steps_as_are_allowed(add):
    ours = window("skip")
    found = [bool(add(ours, metrics(4.0, 1.0, 0.5, nonfinite=nonfinite))) for nonfinite in (1.0, 0.0, 1.0, 1.0)]
    assert found == [False, False, False, True]


def test_two_replicas_count_a_step_once(two_replicas):
    with two_replicas.scope():
        ours = window()
    step = tf.function(lambda: two_replicas.run(ours.add, args=(metrics(4.0, 1.0, 0.5),)))
    step()
    step()
    assert ours.close() == {"loss": 4.0, "masked_lm": 1.0, "learning_rate": 0.5}


def test_a_metric_that_the_window_does_not_know_is_noticed(add):
    with pytest.raises(AssertionError, match="accuracy"):
        add(window(), {**metrics(4.0, 1.0, 0.5), "accuracy": tf.constant(1.0)})
