"""Checkpoints of a real objective: what is saved comes back."""

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.loader import config_to_yaml
from electra_tf.runs import checkpoint as checkpoint_module
from electra_tf.runs.checkpoint import restore_strictly, training_checkpoint
from electra_tf.runs.checkpoint_files import CheckpointFolder
from electra_tf.runs.checkpoint_state import CheckpointState, read_every_tensor, write_tensors
from electra_tf.runs.directory import RunDirectory
from electra_tf.runs.load import load_run


def tensors_of(checkpoint: tf.train.Checkpoint, directory: Path) -> dict[str, tf.Tensor]:
    state = CheckpointState(checkpoint, directory)
    state.prepare()
    return state.read()


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    "changes",
    [{}, {"optimizer": {"name": "lamb"}}, {"objective": {"tying": "none"}}, {"train": {"precision": "bfloat16"}}],
    ids=["adamw", "lamb", "untied", "bfloat16"],
)
def test_everything_that_was_saved_comes_back_bit_for_bit(
    build, run, opened, fill, values, equal, changes, asynchronous
):
    objective = build(**changes)
    fill(objective, 3)
    saved = values(objective)
    checkpoints = opened(objective, run, asynchronous=asynchronous)
    checkpoints.save(3)
    checkpoints.close()
    fresh = build(**changes)
    assert not equal(values(fresh), saved)
    assert opened(fresh, run).restore_latest() == 3
    assert equal(values(fresh), saved)
    assert sum(value.size for value in saved) > 3 * 3000


def test_the_files_are_those_of_tensorflow(objective, fill, tmp_path):
    fill(objective, 4)
    checkpoint = training_checkpoint(objective)
    ours, theirs = str(tmp_path / "ours"), checkpoint.write(str(tmp_path / "theirs"))
    write_tensors(ours, tensors_of(checkpoint, tmp_path))
    readers = [tf.train.load_checkpoint(prefix) for prefix in (ours, theirs)]
    assert readers[0].get_variable_to_shape_map() == readers[1].get_variable_to_shape_map()
    for name in readers[1].get_variable_to_shape_map():
        assert np.array_equal(readers[0].get_tensor(name), readers[1].get_tensor(name)), name
    status = checkpoint.read(ours)
    status.assert_existing_objects_matched()
    status.assert_consumed()
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".data-00000-of-00001"] * 2 + [".index"] * 2


def test_written_in_a_thread_or_not_the_bytes_are_the_same(objective, opened, fill, tmp_path):
    fill(objective, 5)
    runs = {asynchronous: RunDirectory(tmp_path / str(asynchronous)) for asynchronous in (False, True)}
    for asynchronous, run in runs.items():
        checkpoints = opened(objective, run, asynchronous=asynchronous)
        checkpoints.save(5)
        checkpoints.write_milestone(5)
        checkpoints.close()
    files = sorted(path.relative_to(runs[False].path) for path in runs[False].path.rglob("step-5.*"))
    assert len(files) == 6
    for file in files:
        assert (runs[True].path / file).read_bytes() == (runs[False].path / file).read_bytes(), file


def test_what_is_written_in_a_thread_is_the_state_at_the_call(build, run, opened, fill, values, equal, monkeypatch):
    objective, may_write = build(), threading.Event()
    fill(objective, 1)
    saved = values(objective)

    def write_later(prefix, tensors):
        assert may_write.wait(30)
        write_tensors(prefix, tensors)

    monkeypatch.setattr(checkpoint_module, "write_tensors", write_later)
    checkpoints = opened(objective, run, asynchronous=True)
    checkpoints.save(1)
    fill(objective, 2)
    assert CheckpointFolder(run.checkpoints).newest_whole() is None
    may_write.set()
    checkpoints.wait()
    assert checkpoints.restore_latest() == 1
    assert equal(values(objective), saved)
    checkpoints.close()


def test_a_save_waits_for_the_one_before(objective, run, opened, monkeypatch):
    running = []

    def write_alone(prefix, tensors):
        assert not running
        running.append(prefix)
        write_tensors(prefix, tensors)
        running.remove(prefix)

    monkeypatch.setattr(checkpoint_module, "write_tensors", write_alone)
    checkpoints = opened(objective, run, asynchronous=True)
    for step in (1, 2, 3):
        checkpoints.save(step)
        checkpoints.write_milestone(step)
    checkpoints.close()
    assert CheckpointFolder(run.checkpoints).steps() == [2, 3]
    assert CheckpointFolder(run.milestones).steps() == [1, 2, 3]


def test_a_milestone_can_be_continued_from(build, run, opened, fill, values, equal):
    objective = build()
    fill(objective, 4)
    saved = values(objective)
    opened(objective, run).write_milestone(4)
    fresh = build()
    restore_strictly(training_checkpoint(fresh), str(run.milestones / "step-4"))
    assert equal(values(fresh), saved)
    for file in run.milestones.glob("step-4.*"):
        shutil.copy(file, run.checkpoints)
    assert opened(build(), run).restore_latest() == 4


