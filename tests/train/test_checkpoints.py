"""Checkpoints: saving, restoring, damaged and unfinished ones."""

import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.train.checkpoints import Checkpoints, latest_intact, steps_in
from electra_tf.train.run_directory import RunDirectory
from electra_tf.train.step import compile_task
from tests.toy import Regression, built, toy_config, toy_run


def state_of(task) -> list[tf.Variable]:
    return [*task.trainable_variables, *task.optimizer.variables]


def fill(task, number: int) -> list[np.ndarray]:
    """Assigns different random values to every variable and returns them."""
    for index, variable in enumerate(state_of(task)):
        if variable.shape.rank:
            variable.assign(tf.random.stateless_uniform(variable.shape, [number, index]))
    task.optimizer.iterations.assign(number)
    return [variable.numpy() for variable in state_of(task)]


def equal(task, values: list[np.ndarray]) -> bool:
    return all(np.array_equal(variable, value) for variable, value in zip(state_of(task), values, strict=True))


@pytest.fixture(scope="module")
def task() -> Regression:
    return built(toy_run(toy_config(), "unused"))


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return RunDirectory(tmp_path / "run")


def opened(task, run: RunDirectory, chief=True, **tracked) -> Checkpoints:
    return Checkpoints(task, run, chief, keep=2, **tracked)


def test_tracked_state_is_restored_where_the_checkpoint_has_it(task, run):
    window, count = tf.Module(), tf.Variable(7)
    window.total = tf.Variable(2.5)
    opened(task, run, window=window).save(1)
    window.total.assign(0.0)
    assert opened(task, run, window=window, count=count).restore_latest() == 1
    assert (float(window.total), int(count)) == (2.5, 7)


@pytest.mark.parametrize("kind", ["variable", "shape"])
def test_checkpoint_that_lacks_a_variable_or_has_another_shape_is_an_error_of_one_line(task, run, kind):
    opened(task, run).save(1)
    other = Regression(toy_config())
    other.hidden.units = 3 if kind == "variable" else 2
    other.create_variables()
    compile_task(other)
    if kind == "variable":
        other.optimizer.novel = tf.Variable(1.0)
    with pytest.raises(UserError, match="step-1 does not fit this run" + ": .*shape" * (kind == "shape")) as caught:
        opened(other, run).restore_latest()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["list", "module", "module_in_list", "object", "keras_2"])
def test_layers_that_would_not_be_saved_or_trained_are_refused(kind):
    layer, module = keras.layers.Dense(3), tf.Module()
    module.layer = layer
    holders = {"list": [layer], "module": module, "module_in_list": [module], "object": SimpleNamespace(layer=layer)}

    class Holding(Regression):
        def training_terms(self, batch, context):
            held = tf.reduce_sum((self.holder if kind == "keras_2" else layer)(batch["input_ids"]))
            total = super().training_terms(batch, context)["squared_error"]
            return {"squared_error": total._replace(value=total.value + held)}

    task = Holding(toy_config())
    task.holder = holders.get(kind) or pytest.importorskip("tf_keras").layers.Dense(3)
    task.dropout = keras.layers.Dropout(0.5)  # whose random state no checkpoint has, nor needs
    with pytest.raises(UserError, match="would not be trained, or not be in checkpoints"):
        task.create_variables()


def test_a_frozen_network_that_the_objective_reads_from_elsewhere_is_accepted():
    teacher = keras.layers.Dense(1)

    class Taught(Regression):
        def training_terms(self, batch, context):
            target = tf.stop_gradient(teacher(batch["input_ids"]))
            total = super().training_terms(batch, context)["squared_error"]
            return {"squared_error": total._replace(value=total.value + tf.reduce_sum(target))}

    task = Taught(toy_config())
    task.create_variables()
    assert len(task.trainable_variables) == 4  # of `hidden` and `output_layer`


def test_last_checkpoints_and_all_milestones_are_kept(task, run):
    writer = opened(task, run)
    for step in (1, 2, 3):
        writer.save(step)
        writer.save(step, run.milestones)
    assert (steps_in(run.checkpoints), steps_in(run.milestones)) == ([2, 3], [1, 2, 3])
    opened(task, run).save(4)
    assert steps_in(run.checkpoints) == [3, 4]


@pytest.mark.parametrize("left", [b"model_check", b'model_checkpoint_path: "step-9"\n', None])
def test_a_damaged_list_of_checkpoints_is_written_anew_from_the_files(task, run, left):
    for step in (1, 2):
        opened(task, run).save(step)
    path = Path(run.checkpoints) / "checkpoint"
    path.unlink() if left is None else path.write_bytes(left)
    writer = opened(task, run)
    assert writer.restore_latest() == 2
    writer.save(3)
    state = tf.train.get_checkpoint_state(run.checkpoints)
    assert [Path(each).name for each in state.all_model_checkpoint_paths] == ["step-2", "step-3"]
    assert tf.train.latest_checkpoint(run.checkpoints) == f"{run.checkpoints}/step-3"


