"""Vocabularies and data sets of text that a program cuts into words."""

import pytest

from data_prep.archives import ReadError
from data_prep.build import build
from data_prep.counts import ReadCounts
from data_prep.documents import Document, segment_documents
from data_prep.settings import VocabularySettings
from data_prep.vocabulary import build_vocabulary
from electra_tf.config.errors import UserError
from tests.data_prep.reading import records
from tests.segmenter import SEGMENTER, program

RAW, CUT = "w1w2w10\nw3\n\nw4w1\n", "w1 w2 w10\nw3\n\nw4 w1\n"


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory) -> str:
    """A vocabulary of segmented text."""
    path = tmp_path_factory.mktemp("vocabulary")
    (path / "raw.txt").write_text(RAW)
    flags = {"vocab_size": 19, "segment": SEGMENTER, "inputs": (f"text:{path}/raw.txt",)}
    report = build_vocabulary(VocabularySettings(output=f"{path}/own.txt", **flags))
    assert (report["segment"], report["isolate_cjk"], report["training_text"]["num_words"]) == (SEGMENTER, False, 6)
    return f"{path}/own.txt"


def test_a_vocabulary_of_text_that_comes_segmented_states_no_program(tmp_path):
    (tmp_path / "cut.txt").write_text(CUT)
    flags = {"vocab_size": 19, "segment": "none", "inputs": (f"text:{tmp_path}/cut.txt",)}
    report = build_vocabulary(VocabularySettings(output=f"{tmp_path}/own.txt", **flags))
    assert (report["segment"], report["isolate_cjk"]) == ("", False)


def test_a_data_set_has_the_words_of_a_program_or_of_text_that_comes_segmented(text_settings, vocabulary, tmp_path):
    def built(text: str, segment: str):
        options = {"segment": segment, "vocab_file": vocabulary, "overwrite": True}
        manifest = build(text_settings(text, **options))
        assert (manifest.segment, manifest.isolate_cjk) == (SEGMENTER, False)
        return manifest.is_segmented, sorted(records(tmp_path / "data", "train"))

    (is_cut, examples), (was_cut, expected) = built(RAW, SEGMENTER), built(CUT, "none")
    assert (is_cut, was_cut) == (False, True) and examples == expected
    with pytest.raises(UserError, match="another segment|another is_segmented"):
        build(text_settings(CUT, segment=SEGMENTER, vocab_file=vocabulary))


@pytest.mark.parametrize("given", [{}, {"segment": "another"}])
def test_a_program_that_a_vocabulary_states_is_not_run(text_settings, vocabulary, given):
    with pytest.raises(UserError, match="segment=none"):
        build(text_settings(RAW, vocab_file=vocabulary, **given))


def test_a_vocabulary_without_settings_gets_the_program(text_settings):
    manifest = build(text_settings(RAW, segment=SEGMENTER))
    assert manifest.text_settings.segment == SEGMENTER and manifest.counts.num_unknown_tokens == 0


def test_a_document_whose_lines_are_not_kept_is_left_out_and_counted():
    lines = [["w1"], ["w2", "xw3"], ["x"], ["w4w5", "w6"]]
    documents, counts = [Document(each, False) for each in lines], ReadCounts(num_documents_read=4)
    command = program("import sys\nfor line in sys.stdin: print(line.replace('w', ' w').replace('x', '\\n'), end='')")
    assert segment_documents(documents, lines, command, counts) == [["w1"], ["w4 w5", "w6"]]
    assert [each.lines[0] for each in documents] == ["w1", "w4w5"] and counts.num_documents_read == 2
    assert counts.num_documents_skipped == {"documents not segmented": 2}
    assert counts.faulty_records["documents not segmented"] == [[command, None, "x"], [command, None, "xw3"]]


def test_a_few_lines_at_the_beginning_may_not_be_segmented(text_settings):
    command = program("import sys\nfor line in sys.stdin: print(line.replace('w', ' w').replace('x', '\\n'), end='')")
    counts = build(text_settings("w1x\n\n" + RAW, segment=command)).counts
    assert counts.num_documents_skipped == {"documents not segmented": 1} and counts.num_documents_read == 2
    with pytest.raises(UserError, match="not one line for the text 'w1x'"):
        build(text_settings("w1x\n\n" * 11 + RAW, segment=command, overwrite=True))


def test_a_program_that_fails_keeps_the_work():
    with pytest.raises(ReadError, match="status 1"):
        segment_documents([Document(["w1"], False)], [["w1"]], program("raise SystemExit(1)"), ReadCounts())


def test_sentencepiece_has_no_segmenter():
    with pytest.raises(UserError, match="segment has no effect"):
        VocabularySettings(inputs=("a",), output="v.model", model="bpe", segment=SEGMENTER)
