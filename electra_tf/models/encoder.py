"""The transformer encoder: embeddings and layers of one kind of block."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from electra_tf.config.networks import EncoderConfig
from electra_tf.models.bert_block import TransformerLayer
from electra_tf.models.embeddings import Embeddings
from electra_tf.models.layers import INFERENCE, Dense, EncoderPart, ForwardContext, LayerNorm, Part, glorot_uniform
from electra_tf.models.modern_block import ModernLayer
from electra_tf.ops.gradients import recomputed
from electra_tf.ops.reference import key_mask_of

# The class of the layers of each of `electra_tf.config.networks.BLOCKS`.
LAYERS = {"bert": TransformerLayer, "modern": ModernLayer}


def final_norm(config: EncoderConfig) -> LayerNorm | None:
    """The LayerNorm after the last layer; None for blocks whose layers end with one."""
    if not config.traits.is_pre_norm:
        return None
    return LayerNorm(config.layer_norm_epsilon, config.has_norm_bias, name="final_LayerNorm")


class EncoderOutput(NamedTuple):
    """The output of an encoder."""

    sequence_output: tf.Tensor  # [B, S, H], the last layer's output
    pooled_output: tf.Tensor  # [B, H], of it the vector of the row's first token, [CLS]: ELECTRA has no pooler layer
    embedding_output: tf.Tensor  # [B, S, H], the input of the first layer
    all_layer_outputs: tuple[tf.Tensor, ...]  # L tensors [B, S, H]; the last is `sequence_output`
    # L tensors [B, A, S, S] float32, for inspection. Empty in training and with blocks that do not return them.
    attention_probs: tuple[tf.Tensor, ...]


class Encoder(EncoderPart):
    """Embeddings, projected where their size is not the hidden size, and the transformer layers.

    Args:
        embeddings: passing the same object to two encoders ties them.
        attention_mask: see `AttentionOptions`.
        other, num_shared: another encoder, whose projection and first `num_shared` layers are this one's too.
    Call:
        input_ids, input_mask, segment_ids: [B, S] int32; `input_mask` is 1 for real tokens.
        position_ids: [B, S] int32, the position of each token in its sequence, for rows of several sequences: tokens
            attend to their own sequence only. None: a row is one sequence.
    Returns: `EncoderOutput`.
    """

    def __init__(
        self,
        config: EncoderConfig,
        embeddings: Embeddings,
        attention_mask: str = "bidirectional",
        other: "Encoder | None" = None,
        num_shared: int = 0,
        **layer_options: Any,
    ) -> None:
        super().__init__(config, **layer_options)
        options = {"dtype": self.dtype_policy}
        self.embeddings = embeddings
        self.embeddings_project: Dense | None = None if other is None else other.embeddings_project
        if other is None and embeddings.config.embedding_size != config.hidden_size:
            self.embeddings_project = Dense(config.hidden_size, glorot_uniform(), name="embeddings_project", **options)
        # A tuple: TensorFlow's checkpoints do not see what is in the lists of Keras.
        shared = () if other is None else other.transformer_layers[:num_shared]
        own = (
            LAYERS[config.block](config, index, attention_mask, name=f"layer_{index}", **options)
            for index in range(len(shared), config.num_layers)
        )
        self.transformer_layers: tuple[TransformerLayer | ModernLayer, ...] = (*shared, *own)
        self.final_norm = final_norm(config)
        # See `prepare_for_inference`.
        self.parts: Callable[[], tuple[Embeddings, tuple[Part, ...]]] = lambda: (embeddings, self.transformer_layers)

    def call(
        self,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor,
        segment_ids: tf.Tensor,
        position_ids: tf.Tensor | None = None,
        context: ForwardContext = INFERENCE,
    ) -> EncoderOutput:
        key_mask = key_mask_of(input_mask, position_ids)
        embeddings, layers = self.parts()
        hidden = embeddings(input_ids, segment_ids=segment_ids, position_ids=position_ids, context=context)
        hidden = context.dropout(hidden, self.config.hidden_dropout, "embeddings")
        if self.embeddings_project is not None:
            hidden = self.embeddings_project(hidden, context=context)
        embedding_output, layer_outputs, attention_probs = hidden, [], []
        for layer in layers:
            if context.creates_variables:  # building takes a fifth of the time of computing: thousands of operations
                if not layer.built:
                    layer.build((None, self.config.hidden_size))
                layer_outputs.append(hidden)
                continue
            options: dict[str, Any] = {"key_mask": key_mask, "context": context.fold_in(layer.name)}
            if context.rematerialize:
                hidden = _rematerialized(layer, hidden, **options)
            else:
                hidden, probs = layer(hidden, **options)
                if probs is not None:
                    attention_probs.append(probs)
            layer_outputs.append(hidden)
        if self.final_norm is not None:
            hidden = self.final_norm(hidden, context=context)
            layer_outputs[-1:] = [hidden]
        return EncoderOutput(hidden, hidden[:, 0], embedding_output, tuple(layer_outputs), tuple(attention_probs))


def _rematerialized(layer: Part, hidden: tf.Tensor, **options: Any) -> tf.Tensor:
    """A layer's output, without its probabilities; its gradient computes the layer again."""
    return recomputed(lambda values: layer(values, **options)[0])(hidden)


def build_encoder(config: EncoderConfig, dtype: str) -> Encoder:
    """An encoder with embeddings of its own; its variables have the names of a discriminator's."""
    return Encoder(config, Embeddings(config, name="embeddings", dtype=dtype), name="electra", dtype=dtype)
