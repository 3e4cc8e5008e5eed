"""--verify: every change of a finished data set is an error that names the file."""

import json
import os
import shutil

import pytest
from tqdm import tqdm

from data_prep import storage
from data_prep import verify as verify_module
from data_prep.pipeline import build
from data_prep.verify import verify
from electra_tf.config.errors import UserError
from electra_tf.text.manifest import Manifest

SHARD = "train-00001-of-00002.tfrecord"


@pytest.fixture(scope="module")
def built(build_settings, tmp_path_factory):
    directory = tmp_path_factory.mktemp("verify")
    (directory / "a.txt").write_text("\n\n".join(f"w{i} w{i} w{i + 1}\nw{i}" for i in range(29)))
    build(build_settings([f"text:{directory}/a.txt"], directory / "data", held_out_fraction=0.2, num_shards=2))
    return directory / "data"


@pytest.fixture
def data_dir(built, tmp_path):
    return shutil.copytree(built, tmp_path / "data")


def test_a_data_set_at_a_url_is_verified(data_dir):
    url = "memory://verify/data"
    for path in data_dir.iterdir():
        storage.write_bytes(os.path.join(url, path.name), path.read_bytes())
    assert verify(url) == verify(str(data_dir))
    storage.remove(os.path.join(url, SHARD))
    with pytest.raises(UserError, match=f"{SHARD} cannot be read"):
        verify(url)


def test_every_damaged_file_is_named(data_dir):
    for name in (SHARD, "held_out-00000-of-00001.tfrecord", "vocab.txt"):
        (data_dir / name).write_bytes(b"other")
    with pytest.raises(UserError) as error:
        verify(str(data_dir))
    assert all(name in str(error.value) for name in (SHARD, "held_out-00000-of-00001.tfrecord", "vocab.txt"))
    assert "\n" not in str(error.value)


def test_a_shard_that_is_not_in_the_manifest_is_named(data_dir):
    shutil.copy(data_dir / SHARD, data_dir / "train-00002-of-00002.tfrecord")
    with pytest.raises(UserError, match="train-00002-of-00002.tfrecord is not in the manifest"):
        verify(str(data_dir))


def with_one_more(*path):
    """Returns a function that adds 1 to an entry of a manifest's JSON."""

    def change(fields):
        *parents, last = path
        for name in parents:
            fields = fields[name]
        fields[last] += 1

    return change


def with_one_word_for_another(fields):
    fields["token_counts"][5] += 1
    fields["token_counts"][6] -= 1


def rewrite_manifest(data_dir, change):
    """Changes fields of the manifest and writes it with the checksum of the changed fields."""
    fields = Manifest.load(data_dir).model_dump(mode="json")
    change(fields)
    (data_dir / "manifest.json").write_text(Manifest.model_validate_json(json.dumps(fields)).to_json())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (with_one_more("splits", "train", "num_tokens"), r"the split train holds (\d+) tokens, expected (\d+)"),
        (with_one_word_for_another, "the split train .* token_counts"),
        (with_one_more("splits", "train", "num_documents"), "the manifest's splits hold 30 documents, expected 29"),
        (with_one_more("splits", "train", "shards", 1, "num_examples"), rf"{SHARD} holds \d+ examples"),
    ],
)
def test_a_manifest_with_wrong_numbers_is_an_error_with_the_numbers(data_dir, change, complaint):
    rewrite_manifest(data_dir, change)
    with pytest.raises(UserError, match=complaint):
        verify(str(data_dir))


def test_in_a_log_the_progress_bar_ends_its_line_before_an_error(data_dir, monkeypatch, capsys):
    def fail(path, vocab_size):
        raise OSError("no space left")

    monkeypatch.setattr(verify_module, "count_tokens", fail)
    monkeypatch.setattr(verify_module, "tqdm", lambda shards, **options: tqdm(shards, **{**options, "delay": 0}))
    with pytest.raises(OSError, match="no space left"):
        verify(str(data_dir))
    printed = capsys.readouterr().err
    assert "0/2" in printed and printed.endswith("\n")