def test_what_was_restored_or_saved_is_not_written_again(objective, run, opened):
    checkpoints = opened(objective, run)
    checkpoints.save(1)
    before = (run.checkpoints / "step-1.index").stat()
    checkpoints.save(1)
    again = opened(objective, run)
    again.restore_latest()
    again.save(1)
    after = (run.checkpoints / "step-1.index").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_leftovers_of_a_killed_call_are_removed(objective, run, opened):
    opened(objective, run).save(1)
    partial = run.checkpoints / ".partial"
    partial.mkdir(exist_ok=True)
    (partial / "step-2.json").write_text("{}")
    (run.checkpoints / "step-2.data-00000-of-00001").write_bytes(b"moved already")
    checkpoints = opened(objective, run)
    checkpoints.remove_leftovers()
    suffixes = ("data-00000-of-00001", "index", "json")
    assert sorted(path.name for path in run.checkpoints.iterdir()) == [f"step-1.{suffix}" for suffix in suffixes]


class Window(tf.Module):
    """State of a run beside its model."""

    def __init__(self, total: float):
        super().__init__()
        self.total = tf.Variable(total)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_other_state_of_the_run_is_saved_with_it(objective, run, opened, asynchronous):
    opened(objective, run, asynchronous=asynchronous, window=Window(2.5), count=tf.Variable(7)).save(1)
    window, count = Window(0.0), tf.Variable(0)
    checkpoints = opened(objective, run, window=window, count=count)
    # The writer's thread may still be at it: only a closed one has surely written.
    while RunDirectory(run.path).latest_checkpoint() is None:
        pass
    checkpoints.restore_latest()
    assert (window.total.numpy(), count.numpy()) == (2.5, 7)


def test_a_variable_that_is_added_between_two_saves_is_in_the_second(objective, run, opened):
    window = Window(1.5)
    checkpoints = opened(objective, run, window=window)
    checkpoints.save(1)
    window.added = tf.Variable([4.0, 5.0])
    checkpoints.save(2)
    window.added.assign([0.0, 0.0])
    assert checkpoints.restore_latest() == 2
    assert window.added.numpy().tolist() == [4.0, 5.0]


def test_a_checkpoint_from_before_some_state_was_kept_is_refused_by_its_name(objective, run, opened):
    opened(objective, run).save(1)
    with pytest.raises(UserError, match=r"step-1 does not fit this run: it has no count and no window; continue it"):
        opened(objective, run, window=Window(0.0), count=tf.Variable(0)).restore_latest()


def test_a_checkpoint_of_another_model_is_refused_by_the_shapes(build, objective, run, opened):
    opened(objective, run).save(1)
    other = build(encoder={"intermediate_size": 22})
    with pytest.raises(UserError, match="does not fit this run: .*shape") as caught:
        opened(other, run).restore_latest()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_worker_that_is_not_the_chief_writes_nothing_but_restores(objective, run, opened, asynchronous):
    worker = opened(objective, run, chief=False, asynchronous=asynchronous)
    worker.save(1)
    worker.write_milestone(1)
    assert not run.path.exists()
    opened(objective, run).save(6)
    assert worker.restore_latest() == 6
    worker.remove_leftovers()
    worker.close()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_replicas_save_what_one_device_restores(build, two_replicas, run, opened, fill, equal, asynchronous):
    with two_replicas.scope():
        objective = build()
        window = tf.Variable(1.5, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
    fill(objective, 2)
    saved = [variable.numpy() for variable in objective.trainable_variables]
    checkpoints = opened(objective, run, asynchronous=asynchronous, window=window)
    checkpoints.save(2)
    fill(objective, 3)
    checkpoints.close()
    fresh, found = build(), tf.Variable(0.0)
    assert opened(fresh, run, window=found).restore_latest() == 2
    assert equal([variable.numpy() for variable in fresh.trainable_variables], saved)
    assert found.numpy() == 1.5
    # And back: every replica's copy gets the value.
    assert checkpoints.restore_latest() == 2
    for variable, expected in zip(objective.trainable_variables, saved, strict=True):
        assert all(np.array_equal(copy.numpy(), expected) for copy in two_replicas.experimental_local_results(variable))


def test_a_trained_model_is_read_at_the_step_that_is_asked_for(build, run, opened, fill):
    objective = build()
    checkpoints = opened(objective, run, keep=1)
    run.config_file.parent.mkdir()
    run.config_file.write_text(config_to_yaml(objective.config), encoding="utf-8")
    tables = {}
    for step in (1, 2, 3):
        fill(objective, step)
        tables[step] = objective.encoder.embeddings.word_embeddings.numpy()
        checkpoints.save(step)
        if step == 1:
            checkpoints.write_milestone(step)
    for asked, expected in ((None, 3), (3, 3), (1, 1)):
        assert np.array_equal(load_run(run.path, asked).encoder.embeddings.word_embeddings, tables[expected])
    with pytest.raises(UserError, match=r"has no checkpoint of step 2; it has those of 1, 3$"):
        load_run(run.path, 2)


def test_reading_every_tensor_finds_a_flipped_byte_that_sizes_do_not_show(objective, tmp_path):
    prefix = str(tmp_path / "state")
    write_tensors(prefix, tensors_of(training_checkpoint(objective), tmp_path))
    read_every_tensor(prefix)
    data = tmp_path / "state.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[-1] ^= 128
    data.write_bytes(content)
    with pytest.raises(tf.errors.DataLossError, match="reads back differently"):
        read_every_tensor(prefix)
