import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.corpus import count_records, open_data
from electra_tf.text.manifest import MANIFEST_FILE, Manifest


@pytest.fixture
def directory(tmp_path, write_data):
    return write_data(tmp_path / "set")


def refusal(directory, config) -> str:
    with pytest.raises(UserError) as caught:
        open_data(directory, config)
    message = str(caught.value)
    assert "\n" not in message
    return message


def authors_record(ids: list[int], length: int = 10) -> bytes:
    example = tf.train.Example()
    padding = [0] * (length - len(ids))
    for name, values in (
        ("input_ids", ids + padding),
        ("input_mask", [1] * len(ids) + padding),
        ("segment_ids", [0] * 3 + [1] * (len(ids) - 3) + padding),
    ):
        example.features.feature[name].int64_list.value.extend(values)
    return example.SerializeToString()


def write_records(path, serialized: list[bytes]) -> None:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in serialized:
            writer.write(record)


@pytest.fixture
def authors_directory(directory):
    """What the authors' builder leaves: numbered record files and no manifest; the vocabulary lies beside them."""
    for file in [*directory.glob("*.tfrecord"), directory / "manifest.json"]:
        file.unlink()
    write_records(
        directory / "pretrain_data.tfrecord-0-of-3", [authors_record([2, 7, 3, 8, 3]), authors_record([2, 9, 3])]
    )
    write_records(directory / "pretrain_data.tfrecord-1-of-3", [])
    write_records(directory / "pretrain_data.tfrecord-2-of-3", [authors_record([2, 10, 3, 11, 12, 3])])
    return directory


def test_a_data_set_gives_its_splits_and_its_vocabulary(directory, tiny_config):
    data = open_data(directory, tiny_config())
    assert data.train.num_examples == (5, 3, 4)
    assert data.train.total_examples == 12
    assert data.held_out.num_examples == (7,)
    assert [file.rsplit("/")[-1] for file in data.train.files][0] == "train-00000-of-00003.tfrecord"
    special = data.masking_vocabulary
    assert (special.cls_id, special.sep_id, special.mask_id, special.vocab_size) == (2, 3, 4, 47)


def test_a_data_set_without_held_out_documents_has_no_such_split(tmp_path, write_data, tiny_config):
    assert open_data(write_data(tmp_path / "set", held_out=()), tiny_config()).held_out is None


def test_an_empty_shard_is_left_out(tmp_path, write_data, tiny_config):
    assert open_data(write_data(tmp_path / "set", train=(2, 0, 1)), tiny_config()).train.num_examples == (2, 1)


def test_a_directory_that_is_not_there_is_refused(tmp_path, tiny_config):
    assert f"--data_dir={tmp_path / 'nothing'} is no directory" in refusal(tmp_path / "nothing", tiny_config())


def test_a_directory_without_data_is_refused(directory, tiny_config):
    (directory / "manifest.json").unlink()
    assert "holds neither manifest.json nor pretrain_data.tfrecord*" in refusal(directory, tiny_config())


def test_a_directory_without_vocabulary_is_refused(directory, tiny_config):
    (directory / "vocab.txt").unlink()
    assert "holds no vocab.txt; give the vocabulary with --set data.vocab_file=PATH" in refusal(
        directory, tiny_config()
    )


def test_a_vocabulary_without_mask_is_refused(directory, tiny_config):
    text = (directory / "vocab.txt").read_text().replace("[MASK]", "word")
    (directory / "vocab.txt").write_text(text)
    assert "lacks [MASK]" in refusal(directory, tiny_config())


def test_another_vocabulary_size_than_the_models_is_refused_with_both_sizes(directory, tiny_config):
    message = refusal(directory, tiny_config(encoder={"vocab_size": 53}))
    assert "has 47 entries, encoder.vocab_size is 53" in message
    assert "--set encoder.vocab_size=47" in message


