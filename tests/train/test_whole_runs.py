"""Whole runs of the toy task: their files, their best checkpoint, and that an interrupted run equals a whole one."""

import json
import logging
import shutil
import signal
from pathlib import Path

import pytest
import tensorflow as tf

from electra_tf.config.errors import TrainingStopped, UserError
from electra_tf.text.vocabulary import StoredTokenizer, TextSettings
from electra_tf.train.checkpoints import Checkpoints, steps_in
from electra_tf.train.device_loop import DeviceLoop
from electra_tf.train.metrics import MetricAccumulator
from electra_tf.train.reporting import Reporter
from electra_tf.train.run_directory import RunDirectory
from electra_tf.train.signals import Interrupted, Interruption
from tests import toy
from tests.toy import Regression, ToyStage, evaluate_toy, toy_config, toy_run
from tests.train.runs import TwoPhases, assert_same_run, killed_at, lines, tensors, train_toy


def test_reports_have_all_metrics_at_the_steps_where_they_are_due(whole):
    reports = [(line["step"], line["split"]) for line in lines(whole[0])]
    # Step 1 is the untrained model, then every second; evaluations after 4 and at the end.
    train_steps = [(step, "train") for step in (1, 2, 4, 6, 8)]
    assert reports == [*train_steps[:3], (4, "held_out"), *train_steps[3:], (8, "held_out")]
    first, last = lines(whole[0])[0], lines(whole[0])[-2]
    names = {"loss", "squared_error", "noise", "gradient_norm", "learning_rate"}
    assert set(first) == set(last) == {"step", "split", *names}
    assert (first["learning_rate"], last["learning_rate"]) == pytest.approx((0.05, 0.05 / 8))


def test_directory_has_checkpoints_milestones_data_and_tokenizer(whole):
    run = Path(whole[0])
    assert (steps_in(f"{run}/milestones"), steps_in(f"{run}/checkpoints")) == ([2, 3, 8], [4, 8])
    counter = "optimizer/_iterations/.ATTRIBUTES/VARIABLE_VALUE"
    assert [int(tensors(run / f"milestones/step-{step}")[counter]) for step in (2, 3, 8)] == [2, 3, 8]
    assert (run / "vocab.txt").read_bytes() == b"[PAD]\n[UNK]\n"
    assert json.loads((run / "tokenizer_settings.json").read_text())["strip_accents"] is False
    assert json.loads((run / "data.json").read_text()) == {"data": ["toy-1"]}


def test_tensorboard_has_the_metrics_of_the_reports(whole):
    found = {}
    for path in Path(whole[0], "tensorboard").glob("*/events*"):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                found[event.step, path.parent.name, value.tag] = float(tf.make_ndarray(value.tensor))
    reports = [(line, name) for line in lines(whole[0]) for name in line.keys() - {"step", "split"}]
    expected = {(line["step"], line["split"], name): line[name] for line, name in reports}
    assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-6) and len(expected) > 20


# The run is killed before or after this call of a function. Checkpoints 1, 2, 4 are milestones, 3 and 5 are not.
@pytest.mark.parametrize(
    ("place", "owner", "name", "number", "when"),
    [
        ("", MetricAccumulator, "close", 4, "before"),  # steps 5 and 6 are lost
        ("", Reporter, "train", 3, "after"),  # the report of step 4 without its checkpoint
        ("", DeviceLoop, "evaluate", 1, "after"),  # evaluated, but not reported
        ("", Checkpoints, "save", 5, "after"),  # at the end, without the last evaluation
        ("ram://kills", Checkpoints, "save", 5, "before"),
    ],
)
def test_killed_and_continued_run_equals_a_whole_one(whole, tmp_path, place, owner, name, number, when):
    model_dir = place or str(tmp_path)
    with killed_at(owner, name, number, when):
        train_toy(model_dir)
    if not place:
        with open(tmp_path / "metrics.jsonl", "a") as stream:
            stream.write('{"step": 4, "spl')
    assert train_toy(model_dir) == whole[1]
    assert_same_run(model_dir, whole[0], "checkpoints/step-8")


@pytest.mark.slow
def test_a_run_is_continued_with_another_strategy(whole, tmp_path, two_replicas):
    train_toy(tmp_path, stop_at_step=4)
    assert train_toy(tmp_path, strategy=two_replicas) == pytest.approx(whole[1], rel=1e-5)
    losses = [[line.get("loss", 0.0) for line in lines(run)] for run in (tmp_path, whole[0])]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_call_with_stop_at_step_is_continued_by_the_next(whole, tmp_path):
    train_toy(tmp_path, stop_at_step=3)
    assert steps_in(f"{tmp_path}/checkpoints") == [3]
    assert [(line["step"], line["split"]) for line in lines(tmp_path)] == [(1, "train"), (2, "train"), (3, "held_out")]
    train_toy(tmp_path)
    assert [line for line in lines(tmp_path) if line["step"] != 3] == lines(whole[0])


