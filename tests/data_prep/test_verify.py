"""--verify: whatever happens to a finished data set is found, and the file it happened to is named."""

import json
import os
import shutil

import pytest
import tensorflow as tf

from data_prep import storage
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


def rewrite_manifest(data_dir, change):
    """A manifest that is whole in itself and says something else."""
    fields = Manifest.load(data_dir).model_dump(mode="json")
    change(fields)
    (data_dir / "manifest.json").write_text(Manifest.model_validate_json(json.dumps(fields)).to_json())


def test_a_data_set_at_a_url_passes_and_is_read_from_there(data_dir):
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


def test_a_shard_that_no_one_wrote_is_found(data_dir):
    shutil.copy(data_dir / SHARD, data_dir / "train-00002-of-00002.tfrecord")
    with pytest.raises(UserError, match="train-00002-of-00002.tfrecord is not in the manifest"):
        verify(str(data_dir))


def test_a_count_that_is_not_that_of_the_records_is_found(data_dir):
    def one_more(fields):
        fields["splits"]["train"]["num_tokens"] += 1

    rewrite_manifest(data_dir, one_more)
    with pytest.raises(UserError, match=r"the split train holds (\d+) tokens, expected (\d+)"):
        verify(str(data_dir))


def test_token_counts_that_are_not_those_of_the_records_are_found(data_dir):
    def one_word_for_another(fields):
        fields["token_counts"][5] += 1
        fields["token_counts"][6] -= 1

    rewrite_manifest(data_dir, one_word_for_another)
    with pytest.raises(UserError, match="the split train holds other tokens than the manifest's token_counts"):
        verify(str(data_dir))


def test_a_data_set_of_the_version_before_token_counts_passes(data_dir):
    def without_counts(fields):
        fields |= {"schema_version": 2, "token_counts": None}

    rewrite_manifest(data_dir, without_counts)
    assert verify(str(data_dir)).token_counts is None


def test_documents_that_do_not_add_up_are_found(data_dir):
    def one_more(fields):
        fields["splits"]["train"]["num_documents"] += 1

    rewrite_manifest(data_dir, one_more)
    with pytest.raises(UserError, match="the manifest's splits hold 30 documents, expected 29"):
        verify(str(data_dir))


def test_a_shard_with_a_record_more_than_its_manifest_says_is_found(data_dir):
    num_examples = sum(1 for _ in tf.data.TFRecordDataset(str(data_dir / SHARD)))

    def one_less(fields):
        fields["splits"]["train"]["shards"][1]["num_examples"] -= 1

    rewrite_manifest(data_dir, one_less)
    with pytest.raises(UserError, match=f"{SHARD} holds {num_examples} examples, expected {num_examples - 1}"):
        verify(str(data_dir))
