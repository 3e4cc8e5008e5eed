"""The alarm about a fine-tuned model that has learnt nothing."""

import numpy as np
import pytest

# The dev set has six texts: even, odd, even, ... Both classes are equally frequent, as in training.
ALL_RIGHT = [0, 1, 0, 1, 0, 1]


@pytest.fixture(scope="module")
def problem(job_in, tmp_path_factory):
    """`problem(predicted classes, loss)`: the alarm."""
    data = job_in(tmp_path_factory.mktemp("alarm")).data
    return lambda classes, loss: (
        data.evaluated({"logits": np.eye(2, dtype=np.float32)[classes], "loss": np.full(6, loss, np.float32)}).problem
    )


def test_predictions_of_a_single_class_raise_the_alarm(problem):
    assert problem([1] * 6, 0.25) == "all 6 predictions of the dev set are 'odd'"


def test_chance_accuracy_with_a_loss_above_the_constant_predictors_raises_the_alarm(problem):
    message = problem([1, 0, 0, 1, 1, 1], 0.75)  # three of six are right
    assert "0.7500" in message and "0.6931" in message


@pytest.mark.parametrize(
    ("classes", "loss"), [(ALL_RIGHT, 2.0), ([0, 1, 0, 1, 1, 1], 2.0), ([1, 0, 0, 1, 1, 1], 0.625)]
)
def test_better_accuracy_or_lower_loss_than_the_constant_predictors_raises_no_alarm(problem, classes, loss):
    assert problem(classes, loss) is None