def test_a_checkpoint_is_on_the_disk_before_an_older_one_is_removed(task, run, monkeypatch):
    writer, done = opened(task, run), []
    writer.save(1)
    writer.save(2)
    fsync, remove = os.fsync, os.remove

    def note_fsync(descriptor):
        done.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "remove", lambda path: done.append(f"removed {os.path.basename(path)}") or remove(path))
    writer.save(3)
    removed = [number for number, what in enumerate(done) if what.startswith("removed")]
    data = "data-00000-of-00001"
    assert {done[number] for number in removed} == {"removed step-1.index", f"removed step-1.{data}"}
    assert {"step-3.index", f"step-3.{data}", "checkpoints"} <= set(done[: removed[0]])


def test_worker_that_is_not_the_chief_restores_but_does_not_write(task, run):
    worker = opened(task, run, chief=False)
    worker.save(1)
    assert not Path(run.path).exists()
    opened(task, run).save(6)
    unfinished = Path(run.checkpoints) / "step-7_temp"
    unfinished.mkdir()
    assert opened(task, run, chief=False).restore_latest() == 6
    assert unfinished.exists()


# Files of step 2 that real kills have left (TensorFlow 2.20). The temporary directory is always among them.
@pytest.mark.parametrize(
    "files",
    [
        {"step-2_temp/part-00000-of-00001.data-00000-of-00001.tempstate77": b"half"},
        {"step-2.data-00000-of-00001": b"whole", "step-2.index": b"", "step-2_temp/part.index": b"part"},
    ],
    ids=["writing_the_data", "index_begun"],
)
def test_unfinished_checkpoint_is_ignored_and_removed(task, run, caplog, files):
    opened(task, run).save(1)
    for name, content in files.items():
        path = Path(run.checkpoints) / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    assert latest_intact(run.checkpoints) == f"{run.checkpoints}/step-1"
    assert opened(task, run).restore_latest() == 1
    assert not [name for name in os.listdir(run.checkpoints) if name.startswith("step-2")]
    assert caplog.messages == []


def flip_in_the_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 128
    path.write_bytes(content)


DAMAGES = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "flipped": flip_in_the_middle,
    "emptied": lambda path: path.write_bytes(b""),
    "missing": Path.unlink,
}


@pytest.fixture(scope="module")
def original(task, tmp_path_factory) -> tuple[str, dict[int, list[np.ndarray]]]:
    run, values = RunDirectory(tmp_path_factory.mktemp("two") / "run"), {}
    for step in (4, 8):
        values[step] = fill(task, step)
        opened(task, run).save(step)
    return run.checkpoints, values


@pytest.fixture
def two_checkpoints(original, run) -> RunDirectory:
    """A run with whole checkpoints of steps 4 and 8."""
    shutil.copytree(original[0], run.checkpoints)
    return run


@pytest.mark.parametrize("file", ["data-00000-of-00001", "index"])
@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_checkpoint_is_reported_and_the_one_before_is_restored(
    task, original, two_checkpoints, caplog, file, kind
):
    folder = Path(two_checkpoints.checkpoints)
    DAMAGES[kind](folder / f"step-8.{file}")
    assert opened(task, two_checkpoints).restore_latest() == 4
    assert equal(task, original[1][4])
    (message,) = caplog.messages
    assert re.fullmatch(r".*/checkpoints/step-8 is damaged: .+step-4.*", message)
    DAMAGES[kind](folder / f"step-4.{file}")
    with pytest.raises(UserError, match="checkpoints: .*step-8: .*step-4: "):
        opened(task, two_checkpoints).restore_latest()


def test_a_damaged_later_checkpoint_is_removed_before_the_one_that_was_used_instead(task, two_checkpoints):
    (Path(two_checkpoints.checkpoints) / "step-8.index").write_bytes(b"")
    writer = opened(task, two_checkpoints)
    assert writer.restore_latest() == 4
    writer.save(6)
    assert steps_in(two_checkpoints.checkpoints) == [4, 6]


def test_store_that_does_not_answer_is_an_error(monkeypatch):
    def fail(path):
        raise tf.errors.UnavailableError(None, None, "the store is away")

    monkeypatch.setattr(tf.io.gfile, "listdir", fail)
    with pytest.raises(UserError, match="ram://a .*the store is away"):
        latest_intact("ram://a")


@pytest.mark.parametrize("code", ["ResourceExhausted", "Internal", "Unavailable"])
def test_a_full_memory_or_an_absent_store_is_no_damage(task, two_checkpoints, monkeypatch, code):
    def fail(*arguments, **options):
        raise getattr(tf.errors, f"{code}Error")(None, None, "Dst tensor is not initialized")

    with monkeypatch.context() as patched, pytest.raises(tf.errors.OpError, match="Dst tensor"):
        patched.setattr(tf.train.Checkpoint, "read", fail)
        opened(task, two_checkpoints).restore_latest()
    monkeypatch.setattr(tf.compat.v1.train, "NewCheckpointReader", fail)
    with pytest.raises(tf.errors.OpError, match="Dst tensor"):
        latest_intact(two_checkpoints.checkpoints)
