"""Which evaluation was the best, and when a run has stopped getting better."""

import math

import pytest

from electra_tf.config.errors import UserError
from electra_tf.config.schema import EvaluationConfig
from electra_tf.train.best_score import BestScore


def scores(patience: int = 0, *values: float | None) -> BestScore:
    best = BestScore(EvaluationConfig(best_metric="f1", patience=patience))
    for number, value in enumerate(values, start=1):
        best.observe(10 * number, {"f1": value, "loss": 3.0})
    return best


def test_of_equal_scores_the_first_is_the_best():
    best = scores(0, 0.25, 0.5, 0.5, 0.375)
    assert [best.is_best(step) for step in (10, 20, 30, 40)] == [False, True, False, False]


@pytest.mark.parametrize("missing", [None, math.nan])
def test_a_score_without_a_value_is_the_lowest(missing):
    assert scores(0, missing, -0.5).is_best(20)


def test_training_stalls_after_as_many_evaluations_as_patience_says():
    assert not scores(2, 0.5, 0.4).has_stalled()
    assert scores(2, 0.5, 0.4, 0.5).has_stalled()
    assert not scores(2, 0.5, 0.4, 0.6).has_stalled()


def test_without_patience_it_never_stalls():
    assert not scores(0, 0.5, 0.4, 0.3, 0.2).has_stalled()


@pytest.mark.parametrize("name", ["loss", "mse", "masked_lm_loss"])
def test_of_losses_the_lowest_is_the_best(name):
    best = BestScore(EvaluationConfig(best_metric=name, patience=1))
    for step, value in ((10, 0.75), (20, 0.5), (30, 0.625)):
        best.observe(step, {name: value})
    assert [best.is_best(step) for step in (10, 20, 30)] == [False, True, False]
    assert best.has_stalled()


def test_without_a_metric_nothing_is_the_best():
    best = BestScore(EvaluationConfig())
    best.observe(10, {"loss": 1.0})
    assert not best.is_best(10) and not best.has_stalled()


def test_an_unknown_metric_is_named_with_the_nearest():
    with pytest.raises(UserError, match="evaluation.best_metric=f1 is no metric; there are: accuracy, loss"):
        BestScore(EvaluationConfig(best_metric="f1")).observe(5, {"step": 5, "accuracy": 0.5, "loss": 1.0})
