"""The losses, as sums that still have their weights."""

import tensorflow as tf

from electra_tf.models.vocabulary_logits import VocabularyLogits
from electra_tf.tasks.terms import Ratio, weighted_sum


def masked_lm_loss(scores: VocabularyLogits, token_ids: tf.Tensor, weights: tf.Tensor) -> Ratio:
    """The masked-LM loss over the slots in use.

    Args:
        scores: for [B, M] masked positions.        token_ids: [B, M] int32.
        weights: [B, M] float32, 0 for unused slots.
    Source: paper section 2, L_MLM, as a mean over masked tokens (the authors' code) instead of a sum.
    """
    return weighted_sum(scores.losses(token_ids), weights)


def replaced_token_loss(logits: tf.Tensor, is_replaced: tf.Tensor, over: tf.Tensor) -> Ratio:
    """The discriminator's loss: binary cross-entropy in nats over all real tokens, [CLS] and [SEP] included.

    Args:
        logits: [B, S] float32.        is_replaced: [B, S] int32.        over: [B, S] int32, 1 for tokens that count.
    Source: paper section 2, L_Disc, as a mean over tokens.
    """
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.cast(is_replaced, tf.float32), logits=logits)
    return weighted_sum(losses, tf.cast(over, tf.float32))


def with_copying(losses: tf.Tensor, copy_logits: tf.Tensor, is_input: tf.Tensor | bool) -> tf.Tensor:
    """-log p(token) in nats where p(x) = copy * [x is the input token] + (1 - copy) * softmax(x).

    Taken from logarithms throughout, so that neither a sure copy nor a token that is never drawn becomes log 0.

    Args:
        losses: [B, S] float32, -log softmax(token).
        copy_logits: [B, S] float32, whose sigmoid is the copy probability.
        is_input: [B, S] bool, whether the token is the input token.
    Returns: [B, S] float32.
    Source: paper section 3.5, "All-Tokens MLM".
    """
    log_copied, log_drawn = tf.math.log_sigmoid(copy_logits), tf.math.log_sigmoid(-copy_logits) - losses
    log_either = tf.reduce_logsumexp(tf.stack([log_copied, log_drawn], axis=-1), axis=-1)
    return -tf.where(is_input, log_either, log_drawn)
