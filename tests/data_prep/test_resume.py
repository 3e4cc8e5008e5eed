"""A build that is stopped at any moment and continued gives the same bytes as an uninterrupted build."""

import contextlib
import errno
import gzip
import itertools
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from data_prep import build as build_module
from data_prep import directory, inputs
from data_prep.archives import ReadError
from data_prep.build import build
from electra_tf.config.errors import UserError
from electra_tf.data.manifest import seen_held_out_text
from electra_tf.files import names_in

PROJECT = Path(__file__).resolve().parents[2]


class Killed(BaseException):
    """Stands for SIGKILL: the builder does not clean up after it."""


@pytest.fixture(scope="module")
def source(tmp_path_factory, one_word_documents):
    """Six files of six documents, one of them compressed."""
    directory = tmp_path_factory.mktemp("source")
    documents = one_word_documents(36)
    for number in range(6):
        text = "\n\n".join(documents[number::6]).encode()
        (directory / f"{number}.txt").write_bytes(gzip.compress(text, mtime=0) if number == 4 else text)
    return directory


@pytest.fixture
def in_small_units(monkeypatch):
    monkeypatch.setattr("data_prep.inputs._MIN_UNIT_BYTES", 1)


@pytest.fixture
def settings(build_settings, source, tmp_path):
    return build_settings([f"text:{source}/*.txt"], tmp_path / "data")


@pytest.fixture(scope="module")
def expected(build_settings, source, tmp_path_factory, contents):
    """The data set of an uninterrupted build."""
    output_dir = tmp_path_factory.mktemp("expected") / "data"
    build(build_settings([f"text:{source}/*.txt"], output_dir))
    return contents(output_dir)


def stop_at(monkeypatch, module, name: str, call: int, failure: BaseException, *, after: bool = True) -> None:
    """Raises `failure` in the `call`-th call of a function, before or after its work."""
    function, calls = getattr(module, name), itertools.count(1)

    def stopping(*arguments, **keyword_arguments):
        is_last = next(calls) >= call
        result = function(*arguments, **keyword_arguments) if after or not is_last else None
        if is_last:
            raise failure
        return result

    monkeypatch.setattr(module, name, stopping)


@pytest.fixture
def kill_at(settings, monkeypatch):
    """`kill_at(module, name, call)`: a build of `settings` is killed in this call of a function of the module."""

    def kill(module, name: str, call: int, *, after: bool = True) -> None:
        with monkeypatch.context() as patch:
            stop_at(patch, module, name, call, Killed(), after=after)
            with pytest.raises(Killed):
                build(settings)

    return kill


@pytest.mark.parametrize(
    ("module", "name", "call"),
    [
        (build_module, "write_unit", 5),
        (build_module, "require_text", 1),
        (build_module, "write_shard", 1),
        (build_module, "write_shard_of_spills", 2),
        (build_module, "write_atomically", 2),
        (build_module, "write_manifest", 1),
        (directory.shutil, "rmtree", 1),
        (directory, "remove_intermediate", 1),
    ],
)
@pytest.mark.parametrize("after", [pytest.param(False, marks=pytest.mark.slow), True], ids=["before", "after"])
def test_a_build_killed_at_any_moment_can_be_continued(
    settings, expected, in_small_units, kill_at, module, name, call, after, contents
):
    kill_at(module, name, call, after=after)
    build(settings)
    assert contents(settings.output_dir) == expected


def test_finished_work_is_not_repeated(settings, in_small_units, kill_at, monkeypatch):
    kill_at(build_module, "write_shard_of_spills", 2)
    stop_at(monkeypatch, build_module, "write_unit", 1, AssertionError("a unit is done again"))
    stop_at(monkeypatch, build_module, "write_shard_of_spills", 3, AssertionError("a shard is done again"))
    build(settings)


def test_the_same_command_does_not_build_a_finished_data_set_again(settings, monkeypatch):
    manifest = build(settings)
    stop_at(monkeypatch, build_module, "write_unit", 1, AssertionError("it is built again"))
    stop_at(monkeypatch, inputs, "sample_text", 1, AssertionError("its text is sampled again"))
    assert build(settings) == manifest


@pytest.mark.parametrize(("seconds", "is_stale"), [(9, True), (-9, False)])
def test_an_input_that_was_written_after_the_data_set_is_named(build_settings, tmp_path, seconds, is_stale):
    (tmp_path / "a.txt").write_text("w1 w2 w3\n\nw4 w5 w6")
    settings = build_settings([f"text:{tmp_path}/a.txt"], tmp_path / "data", held_out_fraction=0.0)
    build(settings)
    (tmp_path / "a.txt").write_text("w1 w2 w3\n\nw4 w5 w7")
    written = (tmp_path / "data/manifest.json").stat().st_mtime + seconds
    os.utime(tmp_path / "a.txt", (written, written))
    with pytest.raises(UserError, match="a data set older than .*a.txt") if is_stale else contextlib.nullcontext():
        build(settings)
    assert build(settings.model_copy(update={"overwrite": True})).token_counts[5 + 7] == 1


def test_a_data_set_of_another_readers_version_says_so(build_settings, tmp_path, monkeypatch, caplog):
    (tmp_path / "a.txt").write_text("w1 w2 w3\n\nw4 w5 w6")
    settings = build_settings([f"text:{tmp_path}/a.txt"], tmp_path / "data", held_out_fraction=0.0)
    earlier = build(settings).hold_out
    monkeypatch.setattr("electra_tf.data.manifest.READER_VERSION", 99)
    build(settings)
    assert "of another version" in caplog.text
    later = build(settings.model_copy(update={"overwrite": True})).hold_out
    assert "reader_version" in seen_held_out_text([("a", earlier), ("b", {**later, "held_out_fraction": 0.1})])


