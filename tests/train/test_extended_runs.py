"""Runs with the schedule `warmup_stable_decay` that are extended, and new runs that go on with an older optimizer."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import RunConfig
from electra_tf.train.start import continue_from
from tests.toy import Regression, built, toy_config, toy_run

STABLE = {"learning_rate": 0.05, "warmup_steps": 2, "schedule": "warmup_stable_decay", "decay_fraction": 0.25}


def stable_config(num_steps: int, **optimizer):
    """The rate is constant up to step 6 of 8, and up to step 12 of 16."""
    return toy_config(optimizer=STABLE | optimizer, train={"num_steps": num_steps})


def assert_equal_tensors(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> None:
    assert first.keys() == second.keys()
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name], err_msg=name)


@pytest.fixture(scope="module")
def planned(train_toy, tmp_path_factory) -> str:
    """A run that was planned with 16 steps."""
    model_dir = str(tmp_path_factory.mktemp("planned") / "run")
    train_toy(model_dir, stable_config(16))
    return model_dir


@pytest.fixture(scope="module")
def decayed(train_toy, tmp_path_factory) -> str:
    """A finished run of 8 steps."""
    model_dir = str(tmp_path_factory.mktemp("decayed") / "run")
    train_toy(model_dir, stable_config(8))
    return model_dir


@pytest.mark.parametrize("stop_at_step", [pytest.param(3, marks=pytest.mark.slow), 6])
def test_a_run_extended_before_its_decay_equals_one_planned_so(
    train_toy, tensors, lines, tmp_path, planned, stop_at_step
):
    run = tmp_path / "run"
    train_toy(run, stable_config(8), stop_at_step=stop_at_step)
    train_toy(run, stable_config(16))
    assert_equal_tensors(tensors(run / "checkpoints/step-16"), tensors(f"{planned}/checkpoints/step-16"))
    of_training = [[line for line in lines(each) if line["split"] == "train"] for each in (run, planned)]
    assert of_training[0] == of_training[1]


@pytest.mark.slow
def test_a_new_run_with_the_optimizer_of_a_milestone_also_if_interrupted_equals_an_extended_one(
    train_toy, tensors, tmp_path, planned, decayed
):
    run, config = tmp_path / "run", stable_config(16)
    train_toy(run, config, init_from=f"{decayed}/milestones/step-6", with_optimizer=True, stop_at_step=7)
    train_toy(run, config)
    assert_equal_tensors(tensors(run / "checkpoints/step-16"), tensors(f"{planned}/checkpoints/step-16"))


def test_the_statistics_of_the_data_replace_those_of_the_source(train_toy, tmp_path, decayed, monkeypatch):
    steps = []
    monkeypatch.setattr(Regression, "adopt_data", lambda task, data: steps.append(int(task.optimizer.iterations)))
    train_toy(tmp_path, stable_config(16), init_from=f"{decayed}/milestones/step-6", with_optimizer=True)
    assert steps == [6]


def test_a_run_in_its_decay_is_not_extended_and_names_the_milestone_before_it(train_toy, decayed):
    message = rf"has train.num_steps 8, this call has 16; .* init_from={decayed}/milestones/step-6 with_optimizer"
    with pytest.raises(UserError, match=message):
        train_toy(decayed, stable_config(16))


def test_a_run_whose_warmup_depends_on_its_length_is_not_extended(train_toy, tmp_path):
    settings = {"warmup_steps": 0, "warmup_fraction": 0.25}
    train_toy(tmp_path / "run", stable_config(8, **settings), stop_at_step=3)
    with pytest.raises(UserError, match=rf"has train.num_steps 8, .* init_from={tmp_path}/run with_optimizer; its"):
        train_toy(tmp_path / "run", stable_config(16, **settings))


def test_a_started_run_is_not_continued_with_the_optimizer_of_its_source(train_toy, tmp_path, decayed):
    config, source = stable_config(16), f"{decayed}/milestones/step-6"
    train_toy(tmp_path / "run", config, init_from=source, initialize=lambda *_: ["none"], stop_at_step=2)
    with pytest.raises(UserError, match="was started from .* without with_optimizer; leave"):
        train_toy(tmp_path / "run", config, init_from=source, with_optimizer=True)


def test_a_dry_run_leaves_the_settings_of_a_started_run_and_needs_no_source(train_toy, tmp_path):
    train_toy(tmp_path / "run", stable_config(8), stop_at_step=3)
    before = (tmp_path / "run/config.yaml").read_bytes()
    assert not toy_run(stable_config(16), tmp_path / "run").begins()
    assert (tmp_path / "run/config.yaml").read_bytes() == before


def test_a_run_is_not_shortened_to_a_decay_that_should_have_begun(train_toy, tmp_path):
    train_toy(tmp_path / "run", stable_config(16), stop_at_step=8)
    with pytest.raises(UserError, match="has train.num_steps 16, this call has 8; continue it with its own"):
        train_toy(tmp_path / "run", stable_config(8))


@pytest.mark.parametrize("schedule", ["linear", pytest.param("cosine", marks=pytest.mark.slow)])
def test_a_run_whose_rates_depend_on_its_length_is_not_extended_but_starts_another(train_toy, tmp_path, schedule):
    settings = {"schedule": schedule}
    train_toy(tmp_path / "run", toy_config(optimizer=settings), stop_at_step=1)
    longer = toy_config(optimizer=settings, train={"num_steps": 16})
    with pytest.raises(UserError, match=f"init_from={tmp_path}/run with_optimizer; its learning rate rises"):
        train_toy(tmp_path / "run", longer)
    train_toy(tmp_path / "other", longer, init_from=tmp_path / "run", with_optimizer=True, stop_at_step=2)


def test_a_run_whose_steps_depend_on_its_length_gets_no_advice_to_train_longer(train_toy, tmp_path, monkeypatch):
    monkeypatch.setattr(RunConfig, "varies_with_num_steps", True)
    train_toy(tmp_path / "run", toy_config(), stop_at_step=1)
    with pytest.raises(UserError, match="has train.num_steps 8, this call has 16; continue it with its own"):
        train_toy(tmp_path / "run", toy_config(train={"num_steps": 16}))


def test_a_shorter_run_gets_no_advice_to_train_longer(train_toy, tmp_path):
    train_toy(tmp_path / "run", toy_config(train={"num_steps": 16}), stop_at_step=1)
    with pytest.raises(UserError, match="has train.num_steps 16, this call has 8; continue it with its own"):
        train_toy(tmp_path / "run", toy_config())


@pytest.mark.parametrize(
    ("source", "config", "message"),
    [
        ("{run}/milestones/step-6", stable_config(6), "is at step 6, but train.num_steps is 6"),
        ("{run}/milestones", toy_config(encoder={"num_heads": 4}), "has encoder.num_heads 2, this run has 4"),
        ("{run}/milestones", stable_config(16, name="lamb"), "has optimizer.name adamw, this"),
        ("{tmp}", stable_config(16), "there is no such run or checkpoint of a run"),
        ("{run}/milestones/step-7", stable_config(16), "there is no such run or checkpoint"),
    ],
    ids=["finished", "model", "optimizer", "no_run", "no_step"],
)
def test_a_source_that_does_not_fit_is_refused_and_leaves_no_file(
    train_toy, decayed, tmp_path, source, config, message
):
    run = tmp_path / "run"
    with pytest.raises(UserError, match=message):
        train_toy(run, config, init_from=source.format(run=decayed, tmp=tmp_path), with_optimizer=True)
    assert [path.name for path in run.iterdir()] == [".lock"]


def test_a_checkpoint_without_an_optimizer_is_not_continued_with_it(train_toy, tmp_path, decayed):
    source = tmp_path / "source"
    shutil.copytree(decayed, source)
    task = Regression(stable_config(8))  # not compiled, so without an optimizer
    task.create_variables()
    tf.train.Checkpoint(task=task).write(str(source / "milestones/step-8"))
    with pytest.raises(UserError, match=r"it lacks variables of the model or of the optimizer"):
        train_toy(tmp_path / "run", stable_config(16), init_from=f"{source}/milestones/step-8", with_optimizer=True)


def test_going_on_after_the_decay_names_the_milestone_before_it(tmp_path, decayed):
    task = built(toy_run(stable_config(16), tmp_path / "run"))
    lines = continue_from(task, decayed, None)
    assert lines[1].endswith(f"may rise again now; before the decay: {decayed}/milestones/step-6")
    assert len(continue_from(task, f"{decayed}/milestones/step-6", None)) == 1


def test_a_damaged_source_or_one_of_an_older_version_is_one_line(train_toy, tmp_path, decayed):
    source = tmp_path / "source"
    shutil.copytree(decayed, source)
    (source / "resolved.yaml").write_text("encoder: {}\nunknown: 3\n")
    with pytest.raises(UserError, match="has encoder.* None, this run has"):
        train_toy(tmp_path / "run", stable_config(16), init_from=source, with_optimizer=True)
    shutil.copy(f"{decayed}/resolved.yaml", source)
    (source / "milestones/step-6.index").write_bytes(b"short")
    with pytest.raises(UserError, match="milestones/step-6 does not fit this run: "):
        train_toy(tmp_path / "run", stable_config(16), init_from=f"{source}/milestones/step-6", with_optimizer=True)


def test_another_programs_checkpoint_holds_no_optimizer(train_toy, tmp_path):
    tf.train.Checkpoint(step=tf.Variable(3)).write(str(tmp_path / "model.ckpt-3"))
    with pytest.raises(UserError, match="there is no such run or checkpoint of a run"):
        train_toy(tmp_path / "run", stable_config(16), init_from=tmp_path / "model.ckpt-3", with_optimizer=True)


def test_an_optimizer_is_not_taken_along_where_steps_depend_on_their_number(train_toy, tmp_path, decayed, monkeypatch):
    config = stable_config(16)
    monkeypatch.setattr(type(config), "varies_with_num_steps", True)
    with pytest.raises(UserError, match="with_optimizer: its phases, temperature or masks depend on train.num_steps"):
        train_toy(tmp_path / "run", config, init_from=f"{decayed}/milestones/step-6", with_optimizer=True)
