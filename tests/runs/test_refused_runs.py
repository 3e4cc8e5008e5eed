"""Runs and evaluations that are refused before the first step: for their directory, their batches or their data."""

import shutil

import pytest

from electra_tf.config.errors import UserError
from electra_tf.runs.directory import RunDirectory
from electra_tf.runs.loop import Run, evaluate, pretrain


def test_a_foreign_directory_that_is_not_empty_is_refused_and_left_alone(config, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="is not empty and holds no run"):
        RunDirectory(tmp_path).create()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_url_is_refused_and_not_taken_for_a_local_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"--model_dir=gs://bucket/run is a URL"):
        RunDirectory("gs://bucket/run").create()
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_the_directory_is_refused(config, tmp_path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(UserError, match="is a file"):
        RunDirectory(tmp_path / "run").create()


@pytest.mark.parametrize("size", ["train", "evaluation"])
def test_a_batch_that_does_not_divide_among_the_replicas_is_refused(tiny_config, two_replicas, tmp_path, size):
    config = tiny_config(**{size: {"batch_size": 7}})
    with pytest.raises(UserError, match=rf"{size}\.batch_size is 7, .* 2 replicas; give --set {size}\.batch_size=6"):
        Run(config, RunDirectory(tmp_path / "run"), two_replicas)


def test_a_flipped_byte_in_a_shard_is_one_line(config, run_of, data_dir, tmp_path):
    copy = shutil.copytree(data_dir, tmp_path / "set")
    for shard in copy.glob("train-*"):
        content = bytearray(shard.read_bytes())
        content[20] ^= 255
        shard.write_bytes(content)
    with pytest.raises(UserError, match=r"train-.*: record 0 at byte 0: its checksum does not match its content"):
        pretrain(run_of(config, tmp_path / "run"), [copy])


def test_evaluating_without_a_checkpoint_is_refused(config, run_of, data_dir, tmp_path):
    with pytest.raises(UserError, match="holds no checkpoint to evaluate"):
        evaluate(run_of(config, tmp_path / "run"), [data_dir])


def test_evaluating_without_held_out_documents_is_refused(config, run_of, write_data, tmp_path):
    data_dir = write_data(tmp_path / "set", held_out=())
    with pytest.raises(UserError, match="has no held-out split"):
        evaluate(run_of(config, tmp_path / "run"), [data_dir])
