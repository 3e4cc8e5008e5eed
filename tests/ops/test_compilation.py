"""What a step that is compiled as a whole becomes."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.context import ForwardContext
from electra_tf.models.embeddings import Embeddings
from electra_tf.models.encoder import Encoder
from electra_tf.ops.compilation import part_of_one_program, stored
from electra_tf.ops.random import RandomStream


def compiled_lines(config) -> int:
    """The lines of the program that XLA makes, on this machine, of an encoder's way there and back."""
    encoder = Encoder(config, Embeddings(config))
    ids = tf.ones([2, 9], tf.int32)
    encoder(ids, input_mask=ids, segment_ids=ids)

    @tf.function(jit_compile=True, autograph=False)
    def gradients(ids):
        context = ForwardContext(training=True, random=RandomStream(0, 0, 0))
        with part_of_one_program():
            with tf.GradientTape() as tape:
                output = encoder(ids, input_mask=ids, segment_ids=ids, context=context).sequence_output
                loss = tf.reduce_sum(tf.square(output))
            return tape.gradient(loss, encoder.trainable_variables, unconnected_gradients="zero")

    return gradients.experimental_get_compiler_ir(ids)(stage="optimized_hlo").count("\n")


def test_the_program_grows_with_the_depth_and_not_with_its_square(tiny_config):
    two, four, six = (compiled_lines(tiny_config(encoder={"num_layers": layers}).encoder) for layers in (2, 4, 6))
    # Where layers are computed again in the loops of those above, the second two add 1.6 times what the first two do.
    assert 0 < six - four < 1.1 * (four - two)


@pytest.mark.parametrize("values", [[1.5, -0.0, 3e38], [float("inf"), -1e-37, float("nan")]])
def test_stored_values_are_the_values(values):
    @tf.function(jit_compile=True)
    def program(values, beside):
        with part_of_one_program():
            return stored(values, beside)

    found = program(tf.constant(values), tf.constant([0.0, 2.0]))
    np.testing.assert_array_equal(found, np.float32(values))
