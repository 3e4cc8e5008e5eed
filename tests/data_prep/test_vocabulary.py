import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from data_prep import vocabulary as vocabulary_module
from data_prep.settings import VocabularySettings
from data_prep.vocabulary import build_vocabulary
from electra_tf.config.errors import UserError
from electra_tf.text import wordpiece_trainer
from electra_tf.text.vocabulary import Vocabulary

ROOT = Path(__file__).parents[2]
LINES = ["The sun and the moon.", "Suns, moons;", "cafe\u0301 the sun", "mooned sunned the", "théâtre, the\x01 end"]


def build(tmp_path, *inputs, output="made/vocab.out", **changes):
    """(the vocabulary file's bytes, the report). The build makes the directory `made/`."""
    changes = {"vocab_size": 45, **changes}
    report = build_vocabulary(VocabularySettings(inputs=inputs, output=str(tmp_path / output), **changes))
    assert json.loads((tmp_path / f"{output}.json").read_text()) == report
    return (tmp_path / output).read_bytes(), report


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(LINES[:2]) + "\n")
    (tmp_path / "b.txt").write_text("\n\n".join(LINES[2:]) + "\n")
    return f"{tmp_path}/*.txt"


def test_the_report_counts_what_was_read_and_changed_and_measures_the_coverage_input(tmp_path, corpus):
    (tmp_path / "held_out.jsonl").write_text('{"text": "The sun, x the"}\n{"text": "moon"}\n')
    _, report = build(tmp_path, corpus, coverage_inputs=(f"{tmp_path}/*.jsonl",))
    numbers = {"num_files": 2, "num_bytes": 90, "num_documents_read": 2, "num_documents_normalized": 1}
    numbers |= {"num_words": 20, "num_distinct_words": 14, "num_control_characters_dropped": 1}
    assert {name: report["training_text"][name] for name in numbers} == numbers
    assert report["vocab_sha256"] == Vocabulary.load(tmp_path / "made" / "vocab.out").sha256
    assert report["coverage_text"]["num_words"] == 6
    assert report["coverage"]["num_words"] == 6
    assert report["coverage"]["num_unknown_tokens"] == 1
    assert report["coverage"]["single_piece_fraction"] == 5 / 6


@pytest.mark.parametrize("existing", ["vocab.out", "vocab.out.json"])
def test_a_file_that_exists_stays_unless_overwrite_is_given(tmp_path, corpus, existing):
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / existing).write_text("mine")
    with pytest.raises(UserError, match=f"{existing} exists"):
        build(tmp_path, corpus)
    assert (tmp_path / "made" / existing).read_text() == "mine"
    build(tmp_path, corpus, overwrite=True)


