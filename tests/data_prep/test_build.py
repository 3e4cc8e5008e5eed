import bz2

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from data_prep.build import build
from electra_tf.config.errors import UserError
from electra_tf.data.manifest import MANIFEST_FILE, Manifest, check_matches
from electra_tf.data.records import parse_examples
from electra_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary

NUM_DOCUMENTS = 40


@pytest.fixture(scope="module")
def source(tmp_path_factory, one_word_documents):
    """Two text files, a wikiextractor file and a book. Each document repeats a word that no other has."""
    directory = tmp_path_factory.mktemp("source")
    documents = one_word_documents(NUM_DOCUMENTS)
    (directory / "a.txt").write_text("\n\n".join(documents[:20]))
    (directory / "b.txt").write_text("\n\n".join(documents[20:25]))
    (directory / "wiki_00").write_text("".join(f'<doc id="1">\n{text}\n</doc>\n' for text in documents[25:39]))
    (directory / "novel.txt").write_text(documents[39].replace("\n", "\n\n") + "\n\nunknown")
    return directory


@pytest.fixture(scope="module")
def settings(source, build_settings):
    inputs = (f"text:{source}/?.txt", f"wikiextractor:{source}/wiki_*", f"book:{source}/novel.txt")
    return lambda output_dir, **changes: build_settings(changes.pop("inputs", inputs), output_dir, **changes)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory, settings):
    output_dir = tmp_path_factory.mktemp("built") / "data"
    build(settings(output_dir))
    return output_dir


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
    """The ids of all words of a split; each document has one word of its own."""
    return {token for row in rows(data_dir, split) for token in row if token >= 5}


def test_no_document_gives_examples_to_both_splits(data_dir):
    train, held_out = words(data_dir, "train"), words(data_dir, "held_out")
    assert train and held_out
    assert not train & held_out
    assert len(train | held_out) == NUM_DOCUMENTS


def test_a_raw_dump_and_a_parquet_file_become_tfrecords(tmp_path, build_settings):
    page = "<page><title>{}</title><ns>{}</ns><revision><text>{}</text></revision></page>\n"
    pages = page.format("w1", 0, "w2 [[w3|w4]]\n== w5 ==\n* w6 {{lang|fr|w7}}") + page.format("Talk:w1", 1, "w8")
    (tmp_path / "dump.xml.bz2").write_bytes(bz2.compress(f"<mediawiki>\n{pages}</mediawiki>\n".encode()))
    pq.write_table(pa.table({"body": ["w9 w10\n\nw11", None, "w12"]}), tmp_path / "rows.parquet")
    inputs = [f"{tmp_path}/dump*", f"{tmp_path}/*.parquet"]  # the formats are detected
    manifest = build(build_settings(inputs, tmp_path / "data", held_out_fraction=0.0, text_field="body"))
    texts = [[token - 5 for token in row if token >= 5] for row in rows(tmp_path / "data", "train")]
    assert sorted(texts) == [[1, 2, 4, 5, 6, 7], [9, 10, 11], [12]]
    skipped = {"pages outside the article namespace": 1, "rows without text": 1}
    assert manifest.counts.num_documents_skipped == skipped


def test_a_copy_of_a_file_is_dropped_or_kept_in_the_same_split(data_dir, source, tmp_path, settings):
    for name, of in ("aa", "bb", "ca", "db"):
        (tmp_path / f"{name}.txt").write_bytes((source / f"{of}.txt").read_bytes())
    inputs = [f"text:{tmp_path}/[ac].txt", f"text:{tmp_path}/[bd].txt", *settings(tmp_path).inputs[1:]]
    manifest = build(settings(tmp_path / "data", inputs=inputs))
    assert manifest.counts.num_documents_duplicate == 25
    assert rows(tmp_path / "data", "train") == rows(data_dir, "train")
    manifest = build(settings(tmp_path / "kept", inputs=inputs, drop_duplicates=False))
    assert (manifest.counts.num_documents, manifest.counts.num_documents_duplicate) == (NUM_DOCUMENTS + 25, 0)
    assert not words(tmp_path / "kept", "train") & words(tmp_path / "kept", "held_out")


