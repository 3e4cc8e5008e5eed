"""Token, position and segment embeddings with their LayerNorm, which generator and discriminator can share.

They share either the whole layer, or the generator's tables, to which the discriminator adds differences of its own.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from electra_tf.config.networks import EncoderConfig
from electra_tf.models.layers import (
    INFERENCE,
    ForwardContext,
    LayerNorm,
    Part,
    Shape,
    as_tensor,
    product,
    truncated_normal,
)


class Embeddings(Part):
    """The sum of three look-ups, then LayerNorm. Dropout and the projection to the hidden size belong to the encoder.

    Blocks without `has_position_tables` have only the table of words; pairs are told apart by [SEP].

    Two encoders that are given the same layer object share the three tables and the LayerNorm, as in the authors' code
    (the paper names token and position embeddings only).

    Args: layer_norm: one that exists; None: a new one.
    Call:
        input_ids: [B, S] int32.        segment_ids: [B, S] int32, each below `type_vocab_size`; ignored if that is 1.
        position_ids: [B, S] int32; None: 0, 1, 2 ... in each row.
    Returns: [B, S, E] in the layer's compute dtype.
    """

    def __init__(self, config: EncoderConfig, layer_norm: LayerNorm | None = None, **layer_options: Any) -> None:
        super().__init__(**layer_options)
        self.config = config
        self.layer_norm = layer_norm or LayerNorm(config.layer_norm_epsilon, config.has_norm_bias, name="LayerNorm")

    def build(self, input_shape: Shape) -> None:
        for name, rows in self.config.table_rows.items():
            # A new one for each table: an initializer without a seed repeats its values.
            initializer = truncated_normal(self.config.initializer_stddev)
            setattr(self, name, self.weight(name, [rows, self.config.embedding_size], initializer))

    def call(
        self,
        input_ids: tf.Tensor,
        segment_ids: tf.Tensor,
        position_ids: tf.Tensor | None = None,
        context: ForwardContext = INFERENCE,
    ) -> tf.Tensor:
        dtype = self.compute_dtype
        words = as_tensor(self.word_vectors(input_ids), dtype)  # [B, S, E]
        if not self.config.traits.has_position_tables:
            return self.layer_norm(words, context=context)
        positions = as_tensor(self.table("position_embeddings"), dtype)
        if position_ids is None:
            positions = positions[: input_ids.shape[1] or tf.shape(input_ids)[1]]  # [S, E]
        else:
            positions = tf.gather(positions, position_ids)  # [B, S, E]
        if self.config.type_vocab_size == 1:  # as in RoBERTa, whose pairs are told apart by [SEP] alone
            segment_ids = tf.zeros_like(segment_ids)
        segments = as_tensor(self.table("token_type_embeddings"), dtype)
        if context.training:  # the table has two rows: this product has a dense gradient and no scatter
            one_hot = tf.one_hot(segment_ids, self.config.type_vocab_size, dtype=words.dtype)
            segments = context.ops.shared(product)(one_hot, segments)  # [B, S, E]
        else:
            segments = tf.gather(segments, segment_ids)
        return self.layer_norm(words + positions + segments, context=context)

    def table(self, name: str) -> tf.Tensor:
        """One of the tables in `config.table_rows`: [rows, E] float32."""
        return as_tensor(getattr(self, name))

    def word_vectors(self, ids: tf.Tensor) -> tf.Tensor:
        """The rows of the word table: [...] int32 -> [..., E] float32."""
        return tf.gather(self.word_embeddings.value, ids)


class DisentangledEmbeddings(Embeddings):
    """Embeddings that share another network's tables: each table is the other's plus a difference that begins at zero.

    The losses of this network train the differences, and only the other network's losses train its tables. The
    LayerNorm is this network's own.

    Args: source: the other network's embeddings, of the same sizes.
    Source: He et al. 2021, "DeBERTaV3", section 3.3 (gradient-disentangled embedding sharing).
    """

    def __init__(self, config: EncoderConfig, source: Embeddings, **layer_options: Any) -> None:
        super().__init__(config, **layer_options)
        # In a function, because Keras would count an attribute's weights as this layer's.
        self._get_source: Callable[[], Embeddings] = lambda: source

    def build(self, input_shape: Shape) -> None:
        assert self._get_source().built, "the generator must be built first"
        for name, rows in self.config.table_rows.items():
            difference = f"{name}_difference"
            setattr(self, difference, self.weight(difference, [rows, self.config.embedding_size], "zeros"))

    def merged(self) -> Embeddings:
        """Embeddings whose tables are the sums, independent of the other network; the LayerNorm is the same object."""
        plain = Embeddings(self.config, self.layer_norm, name=self.name, dtype=self.dtype_policy)
        plain.build((None, None))
        for name in self.config.table_rows:
            getattr(plain, name).assign(self.table(name))
        return plain

    def table(self, name: str) -> tf.Tensor:
        """The sum of the shared table and this network's difference."""
        return tf.stop_gradient(self._get_source().table(name)) + as_tensor(getattr(self, f"{name}_difference"))

    def word_vectors(self, ids: tf.Tensor) -> tf.Tensor:
        # The rows are added and not the tables, so that no tensor has the size of the vocabulary.
        theirs = tf.stop_gradient(tf.gather(self._get_source().word_embeddings.value, ids))
        return theirs + tf.gather(self.word_embeddings_difference.value, ids)


def tied_embeddings(
    tying: str, generator: EncoderConfig, discriminator: EncoderConfig, dtype: str
) -> tuple[Embeddings, Embeddings]:
    """The embeddings of generator and discriminator: one layer object if they share all weights.

    Args:
        tying: `embeddings` or `all`: one layer for both, with its three tables and its LayerNorm; the encoders project
            its vectors to their hidden sizes. `gradient_disentangled`: the discriminator's tables are the generator's
            plus differences that it trains alone, and each network has its own LayerNorm. `none`: two layers.
    Source: paper section 3.2, "Weight Sharing".
    """
    if tying in ("embeddings", "all"):
        shared = Embeddings(discriminator, name="embeddings", dtype=dtype)
        return shared, shared
    of_generator = Embeddings(generator, name="generator_embeddings", dtype=dtype)
    if tying == "gradient_disentangled":
        return of_generator, DisentangledEmbeddings(discriminator, of_generator, name="embeddings", dtype=dtype)
    return of_generator, Embeddings(discriminator, name="embeddings", dtype=dtype)
