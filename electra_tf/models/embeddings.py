"""Token, position and segment embeddings with their LayerNorm: the part that generator and discriminator share.

Either as one layer, or as tables of the generator's with a difference of the discriminator's own.
"""

import tensorflow as tf
import tf_keras

from electra_tf.config.schema import EncoderConfig
from electra_tf.models.layers import INFERENCE, ForwardContext, LayerNorm, truncated_normal


class Embeddings(tf_keras.layers.Layer):
    """Sum of three look-ups, then LayerNorm. Dropout and the projection to the hidden size belong to each encoder.

    Sharing this layer object shares all of it: the three tables and the LayerNorm, as the authors' code does (the paper
    names token and position embeddings only).

    Args:
        config: sizes; `vocab_size`, `embedding_size`, `max_position_embeddings` and `type_vocab_size` are used.
    Call:
        input_ids: [B, S] int32.        segment_ids: [B, S] int32, each below `type_vocab_size`.
    Returns: [B, S, E] in the layer's compute dtype.
    """

    def __init__(self, config: EncoderConfig, **layer_options):
        super().__init__(**layer_options)
        self.config = config
        self.layer_norm = LayerNorm(epsilon=config.layer_norm_epsilon, name="LayerNorm")

    def build(self, input_shape):
        for name, rows in self._table_rows().items():
            initializer = truncated_normal(self.config.initializer_stddev)  # one each: unseeded, it repeats its values
            setattr(self, name, self._table(name, rows, initializer))
        super().build(input_shape)

    def call(self, input_ids: tf.Tensor, segment_ids: tf.Tensor, context: ForwardContext = INFERENCE) -> tf.Tensor:
        words = self._words(input_ids)  # [B, S, E]
        positions = self.position_embeddings[: input_ids.shape[1] or tf.shape(input_ids)[1]]  # [S, E]
        # Two rows only: a product with one-hot vectors has a dense gradient and no scatter.
        segments = tf.one_hot(segment_ids, self.config.type_vocab_size, dtype=words.dtype)
        segments = tf.tensordot(segments, self.token_type_embeddings, axes=1)  # [B, S, E]
        return self.layer_norm(words + positions + segments, context=context)

    def _table_rows(self) -> dict[str, int]:
        config = self.config
        return {
            "word_embeddings": config.vocab_size,
            "position_embeddings": config.max_position_embeddings,
            "token_type_embeddings": config.type_vocab_size,
        }

    def _table(self, name: str, rows: int, initializer) -> tf.Variable:
        return self.add_weight(name=name, shape=[rows, self.config.embedding_size], initializer=initializer)

    def _words(self, input_ids: tf.Tensor) -> tf.Tensor:
        return tf.gather(self.word_embeddings, input_ids)


class DisentangledEmbeddings(Embeddings):
    """Embeddings that lean on another network's: each table is the other's plus a difference that begins at zero.

    Losses of this network train the differences and leave the other's tables alone, which its own losses go on
    training; so neither pulls the other's way. The LayerNorm is this network's own.

    Args:
        source: whose tables these are differences to; of the same sizes. Its weights are not among this layer's.
    Call and returns: as `Embeddings`.
    Source: He et al. 2021, "DeBERTaV3", section 3.3 (gradient-disentangled embedding sharing).
    """

    def __init__(self, config: EncoderConfig, source: Embeddings, **layer_options):
        super().__init__(config, **layer_options)
        # Behind a function: Keras would count the source's weights as this layer's.
        self._get_source = lambda: source

    def build(self, input_shape):
        assert self._get_source().built, "the generator comes first"
        for name, rows in self._table_rows().items():
            setattr(self, f"{name}_difference", self._table(f"{name}_difference", rows, "zeros"))
        # Not of the class above, which would make tables of its own.
        tf_keras.layers.Layer.build(self, input_shape)

    @property
    def word_embeddings(self) -> tf.Tensor:
        """[V, E], the sum. The two tables below likewise."""
        return self._sum("word_embeddings")

    @property
    def position_embeddings(self) -> tf.Tensor:
        return self._sum("position_embeddings")

    @property
    def token_type_embeddings(self) -> tf.Tensor:
        return self._sum("token_type_embeddings")

    def merged(self) -> Embeddings:
        """Embeddings that have the sums for tables, to be used without the other network. The LayerNorm is this one."""
        plain = Embeddings(self.config, name=self.name, dtype=self.dtype_policy)
        with tf.name_scope(self.name):
            plain.build([None, None])
        for name in self._table_rows():
            getattr(plain, name).assign(self._sum(name))
        plain.layer_norm = self.layer_norm
        return plain

    def _sum(self, name: str) -> tf.Tensor:
        return tf.stop_gradient(getattr(self._get_source(), name)) + getattr(self, f"{name}_difference")

    def _words(self, input_ids: tf.Tensor) -> tf.Tensor:
        # Rows are added, not tables: nothing of the size of the vocabulary is made.
        theirs = tf.stop_gradient(tf.gather(self._get_source().word_embeddings, input_ids))
        return theirs + tf.gather(self.word_embeddings_difference, input_ids)
