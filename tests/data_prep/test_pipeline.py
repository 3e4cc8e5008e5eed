import dataclasses
import hashlib
import json
import logging
import random

import numpy as np
import pytest
import tensorflow as tf

from data_prep import pipeline
from data_prep.hygiene import HygieneOptions
from data_prep.pipeline import build
from data_prep.readers.documents import ReaderOptions
from data_prep.settings import BuildSettings
from electra_tf.config.errors import UserError
from electra_tf.text.manifest import MANIFEST_FILE, Manifest, check_matches
from electra_tf.text.records import parse_examples
from electra_tf.text.vocabulary import Vocabulary

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
NUM_DOCUMENTS = 40


def word(document: int) -> str:
    """A word that stands in one document alone."""
    return f"w{document}"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Two text files, a wikiextractor file and a book; each document repeats a word of its own."""
    directory = tmp_path_factory.mktemp("source")
    (directory / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, *map(word, range(NUM_DOCUMENTS))]) + "\n")
    lengths = random.Random(0)
    documents = [
        [" ".join([word(i)] * lengths.randint(1, 9)) for _ in range(lengths.randint(1, 12))]
        for i in range(NUM_DOCUMENTS)
    ]
    (directory / "a.txt").write_text("\n\n".join("\n".join(lines) for lines in documents[:20]))
    (directory / "b.txt").write_text("\n\n".join("\n".join(lines) for lines in documents[20:25]))
    articles = [f'<doc id="{i}">\n' + "\n".join(lines) + "\n</doc>\n" for i, lines in enumerate(documents[25:39])]
    (directory / "wiki_00").write_text("".join(articles))
    (directory / "novel.txt").write_text("\n\n".join([*documents[39], "unknown"]))
    return directory


def settings(source, output_dir, **changes) -> BuildSettings:
    defaults = BuildSettings(
        inputs=(f"text:{source}/?.txt", f"wikiextractor:{source}/wiki_*", f"book:{source}/novel.txt"),
        vocab_file=str(source / "vocab.txt"),
        output_dir=str(output_dir),
        work_dir="",
        max_seq_length=16,
        seed=1,
        held_out_fraction=0.25,
        lower_case=True,
        strip_accents=True,
        sentences="line",
        language="en",
        reader=ReaderOptions(text_field="text", lines_per_document=3, keep_disambiguation_pages=False),
        hygiene=HygieneOptions(unicode_normalization="NFC", drop_control_characters=True, min_document_characters=0),
        drop_duplicates=True,
        num_shards=3,
        num_processes=1,
        allow_truncated=False,
        overwrite=False,
    )
    return dataclasses.replace(defaults, **changes)


@pytest.fixture(scope="module")
def data_dir(source, tmp_path_factory):
    output_dir = tmp_path_factory.mktemp("built") / "data"
    build(settings(source, output_dir))
    return output_dir


def contents(directory) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def examples(data_dir, split: str) -> dict[str, np.ndarray]:
    """All examples of a split as the trainer reads them, in one batch."""
    files = [str(data_dir / shard.file) for shard in Manifest.load(data_dir).splits[split].shards]
    serialized = list(tf.data.TFRecordDataset(files).as_numpy_iterator())
    return {name: values.numpy() for name, values in parse_examples(tf.constant(serialized), 16).items()}


def rows(data_dir, split: str) -> list[list[int]]:
    """The unpadded ids of all examples of a split."""
    batch = examples(data_dir, split)
    lengths = batch["input_mask"].sum(axis=1)
    return [row[:length].tolist() for row, length in zip(batch["input_ids"], lengths, strict=True)]


def words(data_dir, split: str) -> set[int]:
    """The ids of all words of a split; each stands for one document's text."""
    return {token for row in rows(data_dir, split) for token in row if token >= len(SPECIAL_TOKENS)}


def test_no_document_gives_examples_to_both_splits(data_dir):
    train, held_out = words(data_dir, "train"), words(data_dir, "held_out")
    assert train and held_out
    assert not train & held_out
    assert len(train | held_out) == NUM_DOCUMENTS


def test_a_file_and_its_copy_give_the_examples_of_one(data_dir, source, tmp_path):
    for name, of in ("aa", "bb", "ca", "db"):
        (tmp_path / f"{name}.txt").write_bytes((source / f"{of}.txt").read_bytes())
    inputs = (f"text:{tmp_path}/[ac].txt", f"text:{tmp_path}/[bd].txt", *settings(source, tmp_path).inputs[1:])
    manifest = build(settings(source, tmp_path / "data", inputs=inputs))
    assert manifest.counts.num_documents_duplicate == 25
    assert rows(tmp_path / "data", "train") == rows(data_dir, "train")


def test_kept_duplicates_are_in_the_same_split(source, tmp_path):
    for name in "cd":
        (tmp_path / f"{name}.txt").write_bytes((source / "a.txt").read_bytes())
    changes = {"inputs": (f"text:{tmp_path}/?.txt",), "held_out_fraction": 0.5, "drop_duplicates": False}
    manifest = build(settings(source, tmp_path / "data", **changes))
    assert (manifest.counts.num_documents, manifest.counts.num_documents_duplicate) == (40, 0)
    assert not words(tmp_path / "data", "train") & words(tmp_path / "data", "held_out")


