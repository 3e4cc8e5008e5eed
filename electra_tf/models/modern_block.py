"""ModernBERT's encoder layer: LayerNorm before each part, rotary positions, GeGLU, and local attention in most layers.

Source: Warner et al. 2024 ("Smarter, Better, Faster, Longer"); the formulas are those of Hugging Face's
`ModernBertModel`.
"""

import functools
import math
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.config.networks import EncoderConfig
from electra_tf.models.layers import INFERENCE, EncoderPart, ForwardContext, LayerNorm, Shape, product
from electra_tf.ops.local_attention import local_attention
from electra_tf.ops.random import DropoutKey
from electra_tf.ops.reference import AttentionOptions, ReferenceOps, is_packed

Weights = dict[str, tuple[tf.Tensor | None, ...]]


class ModernLayer(EncoderPart):
    """One layer: hidden + attention(LayerNorm(hidden)), then the same with the feed-forward network.

    The first layer has no LayerNorm before its attention, because the embeddings end with one. Every
    `global_attention_every_n_layers`-th layer from the first on attends to all tokens, the others to
    `local_attention // 2` tokens on each side.

    Args and call: as of a `bert_block.TransformerLayer`; returns None in place of the probabilities.
    """

    def __init__(
        self, config: EncoderConfig, index: int, attention_mask: str = "bidirectional", **layer_options: Any
    ) -> None:
        super().__init__(config, **layer_options)
        self.is_local = config.is_local(index)
        self.attention_mask = attention_mask
        norm = functools.partial(LayerNorm, config.layer_norm_epsilon, config.norm_bias)
        self.attention_norm = norm(name="attention_LayerNorm") if index > 0 else None
        self.qkv = self.dense(3 * config.hidden_size, "qkv", use_bias=config.attention_bias)
        # Smaller initial values, so that the sum over all layers has the size of one.
        scaled = {"stddev": config.initializer_stddev / math.sqrt(2 * config.num_layers)}
        self.attention_output = self.dense(
            config.hidden_size, "attention_output", use_bias=config.attention_bias, **scaled
        )
        self.mlp_norm = norm(name="mlp_LayerNorm")
        self.mlp_input = self.dense(2 * config.intermediate_size, "mlp_input", use_bias=config.mlp_bias)
        self.mlp_output = self.dense(config.hidden_size, "mlp_output", use_bias=config.mlp_bias, **scaled)

    def build(self, input_shape: Shape) -> None:
        for layer in (self.attention_norm, self.qkv, self.attention_output, self.mlp_norm, self.mlp_input):
            if layer is not None:
                layer.build((None, self.config.hidden_size))
        self.mlp_output.build((None, self.config.intermediate_size))

    def call(
        self, hidden: tf.Tensor, key_mask: tf.Tensor, context: ForwardContext = INFERENCE
    ) -> tuple[tf.Tensor, None]:
        options = {"config": self.config, "is_local": self.is_local, "attention_mask": self.attention_mask}
        compute = context.ops.shared(_layer, ops=context.ops, **options)
        rates = {"attention": self.config.attention_dropout, "mlp": self.config.hidden_dropout}
        rates["attention_output"] = rates["attention"]
        dropout_keys = {name: context.fold_in(name).dropout_key(rate, "values") for name, rate in rates.items()}
        # As tensors: kernel and bias of each product, gamma and beta of each LayerNorm; None for those without.
        dense = (self.qkv, self.attention_output, self.mlp_input, self.mlp_output)
        weights: Weights = {layer.name: layer.tensors() for layer in dense}
        norms = [self.mlp_norm] if self.attention_norm is None else [self.attention_norm, self.mlp_norm]
        weights |= {layer.name: layer.tensors() for layer in norms}
        return compute(hidden, key_mask, weights, dropout_keys), None


def rotary_tables(positions: tf.Tensor, head_size: int, theta: float, dtype: tf.DType) -> tuple[tf.Tensor, ...]:
    """Cosines and sines of the angles p * theta ** (-2 i / D), [..., D / 2] float32 with the precision of `dtype`."""
    frequencies = np.float32(1.0) / np.float32(theta) ** (np.arange(0, head_size, 2, dtype=np.float32) / head_size)
    angles = positions[..., tf.newaxis] * frequencies.astype(np.float32)
    # Rounded as in Hugging Face's models.
    return tuple(tf.cast(tf.cast(table, dtype), tf.float32) for table in (tf.cos(angles), tf.sin(angles)))


def _layer(
    hidden: tf.Tensor,
    key_mask: tf.Tensor,
    weights: Weights,
    dropout_keys: dict[str, DropoutKey | None],
    *,
    config: EncoderConfig,
    is_local: bool,
    attention_mask: str,
    ops: ReferenceOps,
) -> tf.Tensor:
    """The formula of `ModernLayer` on tensors alone, so that all layers of a kind share one function: [B, S, H]."""

    def norm(values: tf.Tensor, name: str) -> tf.Tensor:
        return ops.layer_norm(values, *weights[name], epsilon=config.layer_norm_epsilon)

    def dense(values: tf.Tensor, name: str) -> tf.Tensor:
        kernel, bias = weights[name]
        return ops.add_bias(product(values, kernel), bias)

    dropout_keys = ops.drawn_keys(dropout_keys, hidden)
    with tf.name_scope("attention"):
        normed = norm(hidden, "attention_LayerNorm") if "attention_LayerNorm" in weights else hidden
        kernel, bias = weights["qkv"]
        query, key, value = ops.split_heads(product(normed, kernel), bias, config.num_heads)  # [B, A, S, D]
        theta = config.local_rope_theta if is_local else config.global_rope_theta
        # The position of each token in its sequence: [S] float32, in packed rows [B, 1, S]; of padding, any.
        positions = tf.range(query.shape[2] or tf.shape(query)[2], dtype=tf.float32)
        if is_packed(key_mask):  # without a gradient, which would be one of all angles
            positions = tf.stop_gradient(1.0 + positions - key_mask)[:, tf.newaxis]
        tables = rotary_tables(positions, query.shape[3], theta, hidden.dtype)
        scale = 1.0 / math.sqrt(query.shape[3])
        query, key = ops.rotate(query, *(scale * table for table in tables)), ops.rotate(key, *tables)
        options = AttentionOptions(dropout_keys["attention"], attention_mask)
        if is_local:
            options = options._replace(window=config.local_attention // 2)
            mixed = local_attention(ops, query, key, value, key_mask, options)
        else:
            mixed = ops.attention(query, key, value, key_mask, options)
        mixed = tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), tf.shape(hidden))
        hidden += ops.dropout(dense(mixed, "attention_output"), dropout_keys["attention_output"])
    with tf.name_scope("mlp"):
        gated = ops.gelu_gate(dense(norm(hidden, "mlp_LayerNorm"), "mlp_input"))  # [B, S, F]
        return hidden + dense(ops.dropout(gated, dropout_keys["mlp"]), "mlp_output")
