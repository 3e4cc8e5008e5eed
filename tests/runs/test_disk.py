"""What a disk that is full for some time costs: nothing that was reported, and no checkpoint that is ahead of it."""

import contextlib
import errno
import io
import json
import os
import sys

import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.runs import reporting
from electra_tf.runs.checkpoint_files import CheckpointFolder
from electra_tf.runs.directory import RunDirectory, write_atomically
from electra_tf.runs.loop import Run, pretrain
from electra_tf.runs.reporting import TrainingReporter
from electra_tf.runs.tensorboard_events import EventWriter


@pytest.fixture
def full_disk(monkeypatch):
    """`with full_disk():` what is appended to metrics.jsonl and to TensorBoard's events gets there torn."""

    def torn_open(path, mode, **options):
        with open(path, mode, **options) as stream:
            stream.write('{"step": ')
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def torn_event(self, event):
        self._writer.write(b"torn")
        self._writer.flush()
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    @contextlib.contextmanager
    def full():
        with monkeypatch.context() as patched:
            patched.setattr(reporting, "open", torn_open, raising=False)
            patched.setattr(EventWriter, "_append", torn_event)
            yield

    return full


@pytest.fixture
def directory(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.create()
    return run


def report(reporter: TrainingReporter, *steps: int) -> None:
    for step in steps:
        reporter.evaluation(step, {"loss": 0.5})


def lines(directory: RunDirectory) -> list[int]:
    return [json.loads(line)["step"] for line in directory.metrics_file.read_text().splitlines()]


def events(directory: RunDirectory) -> list[int]:
    files = sorted(map(str, (directory.tensorboard / "held_out").iterdir()))
    records = [record for file in files for record in tf.data.TFRecordDataset(file).as_numpy_iterator()]
    found = map(tf.compat.v1.Event.FromString, records)
    return [event.step for event in found if event.HasField("summary")]


@pytest.mark.parametrize("before", [(), (1,)])
def test_reports_that_the_disk_refused_follow_in_their_order(directory, full_disk, caplog, before):
    reporter = TrainingReporter(directory, 0, 8)
    report(reporter, *before)
    with full_disk():
        report(reporter, 2, 3)
    assert "a report could not be written (No space left on device)" in caplog.text
    report(reporter, 4)
    reporter.close()
    assert lines(directory) == events(directory) == [*before, 2, 3, 4]


def test_reports_that_never_reach_the_disk_end_the_run_in_one_line(directory, full_disk):
    reporter = TrainingReporter(directory, 0, 8)
    with full_disk():
        report(reporter, 2)
        with pytest.raises(UserError, match="the last reports could not be written .*No space left on device"):
            reporter.close()


def test_no_checkpoint_stands_for_reports_that_are_not_on_the_disk(
    tiny_config, write_data, tmp_path, full_disk, monkeypatch, caplog
):
    config = tiny_config(train={"num_steps": 6, "log_every_steps": 2, "save_every_steps": 2, "milestone_fractions": ()})
    run = Run(config, RunDirectory(tmp_path / "run"), tf.distribute.OneDeviceStrategy("CPU:0"))
    train, full = TrainingReporter.train, contextlib.ExitStack()

    def full_at_step_4(self, step, metrics):
        if step == 4:
            full.enter_context(full_disk())
        if step == 6:
            assert CheckpointFolder(run.directory.checkpoints).steps() == [2]
            full.close()
        train(self, step, metrics)

    monkeypatch.setattr(TrainingReporter, "train", full_at_step_4)
    pretrain(run, [write_data(tmp_path / "data", held_out=())])
    assert "step-4 could not be written (No space left on device); training goes on" in caplog.text
    assert lines(run.directory) == [1, 2, 4, 6]
    assert CheckpointFolder(run.directory.checkpoints).steps() == [2, 6]


def test_events_that_cannot_be_written_hold_no_checkpoint_back(directory):
    directory.tensorboard.write_text("in its way")
    reporter = TrainingReporter(directory, 0, 8)
    report(reporter, 2)
    reporter.sync()
    assert lines(directory) == [2]
    with pytest.raises(UserError, match="the last reports could not be written"):
        reporter.close()


def test_a_small_file_that_cannot_be_written_leaves_no_part_and_is_the_users_to_mend(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="vocab.txt cannot be written: No space left on device"):
        write_atomically(tmp_path / "vocab.txt", b"[PAD]")
    assert list(tmp_path.iterdir()) == []


def test_a_run_killed_as_it_wrote_its_first_file_is_no_foreign_directory(tmp_path):
    (tmp_path / ".config.yaml.tmp").write_text("enc")
    RunDirectory(tmp_path).create()


def test_a_terminal_that_is_gone_ends_no_training(directory, monkeypatch):
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())
    reporter = TrainingReporter(directory, 0, 8)
    report(reporter, 1, 2)
    reporter.close()
    assert lines(directory) == [1, 2]