def test_what_hygiene_leaves_out_is_counted(source, tmp_path):
    (tmp_path / "a.txt").write_text("w1 w2\u0007 w3\n\nw4\n\n\u200b\u200b\u200b\u200b\n")
    hygiene = HygieneOptions(unicode_normalization="NFC", drop_control_characters=True, min_document_characters=3)
    changes = {"inputs": (f"text:{tmp_path}/a.txt",), "hygiene": hygiene, "held_out_fraction": 0.0}
    counts = build(settings(source, tmp_path / "data", **changes)).counts
    assert (counts.num_documents_read, counts.num_documents, counts.num_documents_too_short) == (3, 1, 1)
    assert (counts.num_documents_without_tokens, counts.num_control_characters_dropped) == (1, 1)


def test_the_second_segment_begins_after_the_first_sep(data_dir):
    batch = examples(data_dir, "train")
    num_two_segments = 0
    for row, mask, segments in zip(batch["input_ids"], batch["input_mask"], batch["segment_ids"], strict=True):
        first_length = row.tolist().index(3) + 1
        num_second = mask.sum() - first_length
        assert segments.tolist() == [0] * first_length + [1] * num_second + [0] * (16 - mask.sum())
        num_two_segments += num_second > 0
    assert 0 < num_two_segments < len(batch["input_ids"])


def test_an_example_is_of_one_document_between_cls_and_sep(data_dir):
    for row in rows(data_dir, "train") + rows(data_dir, "held_out"):
        assert row[0] == 2 and row[-1] == 3 and len(row) <= 16
        assert len({token for token in row if token >= len(SPECIAL_TOKENS)}) <= 1


def test_the_manifest_counts_what_the_shards_hold(data_dir):
    manifest = Manifest.load(data_dir)
    assert manifest.counts.num_documents == NUM_DOCUMENTS
    assert manifest.counts.num_unknown_tokens == 1
    num_kept = 0
    for name, split in manifest.splits.items():
        ids = rows(data_dir, name)
        assert split.num_examples == len(ids) == sum(shard.num_examples for shard in split.shards)
        assert split.num_tokens == sum(map(len, ids))
        num_kept += sum(token not in (2, 3) for row in ids for token in row)
    assert manifest.counts.num_tokens_kept == num_kept <= manifest.counts.num_tokens_read
    assert sum(split.num_documents for split in manifest.splits.values()) == NUM_DOCUMENTS


def test_the_manifest_counts_each_vocabulary_entry_in_the_training_split(data_dir):
    manifest = Manifest.load(data_dir)
    ids = [token for row in rows(data_dir, "train") for token in row]
    assert list(manifest.token_counts) == np.bincount(ids, minlength=manifest.vocab_size).tolist()
    assert sum(manifest.token_counts) == manifest.splits["train"].num_tokens


def test_the_manifest_has_each_shards_size_and_checksum(data_dir):
    shards = [shard for split in Manifest.load(data_dir).splits.values() for shard in split.shards]
    found = {name: content for name, content in contents(data_dir).items() if name.endswith(".tfrecord")}
    assert {shard.file: (shard.num_bytes, shard.sha256) for shard in shards} == {
        name: (len(content), hashlib.sha256(content).hexdigest()) for name, content in found.items()
    }


def test_the_manifest_names_inputs_without_their_place_and_matches_its_vocabulary(data_dir, source):
    manifest = Manifest.load(data_dir)
    assert [(file.format, file.name) for file in manifest.inputs] == [
        ("text", "a.txt"),
        ("text", "b.txt"),
        ("wikiextractor", "wiki_00"),
        ("book", "novel.txt"),
    ]
    assert str(source) not in (data_dir / MANIFEST_FILE).read_text()
    check_matches(manifest, vocabulary=Vocabulary.load(data_dir / "vocab.txt"), max_seq_length=16)


def test_only_the_data_set_stays_in_the_directory(data_dir):
    assert sorted(contents(data_dir)) == [
        "held_out-00000-of-00001.tfrecord",
        "manifest.json",
        *(f"train-{i:05d}-of-00003.tfrecord" for i in range(3)),
        "vocab.txt",
    ]


def test_shuffling_mixes_the_documents(data_dir):
    first_words = [row[1] for row in rows(data_dir, "train")]
    neighbours = sum(a == b for a, b in zip(first_words, first_words[1:], strict=False))
    assert neighbours < len(first_words) / 4


