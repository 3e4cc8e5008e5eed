"""Encoders that are prepared for inference give the results of the trained ones."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.networks import EncoderConfig
from electra_tf.models.embeddings import Embeddings
from electra_tf.models.encoder import Encoder
from electra_tf.models.inference import prepare_for_inference
from electra_tf.weights.names import encoder_variables
from tests.toy import ENCODER, VOCAB_SIZE, randomize

# D 7, so that the scale of the queries is not a power of two.
CONFIG = EncoderConfig(**ENCODER | {"hidden_size": 21, "num_heads": 3, "num_layers": 2})
INPUTS = {
    "input_ids": tf.constant([[2, 7, 11, 3, 0], [2, 5, 13, 17, 3]]),
    "input_mask": tf.constant([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]),
    "segment_ids": tf.constant([[0, 0, 1, 1, 0], [0, 1, 1, 1, 1]]),
}


def random_encoder(dtype="float32", attention_mask="bidirectional") -> Encoder:
    embeddings = Embeddings(CONFIG, name="embeddings", dtype=dtype)
    encoder = Encoder(CONFIG, embeddings, attention_mask, name="electra", dtype=dtype)
    encoder(**INPUTS)
    randomize(encoder_variables(encoder), seed=5)
    return encoder


@pytest.mark.parametrize(
    ("num_rows", "width", "attention_mask", "halves"),
    [
        (7, 13, "bidirectional", ["batch", "batch"]),
        (7, 13, "left_to_right", ["batch", "batch"]),
        (1, 13, "left_to_right", ["batch"]),
        (1, 13, "bidirectional", ["sequence"]),
        (1, 1, "bidirectional", ["batch"]),
        (0, 13, "bidirectional", ["sequence"]),
    ],
)
def test_two_halves_of_a_batch_or_of_one_sequence_have_the_same_vectors(num_rows, width, attention_mask, halves):
    random = np.random.default_rng(num_rows)
    mask = (np.arange(width) < np.arange(width, width - num_rows, -1)[:, np.newaxis]).astype(np.int32)
    inputs = {"input_ids": random.integers(5, VOCAB_SIZE, mask.shape), "input_mask": mask}
    inputs |= {"segment_ids": mask * random.integers(0, 2, mask.shape)}
    inputs = {name: tf.constant(values, tf.int32) for name, values in inputs.items()}
    encoder = random_encoder(attention_mask=attention_mask)
    before = encoder(**inputs).sequence_output
    prepare_for_inference(encoder)
    seen: list[str] = []
    _, (layers,) = encoder.parts()
    whole, in_two_parts = layers._get_functions()
    layers._get_functions = lambda: (
        lambda hidden, mask: seen.append("batch") or whole(hidden, mask),
        lambda hidden, mask: seen.append("sequence") or in_two_parts(hidden, mask),
    )
    # Sums of some 20 float32 numbers of size 1 in other orders, in two layers.
    np.testing.assert_allclose(encoder(**inputs).sequence_output, before, atol=5e-6)
    assert not num_rows or np.abs(before).max() > 1.0
    assert seen == halves


def test_in_bfloat16_the_error_stays_as_small_as_before():
    exact = random_encoder()(**INPUTS).sequence_output.numpy()
    encoder = random_encoder("mixed_bfloat16")
    before = np.abs(tf.cast(encoder(**INPUTS).sequence_output, tf.float32) - exact).max()
    prepare_for_inference(encoder)
    output = encoder(**INPUTS).sequence_output
    assert output.dtype == tf.bfloat16
    assert np.abs(tf.cast(output, tf.float32) - exact).max() < 2 * before