def test_another_vocabulary_of_the_same_size_is_refused_with_both_hashes(directory, tiny_config, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text((directory / "vocab.txt").read_text().replace("w5", "v5"))
    message = refusal(directory, tiny_config(data={"vocab_file": str(other)}))
    assert "vocab_sha256" in message
    assert len(re.findall(r"\b[0-9a-f]{64}\b", message)) == 2


def test_another_sequence_length_is_refused_with_both_lengths(directory, tiny_config):
    message = refusal(directory, tiny_config(data={"max_seq_length": 9}))
    assert "max_seq_length 10" in message
    assert "the run has 9" in message


def test_a_missing_shard_is_named(directory, tiny_config):
    (directory / "train-00001-of-00003.tfrecord").unlink()
    message = refusal(directory, tiny_config())
    assert "train-00001-of-00003.tfrecord is in manifest.json but no file on disk" in message


def test_a_shard_cut_short_is_named_with_both_sizes(directory, tiny_config):
    shard = directory / "train-00002-of-00003.tfrecord"
    size = shard.stat().st_size
    shard.write_bytes(shard.read_bytes()[:-3])
    message = refusal(directory, tiny_config())
    assert f"train-00002-of-00003.tfrecord has {size - 3} bytes, manifest.json says {size}" in message


def test_a_held_out_split_without_examples_is_none(tmp_path, write_data, tiny_config):
    assert open_data(write_data(tmp_path / "set", held_out=(0,)), tiny_config()).held_out is None


def test_what_is_no_record_file_of_the_authors_is_named(authors_directory, tiny_config):
    damaged = sorted(authors_directory.glob("pretrain_data.tfrecord*"))[1]
    damaged.write_bytes(bytes(48))  # three frames of length 0 whose checksums are wrong
    assert f"{damaged} is no TFRecord file, or damaged" in refusal(authors_directory, tiny_config())


def test_a_data_set_without_training_examples_is_refused(tmp_path, write_data, tiny_config):
    assert "no examples to train on" in refusal(write_data(tmp_path / "set", train=()), tiny_config())


def test_records_of_the_authors_builder_are_read(authors_directory, tiny_config):
    data = open_data(authors_directory, tiny_config())
    assert data.train.num_examples == (2, 1)
    assert data.held_out is None
    assert data.lower_case and data.strip_accents
    batch = next(iter(tf.data.TFRecordDataset(data.train.files[0]).batch(2).map(data.train.parse)))
    assert batch["input_ids"].numpy().tolist() == [[2, 7, 3, 8, 3, 0, 0, 0, 0, 0], [2, 9, 3, 0, 0, 0, 0, 0, 0, 0]]
    assert batch["input_mask"].numpy().tolist() == [[1, 1, 1, 1, 1, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0, 0, 0, 0, 0]]
    assert batch["segment_ids"].numpy().tolist() == [[0, 0, 0, 1, 1, 0, 0, 0, 0, 0], [0] * 10]


def test_records_of_the_authors_builder_of_another_length_are_refused(authors_directory, tiny_config):
    message = refusal(authors_directory, tiny_config(data={"max_seq_length": 9}))
    assert "has sequences of length 10, data.max_seq_length is 9" in message


def test_record_files_without_a_record_are_refused(authors_directory, tiny_config):
    for file in authors_directory.glob("pretrain_data*"):
        file.write_bytes(b"")
    assert "none of its 3 record files holds an example" in refusal(authors_directory, tiny_config())


@pytest.mark.parametrize("records", [[], [b"x"], [b"", b"abc", b"y" * 1000]])
def test_records_are_counted(tmp_path, records):
    write_records(tmp_path / "file", records)
    assert count_records(str(tmp_path / "file"), "stop") == len(records)


# Two records of 16 + 3 and 16 + 5 bytes: cut inside the second's data, its checksum, its length, and the first.
@pytest.mark.parametrize(("size", "start"), [(39, 19), (33, 19), (22, 19), (18, 0), (5, 0)])
def test_a_file_that_ends_inside_a_record_is_refused_with_the_place(tmp_path, size, start):
    path = tmp_path / "file"
    write_records(path, [b"abc", b"defgh"])
    assert path.stat().st_size == 40
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(UserError, match=f"record {int(start > 0)} at byte {start}: the file ends inside it;"):
        count_records(str(path), "stop")


def copied_to_memory(directory) -> str:
    """The data set where TensorFlow alone can read it."""
    url = f"ram://{directory}"
    tf.io.gfile.makedirs(url)
    for file in directory.iterdir():
        tf.io.gfile.copy(str(file), f"{url}/{file.name}", overwrite=True)
    return url


def test_a_data_set_is_read_from_a_url(directory, tiny_config):
    url = copied_to_memory(directory)
    data = open_data(url, tiny_config())
    assert data.vocab_content == (directory / "vocab.txt").read_bytes()
    assert data.train.files[0] == f"{url}/train-00000-of-00003.tfrecord"
    assert len(list(tf.data.TFRecordDataset(data.train.files))) == 12


def test_records_of_the_authors_builder_are_read_from_a_url(authors_directory, tiny_config):
    data = open_data(copied_to_memory(authors_directory), tiny_config())
    assert data.train.num_examples == (2, 1)


def test_a_missing_shard_is_named_by_its_url(directory, tiny_config):
    (directory / "train-00001-of-00003.tfrecord").unlink()
    url = copied_to_memory(directory)
    assert f"{url}/train-00001-of-00003.tfrecord is in manifest.json but no file" in refusal(url, tiny_config())


def test_a_url_that_tensorflow_cannot_read_is_refused(tiny_config):
    assert "TensorFlow has no file system for s3://; copy the data set" in refusal("s3://bucket/set", tiny_config())


def test_copies_of_a_data_set_have_one_identity_and_other_sets_have_others(tiny_config, write_data, tmp_path):
    first = write_data(tmp_path / "first")
    copy = shutil.copytree(first, tmp_path / "copy")
    other = write_data(tmp_path / "other", train=(5, 3, 6))
    found = [open_data(directory, tiny_config()).identity for directory in (first, copy, other)]
    assert found[0] == found[1] != found[2]


def without_counts(directory):
    """Makes a data set one of the version before token counts."""
    old = Manifest.load(directory).model_copy(update={"schema_version": 2, "token_counts": None})
    (directory / MANIFEST_FILE).write_text(old.to_json())
    return directory


def test_the_counts_of_the_text_leave_out_what_examples_are_put_together_with(directory, tiny_config):
    data = open_data(directory, tiny_config())
    counts = data.text_token_counts("a test")
    assert data.token_counts[[2, 3]].tolist() == [12, 12]  # an example each
    assert counts[:5].tolist() == [0, 0, 0, 0, 0]
    assert np.array_equal(counts[5:], data.token_counts[5:]) and counts.sum() > 12


def test_the_vocabulary_tells_which_pieces_continue_a_word(tmp_path, write_data, tiny_config):
    assert not open_data(write_data(tmp_path / "words"), tiny_config()).special_ids.is_continuation.any()


def test_rare_tokens_cannot_be_told_in_data_without_counts(directory, tiny_config):
    assert open_data(without_counts(directory), tiny_config()).token_counts is None
    message = refusal(directory, tiny_config(masking={"strategy": "rare_tokens"}))
    assert "masking.strategy rare_tokens needs to know how frequent each token is" in message
    assert "build it anew" in message


def test_nor_in_records_of_the_authors(authors_directory, tiny_config):
    message = refusal(authors_directory, tiny_config(masking={"strategy": "rare_tokens"}))
    assert "masking.strategy rare_tokens needs to know how frequent each token is" in message
