"""Windows of questions, cut by hand; and the characters of tokens of SentencePiece and byte-level vocabularies."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.tasks.finetune.features import text_features
from electra_tf.tasks.finetune.kinds.squad import Answer, Question
from electra_tf.tasks.finetune.kinds.squad_features import Contexts, squad_windows, training_windows
from electra_tf.tasks.finetune.kinds.tagging import tagging_features
from electra_tf.text.kinds import create_tokenizer
from electra_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary, WordPieceVocabulary
from electra_tf.text.wordpiece import BertTokenizer
from tests.byte_level import byte_level
from tests.sentence_pieces import train

WORDS = (*"abcdefghi?(-)东西", "who", "what", "18", "##95", "19", "##43")


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizer(WordPieceVocabulary.from_tokens((*SPECIAL_TOKENS, *WORDS)))


def question(text, context, answer=None, *, question_id="q1", start=None, impossible=False):
    answers = () if answer is None else (Answer(answer, context.index(answer) if start is None else start),)
    return Question(question_id, text, context, answers, impossible)


def tokens_of(windows, tokenizer):
    features = windows.features
    rows = [features.input_ids[features.row(row)] for row in range(features.num_rows)]
    return [" ".join(tokenizer.vocabulary.tokens[index] for index in row) for row in rows]


TARGETS = ("start_positions", "end_positions", "is_impossible")
SIZES = {"max_seq_length": 10, "doc_stride": 3, "max_query_length": 4}


def test_a_context_is_cut_into_windows_with_a_stride(tokenizer):
    windows = squad_windows([question("Who?", "A b c d e f g h")], tokenizer, **SIZES)
    assert tokens_of(windows, tokenizer) == [
        "[CLS] who ? [SEP] a b c d e [SEP]",
        "[CLS] who ? [SEP] d e f g h [SEP]",
    ]
    assert windows.features.segment_ids.reshape(2, 10).tolist() == [[0] * 4 + [1] * 6] * 2
    assert windows.windows.position.numpy().tolist() == [4, 4]
    assert windows.windows.first_token.numpy().tolist() == [0, 3]


def test_a_token_has_its_max_context_in_the_first_of_equal_windows(tokenizer):
    windows = squad_windows([question("Who?", "A b c d e f g h i")], tokenizer, **SIZES)
    # a b c d e | d e f g h | g h i: d is as far from the edge of the first as e from that of the second, and so on.
    is_max_context = tf.cast(windows.windows.is_max_context, tf.int32).to_list()
    assert is_max_context == [[1, 1, 1, 1, 0], [0, 1, 1, 1, 0], [0, 1, 1]]


def test_questions_share_the_tokens_of_their_context(tokenizer):
    both = [question("Who?", "a bé"), question("What who?", "c"), question("What?", "a bé")]
    windows = squad_windows(both, tokenizer, **SIZES)
    assert windows.features.example_index.tolist() == [0, 1, 2]
    assert windows.windows.first_token.numpy().tolist() == [0, 2, 0]
    assert windows.token_starts.numpy().tolist() == [0, 2, 0]
    assert windows.token_ends.numpy().tolist() == [1, 4, 1]


def test_contexts_that_are_tokenized_in_several_calls_are_each_read_once(tokenizer, monkeypatch):
    monkeypatch.setattr("electra_tf.tasks.finetune.features._TEXTS_PER_CALL", 2)
    contexts = Contexts([question("Who?", text) for text in ("a", "bé", "c d", "g")], tokenizer, max_seq_length=9)
    assert contexts.tokens.row_lengths().numpy().tolist() == [1, 1, 2, 1]
    assert contexts.starts.numpy().tolist() == [0, 0, 0, 2, 0]


def test_a_long_question_is_truncated_and_a_context_without_tokens_has_no_window(tokenizer):
    windows = squad_windows([question("Who?", " \u200b "), question("a b c d e f", "g")], tokenizer, **SIZES)
    assert tokens_of(windows, tokenizer) == ["[CLS] a b c d [SEP] g [SEP]"]
    assert windows.features.example_index.tolist() == [1]


def test_a_question_leaves_room_for_a_token_of_its_context(tokenizer):
    sizes = {**SIZES, "max_seq_length": 8, "max_query_length": 64}
    windows = squad_windows([question("a b c d e", "f g")], tokenizer, **sizes)
    assert tokens_of(windows, tokenizer) == ["[CLS] a b c d [SEP] f [SEP]", "[CLS] a b c d [SEP] g [SEP]"]


@pytest.mark.parametrize(
    ("context", "answer", "start", "expected"),
    [
        # A window without the whole answer points at [CLS] and is not impossible.
        ("A b c d e f g h", "f g", None, [(0, 0, 0), (6, 7, 0)]),
        ("a b", None, None, [(0, 0, 1)]),
        # A part of a piece is labelled by the whole piece; here 95 is one, in the second window, too.
        ("a (1895) b", "95", None, [(7, 7, 0), (4, 4, 0)]),
        ("(1895-1943) b", "1943", None, [(0, 0, 0), (5, 6, 0)]),  # ( 18 ##95 - 19 | - 19 ##43 ) b
        # Off by some characters, or in another case: the nearest such place.
        ("a b a d", "A", 3, [(6, 6, 0)]),
        ("a b c d", " c", 2, [(6, 6, 0)]),
        # White space may differ from the context.
        ("a b\t\n c d", "b   c", 2, [(5, 6, 0)]),
        ("a b\u00a0c d", "b\u00a0c", None, [(5, 6, 0)]),
        # In text without spaces the occurrence at the start counts.
        ("东西a东西", "东西", 3, [(7, 8, 0)]),
    ],
)
def test_an_answer_is_labelled_by_its_tokens(tokenizer, context, answer, start, expected):
    asked = question("Who?", context, answer, start=start, impossible=answer is None)
    windows, dropped = training_windows([asked], tokenizer, **SIZES)
    targets = (windows.features.row_targets[name].tolist() for name in TARGETS)
    assert (list(zip(*targets, strict=True)), dropped) == (expected, [])


@pytest.mark.parametrize(
    ("context", "answer", "start"),
    [
        ("a b c", "d", 2),
        ("a b c", "c d", 4),  # beyond the end
        ("a b" + " c" * 9, "a", 18),  # too far from it
    ],
)
def test_a_question_whose_answer_is_not_at_its_place_is_dropped(tokenizer, context, answer, start):
    lost = question("Who?", context, answer, start=start, question_id="lost")
    kept = question("Who?", "a", "a")
    windows, dropped = training_windows([lost, kept], tokenizer, **SIZES)
    assert dropped == ["lost"]
    assert windows.features.example_index.tolist() == [1]


JAPANESE = "これは日本語の文です。日本語の文はこれです"  # これ は 日本語の文 です 。 日本語の文 は これ です
LONG = {"max_seq_length": 40, "doc_stride": 8, "max_query_length": 4}
CLS, SEP = 269, 270  # of the byte-level vocabulary


@pytest.fixture(scope="module")
def pieces():
    return create_tokenizer(Vocabulary.from_bytes(train("bpe"), "a test"))


@pytest.fixture(scope="module")
def of_bytes():
    return create_tokenizer(Vocabulary.from_bytes(byte_level(), "a test"))


def test_tokens_of_a_context_have_the_characters_of_the_given_text(pieces):
    context = "\u3000これは日本語の文です。 Ka\u0308se \ufb01 the\u3000cat\u00a0か\u3099"
    windows = squad_windows([question("cat?", context, "")], pieces, **LONG)
    places = zip(windows.token_starts.numpy().tolist(), windows.token_ends.numpy().tolist(), strict=True)
    # A marker alone is empty, and so is the second letter of a ligature.
    expected = ["", "これ", "は", "日本語の文", "です", "。", "Ka\u0308se", "", "\ufb01", ""]
    expected += ["the", "cat", "", "か\u3099"]
    assert [context[start:end] for start, end in places] == expected


@pytest.mark.parametrize(
    ("tokenizer", "context", "answer", "start", "expected"),
    [
        ("pieces", JAPANESE, "日本語の文", 3, "日本語の文"),
        ("pieces", JAPANESE, "日本語の文", 11, "日本語の文"),
        ("pieces", JAPANESE, "文です", 7, "日本語の文です"),  # the answer begins within a token
        ("pieces", "(the ½ cat, hat)", "½ cat", 5, "½ cat"),
        ("pieces", "the Ka\u0308se, the", "Ka\u0308se", 4, "Ka\u0308se"),
        ("pieces", "the cat\n sat", "cat \nsat", 4, "cat\n sat"),
        ("pieces", "the cat", "hat", 4, None),
        ("pieces", "the cat", "hat", 40, None),
        ("of_bytes", "the   cat", "cat", 6, "cat"),
        ("of_bytes", "on 日本 the", "本", 4, "本"),
        ("of_bytes", "on \U0001f600 the", "\U0001f600", 3, "\U0001f600"),
        ("of_bytes", "cafe\u0301 the", "cafe\u0301", 0, "cafe\u0301"),
        ("of_bytes", "the cat", "cat", 0, "cat"),
    ],
)
def test_the_tokens_of_an_answer_are_those_with_its_characters(request, tokenizer, context, answer, start, expected):
    asked = [question("cat?", context, answer, start=start)]
    windows, dropped = training_windows(asked, request.getfixturevalue(tokenizer), **LONG)
    assert dropped == ([] if expected else ["q1"])
    if expected is not None:
        targets, shift = windows.features.row_targets, windows.windows.position.numpy()[0]
        first, last = (int(targets[f"{name}_positions"][0] - shift) for name in ("start", "end"))
        assert context[windows.token_starts.numpy()[first] : windows.token_ends.numpy()[last]] == expected


def test_of_a_text_with_more_tokens_than_bytes_as_many_tokens_as_bytes_are_kept(pieces):
    context = "\u33af" * 4_000  # becomes "rad∕s2" in NFKC
    windows = squad_windows(
        [question("cat?", context, "")], pieces, max_seq_length=11, doc_stride=5, max_query_length=4
    )
    assert (len(windows.token_starts), len(windows.token_ends)) == (11_264, 11_264)
    features = text_features([[context]], {}, pieces, max_seq_length=11, stride=9)
    assert (features.num_truncated, features.features.num_rows) == (1, 1_252)  # ceil(11,264 / 9)


def test_each_word_has_its_label_at_its_marker_or_at_its_space(pieces, of_bytes):
    features = tagging_features([["これは", "、", "the"]], [[1, 2, 3]], pieces, max_seq_length=12).features
    tokens = [pieces.vocabulary.tokens[index] for index in features.input_ids]
    assert tokens == ["[CLS]", "▁", "これ", "は", "▁", "[UNK]", "▁the", "[SEP]"]
    assert features.token_targets["label_ids"].tolist() == [0, 1, 0, 0, 2, 0, 3, 0]
    assert np.flatnonzero(features.token_targets["label_weights"]).tolist() == [1, 4, 6]
    features = tagging_features([["the", "cat", "日"], ["cat", "the"]], [[1, 2, 3], [2, 1]], of_bytes, 12).features
    row = [CLS, 257, 261, 162, 245, 98, SEP]  # no space is written before an ideograph
    assert features.input_ids.tolist() == [*row, CLS, 260, 258, SEP]
    assert features.token_targets["label_ids"].tolist() == [0, 1, 2, 3, 0, 0, 0, 0, 2, 1, 0]
