"""The encoder: shapes, what its attention reads, and computation in bfloat16."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.encoder import build_encoder
from electra_tf.models.layers import ForwardContext
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import build_objective

SAMPLING = ForwardContext(random=RandomStream(0, 0, 0))


@pytest.fixture(scope="module")
def electra(tiny_config):
    keras.utils.set_random_seed(1)
    return build_objective(tiny_config(encoder={"num_layers": 3, "initializer_range": 0.5}))


@pytest.fixture(scope="module")
def batch(tiny_config, tiny_batch):
    return tiny_batch(tiny_config(), [10, 7, 5, 8, 6])


def encode(objective, batch, **changes):
    return objective({**batch, **changes})


def test_outputs_of_the_discriminator(electra, batch):
    output = encode(electra, batch)
    assert [layer.shape for layer in output.all_layer_outputs] == [(5, 10, 16)] * 3
    assert np.array_equal(output.pooled_output, output.sequence_output[:, 0])
    assert np.array_equal(output.all_layer_outputs[-1], output.sequence_output)


def test_a_forward_pass_that_only_creates_variables_has_the_output_of_each_layer(tiny_config):
    encoder = build_encoder(tiny_config(encoder={"num_layers": 3}).encoder, "float32")
    creating = ForwardContext(training=False, random=RandomStream(0, 0, 0), creates_variables=True)
    ones = tf.ones([5, 10], tf.int32)
    output = encoder(ones, input_mask=ones, segment_ids=ones, context=creating)
    assert [layer.shape for layer in output.all_layer_outputs] == [(5, 10, 16)] * 3


def test_attention_probabilities_of_real_keys_sum_to_one(electra, batch):
    for probs in encode(electra, batch).attention_probs:
        assert probs.numpy().sum(axis=-1) == pytest.approx(1.0, abs=1e-5)
        assert probs.numpy()[1, :, :, 7:].max() == 0.0
        assert probs.numpy()[1, :, :, :7].min() > 0.0


def test_padding_does_not_influence_real_tokens(electra, batch):
    junk = tf.where(batch["input_mask"] > 0, batch["input_ids"], 33)
    segments = tf.where(batch["input_mask"] > 0, batch["segment_ids"], 1)
    clean = encode(electra, batch).sequence_output.numpy()
    dirty = encode(electra, batch, input_ids=junk, segment_ids=segments).sequence_output.numpy()
    real = batch["input_mask"].numpy() > 0
    assert np.array_equal(clean[real], dirty[real])
    assert not np.array_equal(clean[~real], dirty[~real])


def test_every_real_token_depends_on_every_other(electra, batch):
    before = encode(electra, batch).sequence_output.numpy()
    changed = batch["input_ids"].numpy().copy()
    changed[1, 6] = 1
    after = encode(electra, batch, input_ids=tf.constant(changed)).sequence_output.numpy()
    assert (np.abs(after - before)[1, :7].max(axis=-1) > 1e-4).all()
    assert np.array_equal(after[[0, 2, 3, 4]], before[[0, 2, 3, 4]])


def test_the_output_depends_on_order_and_segments(electra, batch):
    before = encode(electra, batch).pooled_output
    reversed_words = tf.concat(
        [batch["input_ids"][:, :1], batch["input_ids"][:, 5:0:-1], batch["input_ids"][:, 6:]], axis=1
    )
    assert np.abs(encode(electra, batch, input_ids=reversed_words).pooled_output - before).max() > 1e-3
    assert np.abs(encode(electra, batch, segment_ids=1 - batch["segment_ids"]).pooled_output - before).max() > 1e-3


@pytest.mark.parametrize("objective_name", ["electra", "bert_mlm"])
def test_in_bfloat16_logits_losses_and_weights_are_float32(tiny_config, batch, objective_name):
    settings = {"train": {"precision": "bfloat16"}}
    if objective_name == "bert_mlm":
        settings["objective"] = {"name": "bert_mlm"}
    objective = build_objective(tiny_config(**settings))
    assert encode(objective, batch).sequence_output.dtype == tf.bfloat16
    forward = objective.forward(batch, SAMPLING)
    logits = (
        [forward.logits] if objective_name == "bert_mlm" else [forward.generated.logits, forward.replaced_token_logits]
    )
    terms = [total.value for total in objective.training_terms(batch, SAMPLING).values()]
    assert {tf.as_dtype(tensor.dtype) for tensor in [*logits, *terms, *objective.trainable_variables]} == {tf.float32}


def test_bfloat16_logits_are_products_with_the_unrounded_table(tiny_config):
    objective = build_objective(tiny_config(train={"precision": "bfloat16"}))
    head = objective.generator.head
    hidden = tf.random.stateless_normal([2, 3, 6], seed=[1, 2])
    transformed = tf.cast(head.layer_norm(head.transform(hidden)), tf.float32).numpy()
    table = objective.discriminator.embeddings.word_embeddings.numpy()
    assert (table != table.astype(tf.bfloat16.as_numpy_dtype)).any()
    # Sums of 12 products in float32.
    np.testing.assert_allclose(head(hidden).logits.numpy(), transformed @ table.T, rtol=0, atol=12 * 2.0**-23)


def test_with_one_row_of_segments_every_token_has_it(tiny_config, batch):
    objective = build_objective(tiny_config(encoder={"type_vocab_size": 1, "initializer_range": 0.5}))
    assert objective.encoder.embeddings.token_type_embeddings.shape == (1, 12)
    assert batch["segment_ids"].numpy().any()
    as_given = encode(objective, batch).sequence_output
    assert np.array_equal(as_given, encode(objective, batch, segment_ids=tf.zeros([5, 10], tf.int32)).sequence_output)
    objective.encoder.embeddings.token_type_embeddings.assign(tf.fill([1, 12], 9.0) * tf.range(12.0))
    assert not np.allclose(as_given, encode(objective, batch).sequence_output)
