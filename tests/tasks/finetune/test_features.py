"""Texts to rows of ids: special tokens, truncation, which is counted, windows, labels of words; the alarm.

Windows of questions, cut by hand; and the characters of tokens of SentencePiece and byte-level vocabularies.
"""

import dataclasses
import logging

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.tasks.finetune.data import TaskData
from electra_tf.tasks.finetune.examples import Examples
from electra_tf.tasks.finetune.features import text_features
from electra_tf.tasks.finetune.kinds import KINDS
from electra_tf.tasks.finetune.kinds.question_answering import question_examples
from electra_tf.tasks.finetune.kinds.squad import Answer, Question
from electra_tf.tasks.finetune.kinds.squad_features import Contexts, squad_windows, training_windows
from electra_tf.tasks.finetune.kinds.tagging import tagging_features, values_of_words
from electra_tf.text.kinds import create_tokenizer
from electra_tf.text.vocabulary import SPECIAL_TOKENS, TextSettings, Vocabulary, WordPieceVocabulary
from electra_tf.text.wordpiece import BertTokenizer
from tests.byte_level import byte_level
from tests.segmenter import SEGMENTER
from tests.sentence_pieces import train
from tests.tasks.finetune.steps import CHOICE
from tests.toy import toy_finetuning_config

LETTERS = "abcdefghij"  # "a" has id 5, "b" 6, ... and "##a" 15, "##b" 16, ...
CLS, SEP, UNK = 2, 3, 1


@pytest.fixture(scope="module")
def tokenizer():
    tokens = (*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS))
    return BertTokenizer(WordPieceVocabulary.from_tokens(tokens))


def rows_of(features, name: str = "input_ids") -> list[list[int]]:
    return [getattr(features, name)[features.row(row)].tolist() for row in range(features.num_rows)]


def test_a_row_is_cls_text_sep_and_a_long_text_is_truncated(tokenizer):
    result = text_features([["a b", "", "c d e f"]], {}, tokenizer, 5, None)
    assert rows_of(result.features) == [[CLS, 5, 6, SEP], [CLS, SEP], [CLS, 7, 8, 9, SEP]]
    assert not result.features.segment_ids.any()
    assert (result.num_truncated, result.features.example_index.tolist()) == (1, [0, 1, 2])


@pytest.mark.parametrize(
    "first, second, kept_first, kept_second",
    [
        ("a b c", "d e", "a b c", "d e"),  # fits
        ("a b c d e f", "g", "a b c d", "g"),  # the longer one loses its end
        ("a", "b c d e f g", "a", "b c d e"),
        ("a b c d", "e f g h", "a b c", "e f"),  # of two equally long ones first the second
        ("a b c d e f", "e f g h", "a b c", "e f"),
    ],
)
def test_the_longer_text_of_a_pair_is_truncated_first(tokenizer, first, second, kept_first, kept_second):
    result = text_features([[first], [second]], {}, tokenizer, 8, None)
    a, b = ([5 + LETTERS.index(letter) for letter in kept.split()] for kept in (kept_first, kept_second))
    assert rows_of(result.features) == [[CLS, *a, SEP, *b, SEP]]
    assert rows_of(result.features, "segment_ids") == [[0] * (len(a) + 2) + [1] * (len(b) + 1)]
    assert result.num_truncated == int((first, second) != (kept_first, kept_second))


def test_a_long_text_has_overlapping_windows_and_the_last_ends_with_it(tokenizer):
    result = text_features([["a b", "a b c d e f g"]], {"label_ids": np.int32([7, 8])}, tokenizer, 6, 2)
    windows = [[CLS, 5, 6, 7, 8, SEP], [CLS, 7, 8, 9, 10, SEP], [CLS, 8, 9, 10, 11, SEP]]
    assert rows_of(result.features) == [[CLS, 5, 6, SEP], *windows]
    assert result.features.row_targets["label_ids"].tolist() == [7, 8, 8, 8]
    assert (result.num_truncated, result.features.example_index.tolist()) == (0, [0, 1, 1, 1])


def test_the_logits_of_the_windows_of_a_text_are_averaged(data_of):
    task = {"kind": "classification", "labels": ["a", "b"], "stride": 4}
    data = data_of(task, (["w5 " * 15, "w6"],), None, is_train=False)  # windows of 10 tokens: 0 to 9, 4 to 13, 8 to 14
    logits = np.float32([[3, 0], [3, 0], [0, 12], [1, 0]])
    first, second = data.evaluated({"logits": logits}).rows
    assert (first["prediction"], second["prediction"]) == ("b", "a")
    assert first["probability_b"] == pytest.approx(1 / (1 + np.exp(2.0 - 4.0)))


