from collections import Counter

import pytest

from electra_tf.config.errors import UserError
from electra_tf.text import sentencepiece_trainer, vocabulary_trainer
from electra_tf.text.kinds import create_tokenizer
from electra_tf.text.sentencepiece_trainer import SentencePieceVocabularyTrainer
from electra_tf.text.vocabulary import Vocabulary
from electra_tf.text.vocabulary_trainer import measure_coverage
from tests import sentence_pieces

LINES = sentence_pieces.LINES


def count(*lines):
    counter = SentencePieceVocabularyTrainer("bpe", 99, False).word_counter()
    counter.add(lines)
    return counter.take()


def train(counts, vocab_size, model_type="bpe", byte_fallback=False):
    return SentencePieceVocabularyTrainer(model_type, vocab_size, byte_fallback).train(Counter(counts))


def test_words_are_counted_after_the_tokenizers_normalization():
    text = "ﬁne\tcafe\u0301 \u3000 fine\u200bＡ\u00a0か\u3099 ", "", "  "
    assert count(*text) == {"fine": 2, "café": 1, "A": 1, "が": 1}


def test_a_long_clause_is_counted_in_parts(monkeypatch):
    monkeypatch.setattr(sentencepiece_trainer, "MAX_WORD_CHARACTERS", 4)
    assert count("日本語の文です") == {"日本語の": 1, "文です": 1}


def test_counts_give_the_bpe_model_of_the_lines():
    assert train(count(*LINES), 83).tokens == Vocabulary.from_bytes(sentence_pieces.train("bpe"), "a test").tokens


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_special_tokens_and_bytes_come_first(model_type):
    tokens = train(count(*LINES), 295, model_type, byte_fallback=True).tokens
    assert tokens[:5] == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    assert (tokens[5], tokens[260]) == ("<0x00>", "<0xFF>")


@pytest.mark.parametrize(
    ("vocab_size", "complaint"), [(7, "vocab_size=7: .* 7 vs 8;"), (999, "vocab_size=999: .* too high")]
)
def test_a_size_that_the_text_does_not_fit_is_refused(vocab_size, complaint):
    with pytest.raises(UserError, match=complaint):
        train({"ab": 3, "ba": 2}, vocab_size)


def test_the_most_frequent_characters_are_kept(monkeypatch):
    monkeypatch.setattr(vocabulary_trainer, "MIN_NUM_CHARACTERS", 3)
    monkeypatch.setattr(vocabulary_trainer, "CHARACTER_COVERAGE", 0.99)
    # Of 2,000 characters, half of them markers, the first three make up all but 15.
    assert set(train({"a": 600, "b": 385, "c": 13, "d": 2}, 8).tokens[5:]) == {"▁", "a", "b"}


def test_coverage_counts_unknown_tokens_and_bytes_within_words():
    words = count("the cat", "the 日本 cat日")
    plain, with_bytes = (
        measure_coverage(words.items(), create_tokenizer(train({"the": 4, "cat": 3}, size, byte_fallback=bytes_too)))
        for size, bytes_too in ((11, False), (267, True))
    )
    assert (plain["num_words"], plain["num_unknown_tokens"], plain["num_characters"]) == (5, 2, 15)
    assert "byte_fraction" not in plain
    assert (with_bytes["num_unknown_tokens"], with_bytes["num_byte_tokens"]) == (0, 9)
