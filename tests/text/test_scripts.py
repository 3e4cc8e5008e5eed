import pytest
import tensorflow as tf

from electra_tf.text.normalization import BasicTokenizer
from electra_tf.text.scripts import damages, merges
from electra_tf.text.vocabulary import BERT_TEXT, CASED_TEXT, TextSettings

# One for each range of characters, of the long one the first, one between and the last.
DAMAGED_BY_STRIPPING = {
    "kana": "がんばって ください",
    "Hangul": "안녕하세요 세계",
    "Thaana": "ދިވެހި ބަސް",
    "Devanagari": "हिन्दी में लिखना",
    "Thai": "ที่นี่มีหนังสือ",
    "Myanmar": "မင်္ဂလာပါ ကမ္ဘာ",
    "Khmer": "សួស្តី ពិភពលោក",
}
UNDAMAGED = [
    "Tiếng Việt rất đẹp",
    "Йод и ёлка зимой",
    "السلام عليكم",
    "שלום עולם",
    "გამარჯობა მსოფლიო",
    "我们今天去东京大学，天气很好。明天也去。",
    "12 3 !?",
    "",
]


@pytest.mark.parametrize("script", DAMAGED_BY_STRIPPING)
def test_stripping_accents_damages_a_script_whose_marks_are_letters(script):
    text = DAMAGED_BY_STRIPPING[script]
    assert damages(text, BERT_TEXT)["strip_accents"] > 0.9
    words = BasicTokenizer(BERT_TEXT).words(tf.constant([text]))[0].numpy().tolist()
    assert "".join(word.decode() for word in words) != text.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "settings", "expected"),
    [
        *((text, BERT_TEXT, {}) for text in UNDAMAGED),
        *((text, CASED_TEXT, {}) for text in DAMAGED_BY_STRIPPING.values()),
        ("がんばって", TextSettings(strip_accents=False), {}),
        ("東京大学へ行く", CASED_TEXT, {"isolate_cjk": 5 / 7}),
        ("東京大学へ行く", CASED_TEXT._replace(isolate_cjk=False), {}),
        # One letter in a hundred may be damaged.
        ("が" + "a" * 99, BERT_TEXT, {}),
        ("が" * 2 + "a" * 98, BERT_TEXT, {"strip_accents": 0.02}),
        ("は" * 2 + "a" * 197 + "京", CASED_TEXT, {}),
    ],
)
def test_the_damaged_share_of_the_letters(text, settings, expected):
    assert damages(text, settings) == expected


SMILES = "CCO CCOc1ccc2nc sc2c1 CC CO Co CN Cn C1CCCCC1 c1ccccc1\n"
ENGLISH = (
    "The cat saw the Cat of Mr. McDonald. CHAPTER 4: The house of NATO. A chapter on cafés and a house, the end,\n"
    "which nobody had seen for many years, when one morning she came back without saying where she went.\n"
    "At noon, rain fell over our fields; then it stopped, because wind had risen from those hills beyond them.\n"
)


@pytest.mark.parametrize(
    ("text", "settings", "named"),
    [
        (SMILES, BERT_TEXT, {"lower_case": "c1CCCCC1"}),
        ("CO and Co\n", BERT_TEXT, {"lower_case": "cO"}),
        ("getName setName userId get name\n", BERT_TEXT, {"lower_case": "getName"}),
        ("ışık IŞIK bir gün\n", BERT_TEXT, {"lower_case": "ı"}),
        ("سأل سال الرجل\n", BERT_TEXT, {"strip_accents": "سأل"}),
        ("ma mà má mả mã mạ ba bà bá\n", BERT_TEXT, {"strip_accents": "bà"}),
        ("ma mà má mả mã mạ ba bà bá\n", TextSettings(strip_accents=False), {}),
        (ENGLISH, BERT_TEXT, {}),
        ("Die Macht macht das Essen. Wir essen, und die Weisen weisen den Weg. ÖPNV\n", BERT_TEXT, {}),
        ("Étant là, elle a été à la gare. La ville où elle est née.\n" + ENGLISH, BERT_TEXT, {}),
        ("", BERT_TEXT, {}),
    ],
)
def test_a_setting_that_merges_words_is_named_with_an_example(text, settings, named):
    found = merges(text, settings)[2]
    assert found.keys() == named.keys()
    assert all(example in found[name] for name, example in named.items())


def test_distinct_words_are_counted_before_and_after_normalization():
    assert merges("Äpfel, äpfel, Apfel! apfel_apfel", BERT_TEXT)[:2] == (4, 1)
    assert merges("Äpfel, äpfel, Apfel! apfel_apfel", TextSettings(strip_accents=False))[:2] == (4, 2)
