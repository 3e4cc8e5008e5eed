"""Served answers, tags and positions of words equal those of --predict."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.finetuning.predict import outputs_of
from electra_tf.tasks.finetune.data import TaskData
from electra_tf.tasks.finetune.kinds.answers import PredictedAnswer, ServedAnswers
from electra_tf.tasks.finetune.kinds.question_answering import question_examples
from electra_tf.tasks.finetune.kinds.squad import Question
from electra_tf.tasks.finetune.kinds.tagging import tagging_features, values_of_words, words_of
from electra_tf.tasks.served import ServingShapes
from tests.serving.conftest import MAX_SEQ_LENGTH, call, predicted

CONTEXTS = [
    "The old seaside (sea), who? " + "a b c d e f g h i, " * 5,
    "d é\u0301 Σ 東京e",
    "",
    " ",
    "sea sea sea sea old old old sea sea (a) sea - b sea a! sea a sea",
    "x" * 300 + " a",
    "a b c d e f g h i a b",
]
QUESTIONS = ["who?", "a b c d e f g h", "", "sea", "a", "b", "x?"]
IN_OTHER_SCRIPTS = [
    "これは日本語の文です。\u3000日本語の文はこれです" * 3,
    "the Ka\u0308se \ufb01 か\u3099 \u00bd,\u3000cat",
    "\u200b",
    "",
]


def answers_to(model, questions: list[str], contexts: list[str]) -> list[PredictedAnswer]:
    pairs = zip(questions, contexts, strict=False)
    asked = [Question(str(number), *pair, (), False) for number, pair in enumerate(pairs)]
    data = TaskData(model.finetuned, model.tokenizer, None, {"input": question_examples(asked, "a test", False)})
    return data.kind.predict(data.splits[0], outputs_of(model, data, tf.distribute.OneDeviceStrategy("CPU:0"))).answers


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squad_v2", "squad_v1", "independent", "squad_v2 of pieces", "squad_v2 of bytes"])
def test_served_answers_equal_those_of_predict(name, served, finetuned):
    contexts = IN_OTHER_SCRIPTS if " of " in name else CONTEXTS
    outputs = call(served(name), "answer", QUESTIONS[: len(contexts)], contexts)
    answers = answers_to(finetuned(name), QUESTIONS, contexts)
    assert [len(answer.spans) for answer in answers] == outputs["num_answers"].tolist()
    assert max(outputs["num_answers"]) == 6 and min(outputs["num_answers"]) == 0
    for row, answer in enumerate(answers):
        number = len(answer.spans)
        texts = [text.decode() for text in outputs["nbest_text"][row]]
        assert texts == [span.text for span in answer.spans] + [""] * (6 - number)
        places = list(zip(outputs["nbest_start"][row].tolist(), outputs["nbest_end"][row].tolist(), strict=True))
        assert places[:number] == [(span.start, span.end) for span in answer.spans]
        if " of " in name:
            assert [contexts[row][start:end] for start, end in places[:number]] == texts[:number]
        scores = [span.start_score + span.end_score for span in answer.spans]
        np.testing.assert_allclose(outputs["nbest_score"][row, :number], scores, rtol=1e-5)
        probabilities = [span.probability for span in answer.spans]
        np.testing.assert_allclose(outputs["nbest_probability"][row, :number], probabilities, atol=1e-5)
        assert (outputs["text"][row].decode(), outputs["start"][row]) == (texts[0], outputs["nbest_start"][row, 0])
    assert ("null_score" in outputs) is (name != "squad_v1")
    if name != "squad_v1":
        np.testing.assert_allclose(outputs["null_score"], [answer.null_odds for answer in answers], rtol=1e-5)


@pytest.mark.slow
def test_a_model_of_a_length_below_that_of_the_longest_question_is_served(finetuned, monkeypatch):
    model = finetuned("squad_v2")
    config = model.task.config
    data = config.data.model_copy(update={"max_seq_length": 8})  # questions have up to 5 tokens: 4 fit
    config = config.model_copy(update={"data": data})
    monkeypatch.setattr(model.task, "config", config)
    model = dataclasses.replace(model, finetuned=config)
    short = ServedAnswers(model.task, model.tokenizer, ServingShapes(8))
    outputs = call(short, "answer", ["a b c d e f"], ["sea old a"])
    (answer,) = answers_to(model, ["a b c d e f"], ["sea old a"])
    assert outputs["nbest_text"][0, : len(answer.spans)].tolist() == [span.text.encode() for span in answer.spans]
    assert answer.spans and outputs["truncated"].tolist() == [True]


@pytest.mark.slow
def test_an_answer_is_empty_if_the_null_score_is_above_the_threshold(finetuned, served, monkeypatch):
    model = finetuned("squad_v2")
    free = call(served("squad_v2"), "answer", QUESTIONS, CONTEXTS)
    # Four are above; of the other three one has no span. Between two scores, which another call may round differently.
    threshold = float(np.sort(free["null_score"])[2:4].mean())
    config = model.task.config
    task = config.task.model_copy(update={"null_threshold": threshold})
    with monkeypatch.context() as patched:
        patched.setattr(model.task, "config", config.model_copy(update={"task": task}))
        bound_model = ServedAnswers(model.task, model.tokenizer, ServingShapes(MAX_SEQ_LENGTH))
    bound = call(bound_model, "answer", QUESTIONS, CONTEXTS)
    above = free["null_score"] > threshold
    assert above.sum() == 4
    np.testing.assert_array_equal(bound["text"], np.where(above, b"", free["text"]))
    np.testing.assert_array_equal(bound["end"], np.where(above, 0, free["end"]))
    np.testing.assert_array_equal(bound["nbest_text"], free["nbest_text"])


def test_a_long_question_is_cut_and_a_long_context_is_not(served):
    outputs = call(served("squad_v2"), "answer", QUESTIONS, CONTEXTS)
    assert outputs["truncated"].tolist() == [False, True, False, False, False, False, False]


def test_a_context_is_read_up_to_the_bytes_of_16_rows(served, finetuned):
    contexts = [" " * 16_383 + "a b", " " * 16_383 + "é b", " " * 16_384 + "a b"]
    outputs = call(served("squad_v2"), "answer", ["a"] * 3, contexts)
    assert outputs["truncated"].tolist() == [True, True, True]
    assert outputs["num_answers"].tolist() == [1, 0, 0]
    assert (outputs["nbest_start"][0, 0], outputs["nbest_end"][0, 0]) == (16_383, 16_384)
    answers = answers_to(finetuned("squad_v2"), ["a"] * 3, contexts)
    assert [[(span.start, span.end) for span in answer.spans] for answer in answers] == [[(16_383, 16_384)], [], []]


SENTENCES = [
    ["The", "old", "seaside", "(sea)", "who?"],
    ["\u200b", "ΣΙΣ", "é", "a\u00a0b", "東京"],  # the first is [UNK], the fourth is one word
    ["seaside"] * 9,  # two pieces each, of which 14 fit
    ["sea", *"abcdefghi", "d.e", "sea", "d", "e"],  # 16 pieces; of "d.e" all are in
    ["x" * 300, "d"],
    [*"abcdefghi"] * 17,  # 36 windows
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "counts", "truncated"),
    [("tagging", [5, 5, 7, 12, 2, 14], [False, False, True, True, False, True]),
     ("tag windows", [5, 5, 9, 14, 2, 153], [False] * 6)],
)  # fmt: skip
def test_served_tags_equal_those_of_predict(served, finetuned, name, counts, truncated):
    texts = ["\t".join(SENTENCES[0]), *(" ".join(words) for words in SENTENCES[1:])]
    outputs = call(served(name), "tag", texts)
    values = [[0] * len(words) for words in SENTENCES]
    sentences = predicted(finetuned(name), SENTENCES, values=values).table.decode().split("\n\n")[:-1]
    assert outputs["num_tokens"].tolist() == counts
    for row, sentence in enumerate(sentences):
        number = outputs["num_tokens"][row]
        lines = [line.split("\t") for line in sentence.split("\n")][:number]
        assert [token.decode() for token in outputs["tokens"][row, :number]] == [line[0] for line in lines]
        assert [tag.decode() for tag in outputs["tags"][row, :number]] == [line[1] for line in lines]
        np.testing.assert_allclose(outputs["probability"][row, :number], [float(line[2]) for line in lines], atol=2e-6)
        spans = zip(outputs["start"][row, :number], outputs["end"][row, :number], strict=True)
        assert [texts[row][start:end] for start, end in spans] == SENTENCES[row][:number]
        assert set(outputs["tags"][row, number:].tolist()) <= {b""}
    assert len(set(outputs["tags"].reshape(-1).tolist())) == 4  # all three, and none in padding
    assert outputs["truncated"].tolist() == truncated


def test_words_are_read_up_to_the_bytes_of_a_row(served, finetuned):
    # Of 1,024 bytes, 1,000 are the words before these, which are one piece: the last word is cut or left out.
    sentences = [["x" * 999, "sea", *["old"] * 5, "e"], ["x" * 999, "b", "東" * 9]]
    sentences += [["x" * 1021, "東"], ["x" * 2000, "e"]]
    outputs = call(served("tagging"), "tag", [" ".join(words) for words in sentences])
    assert outputs["num_tokens"].tolist() == [7, 3, 1, 1]
    assert outputs["tokens"][1, 2].decode() == "東" * 7
    assert outputs["truncated"].tolist() == [True] * 4
    model = finetuned("tagging")
    result = tagging_features(sentences, [[0] * 9] * 4, model.tokenizer, MAX_SEQ_LENGTH, None)
    assert [len(words) for words in values_of_words(result.features, np.zeros([4, 16]))] == [7, 3, 1, 1]
    assert result.num_truncated == 4
    windows = call(served("tag windows"), "tag", ["sea " * 4096, "sea " * 4097])  # 16 rows of 1,024 bytes
    assert (windows["num_tokens"].tolist(), windows["truncated"].tolist()) == ([4096, 4096], [False, True])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of", "sentences", "num_words"),
    [
        (
            "pieces",
            [["これは", "日本語の文", "です。"], ["Ka\u0308se", "\ufb01", "\u200b", "the\u3000cat"], ["the"] * 15],
            [3, 4, 14],
        ),
        ("bytes", [["the", "cat", "the"], ["「は", "the", "か\u3099"], ["the"] * 15], [3, 3, 14]),  # "the", " cat"
    ],
)
def test_served_tags_of_other_tokenizers_equal_those_of_predict(of, sentences, num_words, served, finetuned):
    texts = [" ".join(words) for words in sentences]
    outputs = call(served(f"tagging of {of}"), "tag", texts)
    values = [[0] * len(words) for words in sentences]
    rows = predicted(finetuned(f"tagging of {of}"), sentences, values=values).rows
    assert outputs["num_tokens"].tolist() == num_words
    for row, tags in enumerate([tag for tag in each["prediction"] if tag is not None] for each in rows):
        assert [tag.decode() for tag in outputs["tags"][row, : len(tags)]] == tags
        spans = zip(outputs["start"][row, : len(tags)], outputs["end"][row, : len(tags)], strict=True)
        assert [texts[row][start:end] for start, end in spans] == sentences[row][: len(tags)]


def test_white_space_separates_words_and_an_invalid_byte_is_a_character():
    texts = tf.constant([b" a\xff  b\r\n", b"", b"\t", "é c\u3000d".encode()])
    words, row, start, end = (each.numpy().tolist() for each in words_of(texts))
    assert words == ["a\ufffd".encode(), b"b", "é".encode(), "c\u3000d".encode()]
    assert (row, start, end) == ([0, 0, 3, 3], [1, 5, 0, 2], [3, 6, 1, 5])


def test_ids_give_a_tag_for_each_token(served):
    model = served("tagging")
    of_text = call(model, "tag", ["old seaside"])
    vocabulary = model.tokenizer.vocabulary
    ids = [vocabulary.tokens.index(token) for token in ("[CLS]", "old", "sea", "##side", "[SEP]", "[PAD]")]
    mask = tf.constant([[1] * 5 + [0]])
    of_ids = {name: value.numpy() for name, value in model.tag_ids([ids], mask, tf.zeros_like(mask)).items()}
    assert of_ids["tags"].shape == (1, 6) and of_ids["tags"][0, 5] == b""
    assert of_ids["tags"][0, 1:3].tolist() == of_text["tags"][0].tolist()
    assert of_ids["labels"].tolist() == [[b"B-X", b"I-X", b"O"]]
    np.testing.assert_allclose(of_ids["probabilities"].max(axis=2)[0, 1:3], of_text["probability"][0], atol=1e-6)
