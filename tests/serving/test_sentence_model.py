"""Served labels, numbers and choices equal those of --predict; shapes and precision by option; texts that are cut."""

import json

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.serving.saved_model import load_served_model
from electra_tf.serving.text_encoder import TextEncoder
from electra_tf.tasks.finetune.features import text_features
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.served import ServingShapes
from tests.serving.conftest import MAX_SEQ_LENGTH, SHAPES, TASKS, call, predicted_cells

TEXTS = ["The old seaside (sea) who?", "sea", "", "a b c d e f g h i " * 6, "ΣΙΣ é d, e", "who ? sea! old old"]
SECONDS = ["a b c d e f g h i a b c", "old", "sea sea", "sea", "", "d " * 9]


@pytest.mark.parametrize(
    "name", ["pairs", *(pytest.param(name, marks=pytest.mark.slow) for name in ("classification", "windows"))]
)
def test_served_classes_equal_those_of_predict(name, served, finetuned):
    columns = [TEXTS, SECONDS][: 2 if name == "pairs" else 1]
    outputs = call(served(name), "classify", *columns)
    rows = predicted_cells(finetuned(name), *columns)
    assert [label.decode() for label in outputs["label"]] == [row[0] for row in rows]
    assert len(set(outputs["label"])) > 1
    np.testing.assert_allclose(outputs["probabilities"], [list(map(float, row[1:])) for row in rows], atol=2e-6)
    assert outputs["labels"].tolist() == [[label.encode() for label in TASKS[name]["labels"]]] * 6
    long = {"classification": [3], "pairs": [0, 3, 5], "windows": []}[name]
    assert np.flatnonzero(outputs["truncated"]).tolist() == long


@pytest.mark.slow
def test_served_multi_labels_equal_those_of_predict(served, finetuned):
    outputs = call(served("multi_label"), "classify", TEXTS)
    rows = predicted_cells(finetuned("multi_label"), TEXTS)
    names = [np.array(["x", "y", "z"])[row].tolist() for row in outputs["predicted"]]
    assert names == [json.loads(row[0].strip('"').replace('""', '"')) for row in rows]
    assert outputs["predicted"].any() and not outputs["predicted"].all()
    np.testing.assert_array_equal(outputs["predicted"], outputs["probabilities"] > 0.5)
    np.testing.assert_allclose(outputs["probabilities"], [list(map(float, row[1:])) for row in rows], atol=2e-6)


@pytest.mark.slow
def test_served_numbers_equal_those_of_predict(served, finetuned):
    value = call(served("regression"), "regress", TEXTS)["value"]
    cells = predicted_cells(finetuned("regression"), TEXTS)
    np.testing.assert_allclose(value, [float(row[0]) for row in cells], rtol=2e-5)
    assert np.ptp(value) > 0.1


def test_ids_and_texts_give_the_same_outputs(served):
    model = served("pairs")
    of_text = call(model, "classify", ["Old sea"], ["who"])
    vocabulary = model.tokenizer.vocabulary
    tokens = ["[CLS]", "old", "sea", "[SEP]", "who", "[SEP]", "[PAD]"]
    ids = [[vocabulary.tokens.index(token) for token in tokens]]
    of_ids = model.classify_ids(tf.constant(ids), tf.constant([[1] * 6 + [0]]), tf.constant([[0] * 4 + [1, 1, 0]]))
    assert set(of_ids) == set(of_text) - {"truncated"}
    np.testing.assert_allclose(of_ids["probabilities"], of_text["probabilities"], atol=1e-6)
    assert of_ids["label"].numpy().tolist() == of_text["label"].tolist()


def test_windows_are_computed_in_blocks_of_32_rows(served):
    long = "a b c d e f g h i " * 16  # 144 tokens: 1 + ceil((144 - 14) / 4) = 34 windows
    alone = call(served("windows"), "classify", [long])["probabilities"]
    beside = call(served("windows"), "classify", ["sea", long])["probabilities"]
    np.testing.assert_allclose(alone[0], beside[1], atol=1e-6)


@pytest.mark.slow
def test_static_shapes_appear_in_signatures_and_change_no_result(served):
    fixed = served("pairs", ServingShapes(MAX_SEQ_LENGTH, batch_size=2, pad_to_max_length=True))
    ids, texts = fixed.classify_ids, fixed.embed
    assert {tuple(spec.shape) for spec in tf.nest.flatten(ids.structured_input_signature)} == {(2, 16)}
    assert {tuple(spec.shape) for spec in tf.nest.flatten(texts.structured_input_signature)} == {(2,)}
    pair = ["old sea", "a b"], ["who", "d"]
    first, second = (call(model, "classify", *pair)["probabilities"] for model in (fixed, served("pairs")))
    np.testing.assert_allclose(first, second, atol=1e-6)
    outputs = call(fixed, "embed", pair[0])
    assert (outputs["tokens"].shape, outputs["num_tokens"].tolist()) == ((2, 16), [4, 4])