@pytest.mark.parametrize(("drop_duplicates", "num_documents"), [(True, 1), (False, 3)])
def test_the_order_of_the_inputs_does_not_matter_where_equal_lines_are_cut_in_two_ways(
    tmp_path, settings, drop_duplicates, num_documents
):
    # The lines of `text` are sentences, those of a wiki article are paragraphs. The borders of A and B differ.
    text = "\n".join(" ".join([f"W{i} w{i + 1} w{i}."] * 5) for i in range(9))
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "wiki_00").write_text(f'<doc id="1">\n{text}\n</doc>\n' * 2)
    inputs = [f"text:{tmp_path}/a.txt", f"wikiextractor:{tmp_path}/wiki_00"]
    changes = {"drop_duplicates": drop_duplicates, "held_out_fraction": 0.0, "sentences": "auto"}
    one, other = (
        build(settings(tmp_path / name, inputs=ordered, **changes))
        for name, ordered in (("one", inputs), ("other", inputs[::-1]))
    )
    assert one.splits == other.splits and one.splits["train"].num_documents == num_documents
    assert one.counts.num_documents_duplicate == 3 - num_documents
    assert one.counts.num_tokens_kept == num_documents * one.counts.num_tokens_read / 3


def test_documents_that_cleaning_drops_are_counted(tmp_path, settings):
    (tmp_path / "a.txt").write_text("w1 w2\u0007 w3\n\nw4\n\n\u200b\u200b\u200b\u200b\n")
    changes = {"inputs": [f"text:{tmp_path}/a.txt"], "min_document_characters": 3, "held_out_fraction": 0.0}
    counts = build(settings(tmp_path / "data", **changes)).counts
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


def test_the_counts_of_the_manifest_agree_with_the_shards(data_dir):
    manifest = Manifest.load(data_dir)
    assert manifest.counts.num_documents == NUM_DOCUMENTS
    assert manifest.counts.num_unknown_tokens == 1
    num_kept = 0
    for name, split in manifest.splits.items():
        ids = rows(data_dir, name)
        assert split.num_examples == len(ids) == sum(shard.num_examples for shard in split.shards)
        assert split.num_tokens == sum(map(len, ids))
        num_kept += sum(token not in (2, 3) for row in ids for token in row)
    assert manifest.counts.num_tokens_kept == manifest.counts.num_tokens_read == num_kept
    assert manifest.counts.num_tokens_dropped == 0
    assert sum(split.num_documents for split in manifest.splits.values()) == NUM_DOCUMENTS
    ids = [token for row in rows(data_dir, "train") for token in row]
    assert list(manifest.token_counts) == np.bincount(ids, minlength=manifest.vocab_size).tolist()
    assert sum(manifest.token_counts) == manifest.splits["train"].num_tokens


def test_the_manifest_names_inputs_without_their_directory_and_matches_its_vocabulary(data_dir, source):
    manifest = Manifest.load(data_dir)
    inputs = [("text", "a.txt"), ("text", "b.txt"), ("wikiextractor", "wiki_00"), ("book", "novel.txt")]
    assert [(file.format, file.name) for file in manifest.inputs] == inputs
    assert str(source) not in (data_dir / MANIFEST_FILE).read_text()
    check_matches(manifest, vocabulary=Vocabulary.load(data_dir / "vocab.txt"), max_seq_length=16)


@pytest.mark.parametrize(("unit_bytes", "num_processes"), [(1, 1), (100, 1), (150, 2), (700, 1)])
def test_any_size_of_units_and_number_of_processes_gives_the_same_bytes(
    data_dir, tmp_path, monkeypatch, settings, unit_bytes, num_processes, contents
):
    monkeypatch.setattr("data_prep.inputs._MIN_UNIT_BYTES", unit_bytes)
    monkeypatch.setattr("data_prep.store._RUN_BYTES", unit_bytes)
    build(settings(tmp_path / "data", num_processes=num_processes))
    assert contents(tmp_path / "data") == contents(data_dir)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_document_characters": 1000}, "min_document_characters=1000"),
        ({"held_out_fraction": 0.999_999}, "held_out_fraction=0.999999"),
        ({"output_dir": "gs://bucket/data"}, "output_dir=gs://bucket/data needs work_dir"),
        ({"work_dir": "gs://bucket"}, "needs work_dir=DIRECTORY, a local directory"),
    ],
)
def test_settings_that_give_no_data_set_are_refused_and_nothing_is_written(tmp_path, settings, changes, message):
    with pytest.raises(UserError, match=message):
        build(settings(tmp_path / "data").model_copy(update=changes))
    assert not (tmp_path / "data").exists() or list((tmp_path / "data").iterdir()) == []


