import re
from pathlib import Path

import numpy as np
import pytest

from data_prep.build import build
from data_prep.settings import BuildSettings
from electra_tf.config.errors import UserError
from electra_tf.data.manifest import MANIFEST_FILE, Manifest, check_matches
from electra_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary
from tests.data_prep.reading import records
from tests.data_prep.texts import DOCUMENTS, FAULTY


def words(data_dir, split: str) -> set[int]:
    """The numbers of all words of a split; each document has one word of its own."""
    return {token - 5 for ids, _ in records(data_dir, split) for token in ids if token >= 5}


def test_no_document_gives_examples_to_both_splits(data_dir):
    train, held_out = words(data_dir, "train"), words(data_dir, "held_out")
    assert train and held_out and not train & held_out
    assert train | held_out == set(range(40)) - FAULTY


def test_copies_that_are_kept_are_in_one_split_whatever_the_order_of_the_inputs(source_settings, tmp_path):
    settings = source_settings(tmp_path / "one", drop_duplicates=False)
    one = build(settings)
    other = build(source_settings(tmp_path / "other", drop_duplicates=False, inputs=settings.inputs[::-1]))
    assert one.splits == other.splits
    assert (one.counts.num_documents, one.counts.num_documents_duplicate) == (36 + 5, 0)
    assert one.counts.num_tokens_kept == one.counts.num_tokens_read
    assert not words(tmp_path / "one", "train") & words(tmp_path / "one", "held_out")


def test_documents_that_cleaning_drops_are_counted(text_settings):
    text = "w1 w2\u0007 w3\n\nw4\n\n\u200b\u200b\u200b\u200b\n"
    counts = build(text_settings(text, min_document_characters=3)).counts
    assert (counts.num_documents_read, counts.num_documents, counts.num_documents_too_short) == (3, 1, 1)
    assert (counts.num_documents_without_tokens, counts.num_control_characters_dropped) == (1, 1)


def test_the_counts_of_the_manifest_agree_with_the_shards(data_dir):
    manifest = Manifest.load(data_dir)
    counts = manifest.counts
    assert (counts.num_documents, counts.num_documents_duplicate) == (36, 5)
    assert counts.num_unknown_tokens == 2 * 10 + 1  # the stops of document 38 and of its copy; a word
    num_kept = 0
    for name, split in manifest.splits.items():
        examples = [ids for ids, _ in records(data_dir, name)]
        assert split.num_examples == len(examples) == sum(shard.num_examples for shard in split.shards)
        assert split.num_tokens == sum(map(len, examples))
        num_kept += sum(token not in (2, 3) for ids in examples for token in ids)
    num_copied = sum(len(DOCUMENTS[i].split()) for i in (12, 21, 22, 33)) + 30
    assert counts.num_tokens_kept == counts.num_tokens_read - num_copied == num_kept
    assert counts.num_tokens_dropped == 0
    assert sum(split.num_documents for split in manifest.splits.values()) == 36
    tokens = [token for ids, _ in records(data_dir, "train") for token in ids]
    assert list(manifest.token_counts) == np.bincount(tokens, minlength=manifest.vocab_size).tolist()


def test_the_manifest_names_inputs_without_their_directory_and_matches_its_vocabulary(data_dir, source):
    manifest = Manifest.load(data_dir)
    names = [f"{file.format} {file.name}" for file in manifest.inputs]
    assert names[:5] == ["wikipedia a.xml", "jsonl b.jsonl", "text c.txt", "text e.txt", "text f.txt"]
    assert names[5:9] == ["wikiextractor d.wiki", "book g.book", "parquet h.parquet", "arrow i.arrow"]
    assert names[9:] == ["documents m.documents", "cirrus j.cirrus", "csv k.csv", "tsv l.tsv"]
    assert str(source) not in (data_dir / MANIFEST_FILE).read_text()
    check_matches(manifest, vocabulary=Vocabulary.load(data_dir / "vocab.txt"), max_seq_length=16)


def test_the_defaults_are_those_that_the_page_on_data_names():
    page = (Path(__file__).parents[2] / "docs/data.md").read_text(encoding="utf-8")
    settings = BuildSettings(inputs=("text:a",), vocab_file="v", output_dir="o")
    for name in ("held_out_fraction", "min_document_characters", "max_skipped", "language"):
        assert f"`--{name}={getattr(settings, name)}`" in page
    assert (settings.unicode_normalization, settings.examples) == ("NFC", "carry")
    assert settings.drop_control_characters and settings.drop_duplicates
    assert not (settings.keep_disambiguation_pages or settings.fix_mojibake or settings.near_duplicates)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_document_characters": 1000}, "min_document_characters=1000"),
        ({"held_out_fraction": 0.999_999}, "held_out_fraction=0.999999"),
        ({"output_dir": "gs://bucket/data"}, "output_dir=gs://bucket/data needs work_dir"),
        ({"work_dir": "gs://bucket"}, "needs work_dir=DIRECTORY, a local directory"),
    ],
)
def test_settings_that_give_no_data_set_are_refused_and_nothing_is_written(tmp_path, source_settings, changes, message):
    with pytest.raises(UserError, match=message):
        build(source_settings(tmp_path / "data").model_copy(update=changes))
    assert not (tmp_path / "data").exists() or list((tmp_path / "data").iterdir()) == []