def test_an_impossible_stride_is_refused(tokenizer):
    assert text_features([["a b c d"]], {}, tokenizer, 6, 4).features.num_rows == 1
    with pytest.raises(UserError, match="stride"):
        text_features([["a"]], {}, tokenizer, 6, 5)


def encoded_choices(tokenizer, max_seq_length: int, labels: list | None, *examples: tuple[str, list[str]]):
    contexts, texts = zip(*examples, strict=True)
    examples = Examples((list(contexts), list(texts)), labels, ["x"] * len(texts), "dev.csv", [2, 3])
    config = toy_finetuning_config(CHOICE, data={"max_seq_length": max_seq_length})
    return KINDS["multiple_choice"].encode(examples, config, tokenizer, is_training=True)


def test_each_choice_has_a_sequence_whose_context_is_truncated(tokenizer):
    result = encoded_choices(tokenizer, 8, [1, 0], ("a b c d", ["e", "f g h"]), ("a", ["b"]))
    features = result.features
    assert rows_of(features) == [[CLS, 5, 6, 7, 8, SEP, 9, SEP, CLS, 5, 6, SEP, 10, 11, 12, SEP], [CLS, 5, SEP, 6, SEP]]
    assert features.choice_splits.tolist() == [0, 8, 16, 21]
    assert features.segment_ids.tolist() == [0] * 6 + [1] * 2 + [0] * 4 + [1] * 4 + [0] * 3 + [1] * 2
    assert (features.row_targets["label_ids"].tolist(), features.example_index.tolist()) == ([1, 0], [0, 1])
    assert result.num_truncated == 1


def test_texts_and_choices_are_cut_into_words_by_the_program_that_the_user_gives(tokenizer, refusal):
    cutting = BertTokenizer(tokenizer.vocabulary, TextSettings(segment=SEGMENTER))
    assert "segment=none" in refusal(text_features, [["a"]], {}, cutting, 9, None)
    cutting.given_segment = SEGMENTER
    pairs = text_features([["ab", "c"], ["", "de"]], {}, cutting, 9, None).features
    assert rows_of(pairs) == [[CLS, 5, 6, SEP, SEP], [CLS, 7, SEP, 8, 9, SEP]]
    choices = encoded_choices(cutting, 9, [0], ("ab", ["cd", "e"])).features
    assert rows_of(choices) == [[CLS, 5, 6, SEP, 7, 8, SEP, CLS, 5, 6, SEP, 9, SEP]]
    asked = [Question("q", "a", "bc", (), False)]
    assert "segment=none" in refusal(Contexts, asked, cutting, 9)
    cutting.given_segment = "none"
    assert Contexts(asked, cutting, 9).tokens.to_list() == [[6, 17]]


def test_a_choice_that_does_not_fit_alone_is_refused(tokenizer, refusal):
    message = refusal(encoded_choices, tokenizer, 8, None, ("a", ["b"]), ("a", ["b", "c d e f g h"]))
    assert "dev.csv:3" in message and "more than 5 tokens" in message and "data.max_seq_length 8" in message


def test_the_label_of_a_word_is_at_its_first_piece_and_a_word_without_pieces_becomes_unk(tokenizer):
    features = tagging_features([["ab", "\x01", "c"], ["\x01"]], [[4, 2, 3], [3]], tokenizer, 9, None).features
    assert rows_of(features) == [[CLS, 5, 16, UNK, 7, SEP], [CLS, UNK, SEP]]
    label_ids, weights = np.int32([0, 4, 0, 2, 3, 0, 0, 3, 0]), np.float32([0, 1, 0, 1, 1, 0, 0, 1, 0])
    np.testing.assert_array_equal(features.token_targets["label_ids"], label_ids, strict=True)
    np.testing.assert_array_equal(features.token_targets["label_weights"], weights, strict=True)
    assert not features.segment_ids.any()


