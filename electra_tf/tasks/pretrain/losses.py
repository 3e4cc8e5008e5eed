"""The losses, as totals over what the objective counts."""

import tensorflow as tf

from electra_tf.models.context_free_logits import ContextFreeLogits
from electra_tf.models.vocabulary_logits import VocabularyLogits
from electra_tf.tasks.base import Batch
from electra_tf.tasks.terms import Total, weighted_total


def masked_lm_loss(logits: VocabularyLogits | ContextFreeLogits, batch: Batch) -> Total:
    """The masked-LM loss: cross-entropy in nats over the masked tokens.

    Args:
        logits: for the B x M masked positions.
    Source: paper section 2, L_MLM, as a mean over masked tokens (the authors' code) instead of a sum.
    """
    return weighted_total(logits.losses(batch["masked_lm_ids"]), batch["masked_lm_weights"], "masked_tokens")


def replaced_token_loss(logits: tf.Tensor, is_replaced: tf.Tensor, weights: tf.Tensor, over: str) -> Total:
    """The discriminator's loss: binary cross-entropy in nats.

    Args:
        logits: float32, any shape.        is_replaced, weights: the same shape; weights are 1 for what counts.
        over: the denominator that counts the weights.
    Source: paper section 2, L_Disc, as a mean over tokens.
    """
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.cast(is_replaced, tf.float32), logits=logits)
    return weighted_total(losses, tf.cast(weights, tf.float32), over)


def with_copying(losses: tf.Tensor, copy_logits: tf.Tensor, is_input: tf.Tensor | bool) -> tf.Tensor:
    """-log p(token) in nats where p(x) = copy * [x is the input token] + (1 - copy) * softmax(x).

    Computed from logarithms throughout, so that neither a certain copy nor an impossible token becomes log 0.

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
