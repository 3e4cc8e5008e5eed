import json
import random

import pytest

from data_prep.counts import ReadCounts, total_of
from data_prep.documents import Document, Origin, clean_documents, read_or_skip
from electra_tf.data.manifest import DatasetSettings
from electra_tf.text.vocabulary import SPECIAL_TOKENS, WordPieceVocabulary
from electra_tf.text.wordpiece import BertTokenizer

MOJIBAKE, FIXED = {"fix_mojibake": True}, {"num_documents_mojibake_fixed": 1}
ENGLISH = "The house stood on a hill above the river, and nobody had lived in it since the end of the war."
GERMAN = "Das Haus stand auf einem Hügel über dem Fluss, und seit dem Ende des Krieges wohnte niemand mehr darin."
DECOMPOSED, COMPOSED = "cafe\u0301", "caf\u00e9"


def clean(*lines, min_document_characters=1, **settings):
    """The cleaned lines, or None, and the counts."""
    settings = DatasetSettings(min_document_characters=min_document_characters, **settings)
    documents, counts = clean_documents([Document(list(lines), has_paragraphs=True)], settings)
    return next((document.lines for document in documents), None), counts


@pytest.mark.parametrize(
    ("lines", "settings", "cleaned", "counts"),
    [
        ([DECOMPOSED, "plain", DECOMPOSED], {}, [COMPOSED, "plain", COMPOSED], {"num_documents_normalized": 1}),
        ([DECOMPOSED], {"unicode_normalization": "none"}, [DECOMPOSED], {}),
        (["a\0b\x7fc\ufffd", "\x0cd\x85", "e"], {}, ["abc", "d", "e"], {"num_control_characters_dropped": 3}),
        # Controls that are white space separate words, before every tokenizer.
        *(([f"a{each}b"], {}, ["a b"], {}) for each in "\x0b\x0c\x1c\x1d\x1e\x1f\x85"),
        (["a\0b\ufffd"], {"drop_control_characters": False}, ["a\0b\ufffd"], {}),
        (["a\tb\rc\r"], {}, ["a b c"], {}),
        (["ab", "\u00e9cd"], {"min_document_characters": 5}, ["ab", "\u00e9cd"], {}),
        # With its layout, a line begins with the white space before it.
        (
            ["\ta\tb", "\n\n  c\x01\x0c"],
            {"layout": "keep"},
            ["\ta\tb", "\n\n  c "],
            {"num_control_characters_dropped": 1},
        ),
        (["\tschÃ¶n", "\n\tÂ\xa0"], {"layout": "keep", **MOJIBAKE}, ["\tschön"], FIXED),
        (["schÃ¶n", "ã\x83\x86ã‚¹ãƒˆ", "Â\xa0", "\x93w\x94", "a"], MOJIBAKE, ["schön", "テスト", "“w”", "a"], FIXED),
        (["Ein schöner Tag, n’est-ce pas?", "ÃŸ"], {}, ["Ein schöner Tag, n’est-ce pas?", "ÃŸ"], {}),
        (["Ein schöner Tag, n’est-ce pas?"], MOJIBAKE, ["Ein schöner Tag, n’est-ce pas?"], {}),
        # Marks of Unicode 14 and 15, in an order that only some versions of Python change; beside older ones.
        *(([text], {}, [text], {}) for text in ("a\u0898\u0316", "e\u0c3c\u0301", "a\U0001e4ef\U0001e4ee")),
        (["e\u0301\u0898\u0316\u0301"], {}, ["\xe9\u0898\u0316\u0301"], {"num_documents_normalized": 1}),
        (["a", "\x01\x02 \ufffd", "b"], {}, ["a", "b"], {"num_control_characters_dropped": 3}),
        # Of a long document, the middle decides the language.
        *(
            (lines, {"language": language, "drop_other_languages": True}, lines, {})
            for lines, language in (
                *(([ENGLISH], "en"), ([ENGLISH], "simple"), ([GERMAN], "de")),
                ([*[ENGLISH] * 20, *[GERMAN] * 12, *[ENGLISH] * 20], "de"),
            )
        ),
        *(([f"a{joiner}b"], {}, [f"a{joiner}b"], {}) for joiner in "\u200b\u200c\u200d\u00ad\ufeff\u180e"),
    ],
)
def test_lines_are_cleaned_and_changes_are_counted(lines, settings, cleaned, counts):
    assert clean(*lines, **settings) == (cleaned, ReadCounts(num_documents_read=1, **counts))


@pytest.mark.parametrize(
    ("lines", "settings", "counter"),
    [
        (["ab\0", f"{DECOMPOSED[3:]}cd"], {"min_document_characters": 6}, "num_documents_too_short"),  # of 5
        *((lines, {"min_document_characters": 0}, "num_documents_too_short") for lines in ([], ["\x01", "\ufffd\t"])),
        ([GERMAN], {"language": "en", "drop_other_languages": True}, "num_documents_in_other_languages"),
    ],
)
def test_documents_too_short_or_in_another_language_are_left_out(lines, settings, counter):
    cleaned, counts = clean(*lines, **settings)
    assert (cleaned, getattr(counts, counter)) == (None, 1)


def test_dropping_control_characters_changes_no_token():
    tokens = (*SPECIAL_TOKENS, *"abcde", *(f"##{letter}" for letter in "abcde"))
    tokenizer = BertTokenizer(WordPieceVocabulary.from_tokens(tokens))
    draw = random.Random(5)
    controls = [chr(code) for code in range(0xA1) if code in (9, 10, 13, 32) or not chr(code).isspace()]
    alphabet = [*controls, "\ufffd", "\u200d", "\u0301", "é", "ab"]
    lines = ["".join(draw.choices(alphabet, k=12)) for _ in range(300)]
    cleaned = ["".join(clean(line, unicode_normalization="none")[0] or []) for line in lines]
    assert tokenizer.tokenize(cleaned).to_list() == tokenizer.tokenize(lines).to_list()


def test_the_first_unreadable_document_does_not_depend_on_the_order_of_work():
    def unreadable(*places):
        counts = ReadCounts(num_documents_read=5)
        for path, offset in places:
            counts.add(read_or_skip(int, f"x{offset}", Origin(path, offset), f"Page {offset}"))
        return json.loads(json.dumps(vars(counts)))

    parts = [unreadable(("a.xml", 7)), unreadable(("a.xml", 100), ("a.xml", 0)), unreadable(("b.xml", 300))]
    one, other = (total_of(map(ReadCounts.from_json, order)) for order in (parts, parts[::-1]))
    assert one == other
    path, offset, description = one.faulty_records["unreadable"][0]
    assert (path, offset) == ("a.xml", 0) and description.startswith("Page 0 (ValueError: ") and "x0" in description
    assert one.num_documents_skipped == {"unreadable": 4}


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_an_error_that_is_not_of_one_document_passes_through(error):
    def fail(content):
        raise error

    with pytest.raises(error):
        read_or_skip(fail, "", Origin("a.xml", 0))
