"""Metrics of the two tasks, as summable terms. Padding counts nowhere (in the authors' AUC it does)."""

import tensorflow as tf

from electra_tf.tasks.terms import (
    BinaryEntropy,
    Ratio,
    Term,
    ranking_counts,
    weighted_sum,
)


def masked_lm_metrics(logits: tf.Tensor, token_ids: tf.Tensor, weights: tf.Tensor) -> dict[str, Term]:
    """The share of masked tokens whose most likely prediction is right. [B, M, V], [B, M], [B, M]."""
    return {"masked_lm_accuracy": prediction_accuracy(logits, token_ids, weights)}


def prediction_accuracy(logits: tf.Tensor, token_ids: tf.Tensor, weights: tf.Tensor) -> Ratio:
    """How often the first of the most likely tokens is the given one. [B, M, V], [B, M] int32, [B, M] float32."""
    right = tf.cast(tf.argmax(logits, axis=-1, output_type=tf.int32) == token_ids, tf.float32)
    return weighted_sum(right, weights)


def replaced_token_metrics(logits: tf.Tensor, is_replaced: tf.Tensor, over: tf.Tensor) -> dict[str, Term]:
    """Accuracy, precision, recall and AUC of finding replaced tokens, beside what a constant predictor would reach.

    Args:
        logits: [B, S] float32.        is_replaced: [B, S] int32.        over: [B, S] int32, 1 for real tokens.
    Returns: terms over the real tokens. `constant_predictor_loss` is the loss of always answering the replaced share: a
        discriminator that is not below it has learnt nothing.
    """
    counted = tf.cast(over, tf.float32)
    actual = tf.cast(is_replaced, tf.float32)
    predicted = tf.cast(logits > 0.0, tf.float32)
    replaced_share = weighted_sum(actual, counted)
    true_positives = tf.reduce_sum(predicted * actual * counted)
    return {
        "replaced_token_accuracy": weighted_sum(tf.cast(predicted == actual, tf.float32), counted),
        "replaced_token_precision": Ratio(true_positives, tf.reduce_sum(predicted * counted)),
        "replaced_token_recall": Ratio(true_positives, tf.reduce_sum(actual * counted)),
        "replaced_token_auc": ranking_counts(logits, is_replaced, counted),
        "replaced_fraction": replaced_share,
        "constant_predictor_loss": BinaryEntropy(*replaced_share),
    }
