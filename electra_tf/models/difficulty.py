"""Guesses how hard each token of a text would be to predict."""

import math

import tensorflow as tf
import tf_keras

from electra_tf.models.context import INFERENCE, ForwardContext
from electra_tf.models.encoder import Encoder
from electra_tf.models.initializers import glorot_uniform


class DifficultyModel(tf_keras.layers.Layer):
    """The loss that a masked LM would have at every token, were it masked, guessed from the text itself.

    It begins at ln V, what an untrained one loses everywhere.

    Call:
        input_ids, input_mask, segment_ids: [B, S] int32, nothing masked.
    Returns: [B, S] float32, in nats.
    """

    def __init__(self, encoder: Encoder, **layer_options):
        super().__init__(**layer_options)
        self.encoder = encoder
        self.head = tf_keras.layers.Dense(
            1,
            kernel_initializer=glorot_uniform(),
            bias_initializer=tf_keras.initializers.Constant(math.log(encoder.config.vocab_size)),
            dtype="float32",
            name="difficulty_predictions",
        )

    def call(
        self,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor,
        segment_ids: tf.Tensor,
        context: ForwardContext = INFERENCE,
    ) -> tf.Tensor:
        output = self.encoder(input_ids, input_mask=input_mask, segment_ids=segment_ids, context=context)
        return tf.squeeze(self.head(output.sequence_output), axis=-1)
