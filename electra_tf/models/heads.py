"""Heads on top of an encoder: masked LM, replaced tokens, copied tokens, difficulty. None has dropout."""

import math
from typing import Any

import keras
import tensorflow as tf

from electra_tf.config.networks import EncoderConfig
from electra_tf.models.embeddings import Embeddings
from electra_tf.models.encoder import LAYERS, Encoder, final_norm
from electra_tf.models.layers import (
    INFERENCE,
    Dense,
    DenseGelu,
    ForwardContext,
    LayerNorm,
    Linear,
    Part,
    Shape,
    as_tensor,
    glorot_uniform,
    truncated_normal,
)
from electra_tf.models.vocabulary_logits import VocabularyLogits
from electra_tf.ops.reference import NEG_INF


def _transform(config: EncoderConfig, units: int, dtype: Any) -> DenseGelu:
    """The first layer of a head."""
    initializer = truncated_normal(config.head_stddev)
    return DenseGelu(units, initializer, use_bias=config.has_head_bias, dtype=dtype, name="dense")


class _WordTableHead(Part):
    """Base of heads that compare vectors with rows of the word table: dense to the embedding size, GELU, LayerNorm.

    Args:
        embeddings: the layer whose word table is the output table too.
        dtype: policy of the layers before the product. The logits are always float32: the softmax over V and the
            sampling need more than eight bits of mantissa.
    """

    def __init__(self, config: EncoderConfig, embeddings: Embeddings, dtype: Any = None, **layer_options: Any) -> None:
        super().__init__(dtype="float32", **layer_options)
        self.embeddings = embeddings
        self.transform = _transform(config, embeddings.config.embedding_size, dtype)
        self.layer_norm = LayerNorm(config.layer_norm_epsilon, config.has_norm_bias, name="LayerNorm")

    def transformed(self, hidden: tf.Tensor, context: ForwardContext) -> tf.Tensor:
        """[B, M, H] -> [B, M, E]."""
        return self.layer_norm(self.transform(hidden, context=context), context=context)


class MaskedLmHead(_WordTableHead):
    """Predicts tokens: dense to the embedding size, GELU, LayerNorm, product with the word table.

    The authors' form, and ModernBERT's, whose dense layer has no bias by default; the paper's formula has the product
    alone.

    Call: hidden: [B, M, G], the encoder's output at M positions, as a rule the masked ones.
    """

    _surplus = 0  # the number of last entries that have no token

    def build(self, input_shape: Shape) -> None:
        vocab_size = self.embeddings.config.vocab_size
        self.output_bias = self.weight("output_bias", [vocab_size], "zeros")

    def adopt_num_tokens(self, num_tokens: int) -> None:
        """States that later entries have no token, so none is predicted. Call it before weights are loaded."""
        self._surplus = self.embeddings.config.vocab_size - num_tokens
        # For programs that do not know it, such as transformers; training can raise -100 for a token that is added.
        bias = tf.pad(as_tensor(self.output_bias)[:num_tokens], [[0, self._surplus]], constant_values=-100.0)
        self.output_bias.assign(bias)

    def call(self, hidden: tf.Tensor, context: ForwardContext = INFERENCE) -> VocabularyLogits:
        table, bias = self.embeddings.table("word_embeddings"), as_tensor(self.output_bias)
        if self._surplus:
            bias = tf.pad(bias[: -self._surplus], [[0, self._surplus]], constant_values=NEG_INF)
        return VocabularyLogits(self.transformed(hidden, context), table, bias, context.ops)


class WordSelectionHead(_WordTableHead):
    """Selects each token from candidates: products with the candidates' rows of the word table, without a bias.

    Call: hidden: [B, M, H], the encoder's output at M positions.        candidates: [B, M, K] int32, tokens.
    Returns: [B, M, K] float32 logits.
    Source: Shen et al. 2021; `MultiWordSelectionHead` of the TensorFlow Model Garden.
    """

    def call(self, hidden: tf.Tensor, candidates: tf.Tensor, context: ForwardContext = INFERENCE) -> tf.Tensor:
        rows = self.embeddings.word_vectors(candidates)  # [B, M, K, E]
        return tf.linalg.matvec(rows, tf.cast(self.transformed(hidden, context), tf.float32))