def test_the_settings_change_the_vocabulary(tmp_path, corpus):
    content, _ = build(tmp_path, corpus, num_unused_tokens=3, lower_case=False, strip_accents=False, vocab_size=56)
    tokens = content.decode().split()
    assert tokens[:8] == ["[PAD]", "[unused0]", "[unused1]", "[unused2]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert {"T", "S", "é"} < set(tokens)
    assert "\u0301" not in content.decode()
    changes = {"unicode_normalization": "none", "strip_accents": False, "vocab_size": 50}
    assert "\u0301" in build(tmp_path, corpus, output="left", **changes)[0].decode()


@pytest.mark.parametrize(
    ("changes", "tokens", "num_words"),
    [
        # Zero-width spaces separate words, joiners stay.
        ({"vocab_size": 18}, [*sorted("a🥺🥲🫠🫩\U00010e80تکកអ\u200c"), "##ت", "##\u200c"], 9),
        ({"vocab_size": 14, "unicode": 11}, [*sorted("a🥺تکកអ\u200c"), "##ت", "##\u200c"], 5),
    ],
)
def test_a_new_vocabulary_has_the_characters_after_unicode_11_and_joiners(tmp_path, changes, tokens, num_words):
    (tmp_path / "a.txt").write_text("🥺 🥲 🫠 🫩 \U00010e80 a អ\u200bក ک\u200cت", encoding="utf-8")
    content, report = build(tmp_path, f"{tmp_path}/a.txt", strip_accents=False, **changes)
    assert content.decode().split()[5:] == tokens
    assert (report["unicode"], report["format_characters"]) == (changes.get("unicode", 18), True)
    assert report["coverage"]["num_words"] == num_words


def test_a_text_without_spaces_is_an_error_that_names_another_kind_of_vocabulary(tmp_path):
    (tmp_path / "a.txt").write_text("มหาวิทยาลัยแห่งนี้ตั้งอยู่ริมแม่น้ำ\nวันนี้อากาศดี เราจึงเดินไปตลาด", encoding="utf-8")
    with pytest.raises(UserError, match="^(?!.*more text).*model=bpe"):
        build(tmp_path, f"{tmp_path}/a.txt", vocab_size=9000, strip_accents=False)


def test_a_vocabulary_is_not_built_with_a_default_that_damages_the_text(tmp_path):
    (tmp_path / "a.txt").write_text("がんばって、東京の大学へ行く。\n", encoding="utf-8")
    with pytest.raises(UserError, match="--no-strip_accents"):
        build(tmp_path, f"{tmp_path}/a.txt")
    with pytest.raises(UserError, match="vocab_size=4000"):  # SentencePiece reads it
        build(tmp_path, f"{tmp_path}/a.txt", model="bpe", vocab_size=4000)


def test_words_that_lower_case_merges_are_named(tmp_path, caplog):
    (tmp_path / "a.txt").write_text("CO Co CCOc1ccc2nc\n")
    build(tmp_path, f"{tmp_path}/a.txt", vocab_size=18)
    assert "--no-lower_case" in caplog.text


@pytest.mark.parametrize(
    ("lines", "vocab_size", "named"),
    [
        (["MKVLAT" * 40] * 7 + ["MKV LAT"] * 999, 17, "7 words"),
        (["học_sinh đi đến trường"] * 9, 30, "the mark _;"),
    ],
)
def test_long_words_and_a_mark_that_joins_words_are_named(tmp_path, caplog, lines, vocab_size, named):
    (tmp_path / "a.txt").write_text("\n".join(lines), encoding="utf-8")
    build(tmp_path, f"{tmp_path}/a.txt", vocab_size=vocab_size, strip_accents=False)
    assert named in caplog.text


def test_only_the_most_frequent_words_are_trained_on(tmp_path, monkeypatch):
    monkeypatch.setattr(wordpiece_trainer, "MAX_TRAINING_WORDS", 2)
    (tmp_path / "a.txt").write_text("d d d bb bb bb bb bb cc cc cc cc a a e")
    content, report = build(tmp_path, f"{tmp_path}/a.txt", vocab_size=9)
    assert (report["coverage_text"], report["coverage"]["num_words"]) == ("the training text", 15)
    assert report["training_text"]["num_distinct_words_trained_on"] == 2
    assert set(content.decode().split()[5:]) == {"b", "c", "##b", "##c"}


@pytest.fixture
def models(tmp_path):
    """Text in two files, a document of which has more than SentencePiece reads at once."""
    japanese = "日本語の文です。日本語の文。\n\nこれは日本語\u3000これは文です\n" + "長い文" * 3000
    (tmp_path / "ja.txt").write_text(japanese, "utf-8")
    (tmp_path / "de.txt").write_text("schöne Käse und schöne Käfer\nＦull und schön\n" * 3, "utf-8")
    return [f"{tmp_path}/ja.txt", f"{tmp_path}/de.txt"]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "vocab_size"), [("wordpiece", 60), ("bpe", 60), ("unigram", 38)])
def test_order_work_units_and_processes_do_not_change_a_vocabulary(tmp_path, models, model, vocab_size, monkeypatch):
    options = {"model": model, "vocab_size": vocab_size, "min_document_characters": 0, "overwrite": True}
    options |= {"isolate_cjk": True, "strip_accents": False} if model == "wordpiece" else {"output": "a.model"}
    expected, expected_report = build(tmp_path, *models, **options)
    assert build(tmp_path, *reversed(models), **options)[0] == expected
    monkeypatch.setattr(vocabulary_module, "_UNIT_BYTES", 20)
    for num_processes in (1, 2):
        assert build(tmp_path, *models, num_processes=num_processes, **options) == (expected, expected_report)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "bpe", "lower_case": False, "output": "v.model"}, "lower_case has no effect"),
        ({"byte_fallback": True}, "byte_fallback has no effect"),
    ],
)
def test_a_setting_that_a_kind_of_vocabulary_lacks_is_refused(changes, message):
    with pytest.raises(UserError, match=message):
        VocabularySettings(**{"inputs": ("a",), "output": "vocab.txt", **changes})


def test_the_report_of_a_sentencepiece_model_has_its_settings_and_measures(tmp_path, models):
    _, report = build(tmp_path, *models, output="a.model", model="bpe", byte_fallback=True, vocab_size=310)
    assert (report["model"], report["byte_fallback"], report["lower_case"]) == ("bpe", True, False)
    assert "max_num_characters" not in report
    coverage = report["coverage"]
    assert (coverage["unknown_fraction"], coverage["byte_fraction"]) == (0, 0)
    assert coverage["characters_per_token"] > 1


@pytest.mark.slow
@pytest.mark.parametrize("number", ["1", "2"])
def test_the_vocabulary_of_the_sample_does_not_depend_on_hash_seed_and_threads(tmp_path, number):
    flags = ["--input=sample/wikipedia/wiki_*", "--input=sample/novel/*.txt", "--vocab_size=4000"]
    flags += ["--max_num_characters=100", f"--output={tmp_path / 'vocab.txt'}"]
    environment = {**os.environ, "PYTHONHASHSEED": number, "RAYON_NUM_THREADS": number}
    subprocess.run([sys.executable, "-m", "electra_tf", "build-vocab", *flags], cwd=ROOT, env=environment, check=True)
    assert (tmp_path / "vocab.txt").read_bytes() == (ROOT / "sample" / "vocab.txt").read_bytes()