# 16 tokens of a row are 1,024 bytes; a context is read up to 16 times as many.
@pytest.mark.parametrize(("kind", "name", "longest"), [("pairs", "embed", 1024), ("windows", "classify", 16_384)])
def test_a_text_is_read_up_to_the_tokens_and_the_bytes_of_its_rows(served, finetuned, kind, name, longest):
    model, has_windows = served(kind), kind == "windows"
    assert model.has_windows == has_windows
    assert call(model, name, ["sea " * 14, "sea " * 15])["truncated"].tolist() == [False, not has_windows]
    texts = [" " * (longest - 3) + "sea", " " * (longest - 2) + "sea", " " * longest + "sea", "東" * 4 * longest]
    assert call(model, name, texts)["truncated"].tolist() == [False, True, True, True]
    tokens = call(model, "embed", [" " * 1021 + "sea", " " * 1022 + "sea"])["tokens"]
    assert tokens.tolist() == [[b"[CLS]", b"sea", b"[SEP]"], [b"[CLS]", b"[UNK]", b"[SEP]"]]
    stride = finetuned(kind).finetuned.task.stride
    features = text_features([texts], {}, model.tokenizer, MAX_SEQ_LENGTH, stride)
    assert features.num_truncated == 3
    assert features.features.row_splits[:4].tolist() == [0, 3, 6, 8]


@pytest.mark.slow
def test_precision_changes_products_and_outputs_stay_float32(tiny_pretrained):
    exact, rough = (load_served_model(tiny_pretrained, precision=each) for each in ("float32", "bfloat16"))
    vectors = [call(model, "embed", ["w5 w6 w7"])["sequence_output"] for model in (exact, rough)]
    assert vectors[1].dtype == np.float32
    difference = np.abs(vectors[0] - vectors[1]).max()
    assert 1e-6 < difference < 0.1  # bfloat16 keeps 8 bits; after LayerNorm values are below about 4
    # Products' weights are stored as they are used; embeddings, LayerNorms and heads stay float32.
    assert {variable.dtype for variable in exact.variables} == {tf.float32}
    assert {variable.dtype for variable in rough.variables} == {tf.float32, tf.bfloat16}


def test_an_impossible_length_is_refused(tiny_pretrained):
    with pytest.raises(UserError, match="max_seq_length=21: .* 20 positions"):
        load_served_model(tiny_pretrained, max_seq_length=21)


@pytest.mark.slow
def test_a_model_with_one_segment_takes_pairs_and_ids_of_both(tiny_config, word_tokenizer):
    sizes = {"type_vocab_size": 1, "max_position_embeddings": 20}
    model = TextEncoder(build_objective(tiny_config(encoder=sizes)), word_tokenizer, SHAPES)
    ids, mask = tf.constant([[2, 7, 3, 8, 3]]), tf.ones([1, 5], tf.int32)
    vectors = [model.embed_ids(ids, mask, tf.constant([segments])) for segments in ([0] * 5, [0, 0, 0, 1, 1])]
    assert np.array_equal(*(each["sequence_output"].numpy() for each in vectors))


CONTEXTS = ["The old seaside (sea) who?", "", "a b c d e f g h i " * 6]
CHOICES = [["sea", "a b c", "who ? old"], ["ΣΙΣ é d, e"], ["old", "a b c d e f g h i a"]]
PADDED = [each + [""] * (3 - len(each)) for each in CHOICES]


@pytest.mark.slow
def test_served_probabilities_equal_those_of_predict(served, finetuned):
    outputs = call(served("choices"), "choose", CONTEXTS, PADDED)
    predicted = predicted_cells(finetuned("choices"), CONTEXTS, CHOICES, values=[1, 2, 3])
    assert outputs["choice"].tolist() == [int(row[0]) for row in predicted]
    expected = [[float(cell or 0) for cell in row[1:]] for row in predicted]
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=2e-6)
    assert outputs["truncated"].tolist() == [False, False, True]
    lowest = outputs["scores"] == np.finfo(np.float32).min
    assert lowest.tolist() == [[text == "" for text in row] for row in PADDED]


def test_a_context_alone_has_the_scores_that_it_has_in_a_batch(served):
    batch = call(served("choices"), "choose", CONTEXTS, PADDED)["scores"]
    for context, choices, scores in zip(CONTEXTS, CHOICES, batch, strict=True):
        alone = call(served("choices"), "choose", [context], [choices])["scores"]
        np.testing.assert_allclose(alone[0], scores[: len(choices)], atol=1e-5)


def test_a_choice_that_does_not_fit_is_cut_and_marked(served):
    for longest, is_cut in (("a b c d e f g h i a b c d e", True), ("a b c d e f g h i a b c d", False)):  # 13 fit
        assert call(served("choices"), "choose", [""], [[longest, "sea"]])["truncated"].tolist() == [is_cut]


def test_ids_and_texts_give_the_same_scores(served):
    model = served("choices")
    index = model.tokenizer.vocabulary.tokens.index
    rows = ["[CLS] old sea [SEP] who [SEP] [PAD]", "[CLS] old sea [SEP] a b [SEP]"]
    ids = [[[index(token) for token in row.split()] for row in rows]]
    mask, segments = [[[1] * 6 + [0], [1] * 7]], [[[0] * 4 + [1, 1, 0], [0] * 4 + [1] * 3]]
    of_ids = model.choose_ids(*map(tf.constant, (ids, mask, segments)))
    of_text = call(model, "choose", ["Old sea"], [["who", "a b"]])
    assert set(of_ids) == set(of_text) - {"truncated"}
    np.testing.assert_allclose(of_ids["scores"], of_text["scores"], atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "name", "texts", "message"),
    [
        ("choices", "choose", (["a", "b"], [["c", "d"]]), "expected a row of choices for each context"),
        ("pairs", "classify", (["a", "b", "c"], ["d"]), "expected the same number of texts"),
    ],
)
def test_different_numbers_of_texts_are_refused(served, kind, name, texts, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        call(served(kind), name, *texts)
