"""Saves that fail: on a full, a small and a broken disk, and by a mistake of ours."""

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.runs import checkpoint as checkpoint_module
from electra_tf.runs.checkpoint_files import CheckpointFolder
from electra_tf.runs.checkpoint_state import write_tensors
from electra_tf.runs.directory import RunDirectory


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_error_that_is_not_the_disk_s_comes_up(objective, run, opened, monkeypatch, asynchronous):
    def fail(prefix, tensors):
        raise KeyError("a mistake of ours")

    monkeypatch.setattr(checkpoint_module, "write_tensors", fail)
    checkpoints = opened(objective, run, asynchronous=asynchronous)
    with pytest.raises(KeyError, match="a mistake of ours"):
        checkpoints.save(1)
        checkpoints.wait()
    assert RunDirectory(run.path).latest_checkpoint() is None


def full_disk(prefix, tensors):
    write_tensors(prefix, tensors)
    raise tf.errors.ResourceExhaustedError(None, None, f"{prefix}.data: No space left on device")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_full_disk_costs_the_save_that_meets_it_and_nothing_else(
    build, run, opened, fill, monkeypatch, caplog, asynchronous
):
    objective = build()
    checkpoints = opened(objective, run, asynchronous=asynchronous)
    fill(objective, 1)
    checkpoints.save(1)
    checkpoints.wait()
    with monkeypatch.context() as full:
        full.setattr(checkpoint_module, "write_tensors", full_disk)
        checkpoints.save(2)
        checkpoints.write_milestone(2)
        checkpoints.wait()
    warnings = [message for message in caplog.messages if "No space left on device" in message]
    assert len(warnings) == 2
    assert warnings[0].endswith("training goes on, the newest is step-1")
    assert CheckpointFolder(run.checkpoints).newest_whole() == 1
    assert not [path for path in run.checkpoints.rglob("*step-2*")]
    fill(objective, 3)
    checkpoints.save(3)
    checkpoints.close()
    assert CheckpointFolder(run.checkpoints).newest_whole() == 3


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_run_whose_last_save_fails_says_so_at_its_end(objective, run, opened, monkeypatch, asynchronous):
    monkeypatch.setattr(checkpoint_module, "write_tensors", full_disk)
    checkpoints = opened(objective, run, asynchronous=asynchronous)
    checkpoints.save(2)
    with pytest.raises(
        UserError, match=r"step-2 could not be written \(.*No space left on device\); make room"
    ) as caught:
        checkpoints.close()
    assert "\n" not in str(caught.value)


def test_a_first_save_for_which_there_is_no_room_at_all_is_a_warning(objective, run, opened, monkeypatch, caplog):
    def full(self, path):
        raise tf.errors.ResourceExhaustedError(None, None, f"{path}: No space left on device")

    checkpoints = opened(objective, run)
    with monkeypatch.context() as context:
        context.setattr(tf.train.Checkpoint, "write", full)
        checkpoints.save(1)
    assert "No space left on device); training goes on, there is none before it" in caplog.text
    checkpoints.save(2)
    checkpoints.close()
    assert CheckpointFolder(run.checkpoints).steps() == [2]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 300 kB, where the machine lets us mount one."""
    place = tmp_path / "small_disk"
    place.mkdir()
    mount = shutil.which("mount")
    command = [mount, "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(place)]
    if mount is None or os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_disk_that_is_really_full_leaves_the_last_good_one(
    build, small_disk, opened, fill, values, equal, caplog, asynchronous
):
    objective, run = build(), RunDirectory(small_disk / "run")
    checkpoints = opened(objective, run, keep=1, asynchronous=asynchronous)
    fill(objective, 1)
    saved = values(objective)
    checkpoints.save(1)
    checkpoints.wait()
    free = shutil.disk_usage(small_disk).free
    (small_disk / "filler").write_bytes(b"f" * (free - 50_000))
    checkpoints.save(2)
    checkpoints.wait()
    assert "No space left on device" in caplog.text and "the newest is step-1" in caplog.text
    with pytest.raises(UserError, match="No space left on device"):
        checkpoints.close()
    (small_disk / "filler").unlink()
    fresh = build()
    again = opened(fresh, run, keep=1)
    assert again.restore_latest() == 1
    assert equal(values(fresh), saved)
    again.save(3)
    again.close()
    assert CheckpointFolder(run.checkpoints).steps() == [3]


def test_a_disk_that_reads_back_something_else_costs_that_save(objective, run, opened, monkeypatch, caplog):
    def write_wrongly(prefix, tensors):
        write_tensors(prefix, tensors)
        data = Path(f"{prefix}.data-00000-of-00001")
        content = bytearray(data.read_bytes())
        content[5000] ^= 1
        data.write_bytes(content)

    checkpoints = opened(objective, run)
    checkpoints.save(1)
    monkeypatch.setattr(checkpoint_module, "write_tensors", write_wrongly)
    checkpoints.save(2)
    assert "step-2 could not be written (it reads back differently: " in caplog.text
    assert CheckpointFolder(run.checkpoints).steps() == [1]


def test_the_operating_system_s_words_are_given_for_its_errors(objective, run, opened, monkeypatch, caplog):
    def read_only(prefix, tensors):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), prefix)

    monkeypatch.setattr(checkpoint_module, "write_tensors", read_only)
    opened(objective, run).save(1)
    assert (
        "step-1 could not be written (Read-only file system); training goes on, there is none before it" in caplog.text
    )