@pytest.mark.slow
def test_a_finished_build_leaves_another_ones_work_in_the_work_dir(
    settings, build_settings, source, expected, in_small_units, monkeypatch, tmp_path, contents
):
    done = settings.model_copy(update={"work_dir": str(tmp_path / "work")})
    build(done)
    other = build_settings([f"text:{source}/*.txt"], tmp_path / "other", work_dir=done.work_dir)
    with monkeypatch.context() as patch:
        stop_at(patch, build_module, "write_unit", 5, Killed())
        with pytest.raises(Killed):
            build(other)
    kept = sorted(other.build_dir.iterdir())
    for command in (done, done.model_copy(update={"overwrite": True})):
        build(command)
        assert sorted(other.build_dir.iterdir()) == kept
    build(other)
    assert contents(other.output_dir) == expected


def test_a_damaged_shard_is_written_again(settings, expected, in_small_units, kill_at, contents):
    kill_at(build_module, "write_shard_of_spills", 2)
    (shard, *_) = Path(settings.output_dir).glob("*.tfrecord")
    shard.write_bytes(b"junk")
    build(settings)
    assert contents(settings.output_dir) == expected


FULL = OSError(errno.ENOSPC, "No space left on device")
UNREADABLE = ReadError("cannot read a.txt: Input/output error")


@pytest.mark.parametrize(
    ("name", "failure", "message"),
    [
        ("write_unit", FULL, "output_dir=.*No space left on device"),
        ("write_shard_of_spills", FULL, "output_dir=.*No space left on device"),
        ("write_unit", UNREADABLE, "cannot read a.txt: Input/output error; the same command continues"),
    ],
)
def test_the_same_command_continues_after_a_full_disk_and_an_unreadable_input(
    settings, expected, in_small_units, monkeypatch, name, failure, message, contents
):
    with monkeypatch.context() as patch:
        stop_at(patch, build_module, name, 2, failure, after=False)
        with pytest.raises(UserError, match=message):
            build(settings)
    assert list(settings.build_dir.glob("unit-*"))
    build(settings)
    assert contents(settings.output_dir) == expected


def kill_a_worker():
    os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)


def press_ctrl_c():
    """As a terminal does: every process gets the signal."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # pytest's workers ignore it
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, handler)
        for process in multiprocessing.active_children():
            os.kill(process.pid, signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("interrupt", "error", "message"),
    [
        (kill_a_worker, UserError, "a worker process was killed, .*; the same command continues the build"),
        (press_ctrl_c, KeyboardInterrupt, None),
    ],
)
def test_a_build_in_two_processes_continues_after_a_killed_worker_and_after_ctrl_c(
    settings, expected, monkeypatch, caplog, interrupt, error, message, contents
):
    caplog.set_level("INFO")
    monkeypatch.setattr("data_prep.inputs._MIN_UNIT_BYTES", 1)
    settings = settings.model_copy(update={"num_processes": 2})
    plan_units = build_module.plan_units

    def interrupted_units(*arguments):
        for index, unit in enumerate(plan_units(*arguments)):
            if index == 9:
                interrupt()
            yield unit

    with monkeypatch.context() as patch:
        patch.setattr(build_module, "plan_units", interrupted_units)
        with pytest.raises(error, match=message):
            build(settings)
    assert multiprocessing.active_children() == []
    assert message or "unfinished: the same command continues the build" in caplog.messages
    assert list(settings.build_dir.glob("unit-*"))
    build(settings.model_copy(update={"num_processes": 1}))
    assert contents(settings.output_dir) == expected


@pytest.mark.parametrize("num_processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_build_to_a_store_equals_a_local_one_also_after_a_kill(
    settings, expected, in_small_units, monkeypatch, tmp_path, num_processes, contents
):
    # Only this process sees the files in memory.
    url = f"memory:/{tmp_path}/data" if num_processes == 1 else f"file://{tmp_path}/data"
    changes = {"output_dir": url, "work_dir": str(tmp_path / "work"), "num_processes": num_processes}
    settings = settings.model_copy(update=changes)
    with monkeypatch.context() as patch:
        stop_at(patch, build_module, "write_manifest", 1, Killed(), after=False)
        with pytest.raises(Killed):
            build(settings)
    assert [name for name in names_in(url) if not name.endswith(".tfrecord")] == []
    build(settings)
    assert contents(url) == expected
    assert not settings.build_dir.exists()


@pytest.mark.slow
def test_kill_9_at_random_moments_leaves_the_same_bytes(build_settings, vocab_file, tmp_path, contents):
    text = random.Random(1)
    for number in range(12):
        paragraphs = (" ".join(f"w{text.randrange(40)}" for _ in range(60)) for _ in range(4_000))
        (tmp_path / f"{number}.txt").write_text("\n\n".join(paragraphs))
    command = [sys.executable, "build_pretraining_dataset.py", f"--input=text:{tmp_path}/*.txt"]
    command += [f"--vocab_file={vocab_file}", "--num_processes=2", "--seed=3"]
    started = time.monotonic()
    subprocess.run([*command, f"--output_dir={tmp_path}/whole"], cwd=PROJECT, check=True)
    seconds = time.monotonic() - started

    num_kills = 0
    while True:
        build_process = subprocess.Popen([*command, f"--output_dir={tmp_path}/killed"], cwd=PROJECT)
        try:
            # Longer and longer, so that a machine that has become busy completes a unit between two kills.
            status = build_process.wait(timeout=text.uniform(0.2, 0.9) * seconds * 1.1**num_kills)
            break
        except subprocess.TimeoutExpired:
            build_process.send_signal(signal.SIGKILL)
            build_process.wait()
            num_kills += 1
    assert status == 0 and num_kills > 0
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
