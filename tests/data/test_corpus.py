import contextlib
import dataclasses
import hashlib
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.corpus import open_data
from electra_tf.data.manifest import Manifest
from electra_tf.data.mixture import open_mixture
from electra_tf.data.pretraining_input import training_batches
from electra_tf.text.vocabulary import BERT_TEXT
from tests.data.test_records import fixed_length_record
from tests.toy import VOCABULARY


@pytest.fixture
def directory(tmp_path, write_data):
    return write_data(tmp_path / "set")


def refusal(directory, config) -> str:
    with pytest.raises(UserError) as caught:
        open_data(directory, config)
    message = str(caught.value)
    assert "\n" not in message
    return message


def authors_record(ids: list[int], **others: list[int]) -> bytes:
    padding, segments = [0] * (10 - len(ids)), [0] * 3 + [1] * (len(ids) - 3)
    rows = {"input_ids": ids, "input_mask": [1] * len(ids), "segment_ids": segments}
    return fixed_length_record(**{name: values + padding for name, values in rows.items()}, **others)


def write_shard(directory: Path, number: int, *records: bytes) -> None:
    with tf.io.TFRecordWriter(str(directory / f"pretrain_data.tfrecord-{number}-of-2")) as writer:
        for record in records:
            writer.write(record)


@pytest.fixture
def authors_directory(directory):
    """The output of the authors' builder, numbered record files without a manifest, and a vocabulary."""
    for file in [*directory.glob("*.tfrecord"), directory / "manifest.json"]:
        file.unlink()
    write_shard(directory, 0, authors_record([2, 7, 3, 8, 3]), authors_record([2, 9, 3]))
    write_shard(directory, 1, authors_record([2, 10, 3, 11, 12, 3]))
    return directory


def copied_to_memory(directory: Path) -> str:
    """Copies the data set to a file system that only TensorFlow can read."""
    url = f"ram://{directory}"
    tf.io.gfile.makedirs(url)
    for file in directory.iterdir():
        tf.io.gfile.copy(str(file), f"{url}/{file.name}", overwrite=True)
    return url


def test_a_data_set_gives_its_splits_and_its_vocabulary(directory, tiny_config):
    data = open_data(directory, tiny_config())
    assert data.train.num_examples == (5, 3, 4)
    assert data.train.total_examples == 12
    assert data.held_out.num_examples == (7,)
    assert data.train.files[0] == str(directory / "train-00000-of-00003.tfrecord")
    vocabulary = data.masking_vocabulary
    assert (vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id, vocabulary.vocab_size) == (2, 3, 4, 47)
    assert not vocabulary.is_continuation.any()


def test_unigram_losses_come_from_the_token_counts(directory, tiny_config):
    data = open_data(directory, tiny_config())
    assert dataclasses.replace(data, token_counts=None).masking_vocabulary.unigram_losses is None
    counts = np.zeros(47, np.int64)
    # [CLS] and [SEP] belong to the examples; of the text a quarter is token 7, three quarters are token 9.
    counts[[2, 3, 7, 9]] = 50, 60, 100, 300
    losses = dataclasses.replace(data, token_counts=counts).masking_vocabulary.unigram_losses
    assert losses[[7, 9, 8]] == pytest.approx([math.log(4), math.log(4 / 3), math.log(400)])  # 8: as if seen once


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("vocab.txt", None, ["holds no vocab.txt or spm.model or tokenizer.json"]),
        ("train-00001-of-00003.tfrecord", None, ["train-00001-of-00003.tfrecord"]),
        ("train-00002-of-00003.tfrecord", b"7 bytes", ["train-00002-of-00003.tfrecord has 7 bytes", "json has 282"]),
    ],
)
def test_a_missing_file_and_a_shard_cut_short_are_named(directory, tiny_config, name, content, named):
    (directory / name).unlink()
    if content:
        (directory / name).write_bytes(content)
    message = refusal(directory, tiny_config())
    assert all(part in message for part in [*named, str(directory)])


@pytest.mark.parametrize(
    ("vocabulary", "changes", "named"),
    [
        (VOCABULARY, {"encoder": {"vocab_size": 46}}, "47 entries, encoder.vocab_size is 46; give encoder.vocab_size="),
        (VOCABULARY + b"new\n", {"encoder": {"vocab_size": 48}}, "has vocab_size 47, the run has 48"),
        (VOCABULARY.upper(), {}, f"has vocab_sha256 {hashlib.sha256(VOCABULARY).hexdigest()}, the run has "),
        (VOCABULARY, {"data": {"max_seq_length": 9}}, "has max_seq_length 10, the run has 9"),
    ],
)
def test_a_mismatch_of_run_and_data_set_is_refused_with_both_values(directory, tiny_config, vocabulary, changes, named):
    (directory / "vocab.txt").write_bytes(vocabulary)
    assert named in refusal(directory, tiny_config(**changes))


@pytest.mark.parametrize("num_rows", [47, 48])
def test_a_word_table_may_have_more_rows_than_the_vocabulary_tokens(directory, tiny_config, caplog, num_rows):
    data = open_data(directory, tiny_config(encoder={"vocab_size": num_rows}))
    assert data.masking_vocabulary.vocab_size == len(data.token_counts) == 47
    assert [f"is {num_rows}: rows" in caplog.text, "encoder.vocab_size=47" in caplog.text] == [num_rows > 47] * 2