def test_a_run_that_ended_between_a_milestone_and_its_first_checkpoint_keeps_its_settings(copied):
    shutil.rmtree(f"{copied}/checkpoints")
    Path(copied, "metrics.jsonl").unlink()
    with pytest.raises(UserError, match="has optimizer.learning_rate 0.05, this call has 0.5"):
        train_toy(copied, toy_config(optimizer={"learning_rate": 0.5}))


def test_finished_run_called_again_trains_and_writes_nothing(whole, copied, caplog):
    caplog.set_level("INFO")
    checkpoint = Path(copied) / "checkpoints" / "step-8.index"
    before = checkpoint.stat().st_mtime_ns
    assert train_toy(copied, stop_at_step=6) == whole[1]
    assert "the run is at step 8, and this call ends at step 6: nothing to train" in caplog.messages
    assert checkpoint.stat().st_mtime_ns == before
    assert_same_run(copied, whole[0], "checkpoints/step-8")


@pytest.mark.parametrize("model_dir", ["{}/new/run", "ram://dry/run"])
def test_a_dry_run_leaves_nothing_behind(tmp_path, model_dir):
    path = model_dir.format(tmp_path)
    assert toy_run(toy_config(), path).begins()
    assert not tf.io.gfile.exists(path) and list(tmp_path.iterdir()) == []


def test_a_dry_run_of_a_run_that_another_process_trains_changes_no_file(copied):
    with RunDirectory(copied).locked():
        before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in Path(copied).rglob("*.*")}
        assert not toy_run(toy_config(), copied).begins()
        assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in Path(copied).rglob("*.*")} == before
    assert Path(copied, ".lock") in before


def test_a_dry_run_refuses_what_a_run_refuses(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="holds no run"):
        toy_run(toy_config(), tmp_path).begins()


def test_signal_ends_the_run_at_its_next_step_with_a_checkpoint(whole, tmp_path, monkeypatch):
    """It arrives while the device runs a loop of many steps."""
    config = toy_config(train={"log_every_steps": 8, "save_every_steps": 8, "milestone_fractions": ()})
    requests, deferred = [], Interruption.deferred
    with monkeypatch.context() as patched, pytest.raises(Interrupted) as caught:
        patched.setattr(Interruption, "deferred", lambda *given: requests.append(given[1]) or deferred(*given))
        patched.setattr(Regression, "before_step", lambda task, done: done == 2 and requests[0]())
        train_toy(tmp_path, config)
    assert caught.value.exit_code == 128 + signal.SIGTERM
    # The device may read the request one step later.
    assert steps_in(f"{tmp_path}/checkpoints")[0] in (2, 3)
    train_toy(tmp_path, config)
    continued, expected = (tensors(f"{run}/checkpoints/step-8") for run in (tmp_path, whole[0]))
    weights = [name for name in expected if name.startswith("task/")]
    assert len(weights) >= 4
    assert all((continued[name] == expected[name]).all() for name in weights)


def test_evaluate_repeats_the_last_evaluation_without_the_lock(whole, two_replicas):
    config = toy_config()
    Path(whole[0], ".lock").touch()
    for strategy, tolerance in ((None, 0.0), (two_replicas, 1e-6)):
        metrics = evaluate_toy(toy_run(config, whole[0], strategy), [ToyStage(config)])
        assert metrics == pytest.approx({"step": 8, **whole[1]}, rel=tolerance)


def test_evaluate_without_held_out_split_or_checkpoint_is_an_error(whole, tmp_path):
    config = toy_config()
    with pytest.raises(UserError, match="^toy .*held_out_fraction"):
        evaluate_toy(toy_run(config, whole[0]), [ToyStage(config, num_evaluation_batches=0)])
    with pytest.raises(UserError, match=f"^{tmp_path}/checkpoints"):
        evaluate_toy(toy_run(config, tmp_path), [ToyStage(config)])


@pytest.mark.parametrize(
    ("settings", "stage", "message"),
    [
        ({"optimizer": {"learning_rate": 0.1}}, {}, r"has optimizer\.learning_rate 0\.05, this call has 0\.1"),
        ({}, {"data_hash": "toy-2"}, r"data\.json"),
        ({}, {"tokenizer": StoredTokenizer(b"[PAD]\n", TextSettings(strip_accents=False))}, r"vocab\.txt"),
    ],
)
def test_other_settings_data_or_tokenizer_are_an_error_that_changes_no_file(copied, settings, stage, message):
    def content() -> dict:
        return {path: path.read_bytes() for path in Path(copied).rglob("*") if path.is_file() and path.name != ".lock"}

    before, config = content(), toy_config(train={"log_every_steps": 3}, **settings)  # reports may change
    with pytest.raises(UserError, match=message):
        train_toy(copied, config, ToyStage(config, **stage))
    assert content() == before


