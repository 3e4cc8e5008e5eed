"""The encoder: shapes, what its attention reads, and computation in bfloat16."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.embeddings import Embeddings
from electra_tf.models.encoder import Encoder
from electra_tf.models.layers import INFERENCE, ForwardContext
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import build_objective
from tests.toy import randomize

SAMPLING = ForwardContext(random=RandomStream(0, 0, 0))
TRAINING = ForwardContext(training=True, random=RandomStream(0, 0, 0))


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
    creating = ForwardContext(training=False, random=RandomStream(0, 0, 0), creates_variables=True)
    inputs = {name: batch[name] for name in ("input_ids", "input_mask", "segment_ids")}
    for layers in (output.all_layer_outputs, electra.encoder(**inputs, context=creating).all_layer_outputs):
        assert [layer.shape for layer in layers] == [(5, 10, 16)] * 3
    assert [probs.shape for probs in output.attention_probs] == [(5, 2, 10, 10)] * 3
    assert np.array_equal(output.pooled_output, output.sequence_output[:, 0])
    assert np.array_equal(output.all_layer_outputs[-1], output.sequence_output)


@pytest.mark.parametrize("attention_mask", ["bidirectional", "left_to_right"])
def test_inference_gives_what_training_gives_without_dropout(tiny_config, batch, attention_mask):
    """tests/train/test_authors_trajectory.py has training, with padding and two segments."""
    quiet = {"num_layers": 3, "initializer_range": 0.5, "hidden_dropout": 0.0, "attention_dropout": 0.0}
    config = tiny_config(encoder=quiet).encoder
    encoder = Encoder(config, Embeddings(config), attention_mask)
    inputs = {name: batch[name] for name in ("input_ids", "input_mask", "segment_ids")}
    encoder(**inputs)
    randomize({variable.path: variable for variable in encoder.variables}, seed=2)
    after, training = (encoder(**inputs, context=each).sequence_output.numpy() for each in (INFERENCE, TRAINING))
    np.testing.assert_allclose(after, training, atol=1e-5)


@pytest.mark.parametrize("name", ["electra", "bert_mlm"])
def test_in_bfloat16_logits_losses_and_weights_are_float32(tiny_config, batch, name):
    objective = build_objective(tiny_config(objective={"name": name}, train={"precision": "bfloat16"}))
    assert encode(objective, batch).sequence_output.dtype == tf.bfloat16
    forward = objective.forward(batch, SAMPLING)
    of_electra = name == "electra"
    logits = [forward.generated.logits, forward.replaced_token_logits] if of_electra else [forward.logits]
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
    as_given = encode(objective, batch).sequence_output
    assert np.array_equal(as_given, encode(objective, batch, segment_ids=tf.zeros([5, 10], tf.int32)).sequence_output)
    objective.encoder.embeddings.token_type_embeddings.assign(tf.fill([1, 12], 9.0) * tf.range(12.0))
    assert not np.allclose(as_given, encode(objective, batch).sequence_output)
