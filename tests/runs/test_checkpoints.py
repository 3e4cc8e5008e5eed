"""Checkpoints: what is saved comes back, what is damaged is reported, and what could not be written too."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.runs.checkpoints import Checkpoints, newest_whole, steps_in
from electra_tf.runs.directory import RunDirectory
from electra_tf.train.step import compile_task
from tests.toy import Regression, toy_config


def build(**optimizer) -> Regression:
    task = Regression(toy_config(optimizer=optimizer))
    task.create_variables()
    return compile_task(task)


def state_of(task) -> list[tf.Variable]:
    variables = task.optimizer.variables  # a method of the old optimizers, LAMB's
    return [*task.trainable_variables, *(variables() if callable(variables) else variables)]


def fill(task, number: int) -> list[np.ndarray]:
    """Gives every variable values of its own; returns them."""
    for index, variable in enumerate(state_of(task)):
        if variable.shape.rank:
            variable.assign(tf.random.stateless_uniform(variable.shape, [number, index]))
    task.optimizer.iterations.assign(number)
    return [variable.numpy() for variable in state_of(task)]


def equal(task, values: list[np.ndarray]) -> bool:
    return all(np.array_equal(variable, value) for variable, value in zip(state_of(task), values, strict=True))


@pytest.fixture(scope="module")
def task() -> Regression:
    return build()


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return RunDirectory(tmp_path / "run")


def opened(task, run: RunDirectory, chief=True, **tracked) -> Checkpoints:
    return Checkpoints(task, run, chief, keep=2, **tracked)


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_weights_moments_and_step_come_back_bit_for_bit(run, name):
    task = build(name=name)
    saved = fill(task, 3)
    opened(task, run).save(3)
    fresh = build(name=name)
    assert not equal(fresh, saved)
    assert opened(fresh, run).restore_latest() == 3
    assert equal(fresh, saved)
    assert len(saved) >= 3 * 4 + 1


def test_other_state_of_the_run_is_saved_and_restored(task, run):
    window = tf.Module()
    window.total = tf.Variable(2.5)
    opened(task, run, window=window).save(1)
    window.total.assign(0.0)
    opened(task, run, window=window).restore_latest()
    assert float(window.total) == 2.5
    with pytest.raises(UserError, match="step-1 does not fit this run"):
        opened(task, run, window=window, count=tf.Variable(0)).restore_latest()


def test_a_checkpoint_of_other_shapes_is_refused_in_one_line(task, run):
    opened(task, run).save(1)
    other = Regression(toy_config())
    other.hidden.units = 2
    other.create_variables()
    compile_task(other)
    with pytest.raises(UserError, match="step-1 does not fit this run: .*shape") as caught:
        opened(other, run).restore_latest()
    assert "\n" not in str(caught.value)


def test_the_last_few_checkpoints_and_all_milestones_are_kept(task, run):
    checkpoints = opened(task, run)
    for step in (1, 2, 3):
        checkpoints.save(step)
        checkpoints.save_milestone(step)
    assert (steps_in(run.checkpoints), steps_in(run.milestones)) == ([2, 3], [1, 2, 3])
    os.remove(f"{run.checkpoints}/checkpoint")  # a kill may come before the list of them is written
    opened(task, run).save(4)
    assert steps_in(run.checkpoints) == [3, 4]


def test_a_checkpoint_that_was_restored_or_saved_is_not_written_again(task, run):
    opened(task, run).save(1)
    before = os.stat(f"{run.checkpoints}/step-1.index").st_mtime_ns
    again = opened(task, run)
    again.restore_latest()
    again.save(1)
    assert os.stat(f"{run.checkpoints}/step-1.index").st_mtime_ns == before


def test_a_worker_that_is_not_the_chief_restores_and_writes_nothing(task, run):
    worker = opened(task, run, chief=False)
    worker.save(1)
    assert not Path(run.path).exists()
    opened(task, run).save(6)
    unfinished = Path(run.checkpoints) / "step-7_temp"
    unfinished.mkdir()
    assert opened(task, run, chief=False).restore_latest() == 6
    assert unfinished.exists()
    worker.close()


def test_every_replica_gets_the_restored_values(task, run, two_replicas):
    saved = fill(task, 5)
    opened(task, run).save(5)
    with two_replicas.scope():
        mirrored = build()
    assert opened(mirrored, run).restore_latest() == 5
    copies = two_replicas.experimental_local_results(mirrored.trainable_variables[0])
    assert [np.array_equal(copy, saved[0]) for copy in copies] == [True, True]


# What real kills have left of step 2 (TensorFlow 2.20): beside it always its temporary directory.
LEFTOVERS = {
    "writing the data": {"step-2_temp/part-00000-of-00001.data-00000-of-00001.tempstate77": b"half"},
    "data moved": {"step-2.data-00000-of-00001": b"whole", "step-2_temp/part-00000-of-00001.index": b"part"},
    "index begun": {"step-2.data-00000-of-00001": b"whole", "step-2.index": b"", "step-2_temp/part.index": b"part"},
}


@pytest.mark.parametrize("files", LEFTOVERS.values(), ids=LEFTOVERS.keys())
@pytest.mark.parametrize("has_whole_one", [True, False])
def test_what_a_kill_leaves_of_a_checkpoint_is_neither_damage_nor_kept(task, run, caplog, files, has_whole_one):
    if has_whole_one:
        opened(task, run).save(1)
    for name, content in files.items():
        path = Path(run.checkpoints) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert newest_whole(run.checkpoints) == (f"{run.checkpoints}/step-1" if has_whole_one else None)
    assert opened(task, run).restore_latest() == (1 if has_whole_one else None)
    assert not [name for name in os.listdir(run.checkpoints) if name.startswith("step-2")]
    assert caplog.messages == []


def flipped(content: bytes, index: int) -> bytes:
    return content[:index] + bytes([content[index] ^ 128]) + content[index + 1 :]


DAMAGES = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "first byte flipped": lambda path: path.write_bytes(flipped(path.read_bytes(), 0)),
    "middle byte flipped": lambda path: path.write_bytes(flipped(path.read_bytes(), path.stat().st_size // 2)),
    "last byte flipped": lambda path: path.write_bytes(flipped(path.read_bytes(), path.stat().st_size - 1)),
    "emptied": lambda path: path.write_bytes(b""),
    "missing": Path.unlink,
}


@pytest.fixture(scope="module")
def two_checkpoints(task, tmp_path_factory):
    run = RunDirectory(tmp_path_factory.mktemp("two") / "run")
    checkpoints = opened(task, run)
    values = {}
    for step in (4, 8):
        values[step] = fill(task, step)
        checkpoints.save(step)
    return run.checkpoints, values


@pytest.mark.parametrize("file", ["data-00000-of-00001", "index"])
@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_checkpoint_is_reported_and_the_one_before_is_used(
    task, two_checkpoints, tmp_path, caplog, file, kind
):
    run = RunDirectory(tmp_path)
    shutil.copytree(two_checkpoints[0], run.checkpoints)
    DAMAGES[kind](Path(run.checkpoints) / f"step-8.{file}")
    assert opened(task, run).restore_latest() == 4
    assert equal(task, two_checkpoints[1][4])
    (message,) = caplog.messages
    assert re.fullmatch(r".*/checkpoints/step-8 is damaged: .+step-4.*", message)
    DAMAGES[kind](Path(run.checkpoints) / f"step-4.{file}")
    with pytest.raises(UserError, match="checkpoints: .*step-8: .*step-4: "):
        opened(task, run).restore_latest()


def test_a_checkpoint_that_cannot_be_written_is_a_warning_and_the_last_one_an_error(task, run, monkeypatch, caplog):
    def fail(*_, **__):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device; more\nof it")

    checkpoints = opened(task, run)
    checkpoints.save(1)
    with monkeypatch.context() as full:
        full.setattr(tf.train.CheckpointManager, "save", fail)
        checkpoints.save(2)
    (message,) = caplog.messages
    assert "step 2" in message and "No space left on device" in message and "\n" not in message
    with pytest.raises(UserError, match="step 2 .*No space left"):
        checkpoints.close()
    checkpoints.save(3)
    checkpoints.close()
    assert steps_in(run.checkpoints) == [1, 3]


def test_a_checkpoint_that_cannot_be_written_leaves_those_before(task, run, caplog):
    opened(task, run).save(1)
    checkpoints = opened(task, run)
    (Path(run.checkpoints) / "step-2_temp").write_text("in its way")
    checkpoints.save(2)
    assert "step 2" in caplog.text
    assert opened(task, run).restore_latest() == 1


def test_a_store_that_does_not_answer_does_not_look_empty(monkeypatch):
    def fail(path):
        raise tf.errors.UnavailableError(None, None, "the store is away")

    monkeypatch.setattr(tf.io.gfile, "listdir", fail)
    for look in (steps_in, newest_whole):
        with pytest.raises(UserError, match="ram://a .*the store is away"):
            look("ram://a")
