"""Runs that meet a loss or gradient that is not finite."""

import json

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import TrainingStopped
from electra_tf.runs.directory import RATES, RunDirectory
from electra_tf.runs.loop import Run, pretrain
from electra_tf.tasks.pretrain.electra import Electra
from electra_tf.tasks.terms import Ratio


@pytest.fixture
def poisoned(monkeypatch):
    """`poisoned(2, 5)`: the masked-LM loss of the steps that begin at these counts is not a number."""

    def poison(*steps: int) -> None:
        loss_terms = Electra.loss_terms

        def broken(self, batch, context):
            terms = loss_terms(self, batch, context)
            if not context.training:  # as the variables are created, before there is an optimizer
                return terms
            total, weight = terms["masked_lm"]
            is_broken = tf.reduce_any(tf.equal(self.optimizer.iterations, steps))
            return {**terms, "masked_lm": Ratio(total * tf.where(is_broken, np.nan, 1.0), weight)}

        monkeypatch.setattr(Electra, "loss_terms", broken)

    return poison


@pytest.fixture
def config(tiny_config):
    def build(**train):
        return tiny_config(train={"num_steps": 8, "log_every_steps": 4, "save_every_steps": 8, **train})

    return build


@pytest.fixture
def run_in(tmp_path):
    return lambda config, name="run": Run(
        config, RunDirectory(tmp_path / name), tf.distribute.OneDeviceStrategy("CPU:0")
    )


@pytest.fixture
def data_dirs(write_data, tmp_path):
    return [write_data(tmp_path / "data", held_out=())]


def train_lines(run: Run) -> list[dict]:
    text = run.directory.metrics_file.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_a_run_stops_before_a_step_that_is_not_finite_and_goes_on_from_there(config, run_in, data_dirs, poisoned):
    run = run_in(config())
    poisoned(5)
    with pytest.raises(TrainingStopped, match=r"the loss of step 6 is not finite \(masked_lm nan"):
        pretrain(run, data_dirs)
    assert run.directory.latest_checkpoint().endswith("step-5")
    assert [line["step"] for line in train_lines(run)] == [1, 4]


def test_a_stopped_run_continues_as_if_nothing_had_been(config, run_in, data_dirs, poisoned, monkeypatch):
    run, whole = run_in(config()), run_in(config(), "whole")
    pretrain(whole, data_dirs)
    poisoned(5)
    with pytest.raises(TrainingStopped):
        pretrain(run, data_dirs)
    monkeypatch.undo()
    pretrain(run, data_dirs)
    without_rates = [{k: v for k, v in line.items() if k not in RATES} for line in train_lines(run)]
    assert without_rates == [{k: v for k, v in line.items() if k not in RATES} for line in train_lines(whole)]


def test_skipped_steps_are_counted_in_their_report(config, run_in, data_dirs, poisoned):
    poisoned(2, 5, 6)
    run = run_in(config(on_nonfinite="skip", max_nonfinite_steps=3))
    pretrain(run, data_dirs)
    assert [(line["step"], line.get("nonfinite_steps")) for line in train_lines(run)] == [(1, None), (4, 1), (8, 2)]
    assert all(np.isfinite(line["loss"]) for line in train_lines(run))


def test_too_many_skipped_steps_stop_the_run_also_when_it_was_continued(config, run_in, data_dirs, poisoned):
    poisoned(2, 5, 6)
    run = run_in(config(on_nonfinite="skip", max_nonfinite_steps=1))
    pretrain(run, data_dirs, stop_at_step=4)
    with pytest.raises(TrainingStopped, match=r"of 2 steps were not finite, and train\.max_nonfinite_steps is 1"):
        pretrain(run, data_dirs)
    with pytest.raises(TrainingStopped, match="of 2 steps were not finite"):
        pretrain(run, data_dirs)
    more = run_in(config(on_nonfinite="skip", max_nonfinite_steps=5))
    pretrain(more, data_dirs)
    assert train_lines(more)[-1]["step"] == 8
