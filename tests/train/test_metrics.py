"""Means over the steps since the last report, and the best evaluation."""

import math

import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import EvaluationConfig
from electra_tf.train.metrics import BestScore, MetricAccumulator


def accumulator(max_nonfinite_steps: int | None = None, names=("loss", "masked_lm")) -> MetricAccumulator:
    return MetricAccumulator(names, max_nonfinite_steps)


def metrics(loss: float, masked_lm: float, learning_rate: float, nonfinite: float = 0.0) -> dict[str, tf.Tensor]:
    values = {"loss": loss, "masked_lm": masked_lm, "learning_rate": learning_rate, "nonfinite": nonfinite}
    return {name: tf.constant(value) for name, value in values.items()}


@pytest.fixture
def add():
    """`add(accumulator, metrics)`: in a replica context, as the training step does."""
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    return lambda to, step: bool(strategy.run(to.add, args=(step,)))


def test_report_has_means_and_the_last_learning_rate_and_resets_the_sums(add):
    ours = accumulator()
    add(ours, metrics(4.0, 1.0, 0.5))
    add(ours, metrics(8.0, 2.0, 0.25))
    assert ours.close() == {"loss": 6.0, "masked_lm": 1.5, "learning_rate": 0.25}
    add(ours, metrics(7.0, 3.0, 0.125))
    assert ours.close() == {"loss": 7.0, "masked_lm": 3.0, "learning_rate": 0.125}


def test_report_has_only_the_metrics_of_the_phase(add):
    ours = accumulator(names=("loss", "masked_lm", "replaced_token"))
    add(ours, metrics(4.0, 1.0, 0.5))
    assert ours.close(("loss", "masked_lm")) == {"loss": 4.0, "masked_lm": 1.0, "learning_rate": 0.5}


def test_nonfinite_step_is_counted_and_left_out_of_the_means(add):
    ours = accumulator(max_nonfinite_steps=2)
    stops = [
        add(ours, step)
        for step in (
            metrics(4.0, 1.0, 0.5),
            metrics(math.nan, math.inf, 0.25, nonfinite=1.0),
            metrics(8.0, 2.0, 0.125),
        )
    ]
    assert ours.close() == {"loss": 6.0, "masked_lm": 1.5, "learning_rate": 0.125, "nonfinite_steps": 1}
    stops += [add(ours, metrics(math.nan, 1.0, 0.5, nonfinite=1.0)) for _ in range(2)]
    report = ours.close()
    assert math.isnan(report["loss"]) and report["nonfinite_steps"] == 2
    assert ours.nonfinite_steps_of_run() == 3
    assert stops == [False, False, False, False, True]


def test_unskipped_nonfinite_step_ends_the_run_and_changes_no_sum(add):
    ours, without = accumulator(), accumulator()
    assert not add(ours, metrics(4.0, 1.0, 0.5))
    add(without, metrics(4.0, 1.0, 0.5))
    assert add(ours, metrics(math.nan, 1.0, 0.25, nonfinite=1.0))
    assert [v.numpy().tolist() for v in ours.variables] == [v.numpy().tolist() for v in without.variables]


def test_two_replicas_add_a_step_once(two_replicas):
    with two_replicas.scope():
        ours = accumulator()
    step = tf.function(lambda: two_replicas.run(ours.add, args=(metrics(4.0, 1.0, 0.5),)))
    step()
    step()
    assert ours.close() == {"loss": 4.0, "masked_lm": 1.0, "learning_rate": 0.5}


def scores(patience: int = 0, *values: float | None) -> BestScore:
    best = BestScore(EvaluationConfig(best_metric="f1", patience=patience))
    for number, value in enumerate(values, start=1):
        best.observe(10 * number, {"f1": value, "loss": 3.0})
    return best


def test_first_of_equal_scores_is_the_best():
    best = scores(0, 0.25, 0.5, 0.5, 0.375)
    assert [best.is_best(step) for step in (10, 20, 30, 40)] == [False, True, False, False]


@pytest.mark.parametrize("missing", [None, math.nan])
def test_score_without_a_value_is_the_lowest(missing):
    assert scores(0, missing, -0.5).is_best(20)


def test_training_stalls_after_patience_evaluations_without_a_better_one():
    assert not scores(2, 0.5, 0.4).has_stalled()
    assert scores(2, 0.5, 0.4, 0.5).has_stalled()
    assert not scores(2, 0.5, 0.4, 0.6).has_stalled()
    assert not scores(0, 0.5, 0.4, 0.3, 0.2).has_stalled()


@pytest.mark.parametrize("name", ["loss", "mse", "masked_lm_loss"])
def test_lowest_loss_is_the_best(name):
    best = BestScore(EvaluationConfig(best_metric=name, patience=1))
    for step, value in ((10, 0.75), (20, 0.5), (30, 0.625)):
        best.observe(step, {name: value})
    assert [best.is_best(step) for step in (10, 20, 30)] == [False, True, False]
    assert best.has_stalled()


def test_without_best_metric_no_evaluation_is_the_best():
    best = BestScore(EvaluationConfig())
    best.observe(10, {"loss": 1.0})
    assert not best.is_best(10) and not best.has_stalled()


def test_unknown_best_metric_is_an_error_that_lists_the_metrics():
    with pytest.raises(UserError, match="best_metric=f1 .*accuracy, loss"):
        BestScore(EvaluationConfig(best_metric="f1")).observe(5, {"step": 5, "accuracy": 0.5, "loss": 1.0})
