"""Token, position and segment embeddings with their LayerNorm: the part that generator and discriminator share."""

import tensorflow as tf
import tf_keras

from electra_tf.config.networks import EncoderConfig
from electra_tf.models.initializers import truncated_normal
from electra_tf.models.layer_norm import LayerNorm


class Embeddings(tf_keras.layers.Layer):
    """Sum of three look-ups, then LayerNorm. Dropout and the projection to the hidden size belong to each encoder.

    Sharing this layer object shares all of it: the three tables and the LayerNorm, as the authors' code does (the paper
    names token and position embeddings only).

    Args:
        config: sizes; `vocab_size`, `embedding_size`, `max_position_embeddings` and `type_vocab_size` are used.
    Call:
        input_ids: [B, S] int32.        segment_ids: [B, S] int32, each below `type_vocab_size`.
        training: whether LayerNorm is compiled, see `electra_tf.models.programs`.
    Returns: [B, S, E] in the layer's compute dtype.
    """

    def __init__(self, config: EncoderConfig, **layer_options):
        super().__init__(**layer_options)
        self.config = config
        self.layer_norm = LayerNorm(epsilon=config.layer_norm_epsilon, name="LayerNorm")

    def build(self, input_shape):
        config = self.config
        tables = {
            "word_embeddings": config.vocab_size,
            "position_embeddings": config.max_position_embeddings,
            "token_type_embeddings": config.type_vocab_size,
        }
        for name, rows in tables.items():
            initializer = truncated_normal(config.initializer_range)  # one each: an unseeded one repeats its values
            table = self.add_weight(name=name, shape=[rows, config.embedding_size], initializer=initializer)
            setattr(self, name, table)
        super().build(input_shape)

    def call(self, input_ids: tf.Tensor, segment_ids: tf.Tensor, training: bool = False) -> tf.Tensor:
        words = tf.gather(self.word_embeddings, input_ids)  # [B, S, E]
        positions = self.position_embeddings[: input_ids.shape[1] or tf.shape(input_ids)[1]]  # [S, E]
        # Two rows only: a product with one-hot vectors has a dense gradient and no scatter.
        segments = tf.one_hot(segment_ids, self.config.type_vocab_size, dtype=words.dtype)
        segments = tf.tensordot(segments, self.token_type_embeddings, axes=1)  # [B, S, E]
        return self.layer_norm(words + positions + segments, compile=training)
