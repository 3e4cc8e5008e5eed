"""What a directory says of the run in it, without a training."""

import json

import pytest

from electra_tf.config.errors import UserError
from electra_tf.runs.directory import RunDirectory, drop_lines_after


@pytest.fixture
def begun(tiny_config, tmp_path):
    """`begun(steps)`: the directory of a run that saves every third step and has reported up to `steps`."""

    def build(steps: int, **train) -> RunDirectory:
        directory = RunDirectory(tmp_path / "run")
        directory.create()
        directory.adopt_config(tiny_config(train={"save_every_steps": 3, **train}), chief=True)
        lines = (json.dumps({"step": step, "split": "train", "loss": 1.0}) for step in range(1, steps + 1))
        directory.metrics_file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return directory

    return build


@pytest.mark.parametrize(("steps", "asynchronous"), [(0, False), (3, False), (6, True)])
def test_a_run_that_may_not_have_had_a_checkpoint_begins_again(begun, tiny_config, steps, asynchronous):
    begun(steps, asynchronous_checkpoints=asynchronous).adopt_config(tiny_config(), chief=True)


@pytest.mark.parametrize(("steps", "asynchronous"), [(4, False), (7, True)])
def test_a_run_whose_checkpoints_are_gone_does_not_begin_again(begun, tiny_config, steps, asynchronous):
    directory = begun(steps, asynchronous_checkpoints=asynchronous)
    before = directory.config_file.read_bytes()
    with pytest.raises(UserError, match=f"reports {steps} steps, but .*checkpoints holds no checkpoint; copy one"):
        directory.adopt_config(tiny_config(), chief=True)
    assert directory.config_file.read_bytes() == before


def test_checkpoints_without_their_descriptions_do_not_pass_for_none(begun, tiny_config):
    directory = begun(3)
    directory.checkpoints.mkdir()
    (directory.checkpoints / "step-3.index").write_bytes(b"an index")
    before = directory.config_file.read_bytes()
    with pytest.raises(UserError, match="holds no whole checkpoint"):
        directory.adopt_config(tiny_config(train={"seed": 9}), chief=True)
    assert directory.config_file.read_bytes() == before


def with_checkpoint(directory: RunDirectory, monkeypatch) -> RunDirectory:
    monkeypatch.setattr(directory, "latest_checkpoint", lambda: "step-3")
    return directory


def test_another_data_set_is_refused_where_there_is_a_checkpoint(begun, monkeypatch):
    directory = begun(3)
    directory.adopt_data(["a", "b"])
    directory.adopt_data(["a", "c"])
    with_checkpoint(directory, monkeypatch).adopt_data(["a", "c"])
    with pytest.raises(UserError, match="was started with another data set"):
        directory.adopt_data(["a", "b"])


def test_a_run_from_before_data_sets_were_noted_takes_the_one_it_is_given(begun, monkeypatch):
    directory = with_checkpoint(begun(3), monkeypatch)
    directory.adopt_data(["a"])
    with pytest.raises(UserError, match="was started with another data set"):
        directory.adopt_data(["b"])


def test_metrics_after_the_checkpoint_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 2}\n{"step": 4}\n{"step": 6}\n{"st')
    drop_lines_after(path, 4)
    assert path.read_text() == '{"step": 2}\n{"step": 4}\n'
