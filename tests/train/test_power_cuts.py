"""A run goes on where a power cut has left one of its files empty, or cut it off."""

import shutil
from pathlib import Path

import pytest

from electra_tf.config.errors import UserError
from electra_tf.train.checkpoints import steps_in
from tests.toy import Regression, toy_config

FACTS = ("data.json", "tokenizer_settings.json", "vocab.txt", "code.json", "warm_start.json")
SIDE_FILES = ("config.yaml", "resolved.yaml", *FACTS)
REPORTS = ("metrics.jsonl", "alarms.jsonl")
CHECKPOINT = ("checkpoints/checkpoint", "checkpoints/step-4.index", "checkpoints/step-4.data-00000-of-00001")
KEPT = ("milestones/step-3.index", "milestones/step-3.data-00000-of-00001", "best/checkpoint", "best/step-4.index")
CONFIG = toy_config(
    train={"save_every_steps": 2, "alarm_after_steps": 2},
    evaluation={"best_metric": "squared_error", "every_steps": 2},
)
START = {"init_from": "/the/source", "initialize": lambda task, source, tokenizer: ["weights of the source"]}


def cut(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])


@pytest.fixture(scope="module")
def stopped(train_toy, tmp_path_factory) -> Path:
    """A run that was stopped after half of its steps, not to be changed."""
    model_dir = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Regression, "plateau", lambda task, metrics: "it learns nothing")
        train_toy(model_dir, CONFIG, stop_at_step=4, **START)
    return model_dir


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize("names", [SIDE_FILES, (*REPORTS, *KEPT), *((name,) for name in CHECKPOINT)])
def test_a_run_goes_on_with_files_that_a_power_cut_has_left(stopped, train_toy, tmp_path, caplog, names, share):
    run = Path(shutil.copytree(stopped, tmp_path / "run"))
    whole = {name: (run / name).read_bytes() for name in names}
    for name in names:
        cut(run / name, share)
    assert train_toy(run, CONFIG, **START)
    assert steps_in(f"{run}/checkpoints")[-1] == 8
    for name in SIDE_FILES if names is SIDE_FILES else ():
        assert any(str(run / name) in message for message in caplog.messages)
        # What cannot be known anew of the initial weights is the log of their loading.
        assert (run / name).read_bytes() == whole[name] or name == "warm_start.json"
    train_toy(run, CONFIG, **START)  # the source that the run has recorded anew


def test_files_of_a_run_are_all_among_those_that_are_cut_off(stopped):
    names = {str(path.relative_to(stopped)) for path in stopped.rglob("*") if path.is_file()}
    others = {name for name in names if name.startswith(("tensorboard/", "checkpoints/", "milestones/", "best/"))}
    assert names - others == {*SIDE_FILES, *REPORTS, ".lock"}
    assert {*CHECKPOINT, *KEPT} <= others


def test_a_refused_call_leaves_a_damaged_configuration_as_it_is(stopped, train_toy, tmp_path, monkeypatch):
    run = Path(shutil.copytree(stopped, tmp_path / "run"))
    for name in ("config.yaml", "resolved.yaml", "code.json"):
        cut(run / name, 0.0)
    monkeypatch.setattr(Regression, "num_hidden", 4)
    with pytest.raises(UserError, match="step-2 does not fit this run|step-4 does not fit this run"):
        train_toy(run, CONFIG, **START)
    assert (run / "config.yaml").read_bytes() == b""