def test_a_long_sentence_is_truncated_and_counted_and_its_truncated_words_get_no_values(tokenizer):
    result = tagging_features([["a", "bcd", "e"], ["f"]], [[1, 2, 3], [4]], tokenizer, 5, None)
    assert rows_of(result.features) == [[CLS, 5, 6, 17, SEP], [CLS, 10, SEP]]
    assert result.num_truncated == 1
    assert result.features.token_targets["label_weights"].sum() == 3
    features = tagging_features([["ab", "c", "d", "e"], ["f"]], None, tokenizer, 5, None).features
    assert set(features.token_targets) == {"label_weights"}
    values = np.arange(12).reshape(2, 6)
    assert [row.tolist() for row in values_of_words(features, values)] == [[1, 3], [7]]


def test_a_long_sentence_has_windows_and_each_word_a_label_and_a_value_in_one_of_them(tokenizer):
    sentences, labels = [["a"], ["ab", "c", "d", "efg", "h"], []], [[1], [2, 3, 4, 5, 6], []]
    features = tagging_features(sentences, labels, tokenizer, 6, 2).features
    windows = [[5, 16, 7, 8], [7, 8, 9, 20], [9, 20, 21, 12]]  # a ##b c d, c d e ##f, e ##f ##g h
    assert rows_of(features) == [[CLS, 5, SEP], *([CLS, *window, SEP] for window in windows), [CLS, SEP]]
    of_tokens = [[1], [2, 0, 3, 0], [0, 4, 5, 0], [0, 0, 0, 6], []]
    expected = np.int32([label for row in of_tokens for label in (0, *row, 0)])
    np.testing.assert_array_equal(features.token_targets["label_ids"], expected, strict=True)
    np.testing.assert_array_equal(features.token_targets["label_weights"], (expected > 0).astype(np.float32))
    values = [row.tolist() for row in values_of_words(features, np.arange(35).reshape(5, 7))]
    assert values == [[1], [8, 10, 16, 17, 25], []]


@pytest.mark.parametrize("labels", [None, [[1, 2, 3], [4]]])
def test_a_stride_changes_no_sentence_that_fits_and_windows_end_at_the_bytes_of_16_rows(tokenizer, labels):
    fitting, windowed = (tagging_features([["a", "bcd", "e"], ["f"]], labels, tokenizer, 7, each) for each in (None, 2))
    np.testing.assert_equal(*(dataclasses.asdict(each) for each in (fitting, windowed)))
    text = ["a"] * 8_000  # 7 tokens a row, 64 bytes a token, 16 rows: 7,168 bytes, which are 3,584 words with spaces
    result = tagging_features([text, ["f"]], labels and [[1] * 8_000, [4]], tokenizer, 7, 5)
    assert (result.num_truncated, [len(row) for row in rows_of(result.features)][-3:]) == (1, [7, 7, 3])
    assert result.features.token_targets["label_weights"].sum() == 3_584 + 1


LONG, SHORT = "w5 " * 30, "w6 w7"
PAIR = {"kind": "classification", "labels": ["a", "b"], "text_columns": ["one", "two"]}


@pytest.mark.parametrize(
    ("task", "inputs", "labels"),
    [
        ({"kind": "regression", "text_columns": ["text"]}, ([LONG, SHORT, LONG],), [0.0, 0.5, 1.0]),
        (PAIR, ([LONG, SHORT, LONG], [LONG, SHORT, SHORT]), ["a", "b", "a"]),
        (PAIR | {"double_unordered": True}, ([LONG, SHORT, SHORT], [LONG, LONG, SHORT]), ["a", "b", "a"]),
        ({"kind": "similarity"}, ([LONG, SHORT, LONG], [LONG, SHORT, SHORT]), [0.0, 0.5, 1.0]),
        ({"kind": "similarity", "is_contrastive": True}, ([SHORT, SHORT, LONG], [LONG, SHORT, LONG]), [True] * 3),
        (CHOICE, ([LONG, SHORT, LONG], [["w5", "w6", "w7"], ["w5", "w6"], ["w5", "w6"]]), [0, 1, 1]),
        ({"kind": "tagging", "labels": ["O"]}, ([["w5"] * 30, ["w6"], ["w7"] * 30],), [["O"] * 30, ["O"], ["O"] * 30]),
    ],
    ids=["text", "pair", "both orders", "scored", "contrastive", "choices", "tags"],
)
def test_examples_are_counted_not_texts(data_of, caplog, task, inputs, labels):
    caplog.set_level(logging.INFO)
    data_of(task, inputs, labels)
    expected = "dev.csv: 2 of 3 examples were truncated: data.max_seq_length is 12"
    assert [line for line in caplog.messages if " examples " in line] == [expected] * 2  # of training and evaluation