class ReplacedTokenHead(Part):
    """Predicts whether each token was replaced: dense with GELU, then dense to one unit.

    The authors' form; the paper's formula has a single product with a vector. With some blocks (`has_head_norm`) a
    LayerNorm stands between the two, as in Hugging Face's `ModernBertForTokenClassification`.

    Call: hidden: [B, S, H]. Returns: [B, S] float32 logits; positive means replaced.
    """

    def __init__(self, config: EncoderConfig, **layer_options: Any) -> None:
        super().__init__(**layer_options)
        self.transform = _transform(config, config.hidden_size, self.dtype_policy)
        self.layer_norm, initializer = None, glorot_uniform()
        if config.traits.has_head_norm:
            self.layer_norm = LayerNorm(config.layer_norm_epsilon, config.has_norm_bias, name="LayerNorm")
            initializer = truncated_normal(config.hidden_size**-0.5)  # as transformers' classifiers
        # A logit, so float32 whatever the policy.
        self.score = Dense(1, kernel_initializer=initializer, dtype="float32", name="dense_1")

    def call(self, hidden: tf.Tensor, context: ForwardContext = INFERENCE) -> tf.Tensor:
        transformed = self.transform(hidden, context=context)
        if self.layer_norm is not None:
            transformed = self.layer_norm(transformed, context=context)
        return tf.squeeze(self.score(transformed, context=context), axis=-1)


class ReplacedTokenBranch(Part):
    """A replaced-token head on an encoder layer of its own, which takes the place of the encoder's last one.

    Call: hidden: [B, S, H], the input of the encoder's last layer.        key_mask: as of the layer.
    """

    def __init__(self, config: EncoderConfig, **layer_options: Any) -> None:
        super().__init__(**layer_options)
        options, index = {"dtype": self.dtype_policy}, config.num_layers
        self.layer = LAYERS[config.block](config, index, name=f"layer_{index}", **options)
        self.final_norm = final_norm(config)
        self.head = ReplacedTokenHead(config, name="head", **options)

    def call(self, hidden: tf.Tensor, key_mask: tf.Tensor, context: ForwardContext = INFERENCE) -> tf.Tensor:
        hidden, _ = self.layer(hidden, key_mask=key_mask, context=context.fold_in(self.layer.name))
        if self.final_norm is not None:
            hidden = self.final_norm(hidden, context=context)
        return self.head(hidden, context=context)


class CopyHead(Part):
    """Predicts whether each token is copied from the input: dense to one unit (paper section 3.5, "a sigmoid layer").

    Call: hidden: [B, S, H]. Returns: [B, S] float32 logits of the copy probability.
    """

    def __init__(self, **layer_options: Any) -> None:
        # A logit, so float32 whatever the policy.
        super().__init__(dtype="float32", **layer_options)
        self.score = Dense(1, kernel_initializer=glorot_uniform(), dtype="float32", name="dense")

    def call(self, hidden: tf.Tensor, context: ForwardContext = INFERENCE) -> tf.Tensor:
        return tf.squeeze(self.score(hidden, context=context), axis=-1)


class DifficultyModel(Part):
    """Predicts from the unmasked text, for every token, the loss of a masked LM if that token were masked.

    It begins at ln V, the loss of an untrained masked LM.

    Call: as of an `Encoder`, nothing masked. Returns: [B, S] float32, in nats.
    """

    def __init__(self, encoder: Encoder, **layer_options: Any) -> None:
        super().__init__(**layer_options)
        self.encoder = encoder
        self.head = Linear(
            1,
            kernel_initializer=glorot_uniform(),
            bias_initializer=keras.initializers.Constant(math.log(encoder.config.vocab_size)),
            dtype="float32",
            name="difficulty_predictions",
        )

    def call(self, input_ids: tf.Tensor, context: ForwardContext = INFERENCE, **inputs: tf.Tensor) -> tf.Tensor:
        output = self.encoder(input_ids, **inputs, context=context)
        return tf.squeeze(self.head(output.sequence_output), axis=-1)