def test_a_line_longer_than_an_example_is_kept_or_with_the_authors_rule_cut(text_settings, caplog):
    def build_lines(num_tokens: int, **changes):
        """Two documents with one line each, of `num_tokens` and 2 tokens, of which 14 and 2 fit into examples."""
        text = " ".join(f"w{i % 7}" for i in range(num_tokens)) + "\n\nw8 w9\n"
        return build(text_settings(text, overwrite=True, **changes)).counts

    with caplog.at_level("INFO"):
        build_lines(30, examples="authors")
    assert "(50 %) that exceeded an example; examples=carry keeps them" in caplog.text
    counts = build_lines(30)
    assert (counts.num_tokens_kept, counts.num_tokens_dropped) == (32, 0)
    with pytest.raises(UserError, match="only 16 of 33 tokens .*examples=authors"):
        build_lines(31, examples="authors")


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
def test_a_warning_says_that_less_is_held_out_than_asked_for(text_settings, caplog, texts, fraction, is_warned):
    build(text_settings("\n\n".join(texts), held_out_fraction=fraction))
    assert (f"held_out_fraction={fraction:g} asked for" in caplog.text) == is_warned


def test_the_file_of_names_and_the_templates_it_lacks_are_in_the_manifest(tmp_path, build_settings, caplog):
    dropped = [f"w1 {{{{t{i}}}}} w2" for i in range(12) for _ in range(1 + i % 6)]
    text = "\n\n".join([*dropped, "w3 {{four}} w5"])
    page = f"<page>\n<title>w9</title>\n<revision><text>{text}</text></revision>\n</page>\n"
    (tmp_path / "dump.xml").write_text(f"<mediawiki>\n{page}</mediawiki>\n")
    names = tmp_path / "names.yaml"
    names.write_text("en:\n  templates:\n    w4: four")
    changes = {"held_out_fraction": 0.0, "wikipedia_names": str(names)}
    with caplog.at_level("INFO"):
        manifest = build(build_settings([f"wikipedia:{tmp_path}/dump.xml"], tmp_path / "data", **changes))
    most_frequent = sorted(((f"t{i}", 1 + i % 6) for i in range(12)), key=lambda item: (-item[1], item[0]))
    assert list(manifest.templates_dropped.items()) == most_frequent[:10]
    assert ", ".join(f"{number} {{{{{name}}}}}" for name, number in most_frequent[:10]) + ";" in caplog.text
    assert manifest.wikipedia_names == names.read_text() + "\n"
    assert Manifest.load(tmp_path / "data") == manifest
    assert manifest.token_counts[5 + 4] == 1
    names.write_text("en:\n  templates:\n    w5: four")
    with pytest.raises(UserError, match="another wikipedia_names"):
        build(build_settings([f"wikipedia:{tmp_path}/dump.xml"], tmp_path / "data", **changes))


def test_what_libraries_clean_is_in_the_manifest_and_the_closing_lines(tmp_path, text_settings, caplog):
    german = "Das Haus stand auf einem Hügel über dem Fluss, und seit dem Ende des Krieges wohnte niemand mehr darin."
    english = "The house stood on a hill above the river, a cafÃ© beside it, and nobody had lived in it since the war."
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    vocab_file = tmp_path / "letters.txt"
    vocab_file.write_text("\n".join([*SPECIAL_TOKENS, *letters, *("##" + letter for letter in letters), *",."]))
    changes = {"vocab_file": str(vocab_file), "fix_mojibake": True, "drop_other_languages": True}
    with caplog.at_level("INFO"):
        counts = build(text_settings(f"{german}\n\n{english}\n", **changes)).counts
    assert counts.num_documents == counts.num_documents_in_other_languages == counts.num_documents_mojibake_fixed == 1
    assert "left out: 1 in other languages" in caplog.text


PROTEINS = [("MKVLAT" * number)[:-1] for number in range(30, 40)]  # 179 to 233 amino acids; six have over 200


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("w1 " * 99 + "unheard", ""),
        ("w1 " * 65 + "unheard", "1.5 % of the tokens are .UNK"),
        (("w1" + " " * 2_100_000 + "w2\n") * 2, "1 cuts in documents of over 4 Mi characters"),
        ("w1 w2 w3\0", ""),
        ("\n\n".join(["w1 w2"] * 30 + ["w5 " * 30]), "30 of 31 documents are shorter than min_document_characters=6"),
        (f"{PROTEINS[-1]} w1, {PROTEINS[-2]}\n" + "w1 w2 w3\n" * 99, "34.0 % of the characters .* 2 words"),
        ("w1_w2 w3 w4_w5 w6\n" * 9, "the mark _;"),
    ],
    ids=lambda text: text[:20],
)
def test_a_text_that_is_probably_not_meant_gives_a_warning(tmp_path, text_settings, vocab_file, caplog, text, warning):
    with open(vocab_file) as file:
        (tmp_path / "vocab.txt").write_text(file.read() + "_\n")
    build(text_settings(text, vocab_file=f"{tmp_path}/vocab.txt", min_document_characters=6))
    assert re.search(warning, caplog.text) if warning else caplog.text == ""


@pytest.mark.parametrize(
    ("texts", "error"),
    [
        (PROTEINS[4:], "99.5 % of the characters .* 6 words .*model=bpe"),
        (["мир и дом"] * 9, "70.0 % of the characters .* the vocabulary"),
    ],
)
def test_text_of_which_most_characters_are_unknown_is_an_error(tmp_path, text_settings, texts, error):
    with pytest.raises(UserError, match=error):
        build(text_settings("\n".join(texts)))
    assert not (tmp_path / "data" / MANIFEST_FILE).exists()
