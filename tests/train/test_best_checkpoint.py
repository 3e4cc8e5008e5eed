"""The best checkpoint of a run, and the end of a run by `evaluation.patience`."""

import logging
from pathlib import Path

import pytest

from electra_tf.config.errors import UserError
from electra_tf.train.checkpoints import steps_in
from electra_tf.train.device_loop import DeviceLoop, Evaluation
from tests.toy import ToyStage, toy_config


@pytest.mark.slow
def test_the_evaluation_at_the_end_of_an_early_call_is_not_kept_as_the_best(train_toy, tmp_path):
    config = toy_config(evaluation={"best_metric": "squared_error"})
    train_toy(tmp_path, config, stop_at_step=3)
    assert steps_in(f"{tmp_path}/best") == []
    train_toy(tmp_path, config, stop_at_step=5)
    assert steps_in(f"{tmp_path}/best") == [4]


@pytest.mark.slow
def test_the_best_checkpoint_stays_if_evaluations_become_rarer(train_toy, tmp_path, monkeypatch):
    scores = iter((5.0, 9.0, 7.0, 8.0))  # of steps 2, 4, 6 (the end of the first call) and 8
    evaluate_ = DeviceLoop.evaluate

    def scored(evaluator, *arguments):
        return evaluate_(evaluator, *arguments)._replace(metrics={"squared_error": next(scores)})

    monkeypatch.setattr(DeviceLoop, "evaluate", scored)
    train_toy(tmp_path, toy_config(evaluation={"best_metric": "squared_error", "every_steps": 2}), stop_at_step=6)
    train_toy(tmp_path, toy_config(evaluation={"best_metric": "squared_error", "every_steps": 8}))
    assert steps_in(f"{tmp_path}/best") == [4]


def test_an_unknown_best_metric_is_refused_before_training(train_toy, tmp_path):
    with pytest.raises(UserError, match="best_metric=squared_eror is not a metric; did you mean squared_error?"):
        train_toy(tmp_path, toy_config(evaluation={"best_metric": "squared_eror"}))
    assert not Path(tmp_path, "metrics.jsonl").exists()


def test_a_run_that_patience_has_ended_says_so_again(train_toy, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(DeviceLoop, "evaluate", lambda *_: Evaluation({"squared_error": 1.0}, {}))
    config = toy_config(evaluation={"best_metric": "squared_error", "every_steps": 2, "patience": 1})
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.INFO):
            train_toy(tmp_path, config)
        assert "step 4: training ends: none of the last 1 evaluations was better" in caplog.messages
        assert steps_in(f"{tmp_path}/checkpoints") == [4]


def test_patience_without_evaluations_is_a_warning(train_toy, tmp_path, caplog):
    train_toy(tmp_path, toy_config(evaluation={"best_metric": "squared_error", "patience": 1, "every_steps": 0}))
    assert any("patience counts evaluations" in message for message in caplog.messages)


def test_a_best_metric_without_held_out_examples_is_refused(train_toy, tmp_path):
    config = toy_config(evaluation={"best_metric": "squared_error"})
    with pytest.raises(UserError, match="best_metric needs held-out examples"):
        train_toy(tmp_path, config, ToyStage(config, num_evaluation_batches=0))
