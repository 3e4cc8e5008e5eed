"""A run goes on where a power cut has left one of its files empty, or cut it off."""

import shutil
from pathlib import Path

import pytest

from electra_tf.config.errors import UserError
from electra_tf.train.checkpoints import steps_in
from tests.toy import Regression, toy_config

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
@pytest.mark.parametrize(
    "patterns",
    [
        ("*.yaml", "*.json", "*.txt"),
        ("*.jsonl", "milestones/*", "best/*"),
        *((f"checkpoints/{name}",) for name in ("checkpoint", "step-4.index", "step-4.data*")),
    ],
)
def test_a_run_goes_on_with_files_that_a_power_cut_has_left(stopped, train_toy, tmp_path, caplog, patterns, share):
    run = Path(shutil.copytree(stopped, tmp_path / "run"))
    whole = {file: file.read_bytes() for pattern in patterns for file in run.glob(pattern)}
    assert len(whole) >= len(patterns)
    for file in whole:
        cut(file, share)
    assert train_toy(run, CONFIG, **START)
    assert steps_in(f"{run}/checkpoints")[-1] == 8
    for file, content in whole.items() if "*.json" in patterns else ():
        assert any(str(file) in message for message in caplog.messages)
        # What cannot be known anew of the initial weights is the log of their loading.
        assert file.read_bytes() == content or file.name == "warm_start.json"
    train_toy(run, CONFIG, **START)  # the source that the run has recorded anew


def test_a_refused_call_leaves_a_damaged_configuration_as_it_is(stopped, train_toy, tmp_path, monkeypatch):
    run = Path(shutil.copytree(stopped, tmp_path / "run"))
    for name in ("config.yaml", "resolved.yaml", "code.json"):
        cut(run / name, 0.0)
    monkeypatch.setattr(Regression, "num_hidden", 4)
    with pytest.raises(UserError, match="step-2 does not fit this run|step-4 does not fit this run"):
        train_toy(run, CONFIG, **START)
    assert (run / "config.yaml").read_bytes() == b""
