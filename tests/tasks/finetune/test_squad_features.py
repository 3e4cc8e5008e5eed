"""Windows of questions, small enough to be cut by hand."""

import pytest
import tensorflow as tf

from electra_tf.tasks.finetune.kinds.squad import Answer, Question
from electra_tf.tasks.finetune.kinds.squad_features import squad_windows, training_windows
from electra_tf.text.vocabulary import SPECIAL_TOKENS, WordPieceVocabulary
from electra_tf.text.wordpiece import BertTokenizer

WORDS = (*"abcdefghi?(-)东西", "who", "what", "18", "##95", "19", "##43")


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizer(WordPieceVocabulary.from_tokens((*SPECIAL_TOKENS, *WORDS)))


def question(text, context, answer=None, *, question_id="q1", start=None, impossible=False):
    answers = () if answer is None else (Answer(answer, context.index(answer) if start is None else start),)
    return Question(question_id, text, context, answers, impossible)


def tokens_of(windows, tokenizer):
    features = windows.features
    return [
        " ".join(tokenizer.vocabulary.tokens[i] for i in features.input_ids[features.row(row)])
        for row in range(features.num_rows)
    ]


def positions(windows):
    targets = windows.features.row_targets
    names = ("start_positions", "end_positions", "is_impossible")
    return list(zip(*(targets[name].tolist() for name in names), strict=True))


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


def test_a_long_question_is_truncated_and_a_context_without_tokens_has_no_window(tokenizer):
    windows = squad_windows([question("Who?", " \u200b "), question("a b c d e f", "g")], tokenizer, **SIZES)
    assert tokens_of(windows, tokenizer) == ["[CLS] a b c d [SEP] g [SEP]"]
    assert windows.features.example_index.tolist() == [1]


def test_a_question_leaves_room_for_a_token_of_its_context(tokenizer):
    windows = squad_windows(
        [question("a b c d e", "f g")], tokenizer, max_seq_length=8, doc_stride=3, max_query_length=64
    )
    assert tokens_of(windows, tokenizer) == ["[CLS] a b c d [SEP] f [SEP]", "[CLS] a b c d [SEP] g [SEP]"]


@pytest.mark.parametrize(
    ("context", "answer", "start", "expected"),
    [
        # A window without the whole answer points at [CLS] and is not impossible.
        ("A b c d e f g h", "f g", None, [(0, 0, 0), (6, 7, 0)]),
        ("a b", None, None, [(0, 0, 1)]),
        # A part of a piece is labelled by the whole piece; here 95 is one, in the second window, too.
        ("a (1895) b", "95", None, [(7, 7, 0), (4, 4, 0)]),
        ("a (1895) b", "9", None, [(7, 7, 0), (4, 4, 0)]),
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
    assert (positions(windows), dropped) == (expected, [])


def test_an_answer_within_a_word_is_labelled_exactly(tokenizer):
    sizes = {**SIZES, "max_seq_length": 20}
    windows, _ = training_windows([question("Who?", "a (1895-1943) b", "1943")], tokenizer, **sizes)
    assert tokens_of(windows, tokenizer) == ["[CLS] who ? [SEP] a ( 18 ##95 - 19 ##43 ) b [SEP]"]
    assert positions(windows) == [(9, 10, 0)]


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