def test_settings_that_do_not_affect_the_weights_may_change_in_a_started_run(copied):
    train = {"log_every_steps": 3, "save_every_steps": 5, "keep_checkpoints": 1, "milestone_fractions": (0.5,)}
    evaluation = {"every_steps": 1, "max_batches": 1, "best_metric": "squared_error", "patience": 2}
    config = toy_config(train={**train, "on_nonfinite": "skip"}, evaluation=evaluation)
    train_toy(copied, config)
    assert "keep_checkpoints: 1" in Path(copied, "config.yaml").read_text()


def test_run_without_its_checkpoints_does_not_start_again(copied, whole):
    shutil.rmtree(f"{copied}/checkpoints")
    with pytest.raises(UserError, match="metrics.jsonl reports 8 steps, but .*checkpoints"):
        train_toy(copied)
    Path(copied, "checkpoints").mkdir()  # the run continues from a milestone that is copied there
    for file in Path(copied, "milestones").glob("step-3.*"):
        shutil.copy(file, f"{copied}/checkpoints")
    train_toy(copied)
    assert_same_run(copied, whole[0], "checkpoints/step-8")


@pytest.mark.slow
def test_nonfinite_loss_ends_the_run_before_the_update_and_can_be_skipped_but_not_too_often(tmp_path):
    config = toy_config(train={"max_nonfinite_steps": 1})
    stage, worse = (ToyStage(config, nan_steps=steps) for steps in ((5,), (5, 6)))
    with pytest.raises(TrainingStopped, match=r"step 6 is not finite \(squared_error nan, "):
        train_toy(tmp_path, config, stage)
    assert steps_in(f"{tmp_path}/checkpoints") == [4, 5]
    skipping = toy_config(train={"max_nonfinite_steps": 1, "on_nonfinite": "skip"})
    shutil.copytree(tmp_path, tmp_path / "worse")
    train_toy(tmp_path, skipping, stage)
    skipped = [line.get("nonfinite_steps") for line in lines(tmp_path) if line["split"] == "train"]
    assert skipped == [None, None, None, 1, None]
    for _ in range(2):
        with pytest.raises(TrainingStopped, match="by step 7 .* 2 steps .*train.max_nonfinite_steps is 1"):
            train_toy(tmp_path / "worse", skipping, worse)
        assert steps_in(f"{tmp_path}/worse/checkpoints") == [5, 7]


@pytest.mark.slow
def test_alarm_is_raised_once_also_in_an_interrupted_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Regression, "plateau", lambda task, metrics: f"its loss is {metrics['loss']:.0f}")
    config = toy_config(train={"alarm_after_steps": 6})
    train_toy(tmp_path / "whole", config)
    train_toy(tmp_path / "parts", config, stop_at_step=4)
    train_toy(tmp_path / "parts", config)
    (alarm,) = Path(tmp_path, "whole", "alarms.jsonl").read_text().splitlines()
    assert json.loads(alarm)["step"] == 6
    assert json.loads(alarm)["message"].startswith("since step 1 its loss is ")
    assert Path(tmp_path, "parts", "alarms.jsonl").read_text().splitlines() == [alarm]
    assert "step 6 ALARM | since step 1 its loss is" in capsys.readouterr().err


@pytest.mark.parametrize("num_batches", [2, 0])
def test_verdict_on_the_last_evaluation_is_logged_at_the_end(tmp_path, monkeypatch, caplog, num_batches):
    monkeypatch.setattr(Regression, "verdict", lambda task, metrics: f"verdict on {sorted(metrics)}")
    caplog.set_level(logging.INFO)
    train_toy(tmp_path, stage=ToyStage(toy_config(), num_batches), stop_at_step=1)
    assert (caplog.messages[-1] == "verdict on ['squared_error']") == ("verdict on" in caplog.text) == (num_batches > 0)