def test_records_of_the_authors_builder_are_read(authors_directory, tiny_config):
    data = open_data(copied_to_memory(authors_directory), tiny_config())
    assert data.train.num_examples == (2, 1)
    assert data.held_out is None
    assert data.tokenizer.settings == BERT_TEXT
    batch = next(iter(tf.data.TFRecordDataset(data.train.files[0]).batch(2).map(data.train.parse)))
    assert batch["input_ids"].numpy().tolist() == [[2, 7, 3, 8, 3, 0, 0, 0, 0, 0], [2, 9, 3, 0, 0, 0, 0, 0, 0, 0]]
    assert batch["input_mask"].numpy().tolist() == [[1, 1, 1, 1, 1, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0, 0, 0, 0, 0]]
    assert batch["segment_ids"].numpy().tolist() == [[0, 0, 0, 1, 1, 0, 0, 0, 0, 0], [0] * 10]


def test_rare_tokens_cannot_be_masked_in_records_without_counts(authors_directory, tiny_config):
    message = refusal(authors_directory, tiny_config(masking={"scheme": "rare_tokens"}))
    assert "masking.scheme rare_tokens" in message and str(authors_directory) in message


def test_records_of_two_layouts_do_not_mix(authors_directory, tmp_path, write_data, tiny_config):
    ours = write_data(tmp_path / "ours")
    with pytest.raises(
        UserError, match=f"{ours}/train-00000-of-00003.tfrecord has another layout than {authors_directory}"
    ):
        open_mixture({authors_directory: 1, ours: 2}, tiny_config())
    copy = shutil.copytree(authors_directory, tmp_path / "copy")
    mixed = open_mixture({authors_directory: 1, copy: 2}, tiny_config())
    assert mixed.token_counts is None and mixed.train.num_examples == (2, 1, 2, 1)


def test_the_authors_data_is_identified_by_the_numbers_of_its_examples(authors_directory, tiny_config):
    before = open_data(authors_directory, tiny_config()).data_hash
    write_shard(authors_directory, 1, authors_record([2, 13, 3]), authors_record([2, 14, 3]))
    assert open_data(authors_directory, tiny_config()).data_hash != before


@pytest.mark.parametrize(
    ("removed", "added", "named"),
    [
        ("1-of-2", {}, "missing (pretrain_data.tfrecord-1-of-2)"),
        ("", {"1-of-2_.gstmp": b""}, "surplus (pretrain_data.tfrecord-1-of-2_.gstmp)"),
        ("", {"01-of-2": b""}, "surplus (pretrain_data.tfrecord-1-of-2)"),
        ("", {"2-of-3": b""}, "missing (pretrain_data.tfrecord-0-of-3, "),
        ("", {"": b""}, "surplus (pretrain_data.tfrecord-)"),
    ],
)
def test_missing_and_surplus_shards_of_the_authors_are_named(authors_directory, tiny_config, removed, added, named):
    if removed:
        (authors_directory / f"pretrain_data.tfrecord-{removed}").unlink()
    for name, content in added.items():
        (authors_directory / f"pretrain_data.tfrecord-{name}").write_bytes(content)
    assert named in refusal(authors_directory, tiny_config())


def test_shards_that_the_authors_builder_leaves_empty_are_named(authors_directory, tiny_config, caplog):
    write_shard(authors_directory, 1)
    assert open_data(authors_directory, tiny_config()).train.num_examples == (2,)
    assert "pretrain_data.tfrecord-1-of-2" in caplog.messages[-1]


@pytest.mark.parametrize(
    ("record", "named"),
    [
        (authors_record([2, 7, 3], masked_lm_positions=[1]), "masked_lm_positions"),
        (authors_record([2, 4, 3], labels=[1]), "[MASK]"),
    ],
)
def test_records_that_are_masked_already_are_refused(authors_directory, tiny_config, record, named):
    write_shard(authors_directory, 0, record)
    message = refusal(authors_directory, tiny_config())
    assert named in message and "pretrain_data.tfrecord-0-of-2" in message


def test_a_remote_copy_gives_the_same_batches_as_the_local_data_set(directory, tiny_config, write_data, tmp_path):
    config, url = tiny_config(), copied_to_memory(directory)
    local, remote = open_data(directory, config), open_data(url, config)
    other = open_data(write_data(tmp_path / "other", train=(5, 3, 6)), config)
    assert remote.train.files[0] == f"{url}/train-00000-of-00003.tfrecord"
    assert remote.data_hash == local.data_hash != other.data_hash
    settings = {"seed": 3, "batch_size": 4, "first_step": 2, "num_steps": 8}
    batches = [training_batches(data, config.masking, **settings) for data in (local, remote)]
    first, second = (next(batch.as_numpy_iterator()) for batch in batches)
    assert all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(("num_continuations", "is_refused"), [(300, False), (310, True)])
def test_whole_word_refuses_text_whose_words_are_clauses(directory, tiny_config, num_continuations, is_refused):
    content = VOCABULARY.replace(b"w6\n", b"##w6\n")
    (directory / "vocab.txt").write_bytes(content)
    counts = np.zeros(47, np.int64)
    counts[[2, 3, 5, 6]] = 50, 60, 100, num_continuations  # tokens for each word: 4, or 4.1
    changes = {"vocab_sha256": hashlib.sha256(content).hexdigest(), "token_counts": tuple(counts.tolist())}
    manifest = Manifest.load(directory).model_copy(update=changes)
    (directory / "manifest.json").write_text(manifest.to_json())
    assert open_data(directory, tiny_config()).tokens_per_word == 1 + num_continuations / 100
    named = f"masking.scheme.*{directory}.* 4.1 tokens"
    with pytest.raises(UserError, match=named) if is_refused else contextlib.nullcontext():
        open_data(directory, tiny_config(masking={"scheme": "whole_word"}))