@pytest.mark.parametrize(("strips", "message"), [(False, ["warning: new.txt: 'gu\u0308l'"]), (True, [])])
def test_a_text_whose_accents_stand_alone_is_named_if_its_tokens_differ(caplog, strips, message):
    vocabulary = Vocabulary.from_bytes("\n".join([*SPECIAL_TOKENS, "gul", "g\u00fcl", "w5"]).encode(), "a test")
    tokenizer = create_tokenizer(vocabulary, TextSettings(lower_case=strips, strip_accents=strips))
    config = toy_finetuning_config({"kind": "tagging", "labels": ["O"]})
    examples = Examples(([["w5", "g\u00fcl"], ["gu\u0308l"]],), [["O", "O"], ["O"]], ["a", "b"], "new.txt", [1, 2])
    TaskData(config, tokenizer, None, {"new": examples})
    assert [line.partition(" is not in")[0] for line in caplog.messages] == message


BOOK = "w5 " * 5_000  # 12 tokens a row, 64 bytes a token, 16 rows: 12,288 bytes


@pytest.mark.parametrize(
    ("texts", "count"),
    [
        # Questions end at 4 tokens, and contexts are read in windows.
        ([("w5 w6 w7 w8 w9", SHORT), ("w5", LONG), ("w5 w6 w7 w8", SHORT), ("w8 " * 9, LONG)], "2 of 4"),
        ([("w7", BOOK), ("w7", SHORT), ("w7", BOOK)], "2 of 3"),  # for each of its questions
    ],
)
def test_questions_that_are_cut_and_contexts_beyond_all_windows_count(data_of, caplog, texts, count):
    caplog.set_level(logging.INFO)
    asked = [Question(f"q{n}", *each, (Answer("w6", 0),), False) for n, each in enumerate(texts)]
    task = {"kind": "question_answering", "version_2": False, "max_query_length": 4}
    examples = question_examples(asked, "dev.json", is_labelled=True)
    data_of(task, examples.inputs, examples.labels, is_train=False)
    message = caplog.messages[-1]
    assert message.startswith(f"dev.csv: {count} examples were truncated: ")
    assert message.endswith("questions end at task.max_query_length 4")


def test_equal_predictions_for_different_labels_raise_the_alarm(data_of):
    data = data_of({"kind": "classification", "labels": ["even", "odd"]}, (["w5"] * 4,), ["even", "odd"] * 2)
    for classes, problem in ([1, 1, 1, 1], "all 4 predictions of the dev set are odd"), ([1, 0, 1, 1], None):
        assert data.evaluated({"logits": np.eye(2, dtype=np.float32)[classes]}).alarm == problem


@pytest.fixture(scope="module")
def words():
    tokens = (*SPECIAL_TOKENS, *"abcdefghi?(-)东西", "who", "what", "18", "##95", "19", "##43")
    return BertTokenizer(WordPieceVocabulary.from_tokens(tokens))


def question(text, context, answer=None, *, question_id="q1", start=None, impossible=False):
    answers = () if answer is None else (Answer(answer, context.index(answer) if start is None else start),)
    return Question(question_id, text, context, answers, impossible)


def tokens_of(windows, tokenizer):
    return [" ".join(tokenizer.vocabulary.tokens[index] for index in row) for row in rows_of(windows.features)]


TARGETS = ("start_positions", "end_positions", "is_impossible")
SIZES = {"max_seq_length": 10, "doc_stride": 3, "max_query_length": 4}


def test_a_context_is_cut_into_windows_with_a_stride(words):
    windows = squad_windows([question("Who?", "A b c d e f g h")], words, **SIZES)
    assert tokens_of(windows, words) == [
        "[CLS] who ? [SEP] a b c d e [SEP]",
        "[CLS] who ? [SEP] d e f g h [SEP]",
    ]
    assert windows.features.segment_ids.reshape(2, 10).tolist() == [[0] * 4 + [1] * 6] * 2
    assert windows.windows.position.numpy().tolist() == [4, 4]
    assert windows.windows.first_token.numpy().tolist() == [0, 3]


def test_a_token_has_its_max_context_in_the_first_of_equal_windows(words):
    windows = squad_windows([question("Who?", "A b c d e f g h i")], words, **SIZES)
    # a b c d e | d e f g h | g h i: d is as far from the edge of the first as e from that of the second, and so on.
    is_max_context = tf.cast(windows.windows.is_max_context, tf.int32).to_list()
    assert is_max_context == [[1, 1, 1, 1, 0], [0, 1, 1, 1, 0], [0, 1, 1]]


