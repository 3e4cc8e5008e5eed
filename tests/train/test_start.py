"""Runs that are extended, and new runs with the weights, or also the optimizer, of another run."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import RunConfig
from electra_tf.train.checkpoints import Checkpoints, latest_intact, restore_strictly, steps_in
from electra_tf.train.run_directory import RunDirectory
from electra_tf.train.start import continue_from
from tests.toy import TOKENIZER, Regression, built, toy_config, toy_run
from tests.train.runs import assert_same_checkpoints, killed_at, lines, tensors, train_toy

STABLE = {"learning_rate": 0.05, "warmup_steps": 2, "schedule": "warmup_stable_decay", "decay_fraction": 0.25}


def stable_config(num_steps: int, **optimizer):
    """The rate is constant up to step 6 of 8, and up to step 12 of 16."""
    return toy_config(optimizer=STABLE | optimizer, train={"num_steps": num_steps})


@pytest.fixture(scope="module")
def planned(tmp_path_factory) -> str:
    """A run that was planned with 16 steps."""
    model_dir = str(tmp_path_factory.mktemp("planned") / "run")
    train_toy(model_dir, stable_config(16))
    return model_dir


@pytest.fixture(scope="module")
def decayed(tmp_path_factory) -> str:
    """A finished run of 8 steps."""
    model_dir = str(tmp_path_factory.mktemp("decayed") / "run")
    train_toy(model_dir, stable_config(8))
    return model_dir


def test_a_run_extended_before_its_decay_equals_one_planned_so(tmp_path, planned):
    train_toy(tmp_path, stable_config(8), stop_at_step=6)
    train_toy(tmp_path, stable_config(16))
    assert_same_checkpoints(tmp_path, planned, "checkpoints/step-16")
    of_training = [[line for line in lines(each) if line["split"] == "train"] for each in (tmp_path, planned)]
    assert of_training[0] == of_training[1]


@pytest.mark.slow
def test_a_new_run_with_the_optimizer_of_a_milestone_also_if_interrupted_equals_a_longer_one(
    tmp_path, planned, decayed
):
    config = stable_config(16)
    train_toy(tmp_path, config, init_from=f"{decayed}/milestones/step-6", with_optimizer=True, stop_at_step=7)
    train_toy(tmp_path, config)
    assert_same_checkpoints(tmp_path, planned, "checkpoints/step-16")


def test_the_statistics_of_the_data_replace_those_of_the_source(tmp_path, decayed, monkeypatch):
    steps, options = [], {"init_from": f"{decayed}/milestones/step-6", "with_optimizer": True, "stop_at_step": 7}
    monkeypatch.setattr(Regression, "adopt_data", lambda task, data: steps.append(int(task.optimizer.iterations)))
    train_toy(tmp_path, stable_config(16), **options)
    assert steps == [6]


LINEAR, COSINE = (
    [toy_config(optimizer={"schedule": name}, train={"num_steps": steps}) for steps in (8, 16)]
    for name in ("linear", "cosine")
)
WARMUP = {"warmup_steps": 0, "warmup_fraction": 0.25}  # depends on the length
RISES, OWN = "init_from={run} with_optimizer; its learning rate rises again", "continue it with its own"


# The settings of a run, its step, those of a call; what its refusal advises, or None where the call goes on.
@pytest.mark.parametrize(
    ("before", "step", "now", "advice"),
    [
        (stable_config(8), 6, stable_config(16), None),
        (stable_config(8), 7, stable_config(16), "init_from={run}/milestones/step-6 with_optimizer"),
        (stable_config(16), 6, stable_config(8), None),
        (stable_config(16), 8, stable_config(8), OWN),  # its decay should have begun
        (stable_config(8, **WARMUP), 3, stable_config(16, **WARMUP), RISES),
        (LINEAR[0], 1, LINEAR[1], RISES),
        (COSINE[0], 1, COSINE[1], RISES),
        (LINEAR[1], 1, LINEAR[0], OWN),
    ],
)
def test_a_run_gets_another_length_as_long_as_its_steps_do_not_depend_on_it(tmp_path, before, step, now, advice):
    run = RunDirectory(tmp_path)
    run.write_config(before)
    if before.optimizer.warmup_steps:
        Path(run.milestones).mkdir()
        Path(run.milestones, "step-6.index").touch()
    if advice is None:
        run.require_same_run(now, step)
        return
    lengths = f"has train.num_steps {before.train.num_steps}, this call has {now.train.num_steps}; "
    with pytest.raises(UserError, match=f"{lengths}.*{advice.format(run=tmp_path)}"):
        run.require_same_run(now, step)


def test_where_steps_depend_on_their_number_no_run_is_made_longer(tmp_path, decayed, monkeypatch):
    run = RunDirectory(tmp_path)
    run.write_config(LINEAR[0])
    monkeypatch.setattr(RunConfig, "varies_with_num_steps", True)
    with pytest.raises(UserError, match=f"has train.num_steps 8, this call has 16; {OWN}"):
        run.require_same_run(LINEAR[1], 1)
    task = built(toy_run(stable_config(16), tmp_path))
    with pytest.raises(UserError, match="with_optimizer: its phases, temperature or masks depend on train.num_steps"):
        continue_from(task, f"{decayed}/milestones/step-6", None)


@pytest.mark.parametrize(
    "changes",
    [
        {"masking": {"masked_fraction": (0.3, 0.15)}},
        {"objective": {"name": "fast_electra", "initial_temperature": 3.0, "temperature_decay": 0.5}},
        {"objective": {"name": "two_stage"}},
    ],
)
def test_a_run_with_phases_or_a_falling_temperature_or_fraction_gives_no_optimizer(tmp_path, tiny_config, changes):
    config = tiny_config(**changes)
    RunDirectory(tmp_path).write_config(config)
    tf.train.Checkpoint(step=tf.Variable(3)).write(f"{tmp_path}/checkpoints/step-3")
    with pytest.raises(UserError, match="with_optimizer: its phases, temperature or masks depend on train.num_steps"):
        continue_from(SimpleNamespace(config=config), str(tmp_path), None)


def test_a_started_run_is_not_continued_with_the_optimizer_of_its_source(tmp_path, decayed):
    config, source = stable_config(16), f"{decayed}/milestones/step-6"
    train_toy(tmp_path, config, init_from=source, initialize=lambda *_: ["none"], stop_at_step=1)
    with pytest.raises(UserError, match="was started from .* without with_optimizer; leave"):
        train_toy(tmp_path, config, init_from=source, with_optimizer=True)


@pytest.fixture(scope="module")
def sources(decayed, tmp_path_factory) -> Path:
    """`run`, which is whole; `damaged`, and `old` of an earlier version; `other-3` of another program."""
    folder = tmp_path_factory.mktemp("sources")
    for name in ("run", "damaged", "old"):
        shutil.copytree(decayed, folder / name)
    task = Regression(stable_config(8))  # not compiled, so without an optimizer
    task.create_variables()
    tf.train.Checkpoint(task=task).write(str(folder / "damaged/milestones/step-8"))
    (folder / "damaged/milestones/step-6.index").write_bytes(b"short")
    (folder / "old/resolved.yaml").write_text("encoder: {}\nunknown: 3\n")
    tf.train.Checkpoint(step=tf.Variable(3)).write(str(folder / "other-3"))
    return folder


@pytest.mark.parametrize(
    ("source", "config", "message"),
    [
        ("run/milestones/step-6", stable_config(6), "is at step 6, but train.num_steps is 6"),
        ("run/milestones", toy_config(encoder={"num_heads": 4}), "has encoder.num_heads 2, this run has 4"),
        ("run/milestones", stable_config(16, name="lamb"), "has optimizer.name adamw, this"),
        ("", stable_config(16), "there is no such run or checkpoint"),
        ("run/milestones/step-7", stable_config(16), "there is no such run or checkpoint"),
        ("other-3", stable_config(16), "there is no such run or checkpoint of a run"),
        ("damaged/milestones/step-8", stable_config(16), "it lacks variables of the model or of the optimizer"),
        ("damaged/milestones/step-6", stable_config(16), "milestones/step-6 does not fit this run: "),
        ("old", stable_config(16), "has encoder.* None, this run has"),
    ],
)
def test_a_source_that_does_not_fit_is_refused(sources, tmp_path, source, config, message):
    with pytest.raises(UserError, match=message):
        continue_from(built(toy_run(config, tmp_path)), f"{sources}/{source}", None)


def test_going_on_after_the_decay_names_the_milestone_before_it(tmp_path, decayed, whole):
    task = built(toy_run(stable_config(16), tmp_path / "run"))
    lines = continue_from(task, decayed, None)
    assert lines[1].endswith(f"may rise again now; before the decay: {decayed}/milestones/step-6")
    assert len(continue_from(task, f"{decayed}/milestones/step-6", None)) == 1
    assert len(continue_from(built(toy_run(LINEAR[1], tmp_path)), whole[0], None)) == 1


def initialize(task, source, tokenizer) -> list[str]:
    assert tokenizer == TOKENIZER
    layers = tf.train.Checkpoint(hidden=task.hidden, output_layer=task.output_layer)  # without the optimizer
    restore_strictly(tf.train.Checkpoint(task=layers), latest_intact(f"{source}/checkpoints"))
    return [f"weights from {source}"]


def test_run_starts_with_the_weights_of_another_and_records_it(whole, tmp_path):
    train_toy(tmp_path, init_from=whole[0], initialize=initialize, stop_at_step=2)
    started, source = (tensors(path) for path in (tmp_path / "checkpoints/step-0", f"{whole[0]}/checkpoints/step-8"))
    weights = [name for name in source if name.startswith("task/")]
    assert len(weights) == 4 and all(np.array_equal(started[name], source[name]) for name in weights)
    assert json.loads((tmp_path / "warm_start.json").read_text()) == {
        "init_from": whole[0],
        "with_optimizer": False,
        "step": 0,
        "report": [f"weights from {whole[0]}"],
    }
    with pytest.raises(UserError, match=rf"init_from=elsewhere: .* was started from {whole[0]}"):
        train_toy(tmp_path, init_from="elsewhere", initialize=initialize)
    train_toy(tmp_path, init_from=whole[0])  # the same source is allowed
    assert steps_in(f"{tmp_path}/checkpoints")[-1] == 8


def test_a_started_run_continues_without_its_source(whole, tmp_path):
    source = shutil.copytree(whole[0], tmp_path / "source")
    train_toy(tmp_path / "run", init_from=str(source), initialize=initialize, stop_at_step=1)
    shutil.rmtree(source)
    train_toy(tmp_path / "run", initialize=initialize, stop_at_step=2)
    assert steps_in(f"{tmp_path}/run/checkpoints")[-1] == 2


@pytest.mark.slow
def test_run_killed_before_its_first_checkpoint_reads_its_source_again(whole, two_replicas, tmp_path):
    with killed_at(Checkpoints, "save", 1, "before"):
        train_toy(tmp_path, init_from=whole[0], initialize=initialize)
    train_toy(tmp_path, initialize=initialize, stop_at_step=1, strategy=two_replicas)
    assert steps_in(f"{tmp_path}/checkpoints") == [0, 1]


def test_started_run_refuses_init_from(copied, whole):
    with pytest.raises(UserError, match="^init_from="):
        train_toy(copied, init_from=whole[0])


def refuse(*_):
    raise UserError("refused")


@pytest.mark.parametrize("method", ["create_variables", "adopt_data", None])
def test_a_refused_start_leaves_no_file_and_the_directory_stays_free(tmp_path, monkeypatch, method):
    """By the model, the vocabulary or the initial weights."""
    with monkeypatch.context() as patched, pytest.raises(UserError, match="refused"):
        if method:
            patched.setattr(Regression, method, refuse)
        train_toy(tmp_path, initialize=None if method else refuse)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    with RunDirectory(tmp_path).locked():
        assert toy_run(toy_config(), tmp_path).begins()
