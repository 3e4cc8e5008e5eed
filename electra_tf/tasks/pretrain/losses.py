"""Losses and metrics of the two predictions: the original of a masked token, and whether a token was replaced.

Training terms are `Total`s over the denominators that the objective declares. Padding counts in no term (the authors'
AUC includes it).
"""

import tensorflow as tf

from electra_tf.data.batch import Batch
from electra_tf.models.generators import Distribution
from electra_tf.tasks.terms import (
    BinaryEntropy,
    Ratio,
    Term,
    Total,
    count_of,
    ranking_counts,
    weighted_mean,
    weighted_total,
)


def masked_lm_loss(logits: Distribution, batch: Batch) -> Total:
    """The masked-LM loss: cross-entropy in nats over the B x M masked tokens.

    Source: paper section 2, L_MLM, as a mean over masked tokens (the authors' code) instead of a sum.
    """
    return over_masked_tokens(logits.losses(batch["masked_lm_ids"]), batch)


def mask_token_metrics(logits: Distribution, batch: Batch) -> dict[str, Total]:
    """Loss and accuracy on the masked tokens that are shown as [MASK], and the loss of predicting by frequency alone.

    The masked-LM loss and accuracy are over all selected tokens, and some of these are shown unchanged: a model that
    copies them, and predicts the others by frequency, has an accuracy of 0.19 and has learnt nothing about context.

    Args: logits: of the B x M masked positions.
    Returns: losses in nats; `unigram_loss` is NaN if the token frequencies of the training text are unknown.
    """
    ids, weights = batch["masked_lm_ids"], batch["mask_token_weights"]
    values = {
        "mask_token_loss": tf.stop_gradient(logits.losses(ids)),
        "mask_token_accuracy": logits.is_top1(ids),
        "unigram_loss": batch["unigram_losses"],
    }
    return {name: weighted_total(value, weights, "mask_tokens") for name, value in values.items()}


def at_masked_positions(values: tf.Tensor, batch: Batch) -> tf.Tensor:
    """The values at the masked positions: [B, S, ...] -> [B, M, ...]."""
    return tf.gather(values, batch["masked_lm_positions"], batch_dims=1)


def over_masked_tokens(values: tf.Tensor, batch: Batch) -> Total:
    """The mean over the masked tokens, of one value for each masked position, [B, M]."""
    return weighted_total(values, batch["masked_lm_weights"], "masked_tokens")


def masked_lm_accuracy(logits: tf.Tensor, batch: Batch) -> Ratio:
    """The share of masked positions whose most likely token is the original. `logits` is [B, M, V] float32.

    Of several equal logits the first counts as the most likely.
    """
    correct = tf.argmax(logits, axis=-1, output_type=tf.int32) == batch["masked_lm_ids"]
    return weighted_mean(correct, batch["masked_lm_weights"])


def replaced_token_loss(logits: tf.Tensor, is_replaced: tf.Tensor, weights: tf.Tensor, denominator: str) -> Total:
    """The discriminator's loss: binary cross-entropy in nats.

    Args: as for `replaced_token_metrics`, of any shape.        denominator: the name of the sum of the weights.
    Source: paper section 2, L_Disc, as a mean over tokens.
    """
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.cast(is_replaced, tf.float32), logits=logits)
    return weighted_total(losses, weights, denominator)


def replaced_token_metrics(logits: tf.Tensor, is_replaced: tf.Tensor, weights: tf.Tensor) -> dict[str, Term]:
    """Accuracy, precision, recall and AUC of detecting replaced tokens, and the loss of a constant predictor.

    That one always predicts the replaced fraction; a discriminator must be below it.

    Args: logits: [B, S] float32.        is_replaced, weights: [B, S]; weights are 1 for tokens that count.
    """
    weights, actual = tf.cast(weights, tf.float32), tf.cast(is_replaced, tf.float32)
    predicted = tf.cast(logits > 0.0, tf.float32)
    true_positives = tf.reduce_sum(predicted * actual * weights)
    return {
        "replaced_token_accuracy": weighted_mean(predicted == actual, weights),
        "replaced_token_precision": Ratio(true_positives, count_of(predicted * weights)),
        "replaced_token_recall": Ratio(true_positives, count_of(actual * weights)),
        "replaced_token_auc": ranking_counts(logits, is_replaced, weights),
        "constant_predictor_loss": BinaryEntropy(*weighted_mean(actual, weights)),
    }
