"""When a fine-tuned model is said to have learnt nothing."""

import numpy as np
import pytest

# Of the six texts of the dev set the first is even, the second odd, and so on; as many as in training.
ALL_RIGHT = [0, 1, 0, 1, 0, 1]


@pytest.fixture(scope="module")
def problem(job_in, tmp_path_factory):
    """`problem(predicted classes, loss)`: the alarm."""
    data = job_in(tmp_path_factory.mktemp("alarm")).data
    return lambda classes, loss: data.problem(
        {"logits": np.eye(2, dtype=np.float32)[classes], "loss": np.full(6, loss, np.float32)}
    )


def test_predictions_of_one_class_are_an_alarm(problem):
    assert problem([1] * 6, 0.25) == "all 6 predictions of the dev set are 'odd'"


def test_a_loss_above_that_of_a_constant_is_one_if_no_more_is_right_than_by_chance(problem):
    message = problem([1, 0, 0, 1, 1, 1], 0.75)  # three of six
    assert message == "the dev loss is 0.7500, that of always predicting the training set's mean 0.6931"


@pytest.mark.parametrize(
    ("classes", "loss"), [(ALL_RIGHT, 2.0), ([0, 1, 0, 1, 1, 1], 2.0), ([1, 0, 0, 1, 1, 1], 0.625)]
)
def test_a_model_that_is_right_more_often_or_has_a_lower_loss_has_learnt(problem, classes, loss):
    assert problem(classes, loss) is None
