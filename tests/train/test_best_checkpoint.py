"""The best checkpoint of a run, and the end of a run by `evaluation.patience`."""

import logging
from pathlib import Path

import pytest

from electra_tf.config.errors import UserError
from electra_tf.train.checkpoints import steps_in
from tests.toy import ToyStage, toy_config


def best_config(every_steps: int = 4, **evaluation):
    return toy_config(evaluation={"best_metric": "squared_error", "every_steps": every_steps, **evaluation})


@pytest.mark.slow
def test_the_evaluation_at_the_end_of_an_early_call_is_not_kept_as_the_best(train_toy, tmp_path):
    train_toy(tmp_path, best_config(), stop_at_step=3)
    assert steps_in(f"{tmp_path}/best") == []
    train_toy(tmp_path, best_config(), stop_at_step=5)
    assert steps_in(f"{tmp_path}/best") == [4]


@pytest.mark.slow
def test_the_best_checkpoint_stays_if_evaluations_become_rarer(train_toy, tmp_path, scored):
    scored(5.0, 9.0, 7.0, 8.0)  # of steps 2, 4, 6 (the end of the first call) and 8
    train_toy(tmp_path, best_config(every_steps=2), stop_at_step=6)
    train_toy(tmp_path, best_config(every_steps=8))
    assert steps_in(f"{tmp_path}/best") == [4]


def test_a_run_that_patience_has_ended_says_so_again(train_toy, tmp_path, scored, caplog):
    caplog.set_level(logging.INFO)
    scored(1.0, 1.0)
    for _ in range(2):
        caplog.clear()
        train_toy(tmp_path, best_config(every_steps=2, patience=1))
        assert "step 4: training ends: none of the last 1 evaluations was better" in caplog.messages
        assert steps_in(f"{tmp_path}/checkpoints") == [4]


def test_patience_without_evaluations_is_a_warning(train_toy, tmp_path, caplog):
    train_toy(tmp_path, best_config(every_steps=0, patience=1))
    assert any("patience counts evaluations" in message for message in caplog.messages)


@pytest.mark.parametrize(
    ("metric", "num_batches", "named"),
    [("squared_eror", 2, "squared_eror .* squared_error?"), ("squared_error", 0, "best_metric needs held-out")],
)
def test_a_best_metric_that_no_evaluation_has_is_refused_before_training(
    train_toy, tmp_path, metric, num_batches, named
):
    config = best_config(best_metric=metric)
    with pytest.raises(UserError, match=named):
        train_toy(tmp_path, config, ToyStage(config, num_evaluation_batches=num_batches))
    assert not Path(tmp_path, "metrics.jsonl").exists()