def test_a_data_set_of_other_settings_is_refused_with_the_difference(data_dir, settings):
    with pytest.raises(UserError, match="another examples"):
        build(settings(data_dir, examples="authors"))


@pytest.fixture
def long_line_settings(tmp_path, settings):
    """`(n)`: settings for two documents with one line each, of n and 2 tokens, of which 14 and 2 fit into examples."""

    def make(num_tokens: int, **more):
        (tmp_path / "a.txt").write_text(" ".join(f"w{i % 7}" for i in range(num_tokens)) + "\n\nw8 w9\n")
        changes = {"inputs": [f"text:{tmp_path}/a.txt"], "held_out_fraction": 0.0}
        return settings(tmp_path / "data", **changes, **more)

    return make


def test_a_line_longer_than_an_example_is_kept_or_with_the_authors_rule_cut(long_line_settings, caplog):
    with caplog.at_level("INFO"):
        build(long_line_settings(30, examples="authors"))
    assert "(50 %) that exceeded an example; examples=carry keeps them" in caplog.text
    counts = build(long_line_settings(30, overwrite=True)).counts
    assert (counts.num_tokens_kept, counts.num_tokens_dropped) == (32, 0)


def test_the_authors_rule_is_refused_where_it_keeps_less_than_half(long_line_settings):
    with pytest.raises(UserError, match="only 16 of 33 tokens .*examples=authors"):
        build(long_line_settings(31, examples="authors"))


@pytest.mark.parametrize(
    ("texts", "fraction", "is_warned"),
    [
        (["w1"], 0.25, True),
        (["w1"], 0.0, False),
        ([f"w{i}" for i in range(20)], 0.25, False),
        ([f"w{i} " * 3 for i in range(20)], 1e-9, True),
        (["w1 " * 3000, *(f"w{i}" for i in range(20))], 0.25, True),
        (["w2 " * 3000, *(f"w{i}" for i in range(20))], 0.25, True),
    ],
)
def test_a_warning_says_that_less_is_held_out_than_asked_for(tmp_path, settings, caplog, texts, fraction, is_warned):
    (tmp_path / "a.txt").write_text("\n\n".join(texts))
    build(settings(tmp_path / "data", inputs=[f"text:{tmp_path}/a.txt"], held_out_fraction=fraction))
    assert (f"held_out_fraction={fraction:g} asked for" in caplog.text) == is_warned


def test_the_file_of_names_and_the_templates_it_lacks_are_in_the_manifest(tmp_path, build_settings):
    dropped = [f"w1 {{{{t{i}}}}} w2" for i in range(12) for _ in range(1 + i % 6)]
    text = "\n\n".join([*dropped, "w3 {{four}} w5"])
    page = f"<page>\n<title>w9</title>\n<revision><text>{text}</text></revision>\n</page>\n"
    (tmp_path / "dump.xml").write_text(f"<mediawiki>\n{page}</mediawiki>\n")
    names = tmp_path / "names.yaml"
    names.write_text("en:\n  templates:\n    w4: four")
    changes = {"held_out_fraction": 0.0, "wikipedia_names": str(names)}
    manifest = build(build_settings([f"wikipedia:{tmp_path}/dump.xml"], tmp_path / "data", **changes))
    most_frequent = sorted(((f"t{i}", 1 + i % 6) for i in range(12)), key=lambda item: (-item[1], item[0]))
    assert list(manifest.templates_dropped.items()) == most_frequent[:10]
    assert manifest.wikipedia_names == names.read_text() + "\n"
    assert Manifest.load(tmp_path / "data") == manifest
    assert manifest.token_counts[5 + 4] == 1
    names.write_text("en:\n  templates:\n    w5: four")
    with pytest.raises(UserError, match="another wikipedia_names"):
        build(build_settings([f"wikipedia:{tmp_path}/dump.xml"], tmp_path / "data", **changes))


