"""Fused operations: each is faster as one compiled program than as the ten operations it consists of.

Between its matrix products a transformer adds, scales, exponentiates and sums whole activations. As single operations
they read and write main memory, which takes most of a step's time. Here the operations between two products are one
program, with a custom gradient that keeps few tensors. In a step that XLA compiles as a whole, as on a TPU, the same
formulas are parts of that one program.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla

from electra_tf.ops.gradients import WithGradient, custom_gradient
from electra_tf.ops.random import DropoutKey, words_of_examples
from electra_tf.ops.reference import (
    COLUMNS,
    REFERENCE,
    AttentionOptions,
    ReferenceOps,
    apply_dropout,
    chosen_logits,
    float32,
    in_columns,
    masked_scores,
)

# Probabilities of so few keys are kept: for Base at 256 x 128, computing them again would move 4 % more bytes and save
# 12 % of the memory; at 64 x 512 it moves 5 % more and saves 41 % (docs/notes/accelerators.md).
_FEW_KEYS = 128


@functools.cache
def _program(formula: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """The formula as one XLA program for each signature, shared by all layers and traces."""
    return tf.function(functools.partial(formula, **options), jit_compile=True, autograph=False)


@functools.cache
def _function(formula: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """The formula as a function that TensorFlow traces and differentiates once, however many layers call it."""
    # Inlining would make steps 1 or 2 % faster, but the graph three times as large: the start takes half a second more.
    attributes = {"_noinline": True}
    return tf.function(functools.partial(formula, **options), autograph=False, experimental_attributes=attributes)


@dataclass(frozen=True)
class FusedOps(ReferenceOps):
    """`ReferenceOps` for training: some operations as compiled programs with gradients of their own."""

    device: str  # `cpu`, `gpu` or `tpu`: where the step runs
    whole_step: bool  # whether the step is compiled as a whole; then operations are not programs of their own

    # --- how formulas are compiled

    @property
    def splits_batch(self) -> bool:
        return self.device == "cpu" and not self.whole_step

    def shared(self, formula: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        """As the reference; unless the step is compiled as a whole, all layers call one function in the graph."""
        return super().shared(formula, **options) if self.whole_step else _function(formula, **options)

    def _compiled(self, formula: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        return functools.partial(formula, **options) if self.whole_step else _program(formula, **options)

    @property
    def _sums_as_products(self) -> bool:
        """Whether to sum by a product with ones: XLA vectorises that on a CPU, but not its loops over an axis.

        On accelerators it is the other way round, and a TPU would round the summands to bfloat16.
        """
        return self.device == "cpu" and not self.whole_step

    def _row_means(self, rows: tf.Tensor) -> tf.Tensor:
        """[N, H] float32 -> [N, 1]."""
        return self._row_sums(rows) * (1.0 / rows.shape[-1])

    def _row_sums(self, rows: tf.Tensor) -> tf.Tensor:
        if self._sums_as_products:
            return tf.matmul(rows, tf.ones([_last_size(rows), 1]))
        return tf.reduce_sum(rows, axis=-1, keepdims=True)

    def column_sums(self, rows: tf.Tensor) -> tf.Tensor:
        if self._sums_as_products:
            return self.shared(_product_with_ones)(rows)
        return super().column_sums(rows)

    def _bias_gradient(self, gradient: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        """The gradient of a bias from the gradient of product + bias, [..., F] -> [F] in the dtype of `bias`."""
        # TensorFlow's product with ones sums bfloat16 in float32, so that no cast is needed.
        rows = tf.reshape(gradient, [-1, gradient.shape[-1]]) if self._sums_as_products else _rows(gradient)
        return tf.cast(self.column_sums(rows), bias.dtype)

    def _keep_once(self, values: tf.Tensor) -> tf.Tensor:
        """The values; in a step that is compiled as a whole they are computed only once, and kept in their own dtype.

        XLA considers random bits cheap, and would draw them again in every loop that uses them. And where bfloat16
        becomes float32 again in the gradient, it would keep the float32 that the bfloat16 was made from.
        """
        return xla.optimization_barrier(values)[0] if self.whole_step else values

    def _materialize(self, values: tf.Tensor, runtime_vector: tf.Tensor) -> tf.Tensor:
        """The values; in a program for a CPU they are written to memory once and read from there.

        XLA on CPUs ignores `optimization_barrier`, and every consumer would compute the value again: random bits in all
        three loops of a LayerNorm, and all layers below in a step that is compiled as a whole, so that time and code
        grow with the square of the depth. It does not duplicate divisions, and cannot fold this one by 1.0.

        Args: runtime_vector: a vector that is not constant and contains NaN only if `values`, float32, do.
        """
        if self.device != "cpu":
            return values
        return values / tf.where(tf.math.is_nan(runtime_vector[0]), 2.0, 1.0)

    # --- the encoder

    def drawn_keys(self, keys: dict[str, DropoutKey | None], hidden: tf.Tensor) -> dict[str, DropoutKey | None]:
        """The keys with the words of each example, so that no program that draws a mask computes them, twice a mask."""
        used = {name: key for name, key in keys.items() if key is not None}
        if self.whole_step or not used or hidden.shape[0] is None:
            return keys
        draw = self._compiled(words_of_examples, num_examples=hidden.shape[0])
        words = tf.unstack(draw(tf.stack([key.words for key in used.values()])), num=len(used))
        drawn = (key._replace(words=each) for key, each in zip(used.values(), words, strict=True))
        return {**keys, **dict(zip(used, drawn, strict=True))}

    def bias_gelu(self, product: tf.Tensor, bias: tf.Tensor | None) -> tf.Tensor:
        """As the reference; the gradient computes the sum again instead of keeping it."""
        if bias is None:
            bias = tf.zeros([product.shape[-1]])
        forward, gradient = self._compiled(REFERENCE.bias_gelu), self._compiled(_bias_gelu_gradient)

        @custom_gradient
        def operation(product: tf.Tensor, bias: tf.Tensor) -> WithGradient:
            def backward(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                d_product = gradient(product, bias, upstream)
                return d_product, self._bias_gradient(d_product, bias)

            return forward(product, bias), backward

        return operation(product, bias)

    def attention(
        self, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, key_mask: tf.Tensor, options: AttentionOptions
    ) -> tf.Tensor:
        """As the reference. For many keys on accelerators the gradient computes probabilities and their mask again.

        It keeps two numbers a query: of Base's step at 256 x 512, 51 of 84 GB were probabilities.
        """
        if self.device == "cpu" or not self.whole_step or (key.shape[2] or math.inf) <= _FEW_KEYS:
            return super().attention(query, key, value, key_mask, options)
        dropout_key = options.dropout_key

        @custom_gradient
        def operation(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> WithGradient:
            scores = masked_scores(tf.matmul(query, key, transpose_b=True), key_mask, options)  # [B, A, Q, K]
            largest = tf.reduce_max(scores, axis=-1, keepdims=True)
            powers = tf.exp(scores - largest)
            totals = tf.reduce_sum(powers, axis=-1, keepdims=True)
            # Divided after the product, so that one loop computes totals and powers.
            dropped = tf.cast(apply_dropout(powers, dropout_key), value.dtype)
            output = tf.cast(float32(tf.matmul(dropped, value)) / totals, query.dtype)
            # Not log-sum-exp in place of two numbers: it rounds the scores of a query that sees padding alone, about
            # -10,000, to 0.001.
            inputs, results = (query, key, value), (output, largest, totals)

            def backward(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
                words = tf.zeros([3], tf.uint32) if dropout_key is None else dropout_key.words
                # Else XLA would merge the second computation with the first, and keep its scores and its mask.
                query, key, value, words, output, largest, totals, upstream = xla.optimization_barrier(
                    *inputs, words, *results, upstream
                )
                scores = masked_scores(tf.matmul(query, key, transpose_b=True), key_mask, options)
                probs = tf.exp(scores - largest) * (1.0 / totals)
                dropped = apply_dropout(probs, dropout_key and dropout_key._replace(words=words))
                d_value = tf.matmul(tf.cast(dropped, value.dtype), upstream, transpose_a=True)
                d_dropped = float32(tf.matmul(upstream, value, transpose_b=True))
                # The softmax subtracts the sum over keys of dropped * d_dropped.
                d_totals = tf.reduce_sum(float32(upstream) * float32(output), axis=-1, keepdims=True)
                d_scores = tf.cast(dropped * d_dropped - probs * d_totals, query.dtype)
                return tf.matmul(d_scores, key), tf.matmul(d_scores, query, transpose_a=True), d_value

            return output, backward

        return operation(query, key, value)

    def attention_probs(self, scores: tf.Tensor, key_mask: tf.Tensor, options: AttentionOptions) -> tf.Tensor:
        """As the reference; the gradient keeps the probabilities before and after dropout."""
        drop = self._compiled(self._drop_probs, dtype=scores.dtype)
        gradient = self._compiled(self._attention_gradient)

        @custom_gradient
        def operation(scores: tf.Tensor) -> WithGradient:
            # On a CPU TensorFlow's softmax is twice as fast as XLA's.
            probs, dropped = drop(tf.nn.softmax(masked_scores(scores, key_mask, options)), options.dropout_key)
            return dropped, lambda upstream: gradient(probs, dropped, upstream)

        return operation(scores)

    def _drop_probs(
        self, probs: tf.Tensor, dropout_key: DropoutKey | None, *, dtype: tf.DType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        dropped = tf.cast(apply_dropout(probs, dropout_key, self._keep_once), dtype)
        return tf.cast(probs, dtype), self._keep_once(dropped)

    def _attention_gradient(self, probs: tf.Tensor, dropped: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
        # upstream * dropped equals probs * (their gradient through dropout): the mask is not needed.
        weighted = _rows(upstream) * _rows(dropped)
        gradient = weighted - _rows(probs) * self._row_sums(weighted)
        return tf.cast(tf.reshape(gradient, tf.shape(upstream)), upstream.dtype)

    def dropout(self, values: tf.Tensor, dropout_key: DropoutKey | None) -> tf.Tensor:
        """As the reference; the gradient draws the same mask again."""
        if dropout_key is None:
            return values
        drop = self._compiled(self._dropout)

        @custom_gradient
        def operation(values: tf.Tensor) -> WithGradient:
            return drop(values, dropout_key), lambda upstream: drop(upstream, dropout_key)

        return operation(values)

    def _dropout(self, values: tf.Tensor, dropout_key: DropoutKey) -> tf.Tensor:
        return tf.cast(apply_dropout(float32(values), dropout_key, self._keep_once), values.dtype)

    def dropout_add_layer_norm(
        self,
        product: tf.Tensor,
        bias: tf.Tensor,
        residual: tf.Tensor,
        gamma: tf.Tensor,
        beta: tf.Tensor,
        *,
        epsilon: float,
        dropout_key: DropoutKey | None,
    ) -> tf.Tensor:
        """As the reference; the gradient keeps the normalised sum and one number a row, and draws the mask again."""
        forward = self._compiled(self._add_layer_norm, epsilon=epsilon)
        gradient = self._compiled(self._add_layer_norm_gradient)

        @custom_gradient
        def operation(
            product: tf.Tensor, bias: tf.Tensor, residual: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor
        ) -> WithGradient:
            output, normalized, inverse_deviation = forward(product, bias, residual, gamma, beta, dropout_key)

            def backward(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
                d_product, *others = gradient(normalized, inverse_deviation, gamma, dropout_key, upstream)
                return d_product, self._bias_gradient(d_product, bias), *others

            return output, backward

        return operation(product, bias, residual, gamma, beta)

    def _add_layer_norm(
        self,
        product: tf.Tensor,
        bias: tf.Tensor,
        residual: tf.Tensor,
        gamma: tf.Tensor,
        beta: tf.Tensor,
        dropout_key: DropoutKey | None,
        *,
        epsilon: float,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        dropped = apply_dropout(float32(product) + float32(bias), dropout_key, self._keep_once)
        rows = _rows(self._materialize(dropped + float32(residual), gamma))
        centred = rows - self._row_means(rows)
        inverse_deviation = tf.math.rsqrt(self._row_means(tf.square(centred)) + epsilon)  # [N, 1]
        normalized = centred * inverse_deviation  # [N, H]
        output = self._materialize(tf.reshape(normalized * gamma + beta, tf.shape(product)), gamma)
        return tf.cast(output, product.dtype), tf.cast(normalized, product.dtype), inverse_deviation

    def _add_layer_norm_gradient(
        self,
        normalized: tf.Tensor,
        inverse_deviation: tf.Tensor,
        gamma: tf.Tensor,
        dropout_key: DropoutKey | None,
        upstream: tf.Tensor,
    ) -> tuple[tf.Tensor, ...]:
        normalized, upstream_rows = float32(normalized), _rows(upstream)
        scaled = upstream_rows * gamma
        d_rows = scaled - self._row_means(scaled) - normalized * self._row_means(scaled * normalized)
        d_rows *= inverse_deviation
        d_gamma, d_beta = self.column_sums(upstream_rows * normalized), self.column_sums(upstream_rows)
        d_residual = self._materialize(tf.reshape(d_rows, tf.shape(upstream)), gamma)
        d_product = tf.cast(apply_dropout(d_residual, dropout_key, self._keep_once), upstream.dtype)
        return d_product, tf.cast(d_residual, upstream.dtype), d_gamma, d_beta

    # --- the vocabulary

    def vocabulary_product(self, vectors: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
        """As the reference; if XLA compiles the step, bfloat16 vectors are multiplied with a table in bfloat16.

        Sums are in float32. TensorFlow's own kernel for a CPU would round them.
        """
        if not self.whole_step or vectors.dtype == tf.float32:
            return self.shared(REFERENCE.vocabulary_product)(vectors, table)

        @custom_gradient
        def operation(vectors: tf.Tensor, table: tf.Tensor) -> WithGradient:
            rounded = tf.cast(table, vectors.dtype)

            def backward(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                upstream = tf.cast(upstream, vectors.dtype)
                with tf.name_scope("gradient_tape"):  # as TensorFlow names its own gradients
                    d_vectors = tf.cast(_wide_product(upstream, rounded), vectors.dtype)
                    return d_vectors, _wide_product(upstream, vectors, adj_x=True)

            return _wide_product(vectors, rounded, adj_y=True), backward

        return operation(vectors, table)

    def max_and_sumexp(
        self, products: tf.Tensor, bias: tf.Tensor, forbidden_ids: tf.Tensor | None, temperature: float = 1.0
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """As the reference; a later sum is kept apart, because XLA would merge the two and read the logits twice."""
        largest, column_totals = super().max_and_sumexp(products, bias, forbidden_ids, temperature)
        return largest, self._keep_once(column_totals)

    def column_logits(self, products: tf.Tensor, bias: tf.Tensor, column: tf.Tensor) -> tf.Tensor:
        """As the reference. On a TPU it reads all logits, since a gather would first copy them into another layout."""
        if self.device != "tpu":
            return super().column_logits(products, bias, column)
        logits = in_columns(products + bias)
        is_chosen = tf.range(COLUMNS) == tf.reshape(column, [-1, logits.shape[1], 1, 1])
        chosen = tf.reduce_sum(tf.where(is_chosen, logits, 0.0), axis=3)
        return tf.reshape(chosen, [-1, logits.shape[2]])

    def cross_entropy(
        self, products: tf.Tensor, bias: tf.Tensor, token_ids: tf.Tensor, sums: tuple[tf.Tensor, tf.Tensor]
    ) -> tf.Tensor:
        """As the reference, from the given sums; for its gradient only log-sum-exp is kept."""

        @custom_gradient
        def operation(products: tf.Tensor, bias: tf.Tensor) -> WithGradient:
            largest, column_totals = sums
            log_totals = largest + tf.math.log(tf.reduce_sum(column_totals, axis=1, keepdims=True))  # [N, 1]
            losses = log_totals[:, 0] - chosen_logits(products, bias, token_ids)
            return losses, lambda upstream: self.cross_entropy_gradient(products, bias, token_ids, log_totals, upstream)

        return operation(products, bias)

    def cross_entropy_gradient(
        self, products: tf.Tensor, bias: tf.Tensor, token_ids: tf.Tensor, log_totals: tf.Tensor, upstream: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """As the reference, compiled."""
        return self._compiled(super().cross_entropy_gradient)(products, bias, token_ids, log_totals, upstream)


def _product_with_ones(rows: tf.Tensor) -> tf.Tensor:
    return tf.matmul(tf.ones_like(rows[:, :1]), rows, transpose_a=True)[0]


def _wide_product(first: tf.Tensor, second: tf.Tensor, **transposed: bool) -> tf.Tensor:
    """A product of two matrices in bfloat16, summed in float32: [N, M] float32."""
    return tf.raw_ops.BatchMatMulV3(x=first, y=second, Tout=tf.float32, **transposed)


def _rows(values: tf.Tensor) -> tf.Tensor:
    """The rows of a tensor in float32: [..., H] -> [N, H]."""
    return tf.reshape(float32(values), [-1, _last_size(values)])


def _last_size(values: tf.Tensor) -> tf.Tensor | int:
    """The size of the last axis: a number if it is static, else a tensor."""
    return values.shape[-1] or tf.shape(values)[-1]


def _bias_gelu_gradient(product: tf.Tensor, bias: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    values = float32(product) + float32(bias)
    below = 0.5 * (1.0 + tf.math.erf(values * math.sqrt(0.5)))
    density = tf.exp(-0.5 * tf.square(values)) * (1.0 / math.sqrt(2.0 * math.pi))
    return tf.cast(float32(upstream) * (below + values * density), product.dtype)