def test_questions_share_the_tokens_of_their_context(words):
    both = [question("Who?", "a bé"), question("What who?", "c"), question("What?", "a bé")]
    windows = squad_windows(both, words, **SIZES)
    assert windows.features.example_index.tolist() == [0, 1, 2]
    assert windows.windows.first_token.numpy().tolist() == [0, 2, 0]
    assert windows.token_starts.numpy().tolist() == [0, 2, 0]
    assert windows.token_ends.numpy().tolist() == [1, 4, 1]


def test_contexts_that_are_tokenized_in_several_calls_are_each_read_once(words, monkeypatch):
    monkeypatch.setattr("electra_tf.tasks.finetune.features._TEXTS_PER_CALL", 2)
    contexts = Contexts([question("Who?", text) for text in ("a", "bé", "c d", "g")], words, max_seq_length=9)
    assert contexts.tokens.row_lengths().numpy().tolist() == [1, 1, 2, 1]
    assert contexts.starts.numpy().tolist() == [0, 0, 0, 2, 0]


def test_a_long_question_is_truncated_and_a_context_without_tokens_has_no_window(words):
    windows = squad_windows([question("Who?", " \u200b "), question("a b c d e f", "g")], words, **SIZES)
    assert tokens_of(windows, words) == ["[CLS] a b c d [SEP] g [SEP]"]
    assert windows.features.example_index.tolist() == [1]


def test_a_question_leaves_room_for_a_token_of_its_context(words):
    sizes = {**SIZES, "max_seq_length": 8, "max_query_length": 64}
    windows = squad_windows([question("a b c d e", "f g")], words, **sizes)
    assert tokens_of(windows, words) == ["[CLS] a b c d [SEP] f [SEP]", "[CLS] a b c d [SEP] g [SEP]"]


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
        # A question whose answer is not at its place, beyond the end or too far away is dropped.
        ("a b c", "d", 2, []),
        ("a b c", "c d", 4, []),
        ("a b" + " c" * 9, "a", 18, []),
    ],
)
def test_an_answer_is_labelled_by_its_tokens(words, context, answer, start, expected):
    asked = question("Who?", context, answer, start=start, impossible=answer is None)
    windows, dropped = training_windows([asked, question("Who?", "a", "a", question_id="q2")], words, **SIZES)
    targets = (windows.features.row_targets[name].tolist() for name in TARGETS)
    assert (list(zip(*targets, strict=True)), dropped) == ([*expected, (4, 4, 0)], [] if expected else ["q1"])
    assert windows.features.example_index.tolist() == [0] * len(expected) + [1]


JAPANESE = "これは日本語の文です。日本語の文はこれです"  # これ は 日本語の文 です 。 日本語の文 は これ です
LONG = {"max_seq_length": 40, "doc_stride": 8, "max_query_length": 4}


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
        ("of_bytes", "the   cat", "cat", 6, "cat"),
        ("of_bytes", "on 日本 the", "本", 4, "本"),
        ("of_bytes", "on \U0001f600 the", "\U0001f600", 3, "\U0001f600"),
        ("of_bytes", "cafe\u0301 the", "cafe\u0301", 0, "cafe\u0301"),
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
    features = tagging_features([["これは", "、", "the"]], [[1, 2, 3]], pieces, max_seq_length=12, stride=None).features
    tokens = [pieces.vocabulary.tokens[index] for index in features.input_ids]
    assert tokens == ["[CLS]", "▁", "これ", "は", "▁", "[UNK]", "▁the", "[SEP]"]
    assert features.token_targets["label_ids"].tolist() == [0, 1, 0, 0, 2, 0, 3, 0]
    assert np.flatnonzero(features.token_targets["label_weights"]).tolist() == [1, 4, 6]
    words, labels = [["the", "cat", "日"], ["cat", "the"]], [[1, 2, 3], [2, 1]]
    features = tagging_features(words, labels, of_bytes, 12, None).features
    row = [269, 257, 261, 162, 245, 98, 270]  # no space is written before an ideograph
    assert features.input_ids.tolist() == [*row, 269, 260, 258, 270]
    assert features.token_targets["label_ids"].tolist() == [0, 1, 2, 3, 0, 0, 0, 0, 2, 1, 0]
