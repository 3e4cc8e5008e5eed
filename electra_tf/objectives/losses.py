"""The two losses, as sums that still have their weights."""

import tensorflow as tf

from electra_tf.models.vocabulary_scores import VocabularyScores
from electra_tf.objectives.terms import Ratio, weighted_sum


def masked_lm_loss(scores: VocabularyScores, token_ids: tf.Tensor, weights: tf.Tensor) -> Ratio:
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
