"""The operations of the models in plain TensorFlow, with TensorFlow's gradients; fused ones must equal them.

Inference and tests use `ReferenceOps`; `electra_tf.ops.fused.FusedOps` replaces some of its methods in training.
Every operation computes in float32, whatever the dtype of its inputs and outputs.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from electra_tf.ops.random import DropoutKey

# The vocabulary is viewed as a table with this many columns, the vector width of a TPU; token t is in column t % 128.
# Sums down the columns are vectorised, and a token is drawn by drawing its column first.
COLUMNS = 128
_TILE_ROWS = 8  # a TPU keeps a matrix in tiles of 8 rows and 128 columns
# The logit of tokens that cannot be drawn: entries that pad the last row of that table, and forbidden tokens. The
# authors subtract 1000 (pretrain_helpers.py), which is too little at a low temperature.
NEG_INF = -math.inf
_NEGLIGIBLE = -1000.0  # below the largest logit: its exponential is 0 in float32
# Added to the scores of padded keys before the softmax (modeling.py of the authors' code).
_MASKED_SCORE = -10000.0


def float32(values: tf.Tensor) -> tf.Tensor:
    """The values in float32."""
    return tf.cast(values, tf.float32)


def gelu(values: tf.Tensor) -> tf.Tensor:
    """The exact Gaussian error linear unit, by erf and not by the tanh approximation.

    `tf.nn.gelu` uses erfc, which is more exact where the result is below 1e-6 of the input, but takes XLA two loops.
    """
    return 0.5 * values * (1.0 + tf.math.erf(values * math.sqrt(0.5)))


class AttentionOptions(NamedTuple):
    """What attention does between its two products."""

    dropout_key: DropoutKey | None = None  # None: no dropout
    # left_to_right: a query attends to its own and earlier positions; right_to_left: to its own and later positions.
    attention_mask: str = "bidirectional"
    window: int | None = None  # the largest distance between a query and a key that it attends to; None: any


class ReferenceOps:
    """Operations of the encoder and of the vocabulary's logits; an object without state.

    In the operations of the vocabulary, `products` [N, V'] float32 are the products of N vectors with a word table of
    V' rows, where V' is V rounded up to a multiple of 128; `bias` is [V'], `NEG_INF` in the added entries. The V'
    logits of a row form a table of 128 columns; a column of a row is one of these.
    """

    whole_step = False  # whether XLA compiles the step as a whole

    @property
    def splits_batch(self) -> bool:
        """Whether a training step computes two halves of a batch that has them at the same time."""
        return False

    def shared(self, formula: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        """The formula with its options, as a function that several layers call with their own tensors."""
        return functools.partial(formula, **options)

    def drawn_keys(self, keys: dict[str, DropoutKey | None], hidden: tf.Tensor) -> dict[str, DropoutKey | None]:
        """The dropout keys of a layer for operations on `hidden`, [B, S, H], and on other tensors of its examples."""
        return keys

    def add_bias(self, product: tf.Tensor, bias: tf.Tensor | None) -> tf.Tensor:
        """product + bias: [..., F] and [F] -> [..., F] in the dtype of `product`. None: no bias."""
        if bias is None:
            return product
        # In float32, so that the bias gradient is a sum in float32: in bfloat16 a sum of ones stops at 256.
        return tf.cast(float32(product) + float32(bias), product.dtype)

    def bias_gelu(self, product: tf.Tensor, bias: tf.Tensor | None) -> tf.Tensor:
        """gelu(product + bias): [..., F] and [F] -> [..., F] in the dtype of `product`. None: no bias."""
        values = float32(product) if bias is None else float32(product) + float32(bias)
        return tf.cast(gelu(values), product.dtype)

    def gelu_gate(self, values: tf.Tensor) -> tf.Tensor:
        """gelu(first half) * second half, as GeGLU: [..., 2 F] -> [..., F] in the dtype of `values`."""
        first, second = tf.split(values, 2, axis=-1)
        return tf.cast(gelu(float32(first)) * float32(second), values.dtype)

    def rotate(self, values: tf.Tensor, cosines: tf.Tensor, sines: tf.Tensor) -> tf.Tensor:
        """Rotates number i of a vector together with number i + D / 2, by an angle of its position.

        Args: values: [B, A, S, D].        cosines, sines: [S, D / 2] float32. Returns: like `values`.
        """
        first, second = tf.split(float32(values), 2, axis=-1)
        rotated = tf.concat([first * cosines - second * sines, second * cosines + first * sines], axis=-1)
        return tf.cast(rotated, values.dtype)

    def split_heads(self, product: tf.Tensor, bias: tf.Tensor | None, num_heads: int) -> tuple[tf.Tensor, ...]:
        """Queries, keys and values of every head from one product with the three kernels side by side.

        Args: product: [B, S, 3 H], queries, keys and values.        bias: [3 H], or None.
        Returns: three tensors [B, A, S, D] in the dtype of `product`.
        """
        length = product.shape[1] or tf.shape(product)[1]
        heads = [-1, length, num_heads, product.shape[2] // (3 * num_heads)]
        parts = tf.split(self.add_bias(product, bias), 3, axis=2)
        return tuple(tf.transpose(tf.reshape(part, heads), [0, 2, 1, 3]) for part in parts)

    def attention_probs(self, scores: tf.Tensor, key_mask: tf.Tensor, options: AttentionOptions) -> tf.Tensor:
        """The softmax over keys, after dropout.

        Args:
            scores: [B, A, Q, K], scaled; with fewer queries than keys, the queries are in the middle of the keys.
            key_mask: [B, K], or [B, A, K] for masks of their own, int32: 1 for keys that may be attended to. Or
                numbers of sequences, float32 (`key_mask_of`): a query attends to the keys with its own number.
        Returns: [B, A, Q, K] in the dtype of `scores`.
        """
        probs = tf.nn.softmax(masked_scores(scores, key_mask, options))
        return tf.cast(apply_dropout(probs, options.dropout_key), scores.dtype)

    def attention(
        self, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, key_mask: tf.Tensor, options: AttentionOptions
    ) -> tf.Tensor:
        """The means of the values, weighted by `attention_probs` of the products of queries and keys.

        Args: query: [B, A, Q, D], scaled.        key, value: [B, A, K, D].        Others: as for `attention_probs`.
        Returns: [B, A, Q, D] in the dtype of `query`.
        """
        scores = tf.matmul(query, key, transpose_b=True)  # [B, A, Q, K]
        return tf.matmul(self.attention_probs(scores, key_mask, options), value)

    def dropout(self, values: tf.Tensor, dropout_key: DropoutKey | None) -> tf.Tensor:
        """`apply_dropout` in float32; the result has the dtype of `values`, and is `values` itself without a key."""
        return values if dropout_key is None else tf.cast(apply_dropout(float32(values), dropout_key), values.dtype)

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
        """LayerNorm(dropout(product + bias) + residual).

        Args: product, residual: [B, S, H].        bias, gamma, beta: [H].
        Returns: [B, S, H] in the dtype of `product`.
        """
        summed = apply_dropout(float32(product) + float32(bias), dropout_key) + float32(residual)
        return tf.cast(self.layer_norm(summed, gamma, beta, epsilon=epsilon), product.dtype)

    def layer_norm(self, values: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor | None, *, epsilon: float) -> tf.Tensor:
        """LayerNorm over the last axis: [..., H], [H], [H] -> [..., H] in the dtype of `values`. None: no offset."""
        rows = float32(values)
        centred = rows - tf.reduce_mean(rows, axis=-1, keepdims=True)
        deviation = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True) + epsilon)
        scaled = centred * deviation * gamma
        return tf.cast(scaled if beta is None else scaled + beta, values.dtype)

    def vocabulary_product(self, vectors: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
        """[N, E] float32 or bfloat16, [V', E] float32 -> [N, V'] float32."""
        return tf.matmul(float32(vectors), table, transpose_b=True)

    def max_and_sumexp(
        self, products: tf.Tensor, bias: tf.Tensor, forbidden_ids: tf.Tensor | None, temperature: float = 1.0
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The largest logit of each row, [N, 1], and the sum of exp(logit - largest) in each of its columns, [N, 128].

        `temperature` divides the logits; `forbidden_ids`, [N] int32, must not be drawn.
        """
        logits = (products + bias) * (1.0 / temperature)
        if forbidden_ids is not None:
            logits = tf.where(tf.range(products.shape[1]) == forbidden_ids[:, tf.newaxis], NEG_INF, logits)
        logits = in_columns(logits)
        largest = tf.reduce_max(tf.reduce_max(logits, axis=2), axis=2, keepdims=True)
        column_totals = tf.reduce_sum(tf.exp(logits - largest[..., tf.newaxis]), axis=2)
        return tf.reshape(largest, [-1, 1]), tf.reshape(column_totals, [-1, COLUMNS])

    def column_masses(
        self,
        products: tf.Tensor,
        bias: tf.Tensor,
        forbidden_ids: tf.Tensor | None,
        largest: tf.Tensor,
        column: tf.Tensor,
        temperature: float = 1.0,
    ) -> tf.Tensor:
        """exp(logit - largest) of the entries of one column of each row: [N, V' / 128]. `column` is [N] int32."""
        logits = self.column_logits(products, bias, column) * (1.0 / temperature)
        if forbidden_ids is not None:
            ids = tf.range(products.shape[1] // COLUMNS) * COLUMNS + column[:, tf.newaxis]
            logits = tf.where(ids == forbidden_ids[:, tf.newaxis], NEG_INF, logits)
        return tf.exp(logits - largest)

    def column_logits(self, products: tf.Tensor, bias: tf.Tensor, column: tf.Tensor) -> tf.Tensor:
        """products + bias of the entries of one column of each row: [N, V'], [V'], [N] int32 -> [N, V' / 128]."""
        rows = products.shape[1] // COLUMNS
        chosen = tf.gather(tf.reshape(products, [-1, rows, COLUMNS]), column, axis=2, batch_dims=1)
        return chosen + tf.transpose(tf.gather(tf.reshape(bias, [rows, COLUMNS]), column, axis=1))

    def entropies(
        self, products: tf.Tensor, bias: tf.Tensor, largest: tf.Tensor, column_totals: tf.Tensor
    ) -> tf.Tensor:
        """The entropy of each row's softmax, [N]: with s = logit - largest, log sum exp(s) - E[s]."""
        # Some logits are -inf, and -inf times a probability of 0 would be NaN.
        below = tf.maximum(products + bias - largest, _NEGLIGIBLE)
        weighted = tf.reduce_sum(tf.reduce_sum(in_columns(below * tf.exp(below)), axis=2), axis=2)
        totals = tf.reduce_sum(column_totals, axis=1)
        return tf.math.log(totals) - tf.reshape(weighted, [-1]) / totals

    def cross_entropy(
        self, products: tf.Tensor, bias: tf.Tensor, token_ids: tf.Tensor, sums: tuple[tf.Tensor, tf.Tensor]
    ) -> tf.Tensor:
        """-log p(token): [N, V'], [V'], [N] int32 -> [N]. `sums`: `max_and_sumexp` of `products` and `bias`."""
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=token_ids, logits=products + bias)

    def token_losses(
        self, products: tf.Tensor, bias: tf.Tensor, token_ids: tf.Tensor, other_ids: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        """-log p of `token_ids`, `other_ids` and the most likely token, and log-sum-exp of the logits: [N] each."""
        largest, column_totals = self.max_and_sumexp(products, bias, None)
        log_totals = (largest + tf.math.log(tf.reduce_sum(column_totals, axis=1, keepdims=True)))[:, 0]
        chosen, other = (chosen_logits(products, bias, ids) for ids in (token_ids, other_ids))
        return log_totals - chosen, log_totals - other, log_totals - largest[:, 0], log_totals

    def cross_entropy_gradient(
        self, products: tf.Tensor, bias: tf.Tensor, token_ids: tf.Tensor, log_totals: tf.Tensor, upstream: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The gradients of products [N, V'] and bias [V'].

        Args: log_totals: [N, 1], log-sum-exp of the logits.        upstream: [N], the gradient of -log p(token).
        """
        probs = tf.exp(products + bias - log_totals)
        chosen = tf.cast(tf.range(products.shape[1]) == token_ids[:, tf.newaxis], tf.float32)
        gradient = (probs - chosen) * upstream[:, tf.newaxis]
        return gradient, self.column_sums(gradient)

    def column_sums(self, rows: tf.Tensor) -> tf.Tensor:
        """[N, H] -> [H]."""
        return tf.reduce_sum(rows, axis=0)


REFERENCE = ReferenceOps()


def masked_scores(scores: tf.Tensor, key_mask: tf.Tensor, options: AttentionOptions) -> tf.Tensor:
    """The scores in float32: low where a key is padding, -inf where the mask or the window hides it.

    Args: as for `ReferenceOps.attention_probs`.
    """
    _, attention_mask, window = options
    num_queries, num_keys = (scores.shape[axis] or tf.shape(scores)[axis] for axis in (-2, -1))
    first_query = (num_keys - num_queries) // 2
    per_key = key_mask[:, tf.newaxis] if len(key_mask.shape) == 2 else key_mask
    if is_packed(key_mask):
        per_query = per_key[:, :, first_query : first_query + num_queries, tf.newaxis]
        hidden = tf.where(per_query == per_key[:, :, tf.newaxis, :], 0.0, -math.inf)  # [B, 1, Q, K] or [B, A, Q, K]
        scores = float32(scores) + hidden
    else:
        scores = float32(scores) + ((1.0 - float32(per_key)) * _MASKED_SCORE)[:, :, tf.newaxis, :]
    if attention_mask == "bidirectional" and window is None:
        return scores
    queries = tf.range(num_queries)[:, tf.newaxis] + first_query
    distance = tf.range(num_keys)[tf.newaxis, :] - queries  # [Q, K]
    visible = tf.ones_like(distance, tf.bool) if window is None else tf.abs(distance) <= window
    if attention_mask != "bidirectional":
        visible &= distance <= 0 if attention_mask == "left_to_right" else distance >= 0
    # -inf, not the finite score of padding: if every visible key were padding, hidden keys would be attended to.
    return tf.where(visible, scores, -math.inf)


def key_mask_of(input_mask: tf.Tensor, position_ids: tf.Tensor | None) -> tf.Tensor:
    """The key mask of `ReferenceOps.attention_probs` for rows of one sequence each, or for packed rows.

    Args:
        input_mask, position_ids: [B, S] int32; see `electra_tf.models.encoder.Encoder`.
    Returns: `input_mask` without `position_ids`. Else the number of each token's sequence: 1 + the place in the row
        where it begins, 0 for padding. [B, S] float32: TensorFlow's kernels for GPUs would compare integers on the CPU.
    """
    if position_ids is None:
        return input_mask
    places = 1.0 + tf.range(float32(tf.shape(position_ids)[1]))
    return float32(input_mask) * (places - float32(position_ids))


def is_packed(key_mask: tf.Tensor) -> bool:
    """Whether a key mask of `ReferenceOps.attention_probs` has the numbers of sequences."""
    return key_mask.dtype == tf.float32


def apply_dropout(
    values: tf.Tensor, dropout_key: DropoutKey | None, keep_once: Callable[[tf.Tensor], tf.Tensor] = tf.identity
) -> tf.Tensor:
    """Sets a share `rate` of the values to 0 and scales the rest by 1 / (1 - rate): [B, ...] float32 -> [B, ...].

    Args: dropout_key: None: nothing is dropped.        keep_once: is applied to the mask, see `FusedOps`.
    """
    if dropout_key is None:
        return values
    num_examples, *shape = (size or tf.shape(values)[axis] for axis, size in enumerate(values.shape))
    keep = dropout_key.keep_mask(num_examples, tuple(shape))
    return tf.where(keep_once(keep), values * (1.0 / (1.0 - dropout_key.rate)), 0.0)


def in_columns(rows: tf.Tensor) -> tf.Tensor:
    """[N, V'] -> [N / K, K, V' / 128, 128]: each row as a table of 128 columns, in groups of K rows.

    K is 8 if 8 divides N, so that a TPU's tiles stay as they are. A TPU would copy the logits for the shape
    [N, V' / 128, 128], which orders the tiles differently.
    """
    together = math.gcd(rows.shape[0] or 1, _TILE_ROWS)
    return tf.reshape(rows, [-1, together, rows.shape[1] // COLUMNS, COLUMNS])


def chosen_logits(products: tf.Tensor, bias: tf.Tensor, token_ids: tf.Tensor) -> tf.Tensor:
    """[N, V'], [V'], [N] int32 -> [N]: the logit of one token a row."""
    return tf.gather(products, token_ids, axis=1, batch_dims=1) + tf.gather(bias, token_ids)
