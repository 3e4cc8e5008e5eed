"""Served tags and the positions of words equal those of --predict."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.tasks.finetune.kinds.tagging import tagging_features, values_of_words, words_of
from tests.serving.conftest import MAX_SEQ_LENGTH, call, predicted

SENTENCES = [
    ["The", "old", "seaside", "(sea)", "who?"],
    ["\u200b", "ΣΙΣ", "é", "a\u00a0b", "東京"],  # the first is [UNK], the fourth is one word
    ["seaside"] * 9,  # two pieces each, of which 14 fit
    ["sea", *"abcdefghi", "d.e", "sea", "d", "e"],  # 16 pieces; of "d.e" all are in
    ["x" * 300, "d"],
]


@pytest.mark.slow
def test_served_tags_equal_those_of_predict(served, finetuned):
    texts = ["\t".join(SENTENCES[0]), *(" ".join(words) for words in SENTENCES[1:])]
    outputs = call(served("tagging"), "tag", texts)
    values = [[0] * len(words) for words in SENTENCES]
    sentences = predicted(finetuned("tagging"), SENTENCES, values=values).table.decode().split("\n\n")[:-1]
    assert outputs["num_tokens"].tolist() == [5, 5, 7, 12, 2]
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
    assert outputs["truncated"].tolist() == [False, False, True, True, False]


def test_words_are_read_up_to_the_bytes_of_a_row(served, finetuned):
    # Of 1,024 bytes, 1,000 are the words before these, which are one piece: the last word is cut or left out.
    sentences = [["x" * 999, "sea", *["old"] * 5, "e"], ["x" * 999, "b", "東" * 9]]
    sentences += [["x" * 1021, "東"], ["x" * 2000, "e"]]
    outputs = call(served("tagging"), "tag", [" ".join(words) for words in sentences])
    assert outputs["num_tokens"].tolist() == [7, 3, 1, 1]
    assert outputs["tokens"][1, 2].decode() == "東" * 7
    assert outputs["truncated"].tolist() == [True] * 4
    model = finetuned("tagging")
    result = tagging_features(sentences, [[0] * 9] * 4, model.tokenizer, MAX_SEQ_LENGTH)
    assert [len(words) for words in values_of_words(result.features, np.zeros([4, 16]))] == [7, 3, 1, 1]
    assert result.num_truncated == 4


@pytest.mark.slow
def test_served_tags_of_sentence_pieces_equal_those_of_predict(served, finetuned):
    sentences = [["これは", "日本語の文", "です。"], ["Ka\u0308se", "\ufb01", "\u200b", "the\u3000cat"], ["the"] * 15]
    outputs = call(served("tagging of pieces"), "tag", [" ".join(words) for words in sentences])
    values = [[0] * len(words) for words in sentences]
    rows = predicted(finetuned("tagging of pieces"), sentences, values=values).rows
    assert outputs["num_tokens"].tolist() == [3, 4, 14]
    for row, tags in enumerate([tag for tag in each["prediction"] if tag is not None] for each in rows):
        assert [tag.decode() for tag in outputs["tags"][row, : len(tags)]] == tags
    assert outputs["start"][0].tolist()[:3] == [0, 4, 10]
    assert outputs["end"][1].tolist()[:4] == [5, 7, 9, 17]


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
