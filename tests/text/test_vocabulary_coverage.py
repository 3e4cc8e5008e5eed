"""How well a vocabulary fits a text."""

import pytest

from electra_tf.text.tokenizer import BertTokenizer
from electra_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary
from electra_tf.text.vocabulary_coverage import Coverage, measure_coverage
from electra_tf.text.vocabulary_trainer import WordCounter

TOKENS = ("the", "sun", "##day", "##s", "!", "e", "##́", "我")
WORDS = {"the": 10, "sundays": 4, "suns": 3, "moon": 2, "!": 5}


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizer(Vocabulary((*SPECIAL_TOKENS, *TOKENS), sha256=""))


def test_words_are_weighed_by_their_counts(tokenizer):
    coverage = measure_coverage(WORDS.items(), tokenizer)
    # sun ##day ##s: 12, sun ##s: 6, the: 10, !: 5, moon: 2 unknown ones.
    assert coverage == Coverage(num_words=24, num_tokens=35, num_unknown_tokens=2, num_single_piece_words=15)
    assert coverage.unknown_fraction == 2 / 35
    assert coverage.tokens_per_word == 35 / 24
    assert coverage.single_piece_fraction == 15 / 24


def test_no_text_has_no_unknown_token(tokenizer):
    assert measure_coverage([], tokenizer).unknown_fraction == 0


@pytest.mark.parametrize(("lower_case", "strip_accents"), [(True, True), (True, False), (False, False)])
def test_words_give_the_tokens_of_the_text_they_were_cut_from(lower_case, strip_accents):
    tokenizer = BertTokenizer(Vocabulary((*SPECIAL_TOKENS, *TOKENS), sha256=""), lower_case, strip_accents)
    lines = ["The sundays, the Sun! THE Moons", "é É 我the我", "s" * 300, "ΣΑΣ the\u200bsun\x0bs İ"]
    counter = WordCounter(lower_case, strip_accents)
    counter.add(lines)
    coverage = measure_coverage(counter.take().items(), tokenizer)
    ids = tokenizer.tokenize(lines).flat_values.numpy().tolist()
    assert (coverage.num_tokens, coverage.num_unknown_tokens) == (len(ids), ids.count(1))
