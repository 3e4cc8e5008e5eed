import time
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data_prep.documents import Document
from data_prep.examples import SentenceSegmenter
from data_prep.settings import BuildSettings
from electra_tf.config.errors import UserError

HARD_SENTENCES = Path(__file__).parents[1] / "fixtures" / "hard_sentences.txt"


def split(*lines, mode="split", language="en", has_paragraphs=True):
    return SentenceSegmenter(mode, language).sentences(Document(list(lines), has_paragraphs))


def without_space(texts):
    return "".join("".join(text.split()) for text in texts)


def boundaries(sentences):
    """The positions between sentences, counted in characters without spaces."""
    return set(accumulate(len(without_space([sentence])) for sentence in sentences[:-1]))


def test_most_boundaries_of_hard_paragraphs_are_right():
    # "# LANGUAGE", one sentence per line, a blank line ends a paragraph.
    language, num_right, num_wrong, num_missed = "", 0, 0, 0
    for block in HARD_SENTENCES.read_text(encoding="utf-8").split("\n\n"):
        sentences = block.strip().split("\n")
        if sentences[0].startswith("# "):
            language = sentences.pop(0)[2:]
        paragraph = ("" if language in ("zh", "ja") else " ").join(sentences)
        expected, found = boundaries(sentences), boundaries(split(paragraph, language=language))
        num_right += len(expected & found)
        num_wrong += len(found - expected)
        num_missed += len(expected - found)
    assert num_right + num_missed == 54
    assert num_wrong <= 4 and num_missed <= 2


@pytest.mark.parametrize("space", ["\u00a0", "\u3000"])
def test_a_multi_byte_space_next_to_an_initial_does_not_change_the_sentences(space):
    paragraph = f"А.{space}С.{space}Пушкин родился. Да."
    assert split(paragraph, language="ru") == [f"А.{space}С.{space}Пушкин родился.", "Да."]


def test_a_paragraph_on_which_the_library_panics_stays_whole(monkeypatch):
    class PanicException(BaseException):
        pass

    def panic(language, text):
        raise PanicException

    monkeypatch.setattr("sentencex.segment", panic)
    assert split("One. Two.\u00a0") == ["One. Two."]


@pytest.mark.parametrize(
    ("mode", "has_paragraphs", "num_sentences"),
    [
        *(("auto", True, 3), ("auto", False, 2), ("line", True, 2)),
        *(("line", False, 2), ("split", True, 3), ("split", False, 3)),
    ],
)
def test_the_mode_and_the_kind_of_lines_decide_whether_lines_are_split(mode, has_paragraphs, num_sentences):
    assert len(split("One. Two.", "Three.", mode=mode, has_paragraphs=has_paragraphs)) == num_sentences


TRICKY = list(' .!?。।؟…()"“”*•A\0\u00a0\u2028\u200d\x85')
TRICKY += [". ", "... ", "Mr.", " I. ", "Ж. ", "[1]", "1.", "a) ", "e\u0301", "word"]
tricky_text = st.lists(st.one_of(st.sampled_from(TRICKY), st.text(max_size=3)), max_size=30).map("".join)


@settings(deadline=None, max_examples=60)
@given(tricky_text, st.sampled_from(["en", "de", "zh", "hi", "ru", "xx"]))
@example("A\u00a0J.\u00a0B. ", "en")
def test_nothing_but_white_space_is_lost(text, language):
    sentences = split(text, language=language)
    assert without_space(sentences) == without_space([text])
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)


def test_a_paragraph_longer_than_a_window_gives_whole_sentences():
    sentence = "Of seven words this one is made."
    assert split(" ".join([sentence] * 500)) == [sentence] * 500


@pytest.mark.parametrize("pattern", ["“ab. ", "क।", "我们走吧。", "\u00a0A."])
def test_a_paragraph_of_half_a_million_characters_takes_seconds(pattern):
    text = (pattern * 2**19)[: 2**19]
    begin = time.process_time()
    sentences = split(text)
    assert time.process_time() - begin < 10  # it takes up to 0.6 s; in one call of sentencex up to minutes
    assert without_space(sentences) == without_space([text])


@pytest.mark.parametrize(
    ("code", "language", "text"),
    [
        ("simple", "en", "Dr. J. Watson paid Mr. Smith at 5 p.m. sharp. He left."),
        ("als", "de", "Es kam z. B. Herr Dr. Meier, geb. 3. Mai 1900. Er ging."),
        ("no", "da", "Han bor bl.a. i Oslo, jf. Hansen nr. 5. Det er bra."),
        ("nds_nl", "nl", "Hij las bijv. Kuyper. Hij leest."),
        *((code, "zh", "他来了。我走了。") for code in ("zh-min-nan", "zh_min_nan", "lzh")),
    ],
)
def test_the_code_of_a_wikipedia_has_the_rules_of_its_language(code, language, text):
    BuildSettings(inputs=("text:a",), vocab_file="v", output_dir="o", language=code)
    assert split(text, language=code) == split(text, language=language)
    assert len(split(text, language=code)) == 2


@pytest.mark.parametrize("code", ["EN", "english"])
def test_what_is_no_code_is_refused(code):
    with pytest.raises(UserError, match="language="):
        BuildSettings(inputs=("text:a",), vocab_file="v", output_dir="o", language=code)
