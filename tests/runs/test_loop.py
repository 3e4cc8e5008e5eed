"""Whole runs of eight steps: what they leave behind, and that a run in two parts is the run in one."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.runs import checkpoint
from electra_tf.runs.checkpoint import restore_strictly
from electra_tf.runs.directory import RATES, RunDirectory
from electra_tf.runs.directory_lock import locked
from electra_tf.runs.load import load_run
from electra_tf.runs.loop import Run, evaluate, pretrain


@pytest.fixture(scope="module")
def whole(config, run_of, data_dir, tmp_path_factory):
    """A run of eight steps: its directory and the metrics of its last evaluation."""
    model_dir = tmp_path_factory.mktemp("whole") / "run"
    return model_dir, pretrain(run_of(config, model_dir), [data_dir])


@pytest.fixture(scope="module")
def in_two_parts(config, run_of, data_dir, tmp_path_factory):
    """Four steps, then a second call that continues; the file of metrics has a torn line of a killed run between."""
    model_dir = tmp_path_factory.mktemp("parts") / "run"
    pretrain(run_of(config, model_dir), [data_dir], stop_at_step=4)
    with open(model_dir / "metrics.jsonl", "a", encoding="utf-8") as stream:
        stream.write('{"step": 6, "split": "train", "loss": 1.0}\n{"step": 8, "spl')
    pretrain(run_of(config, model_dir), [data_dir])
    return model_dir


def lines(model_dir) -> list[dict]:
    text = (model_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{name: value for name, value in json.loads(line).items() if name not in RATES} for line in text]


def tensors(prefix) -> dict[str, np.ndarray]:
    reader = tf.train.load_checkpoint(str(prefix))
    names = [name for name in reader.get_variable_to_shape_map() if not name.startswith("_CHECKPOINTABLE")]
    return {name: reader.get_tensor(name) for name in names if "save_counter" not in name}


def saved(model_dir, folder: str) -> list[str]:
    return sorted(path.stem for path in (model_dir / folder).glob("*.index"))


def test_four_steps_and_four_more_are_eight_steps_bit_for_bit(whole, in_two_parts):
    first, second = tensors(whole[0] / "checkpoints" / "step-8"), tensors(in_two_parts / "checkpoints" / "step-8")
    assert set(first) == set(second)
    # Weights and two moments of each, and the counter.
    assert sum(values.size for values in first.values()) > 10_000
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_the_metrics_of_a_run_in_two_parts_are_those_of_the_whole(whole, in_two_parts):
    assert lines(in_two_parts) == lines(whole[0])


def test_reports_are_means_since_the_last_and_stand_at_the_right_steps(whole):
    found = [(line["step"], line["split"]) for line in lines(whole[0])]
    # 1 for the untrained model, else every second, whatever ends at 3; evaluation after 4 and at the end.
    expected = [(step, "train") for step in (1, 2, 4)] + [(4, "held_out")]
    assert found == expected + [(6, "train"), (8, "train"), (8, "held_out")]
    train = [line for line in lines(whole[0]) if line["split"] == "train"]
    losses, monitors = {"loss", "masked_lm", "replaced_token"}, {"replaced_fraction", "sampled_masked_lm_accuracy"}
    spent = {"examples_seen", "token_slots_seen", "paper_flops", "hardware_flops"}
    assert set(train[0]) == {"step", "split", *losses, *monitors, *spent, "gradient_norm", "learning_rate"}
    assert train[0]["learning_rate"] == pytest.approx(1e-2)
    assert train[-1]["learning_rate"] == pytest.approx(1e-2 / 8)


def test_milestones_are_kept_and_only_the_last_checkpoints_are(whole):
    assert saved(whole[0], "milestones") == ["step-2", "step-3", "step-8"]
    assert saved(whole[0], "checkpoints") == ["step-8"]


def test_a_milestone_holds_the_state_of_its_step(whole):
    milestones = whole[0] / "milestones"
    (counter,) = [name for name in tensors(milestones / "step-3") if "iterations" in name]
    assert [int(tensors(milestones / f"step-{step}")[counter]) for step in (2, 3, 8)] == [2, 3, 8]


def test_the_directory_holds_the_configuration_and_the_vocabulary(whole, config, data_dir):
    from electra_tf.tasks.pretrain.config import load_config

    assert load_config(whole[0] / "config.yaml") == config
    assert (whole[0] / "vocab.txt").read_bytes() == (data_dir / "vocab.txt").read_bytes()
    assert list((whole[0] / "tensorboard" / "train").glob("events*"))
    assert list((whole[0] / "tensorboard" / "held_out").glob("events*"))


def test_evaluating_afterwards_repeats_the_evaluation_of_the_run(whole, config, run_of, data_dir):
    model_dir, last = whole
    found = evaluate(run_of(config, model_dir), [data_dir])
    assert found.pop("step") == 8
    # NaN, where nothing was called replaced, equals NaN here.
    assert found == pytest.approx(last, rel=0, abs=0, nan_ok=True)
    assert last["masked_lm_loss"] > 0


def test_evaluating_is_the_same_on_two_replicas(whole, config, data_dir, two_replicas):
    model_dir, last = whole
    found = evaluate(Run(config, RunDirectory(model_dir), two_replicas), [data_dir])
    assert {name: found[name] for name in last} == pytest.approx(last, rel=1e-5, nan_ok=True)


def test_evaluating_meets_a_run_that_replaces_its_only_checkpoint(
    whole, config, run_of, data_dir, tmp_path, monkeypatch
):
    model_dir = tmp_path / "run"
    shutil.copytree(whole[0], model_dir)

    def only_checkpoint_is(step: int) -> None:
        shutil.rmtree(model_dir / "checkpoints")
        shutil.copytree(model_dir / "milestones", model_dir / "checkpoints")
        for file in (model_dir / "checkpoints").iterdir():
            if file.is_file() and file.name.split(".")[0] != f"step-{step}":
                file.unlink()

    def replaced_meanwhile(state, prefix: str) -> None:
        if prefix.endswith("step-2"):
            only_checkpoint_is(3)
        restore_strictly(state, prefix)

    only_checkpoint_is(2)
    monkeypatch.setattr(checkpoint, "restore_strictly", replaced_meanwhile)
    assert evaluate(run_of(config, model_dir), [data_dir])["step"] == 3


def test_a_run_on_two_replicas_reports_what_one_replica_does(whole, config, data_dir, two_replicas, tmp_path):
    run = Run(config, RunDirectory(tmp_path / "run"), two_replicas)
    pretrain(run, [data_dir], stop_at_step=2)
    expected = [line for line in lines(whole[0]) if line["step"] <= 2]
    found = [line for line in lines(tmp_path / "run") if line["split"] == "train"]
    assert [line["step"] for line in found] == [1, 2]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.pop("split") == theirs.pop("split")
        assert ours == pytest.approx(theirs, rel=1e-5)
    assert evaluate(run, [data_dir])["step"] == 2


def test_a_call_that_was_to_end_before_the_run_stands_says_so(whole, config, run_of, data_dir, caplog):
    caplog.set_level("INFO")
    pretrain(run_of(config, whole[0]), [data_dir], stop_at_step=3)
    assert "the run stands at step 8 already, this call was to end at 3: nothing to train" in caplog.messages


def test_the_trained_model_is_read_back_with_its_weights(whole):
    objective = load_run(whole[0])
    stored = tensors(whole[0] / "checkpoints" / "step-8")
    table = objective.encoder.embeddings.word_embeddings.numpy()
    assert any(np.array_equal(table, values) for values in stored.values() if values.shape == table.shape)


def test_a_finished_run_called_again_trains_no_further(whole, config, run_of, data_dir):
    before = tensors(whole[0] / "checkpoints" / "step-8")
    pretrain(run_of(config, whole[0]), [data_dir])
    after = tensors(whole[0] / "checkpoints" / "step-8")
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert saved(whole[0], "checkpoints") == ["step-8"]


def test_an_evaluation_that_a_killed_run_missed_is_made_up_for(whole, config, run_of, data_dir, tmp_path):
    model_dir = tmp_path / "run"
    shutil.copytree(whole[0], model_dir)
    kept = [line for line in lines(model_dir) if (line["step"], line["split"]) != (8, "held_out")]
    (model_dir / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
    assert pretrain(run_of(config, model_dir), [data_dir]) == pytest.approx(whole[1], nan_ok=True)
    assert lines(model_dir) == lines(whole[0])


def test_a_run_of_other_settings_is_refused_naming_the_first_that_differ(whole, run_of, tiny_config, data_dir):
    other = tiny_config(train={"num_steps": 8, "batch_size": 2}, evaluation={"every_steps": 4})
    with pytest.raises(UserError, match=r"has train\.batch_size 4, this call has 2"):
        pretrain(run_of(other, whole[0]), [data_dir])


def test_another_objective_is_named_before_the_settings_that_come_with_it(whole, run_of, tiny_config, data_dir):
    other = tiny_config(objective={"name": "electra_15", "loss_positions": "random"}, train={"num_steps": 8})
    with pytest.raises(UserError, match=r"has objective\.name electra, this call has electra_15"):
        pretrain(run_of(other, whole[0]), [data_dir])


def test_what_does_not_touch_the_weights_may_change(whole, tiny_config):
    other = tiny_config(
        train={"log_every_steps": 5, "save_every_steps": 2, "keep_checkpoints": 9, "milestone_fractions": (1.0,)},
        evaluation={"every_steps": 1, "max_batches": 1},
    )
    config_file = whole[0] / "config.yaml"
    text = config_file.read_text(encoding="utf-8")
    RunDirectory(whole[0]).adopt_config(other, chief=True)
    config_file.write_text(text, encoding="utf-8")


def test_a_run_with_another_vocabulary_is_refused(whole, tmp_path):
    (tmp_path / "vocab.txt").write_text("something else\n")
    with pytest.raises(UserError, match="was started with another tokenizer"):
        RunDirectory(whole[0]).adopt_tokenizer(b"[PAD]\n", lower_case=True, strip_accents=True)


def test_a_damaged_checkpoint_is_refused(whole, config, run_of, data_dir, tmp_path):
    copy = shutil.copytree(whole[0], tmp_path / "run")
    for file in (copy / "checkpoints").glob("*.data*"):
        file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(UserError, match="holds no whole checkpoint"):
        pretrain(run_of(config, copy), [data_dir])


def test_without_the_newest_checkpoint_the_run_goes_on_from_the_one_before(config, whole, run_of, data_dir, tmp_path):
    model_dir = tmp_path / "run"
    keeping_all = config.model_copy(update={"train": config.train.model_copy(update={"keep_checkpoints": 9})})
    pretrain(run_of(keeping_all, model_dir), [data_dir])
    for file in (model_dir / "checkpoints").glob("step-8.*"):
        file.unlink()
    assert RunDirectory(model_dir).latest_checkpoint() == str(model_dir / "checkpoints" / "step-4")
    pretrain(run_of(keeping_all, model_dir), [data_dir])
    assert lines(model_dir) == lines(whole[0])


def test_evaluating_with_other_settings_or_another_vocabulary_is_refused(whole, config, run_of, data_dir, tmp_path):
    other = config.model_copy(update={"encoder": config.encoder.model_copy(update={"num_heads": 4})})
    with pytest.raises(UserError, match=r"has encoder\.num_heads 2, this call has 4"):
        evaluate(run_of(other, whole[0]), [data_dir])
    model_dir = shutil.copytree(whole[0], tmp_path / "run")
    (model_dir / "vocab.txt").write_text("another\n")
    with pytest.raises(UserError, match="was started with another tokenizer"):
        evaluate(run_of(config, model_dir), [data_dir])


@pytest.fixture
def in_use(whole, tmp_path):
    """A copy of the run that another open file holds, as another process would."""
    model_dir = shutil.copytree(whole[0], tmp_path / "run")
    with locked(model_dir):
        yield model_dir


def test_a_second_run_in_one_directory_is_refused_before_it_writes_anything(in_use, config, run_of, data_dir):
    before = {path: path.stat().st_mtime_ns for path in in_use.rglob("*")}
    with pytest.raises(UserError, match="is in use by process"):
        pretrain(run_of(config, in_use), [data_dir])
    assert {path: path.stat().st_mtime_ns for path in in_use.rglob("*")} == before


def test_a_run_is_evaluated_while_it_trains(in_use, whole, config, run_of, data_dir):
    assert evaluate(run_of(config, in_use), [data_dir])["masked_lm_loss"] == whole[1]["masked_lm_loss"]


def test_a_run_starts_from_the_weights_of_another_and_says_so_for_ever(whole, run_of, tiny_config, data_dir, tmp_path):
    config = tiny_config(train={"num_steps": 4, "save_every_steps": 2, "seed": 3})
    run = run_of(config, tmp_path / "run")
    pretrain(run, [data_dir], init_from=whole[0], stop_at_step=2)
    record = json.loads((tmp_path / "run" / "warm_start.json").read_text())
    assert record["init_from"] == str(whole[0])
    started, source = (tensors(path) for path in (tmp_path / "run/checkpoints/step-0", whole[0] / "checkpoints/step-8"))
    weights = [name for name in source if name.startswith("objective/") and "optimizer" not in name]
    assert len(weights) > 20
    assert all(np.array_equal(started[name], source[name]) for name in weights)
    with pytest.raises(UserError, match=rf"--init_from=elsewhere: the run in .* was started from {whole[0]}"):
        pretrain(run, [data_dir], init_from="elsewhere")
    pretrain(run, [data_dir])
    assert saved(tmp_path / "run", "checkpoints")[-1] == "step-4"


def test_a_warm_start_that_was_killed_before_its_checkpoint_begins_again(
    whole, run_of, tiny_config, data_dir, tmp_path
):
    config = tiny_config()
    run = run_of(config, tmp_path / "run")
    run.directory.create()
    run.directory.adopt_config(config, chief=True)
    run.directory.warm_start_file.write_text(json.dumps({"init_from": str(whole[0]), "report": []}))
    pretrain(run, [data_dir], stop_at_step=1)
    assert (tmp_path / "run" / "checkpoints" / "step-0.index").exists()


def test_weights_are_not_put_into_a_run_that_has_begun(whole, config, run_of, data_dir, tmp_path):
    model_dir = shutil.copytree(whole[0], tmp_path / "run")
    with pytest.raises(UserError, match=r"was started without --init_from; leave the flag out"):
        pretrain(run_of(config, model_dir), [data_dir], init_from=whole[0])
