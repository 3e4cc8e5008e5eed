"""What a command does with the work and the data set of an earlier one; see also `test_same_bytes`."""

import contextlib
import functools
import os
import shutil

import pytest

from data_prep import build as build_module
from data_prep import directory, inputs, processes
from data_prep.build import build
from electra_tf.config.errors import UserError
from electra_tf.data.manifest import seen_held_out_text
from tests.data_prep.reading import contents
from tests.data_prep.stopping import build_until, stop_at


@pytest.fixture
def settings(source_settings, tmp_path, monkeypatch):
    monkeypatch.setattr("data_prep.inputs._MIN_UNIT_BYTES", 400)
    return source_settings(tmp_path / "data")


def test_finished_work_is_not_repeated(settings, monkeypatch):
    build_until(settings, build_module, "write_shard_of_spills", 18)
    stop_at(monkeypatch, build_module, "write_unit", 1, AssertionError("a unit is done again"), after=True)
    stop_at(monkeypatch, build_module, "write_shard_of_spills", 4, AssertionError("a shard is done again"), after=True)
    build(settings)


def test_a_build_is_continued_with_any_number_of_processes(settings):
    build_until(settings, build_module, "write_unit", 3)
    units = sorted(settings.build_dir.glob("unit-*"))
    more = settings.model_copy(update={"num_processes": 4})
    found = inputs.BuildInputs.find(more)
    with directory.open_output(more, found.configuration(found.with_text_settings(more)), []):
        assert sorted(more.build_dir.glob("unit-*")) == units != []


@pytest.mark.parametrize("killed_at", ["write_unit", "write_shard_of_spills"])
def test_a_build_goes_on_without_a_removed_file_and_with_an_added_one(build_settings, tmp_path, monkeypatch, killed_at):
    monkeypatch.setattr("data_prep.inputs._MIN_UNIT_BYTES", 1)
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text(f"w{number} w{number}\n\nw{number} w7")
    settings = build_settings([f"text:{tmp_path}/*.txt"], tmp_path / "data")
    build_until(settings, build_module, killed_at, 3)
    (tmp_path / "1.txt").unlink()
    (tmp_path / "4.txt").write_text("w9")
    done, write_unit = [], build_module.write_unit
    with monkeypatch.context() as patch:
        patch.setattr(build_module, "write_unit", lambda task: [done.append(task[0]), write_unit(task)][1])
        build(settings)
    names = {part.file.name for unit in done for part in unit}
    assert "4.txt" in names and "0.txt" not in names
    shutil.copytree(tmp_path / "data", tmp_path / "continued")
    build(settings.model_copy(update={"overwrite": True}))
    assert contents(tmp_path / "data") == contents(tmp_path / "continued")


def test_the_same_command_does_not_build_a_finished_data_set_again(settings, monkeypatch):
    manifest = build(settings)
    stop_at(monkeypatch, build_module, "write_unit", 1, AssertionError("it is built again"), after=True)
    stop_at(monkeypatch, inputs, "sample_text", 1, AssertionError("its text is sampled again"), after=True)
    assert build(settings) == manifest


def test_an_error_after_the_manifest_leaves_the_data_set(two_documents):
    failure = UserError("damaged")
    build_until(two_documents, build_module, "log_summary", 1, failure=failure, after=False, match="damaged")
    assert build(two_documents).counts.num_documents == 2


def test_a_build_without_a_progress_bar_is_continued(two_documents, monkeypatch):
    monkeypatch.setattr(processes, "tqdm", functools.partial(processes.tqdm, disable=True))  # TQDM_DISABLE=1
    build_until(two_documents, build_module, "require_text", 1)
    assert build(two_documents).counts.num_documents == 2


@pytest.fixture
def two_documents(text_settings):
    return text_settings("w1 w2 w3\n\nw4 w5 w6")


@pytest.mark.parametrize(("seconds", "is_stale"), [(9, True), (-9, False)])
def test_an_input_that_was_written_after_the_data_set_is_named(two_documents, tmp_path, seconds, is_stale):
    build(two_documents)
    (tmp_path / "a.txt").write_text("w1 w2 w3\n\nw4 w5 w7")
    written = (tmp_path / "data/manifest.json").stat().st_mtime + seconds
    os.utime(tmp_path / "a.txt", (written, written))
    with pytest.raises(UserError, match="a data set older than .*a.txt") if is_stale else contextlib.nullcontext():
        build(two_documents)
    assert build(two_documents.model_copy(update={"overwrite": True})).token_counts[5 + 7] == 1


def test_a_data_set_of_another_readers_version_says_so(two_documents, monkeypatch, caplog):
    earlier = build(two_documents).hold_out
    monkeypatch.setattr("electra_tf.data.manifest.READER_VERSION", 99)
    build(two_documents)
    assert "of another version" in caplog.text
    later = build(two_documents.model_copy(update={"overwrite": True})).hold_out
    assert "reader_version" in seen_held_out_text([("a", earlier), ("b", {**later, "held_out_fraction": 0.1})])


@pytest.mark.slow
def test_a_finished_build_leaves_another_ones_work_in_the_work_dir(settings, source_settings, expected, tmp_path):
    done = settings.model_copy(update={"work_dir": str(tmp_path / "work")})
    build(done)
    other = source_settings(tmp_path / "other", work_dir=done.work_dir)
    build_until(other, build_module, "write_unit", 5)
    kept = sorted(other.build_dir.iterdir())
    for command in (done, done.model_copy(update={"overwrite": True})):
        build(command)
        assert sorted(other.build_dir.iterdir()) == kept
    build(other)
    assert contents(other.output_dir) == expected