def test_what_libraries_clean_is_in_the_manifest_and_the_closing_lines(tmp_path, build_settings, caplog):
    german = "Das Haus stand auf einem Hügel über dem Fluss, und seit dem Ende des Krieges wohnte niemand mehr darin."
    english = "The house stood on a hill above the river, a cafÃ© beside it, and nobody had lived in it since the war."
    (tmp_path / "a.txt").write_text(f"{german}\n\n{english}\n")
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    vocabulary = [*SPECIAL_TOKENS, *letters, *("##" + letter for letter in letters), *",."]
    (tmp_path / "letters.txt").write_text("\n".join(vocabulary))
    changes = {
        "vocab_file": str(tmp_path / "letters.txt"),
        "held_out_fraction": 0.0,
        "fix_mojibake": True,
        "drop_other_languages": True,
    }
    with caplog.at_level("INFO"):
        counts = build(build_settings([f"text:{tmp_path}/a.txt"], tmp_path / "data", **changes)).counts
    assert counts.num_documents == counts.num_documents_in_other_languages == counts.num_documents_mojibake_fixed == 1
    assert "left out: 1 in other languages" in caplog.text


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("w1 " * 99 + "unheard", ""),
        ("w1 " * 65 + "unheard", "1.5 % of the tokens are [UNK]"),
        (("w1" + " " * 2_100_000 + "w2\n") * 2, "1 cuts in documents of over 4 Mi characters"),
        ("w1 w2 w3\0", ""),
        ("\n\n".join(["w1 w2"] * 30 + ["w5 " * 30]), "30 of 31 documents are shorter than min_document_characters=6"),
    ],
)
def test_a_text_that_is_probably_not_what_the_user_thinks_gives_a_warning(
    tmp_path, build_settings, caplog, text, warning
):
    (tmp_path / "a.txt").write_text(text)
    changes = {"held_out_fraction": 0.0, "min_document_characters": 6}
    build(build_settings([f"text:{tmp_path}/a.txt"], tmp_path / "data", **changes))
    assert warning in caplog.text if warning else caplog.text == ""


PROTEINS = [("MKVLAT" * number)[:-1] for number in range(30, 40)]  # 179 to 233 amino acids; six have over 200


@pytest.mark.parametrize(
    ("texts", "error"),
    [
        (PROTEINS[4:], "99.5 % of the characters .* 6 words .*model=bpe"),
        (["мир и дом"] * 9, "70.0 % of the characters .* the vocabulary"),
    ],
)
def test_text_of_which_most_characters_are_unknown_is_an_error(tmp_path, build_settings, texts, error):
    (tmp_path / "a.txt").write_text("\n".join(texts))
    with pytest.raises(UserError, match=error):
        build(build_settings([f"text:{tmp_path}/a.txt"], tmp_path / "data", held_out_fraction=0.0))
    assert not (tmp_path / "data" / MANIFEST_FILE).exists()


def test_long_words_are_counted_with_their_characters(tmp_path, build_settings, caplog):
    (tmp_path / "a.txt").write_text(f"{PROTEINS[-1]} w1, {PROTEINS[-2]}\n" + "w1 w2 w3\n" * 99)
    build(build_settings([f"text:{tmp_path}/a.txt"], tmp_path / "data", held_out_fraction=0.0))
    assert "34.0 % of the characters" in caplog.text and "2 words" in caplog.text


def test_a_mark_that_is_over_a_tenth_of_the_tokens_is_named(tmp_path, build_settings, caplog):
    (tmp_path / "a.txt").write_text("w1_w2 w3 w4_w5 w6\n" * 9)
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, *(f"w{i}" for i in range(9)), "_"]))
    changes = {"vocab_file": str(tmp_path / "vocab.txt"), "held_out_fraction": 0.0}
    build(build_settings([f"text:{tmp_path}/a.txt"], tmp_path / "data", **changes))
    assert "the mark _;" in caplog.text
