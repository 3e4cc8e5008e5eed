"""Publishing, finding and removing checkpoints, stopped before each single operation on files."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from electra_tf.runs.checkpoint_files import CheckpointFolder

PROJECT = Path(__file__).resolve().parents[2]


class Killed(BaseException):
    """Ends a process in a test: no `except Exception` sees it, and nothing is tidied up."""


_CHANGES_FILES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree")
_countdown: list[int] = []  # operations left until the kill; empty: none


def _audit(event: str, arguments: tuple) -> None:
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    if _countdown and (event in _CHANGES_FILES or writes):
        _countdown[0] -= 1
        if _countdown[0] == 0:
            raise Killed


sys.addaudithook(_audit)


@contextlib.contextmanager
def killed_before(operation: int):
    """Kills what runs inside before its n-th operation that changes files; says whether it came so far."""
    _countdown[:] = [operation]
    came = []
    try:
        yield came
    except Killed:
        came.append(True)
    finally:
        _countdown.clear()


def content_of(step: int, length: int = 3000) -> bytes:
    return random.Random(step).randbytes(length)


def write_step(step: int):
    """What TensorFlow would do: an index and two data files."""

    def write(prefix: str) -> None:
        assert Path(prefix).name == f"step-{step}"
        for suffix in ("data-00000-of-00002", "data-00001-of-00002", "index"):
            Path(f"{prefix}.{suffix}").write_bytes(content_of(step) + suffix.encode())

    return write


def accept(prefix: str) -> None:
    """Verifies nothing."""


def publish(folder: CheckpointFolder, step: int, keep: int = 2) -> None:
    folder.publish(step, write_step(step), accept)
    folder.keep_last(keep, step)


def names(folder: CheckpointFolder) -> set[str]:
    return {path.name for path in folder.path.iterdir()}


def files_of(*steps: int) -> set[str]:
    suffixes = ("index", "json", "data-00000-of-00002", "data-00001-of-00002")
    return {f"step-{step}.{suffix}" for step in steps for suffix in suffixes}


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def two(tmp_path):
    """Steps 10 and 20, the last two."""
    folder = CheckpointFolder(tmp_path / "two")
    for step in (5, 10, 20):
        publish(folder, step)
    folder.remove_leftovers()
    assert names(folder) == files_of(10, 20)
    return folder


def test_the_newest_whole_checkpoint_is_found_by_number_not_by_name(tmp_path):
    folder = CheckpointFolder(tmp_path)
    for step in (0, 9, 10):
        publish(folder, step, keep=3)
    assert (folder.steps(), folder.newest_whole()) == ([0, 9, 10], 10)
    assert folder.prefix(10) == str(tmp_path / "step-10")


def test_an_empty_folder_has_none_and_one_that_is_missing_has_none_either(tmp_path):
    assert CheckpointFolder(tmp_path).newest_whole() is None
    assert CheckpointFolder(tmp_path / "missing").newest_whole() is None
    CheckpointFolder(tmp_path / "missing").remove_leftovers()


@pytest.mark.parametrize("newest", ["absent", "damaged"])
def test_killed_before_any_operation_of_a_save_the_last_good_one_stays(two, tmp_path, caplog, newest):
    if newest == "damaged":
        publish(two, 30, keep=3)
        (two.path / "step-30.index").write_bytes(b"flipped")
    seen, operation = [], 0
    while True:
        operation += 1
        folder = CheckpointFolder(shutil.copytree(two.path, tmp_path / f"killed_{operation}"))
        with killed_before(operation) as came:
            publish(folder, 30)
        caplog.clear()
        seen.append(CheckpointFolder(folder.path).newest_whole())
        # What a save left unfinished is not damage; what was damaged before is, until its removal has begun.
        assert newest == "damaged" or not caplog.messages
        survivor = CheckpointFolder(folder.path)
        survivor.remove_leftovers()
        assert files_of(seen[-1]) <= names(folder)
        assert not list(folder.path.glob(".partial*"))
        assert survivor.newest_whole() == seen[-1]
        publish(survivor, 30)
        assert names(folder) - {".partial"} == files_of(20, 30)
        if not came:
            break
    # First the old one, from one operation on the new one for good.
    assert seen == sorted(seen)
    assert set(seen) == {20, 30}
    assert len(seen) > 15


def test_killed_again_while_it_tidies_up_nothing_good_is_lost(two, tmp_path):
    for operation in range(1, 40, 3):
        for second in range(1, 12):
            folder = CheckpointFolder(shutil.copytree(two.path, tmp_path / f"killed_{operation}_{second}"))
            with killed_before(operation):
                publish(folder, 30)
            newest = CheckpointFolder(folder.path).newest_whole()
            with killed_before(second):
                CheckpointFolder(folder.path).remove_leftovers()
            assert CheckpointFolder(folder.path).newest_whole() == newest
            CheckpointFolder(folder.path).remove_leftovers()
            assert names(folder) in (files_of(10, 20), files_of(10, 20, 30), files_of(20, 30))


def test_the_first_save_of_a_run_killed_on_its_way_counts_as_none(tmp_path):
    operation, came = 0, [True]
    while came:
        operation += 1
        folder = CheckpointFolder(tmp_path / f"run_{operation}")
        with killed_before(operation) as came:
            publish(folder, 7)
        assert folder.newest_whole() in (None, 7)
    assert folder.newest_whole() == 7


def test_a_write_that_fails_leaves_no_trace(two):
    def write(prefix: str) -> None:
        write_step(30)(prefix)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        two.publish(30, write, accept)
    assert names(two) == files_of(10, 20)


def test_what_does_not_read_back_is_not_published(two):
    def reject(prefix: str) -> None:
        raise ValueError(f"{Path(prefix).name} reads back differently")

    with pytest.raises(ValueError, match="step-30 reads back differently"):
        two.publish(30, write_step(30), reject)
    assert names(two) == files_of(10, 20)


def test_a_rename_that_fails_half_way_leaves_no_trace(two, monkeypatch):
    replace = os.replace

    def fail_for_the_index(source, target):
        if str(target).endswith(".index"):
            raise OSError(5, "Input/output error")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail_for_the_index)
    with pytest.raises(OSError, match="Input/output"):
        two.publish(30, write_step(30), accept)
    assert names(two) == files_of(10, 20)


def test_a_damaged_one_counts_for_nothing_when_the_last_few_are_kept(two):
    publish(two, 30, keep=3)
    (two.path / "step-30.data-00001-of-00002").unlink()
    folder = CheckpointFolder(two.path)
    assert folder.newest_whole() == 20
    publish(folder, 25)
    assert names(folder) - {".partial"} == files_of(20, 25)


def test_what_is_newer_than_the_save_and_not_known_as_damaged_is_left_alone(two):
    publish(two, 15, keep=1)
    assert names(two) - {".partial"} == files_of(15, 20)


def test_files_of_others_are_left_alone(two):
    for name in ("notes.txt", "step-10.index.bak", "step-x.index"):
        (two.path / name).write_text("mine")
    publish(two, 30, keep=1)
    assert names(two) - {".partial"} == files_of(30) | {"notes.txt", "step-10.index.bak", "step-x.index"}


_SAVES_FOR_EVER = """
import sys
from pathlib import Path
from electra_tf.runs.checkpoint_files import CheckpointFolder

folder = CheckpointFolder(sys.argv[1])
folder.remove_leftovers()
step = folder.newest_whole() or 0
while True:
    step += 1
    def write(prefix):
        for suffix in ("index", "data-00000-of-00001"):
            Path(f"{prefix}.{suffix}").write_bytes(step.to_bytes(4, "big") * 500_000)
    folder.publish(step, write, lambda prefix: None)
    folder.keep_last(2, step)
    print(step, flush=True)
"""


def test_a_process_that_only_saves_can_be_killed_at_any_time(tmp_path):
    random_delay, last = random.Random(0), 0
    for _ in range(8):
        with subprocess.Popen(
            [sys.executable, "-c", _SAVES_FOR_EVER, str(tmp_path)],
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            process.stdout.readline()  # it has started, and saved once more
            time.sleep(random_delay.uniform(0.0, 0.15))
            process.send_signal(signal.SIGKILL)
            reported, errors = process.communicate()
        assert errors == b"", errors.decode()
        found = CheckpointFolder(tmp_path).newest_whole()
        assert found is not None and found >= max([last + 1, *map(int, reported.split())])
        last = found
