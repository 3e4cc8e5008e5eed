"""Shapes and precision by option, and texts that are cut."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.export.load_served import load_served_model
from electra_tf.export.packing import Tokens, cut_pair, pack, windows
from electra_tf.export.served_model import ServingShapes
from electra_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary
from tests.export.conftest import MAX_SEQ_LENGTH, call


def test_static_shapes_are_those_of_the_signature_and_change_no_result(served):
    fixed = served("pairs", ServingShapes(MAX_SEQ_LENGTH, batch_size=2, pad_to_max_length=True))
    ids, texts = fixed.classify_ids.get_concrete_function(), fixed.embed.get_concrete_function()
    assert {tuple(spec.shape) for spec in tf.nest.flatten(ids.structured_input_signature)} == {(2, 16)}
    assert {tuple(spec.shape) for spec in tf.nest.flatten(texts.structured_input_signature)} == {(2,)}
    pair = ["old sea", "a b"], ["who", "d"]
    np.testing.assert_allclose(
        call(fixed, "classify", *pair)["probabilities"],
        call(served("pairs"), "classify", *pair)["probabilities"],
        atol=1e-6,
    )
    outputs = call(fixed, "embed", pair[0])
    assert (outputs["tokens"].shape, outputs["num_tokens"].tolist()) == ((2, 16), [4, 4])


def test_a_text_that_is_cut_says_so(served):
    outputs = call(served("regression"), "regress", ["sea " * 14, "sea " * 15])
    assert outputs["truncated"].tolist() == [False, True]


def test_precision_is_that_of_the_products_and_outputs_stay_float32(tiny_pretrained):
    exact, rough = (load_served_model(tiny_pretrained, precision=each) for each in ("float32", "bfloat16"))
    vectors = [call(model, "embed", ["w5 w6 w7"])["sequence_output"] for model in (exact, rough)]
    assert vectors[1].dtype == np.float32
    difference = np.abs(vectors[0] - vectors[1]).max()
    assert 1e-6 < difference < 0.1  # bfloat16 keeps 8 bits; after LayerNorm values are below about 4
    # Products' weights are stored as they are used; embeddings, LayerNorms and heads stay float32.
    assert [{variable.dtype for variable in each.variables} for each in (exact, rough)] == [
        {tf.float32},
        {tf.float32, tf.bfloat16},
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_seq_length": 21}, "--max_seq_length=21: expected 3 to 20, the model's number of positions"),
        ({"max_seq_length": 2}, "--max_seq_length=2: expected 3 to 20"),
        ({"max_seq_length": 0}, "--max_seq_length=0: expected 3 to 20"),
        ({"batch_size": 0}, "--batch_size=0: expected 1 or more"),
    ],
)
def test_shapes_that_cannot_be_are_refused(tiny_pretrained, options, message):
    with pytest.raises(UserError, match=message):
        load_served_model(tiny_pretrained, **options)


# Packing, by hand: texts of 3, 0 and 5 tokens, numbered.

TEXTS = Tokens(
    tf.constant([10, 11, 12, 20, 21, 22, 23, 24]), tf.constant([0, 3, 3], tf.int64), tf.constant([3, 0, 5], tf.int64)
)


def test_the_longer_text_of_a_pair_loses_its_end_first():
    other = Tokens(TEXTS.ids, TEXTS.start, tf.constant([2, 6, 4], tf.int64))
    first, second = cut_pair(TEXTS, other, room=5)
    assert first.length.numpy().tolist() == [3, 0, 3]
    assert second.length.numpy().tolist() == [2, 5, 2]


def test_windows_have_a_stride_and_the_last_one_ends_with_its_text():
    parts, text = windows(TEXTS, room=2, stride=2)
    assert text.numpy().tolist() == [0, 0, 1, 2, 2, 2]
    assert parts.start.numpy().tolist() == [0, 1, 3, 3, 5, 6]
    assert parts.length.numpy().tolist() == [2, 2, 0, 2, 2, 2]


def test_rows_have_special_tokens_segments_and_padding():
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "a"), sha256="")
    cls, sep, pad = vocabulary.cls_id, vocabulary.sep_id, vocabulary.pad_id
    seconds = Tokens(tf.constant([30]), tf.constant([0, 1, 0], tf.int64), tf.constant([1, 0, 1], tf.int64))
    rows = pack([TEXTS, seconds], vocabulary, width=None)
    assert rows.input_ids.numpy().tolist() == [
        [cls, 10, 11, 12, sep, 30, sep, pad, pad],
        [cls, sep, sep, pad, pad, pad, pad, pad, pad],
        [cls, 20, 21, 22, 23, 24, sep, 30, sep],
    ]
    assert rows.num_tokens.numpy().tolist() == [7, 3, 9]
    assert rows.segment_ids.numpy().tolist()[0] == [0, 0, 0, 0, 0, 1, 1, 0, 0]
    assert pack([TEXTS], vocabulary, width=11).input_mask.shape == (3, 11)
