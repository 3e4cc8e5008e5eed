"""Offsets and answers with a SentencePiece vocabulary: markers, compatibility characters, Japanese without spaces."""

import numpy as np
import pytest

from electra_tf.tasks.finetune.features import text_features
from electra_tf.tasks.finetune.kinds.squad import Answer, Question
from electra_tf.tasks.finetune.kinds.squad_features import squad_windows, training_windows
from electra_tf.tasks.finetune.kinds.tagging import tagging_features
from electra_tf.text.kinds import create_tokenizer
from electra_tf.text.vocabulary import Vocabulary
from tests.sentence_pieces import train

SIZES = {"max_seq_length": 40, "doc_stride": 8, "max_query_length": 4}
JAPANESE = "これは日本語の文です。日本語の文はこれです"  # これ は 日本語の文 です 。 日本語の文 は これ です


@pytest.fixture(scope="module")
def tokenizer():
    return create_tokenizer(Vocabulary.from_bytes(train("bpe"), "a test"))


def question(context: str, answer: str, start: int) -> Question:
    return Question("id", "cat?", context, (Answer(answer, start),), is_impossible=False)


def test_tokens_of_a_context_have_the_characters_of_the_given_text(tokenizer):
    context = "\u3000これは日本語の文です。 Ka\u0308se \ufb01 the\u3000cat\u00a0か\u3099"
    windows = squad_windows([question(context, "", 0)], tokenizer, **SIZES)
    places = zip(windows.token_starts.numpy().tolist(), windows.token_ends.numpy().tolist(), strict=True)
    texts = [context[start:end] for start, end in places]
    # A marker alone is empty, and so is the second letter of a ligature.
    expected = ["", "これ", "は", "日本語の文", "です", "。", "Ka\u0308se", "", "\ufb01", ""]
    expected += ["the", "cat", "", "か\u3099"]
    assert texts == expected


@pytest.mark.parametrize(
    ("context", "answer", "start", "expected"),
    [
        (JAPANESE, "日本語の文", 3, "日本語の文"),
        (JAPANESE, "日本語の文", 11, "日本語の文"),
        (JAPANESE, "文です", 7, "日本語の文です"),  # the answer begins within a token
        ("(the ½ cat, hat)", "½ cat", 5, "½ cat"),
        ("the\u3000\u3000cat sat", "cat", 5, "cat"),
        ("the Ka\u0308se, the", "Ka\u0308se", 4, "Ka\u0308se"),
        ("the \ufb01 cat", "\ufb01", 4, "\ufb01"),
        ("the cat\n sat", "cat sat", 4, "cat\n sat"),
        ("the cat\n sat", "cat \nsat", 4, "cat\n sat"),
        ("the cat", "hat", 4, None),
        ("the cat", "hat", 40, None),
    ],
)
def test_the_tokens_of_an_answer_are_those_with_its_characters(tokenizer, context, answer, start, expected):
    windows, dropped = training_windows([question(context, answer, start)], tokenizer, **SIZES)
    assert dropped == ([] if expected else ["id"])
    if expected is not None:
        targets = windows.features.row_targets
        shift = windows.windows.position.numpy()[0]
        first, last = (int(targets[f"{name}_positions"][0] - shift) for name in ("start", "end"))
        assert context[windows.token_starts.numpy()[first] : windows.token_ends.numpy()[last]] == expected


def test_of_a_text_with_more_tokens_than_bytes_as_many_tokens_as_bytes_are_kept(tokenizer):
    context = "\u33af" * 4_000  # becomes "rad∕s2" in NFKC
    windows = squad_windows([question(context, "", 0)], tokenizer, max_seq_length=11, doc_stride=5, max_query_length=4)
    assert (len(windows.token_starts), len(windows.token_ends)) == (11_264, 11_264)
    features = text_features([[context]], {}, tokenizer, max_seq_length=11, stride=9)
    assert (features.num_truncated, features.features.num_rows) == (1, 1_252)  # ceil(11,264 / 9)


def test_each_word_begins_with_a_marker_and_has_its_label_there(tokenizer):
    features = tagging_features([["これは", "、", "the"]], [[1, 2, 3]], tokenizer, max_seq_length=12).features
    tokens = [tokenizer.vocabulary.tokens[index] for index in features.input_ids]
    assert tokens == ["[CLS]", "▁", "これ", "は", "▁", "[UNK]", "▁the", "[SEP]"]
    assert features.token_targets["label_ids"].tolist() == [0, 1, 0, 0, 2, 0, 3, 0]
    assert np.flatnonzero(features.token_targets["label_weights"]).tolist() == [1, 4, 6]
