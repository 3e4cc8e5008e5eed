"""Candidates for the attention of a step that XLA compiles as a whole for a GPU, each in place of `FusedOps.attention`.

`standing` is the product's. `flash` is a Triton kernel with our dropout, `cudnn` has none. Where a candidate has no
kernel, the product's operation computes; `counts` tells how often each did.
"""

import json
from collections import Counter
from pathlib import Path

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla

from benchmarks.gpu_attention.cudnn import cudnn_attention
from benchmarks.gpu_attention.layout import entry_name
from electra_tf.ops.fused import FusedOps
from electra_tf.ops.gradients import custom_gradient
from electra_tf.ops.random import words_of_examples
from electra_tf.ops.reference import AttentionOptions, float32, is_packed, masked_scores

_TARGET = "__gpu$xla.gpu.triton"
CANDIDATES = ("standing", "flash", "cudnn")


def install(candidate: str, kernels: Path | None = None) -> Counter[str]:
    """Puts a candidate in place of `FusedOps.attention` for the rest of the process. Call it before a step is traced.

    Args: kernels: for `flash`, the file of `benchmarks.gpu_attention.kernels`.
    Returns: `counts`: the attentions traced so far, by what computes them.
    """
    entries = json.loads(kernels.read_text(encoding="utf-8")) if kernels else {}
    standing, counts = FusedOps.attention, Counter()

    def attention(
        ops: FusedOps,
        query: tf.Tensor,
        key: tf.Tensor,
        value: tf.Tensor,
        key_mask: tf.Tensor,
        options: AttentionOptions,
    ) -> tf.Tensor:
        rate = options.dropout_key.rate if options.dropout_key else 0.0
        is_plain = options.window is None and len(key_mask.shape) == 2 and not is_packed(key_mask)
        is_plain &= options.attention_mask == "bidirectional" and query.shape == key.shape
        fits = is_plain and query.dtype == tf.bfloat16 and query.shape.is_fully_defined()
        name = entry_name(query.shape, rate) if fits else ""
        if candidate == "flash" and name in entries:
            counts[candidate] += 1
            return flash_attention(query, key, value, key_mask, options, entries[name])
        if candidate == "cudnn" and fits and not rate:
            counts[candidate] += 1
            return cudnn_attention(query, key, value, key_mask)
        counts["standing"] += 1
        return standing(ops, query, key, value, key_mask, options)

    FusedOps.attention = attention
    return counts


def flash_attention(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    key_mask: tf.Tensor,
    options: AttentionOptions,
    calls: dict[str, str],
) -> tf.Tensor:
    """As `ReferenceOps.attention` for a mask [B, K] of single sequences, and no window.

    Args: calls: the configurations of the kernels `forward`, `keys` and `queries` for these shapes and this rate.
    """
    num_examples = query.shape[0]
    bias = masked_scores(tf.zeros([num_examples, 1, 1, key.shape[2]]), key_mask, options)[:, 0, 0]  # [B, K]
    words = tf.zeros([num_examples, 2], tf.uint32) if options.dropout_key is None else options.dropout_key.words
    if len(words.shape) == 1:
        words = words_of_examples(words[tf.newaxis], num_examples)[0]
    like, of_query = tf.TensorSpec(query.shape, query.dtype), tf.TensorSpec(query.shape[:3], tf.float32)

    def call(name: str, operands: list[tf.Tensor], results: list[tf.TensorSpec]) -> list[tf.Tensor]:
        return xla.custom_call_v2(_TARGET, operands, results, backend_config=calls[name])

    @custom_gradient
    def operation(query, key, value):
        inputs = [query, key, value, bias, words]
        output, largest, total = call("forward", inputs, [like, of_query, of_query])

        def backward(upstream):
            d_total = tf.reduce_sum(float32(upstream) * float32(output), axis=-1)
            operands = [*inputs, upstream, largest, total, d_total]
            d_key, d_value = call("keys", operands, [like, like])
            (d_query,) = call("queries", operands, [like])
            return d_query, d_key, d_value

        return output, backward

    return operation(query, key, value)