def test_the_switch_to_longer_sequences_is_announced_with_what_happens_to_the_metrics(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    config, lengths = toy_config(train={"num_steps": 3}), (6, 7, 6)
    spans = [{"name": f"stages.{i}", "first_step": i, "last_step": i + 1} for i in range(3)]
    stages = [ToyStage(config, max_seq_length=length, **span) for length, span in zip(lengths, spans, strict=True)]
    toy.train_toy(toy_run(config, tmp_path), stages)
    (announced,) = [message for message in caplog.messages if "begins" in message]
    assert announced.startswith("step 1: stages.1 begins, with sequences of 7 tokens after 6; held-out metrics")
    assert "positions from 6 on" in announced


def test_in_a_log_the_progress_bar_ends_its_line_before_an_error(whole, monkeypatch, capsys):
    monkeypatch.setattr("electra_tf.train.device_loop._SECONDS_WITHOUT_BAR", 0)
    config = toy_config()

    class Torn(ToyStage):
        def evaluation_batches(self, context):
            return super().evaluation_batches(context).take(2)

    with pytest.raises(ValueError, match="shorter"):
        evaluate_toy(toy_run(config, whole[0]), [Torn(config, num_evaluation_batches=5)])
    printed = capsys.readouterr().err
    assert "2/5" in printed and printed.endswith("\n")


@pytest.mark.slow
@pytest.mark.parametrize("stop_at_step", [2, 3])
def test_each_phase_trains_its_own_variables(tmp_path, stop_at_step):
    config = toy_config(train={"milestone_fractions": (0.125, 0.375, 0.5)})
    run = toy_run(config, tmp_path)
    for last_step in (stop_at_step, 8):
        toy.train_toy(run, task=TwoPhases, stop_at_step=last_step)
    hidden, bias = (f"task/{name}/.ATTRIBUTES/VARIABLE_VALUE" for name in ("hidden/_kernel", "output_layer/bias"))
    states = {step: tensors(f"{tmp_path}/milestones/step-{step}") for step in (1, 3, 4)}
    assert (states[1][hidden] == states[3][hidden]).all()
    assert (states[3][hidden] != states[4][hidden]).all()
    assert abs(states[3][bias][0]) < 1.0 and abs(states[4][bias][0] - 7.0) < 0.5
    assert [line["step"] for line in lines(tmp_path) if line["split"] == "train"] == [1, 2, 3, 4, 6, 8]


@pytest.mark.slow
def test_the_last_phase_and_stage_alone_decide_on_the_best_checkpoint(tmp_path, scored):
    scored(5.0, 4.0, 3.0, 2.0, 1.0)  # of steps 2, 3 (the phase's end), 4 (the stage's end), 6 and 8
    config = toy_config(evaluation={"best_metric": "squared_error", "every_steps": 2, "patience": 2})
    stages = [ToyStage(config, name="first", last_step=4), ToyStage(config, name="last", first_step=4)]
    toy.train_toy(toy_run(config, tmp_path), stages, task=TwoPhases)
    assert steps_in(f"{tmp_path}/best") == [6]


def best_config(every_steps: int = 4, **evaluation):
    return toy_config(evaluation={"best_metric": "squared_error", "every_steps": every_steps, **evaluation})


@pytest.mark.slow
def test_the_evaluation_at_the_end_of_an_early_call_is_not_kept_as_the_best(tmp_path):
    train_toy(tmp_path, best_config(), stop_at_step=3)
    assert steps_in(f"{tmp_path}/best") == []
    train_toy(tmp_path, best_config(), stop_at_step=5)
    assert steps_in(f"{tmp_path}/best") == [4]


@pytest.mark.slow
def test_the_best_checkpoint_stays_if_evaluations_become_rarer(tmp_path, scored):
    scored(5.0, 9.0, 7.0, 8.0)  # of steps 2, 4, 6 (the end of the first call) and 8
    train_toy(tmp_path, best_config(every_steps=2), stop_at_step=6)
    train_toy(tmp_path, best_config(every_steps=8))
    assert steps_in(f"{tmp_path}/best") == [4]


def test_a_run_that_patience_has_ended_says_so_again(tmp_path, scored, caplog):
    caplog.set_level(logging.INFO)
    scored(1.0, 1.0)
    for _ in range(2):
        caplog.clear()
        train_toy(tmp_path, best_config(every_steps=2, patience=1))
        assert "step 4: training ends: none of the last 1 evaluations was better" in caplog.messages
        assert steps_in(f"{tmp_path}/checkpoints") == [4]


def test_patience_without_evaluations_is_a_warning(tmp_path, caplog):
    train_toy(tmp_path, best_config(every_steps=0, patience=1))
    assert any("patience counts evaluations" in message for message in caplog.messages)


@pytest.mark.parametrize(
    ("metric", "num_batches", "named"),
    [("squared_eror", 2, "squared_eror .* squared_error?"), ("squared_error", 0, "best_metric needs held-out")],
)
def test_a_best_metric_that_no_evaluation_has_is_refused_before_training(tmp_path, metric, num_batches, named):
    config = best_config(best_metric=metric)
    with pytest.raises(UserError, match=named):
        train_toy(tmp_path, config, ToyStage(config, num_evaluation_batches=num_batches))
    assert not Path(tmp_path, "metrics.jsonl").exists()