@pytest.mark.parametrize("num_processes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_any_number_of_processes_gives_the_same_bytes(data_dir, source, tmp_path, monkeypatch, num_processes):
    monkeypatch.setattr(pipeline, "_MIN_UNIT_BYTES", 150)
    build(settings(source, tmp_path / "data", num_processes=num_processes))
    assert contents(tmp_path / "data") == contents(data_dir)


@pytest.mark.parametrize("unit_bytes", [1, 100, 700])
def test_the_division_into_work_units_leaves_no_trace(data_dir, source, tmp_path, monkeypatch, unit_bytes):
    monkeypatch.setattr(pipeline, "_MIN_UNIT_BYTES", unit_bytes)
    build(settings(source, tmp_path / "data"))
    assert contents(tmp_path / "data") == contents(data_dir)


def test_another_seed_gives_another_order_of_the_same_documents(data_dir, source, tmp_path):
    build(settings(source, tmp_path / "data", seed=2, held_out_fraction=0.0))
    assert {token for row in rows(tmp_path / "data", "train") for token in row} >= set(range(5, 5 + NUM_DOCUMENTS))
    assert rows(tmp_path / "data", "train") != rows(data_dir, "train")


def test_a_number_of_shards_does_not_change_the_order_of_the_examples(data_dir, source, tmp_path):
    build(settings(source, tmp_path / "data", num_shards=7))
    assert rows(tmp_path / "data", "train") == rows(data_dir, "train")


def test_nothing_held_out_is_warned_of_and_leaves_no_split(source, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        manifest = build(settings(source, tmp_path / "data", held_out_fraction=1e-9))
    assert "none of 40 documents was held out" in caplog.text
    assert list(manifest.splits) == ["train"]
    assert not list((tmp_path / "data").glob("held_out*"))


def test_everything_held_out_is_a_user_error(source, tmp_path):
    with pytest.raises(UserError, match="all 40 documents were held out"):
        build(settings(source, tmp_path / "data", held_out_fraction=1 - 1e-12))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"held_out_fraction": 1.0}, r"held_out_fraction=1.0; expected a fraction in \[0, 1\)"),
        ({"held_out_fraction": -0.1}, "held_out_fraction=-0.1"),
        ({"held_out_fraction": float("nan")}, "held_out_fraction=nan"),
        ({"max_seq_length": 7}, "max_seq_length=7; expected at least 8"),
        ({"num_processes": 0}, "num_processes=0; expected at least 1"),
        ({"num_shards": -1}, "num_shards=-1; expected at least 0"),
    ],
)
def test_a_setting_out_of_range_is_a_user_error_that_names_it(source, tmp_path, change, complaint):
    with pytest.raises(UserError, match=complaint):
        settings(source, tmp_path, **change)


def test_a_remote_directory_needs_a_local_one_for_intermediate_files(source):
    with pytest.raises(UserError, match="output_dir=gs://bucket/data needs --work_dir=DIRECTORY, a local one"):
        build(settings(source, "gs://bucket/data"))


def test_a_directory_with_something_in_it_is_refused_untouched(source, tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(UserError, match="is not empty; .*--overwrite"):
        build(settings(source, tmp_path))
    assert contents(tmp_path) == {"mine.txt": b"keep"}


def test_overwriting_replaces_the_data_set_and_spares_other_files(data_dir, source, tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    (tmp_path / "train-00008-of-00009.tfrecord").write_text("of an earlier build")
    build(settings(source, tmp_path, overwrite=True))
    assert contents(tmp_path) == {**contents(data_dir), "mine.txt": b"keep"}


def test_overwriting_refuses_to_remove_the_vocabulary_it_reads(data_dir, source, tmp_path):
    for name, content in contents(data_dir).items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match="vocab.txt is to be read, and the build would remove it"):
        build(settings(source, tmp_path, vocab_file=str(tmp_path / "vocab.txt"), overwrite=True))
    assert contents(tmp_path) == contents(data_dir)


def test_a_build_that_fails_leaves_nothing_behind(source, tmp_path):
    (tmp_path / "bad.txt").write_bytes(b"fine\n\nna\xefve")
    with pytest.raises(UserError, match="bad.txt is not UTF-8: byte 0xef at offset 8"):
        build(settings(source, tmp_path / "data", inputs=(f"text:{source}/a.txt", f"text:{tmp_path}/bad.txt")))
    assert contents(tmp_path / "data") == {}


def test_an_error_in_another_process_is_the_same_user_error(source, tmp_path):
    (tmp_path / "bad.txt").write_bytes(b"na\xefve")
    with pytest.raises(UserError, match="bad.txt is not UTF-8: byte 0xef at offset 2"):
        build(settings(source, tmp_path / "data", inputs=(f"text:{tmp_path}/bad.txt",), num_processes=2))


def test_text_without_a_word_is_a_user_error(source, tmp_path):
    (tmp_path / "blank.txt").write_text("\n \n\u200b")
    with pytest.raises(UserError, match="no document is left of 6 bytes of input: 1 without a token; give files"):
        build(settings(source, tmp_path / "data", inputs=(f"text:{tmp_path}/blank.txt",)))


def test_a_manifest_is_plain_json(data_dir):
    assert json.loads((data_dir / MANIFEST_FILE).read_text())["max_seq_length"] == 16
