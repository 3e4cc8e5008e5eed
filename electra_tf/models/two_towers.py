"""The cloze model of Electric: a distribution over the vocabulary for every token, without masking any.

Source: Clark et al. 2020b ("Pre-Training Transformers as Energy-Based Cloze Models"); `TwoTowerClozeTransformer` of the
authors' code.
"""

from typing import NamedTuple

import tensorflow as tf
import tf_keras

from electra_tf.models.encoder import Encoder
from electra_tf.models.heads import MaskedLmHead, gather_positions
from electra_tf.models.layers import INFERENCE, ForwardContext
from electra_tf.models.vocabulary_logits import VocabularyLogits


class ClozeOutput(NamedTuple):
    """The output of a cloze model.

    Attributes:
        scores: the logits at the given positions, to sample from; no gradient flows through them.
        everywhere: the logits at all S positions, for losses alone; they rarely exist all at once.
    """

    scores: VocabularyLogits
    everywhere: VocabularyLogits

    @property
    def logits(self) -> tf.Tensor:
        """[B, M, V] float32."""
        return self.scores.logits


class TwoTowerGenerator(tf_keras.layers.Layer):
    """Two encoders that each attend to one side of a token, and a head that predicts the token from both.

    Args:
        left_to_right, right_to_left: encoders with these attention masks.
        head: reads vectors of twice their hidden size.
    Call:
        input_ids, input_mask, segment_ids: [B, S] int32, nothing masked.        positions: [B, M] int32.
    Returns: `ClozeOutput`.
    """

    def __init__(self, left_to_right: Encoder, right_to_left: Encoder, head: MaskedLmHead, **layer_options):
        super().__init__(**layer_options)
        self.left_to_right = left_to_right
        self.right_to_left = right_to_left
        self.head = head

    def call(
        self,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor,
        segment_ids: tf.Tensor,
        positions: tf.Tensor,
        context: ForwardContext = INFERENCE,
    ) -> ClozeOutput:
        inputs = {"input_mask": input_mask, "segment_ids": segment_ids}
        before, after = (
            tower(input_ids, **inputs, context=context.scope(tower.name)).sequence_output
            for tower in (self.left_to_right, self.right_to_left)
        )
        # The neighbours' vectors, because a token's own vector depends on the token. At the ends one side is zero (the
        # authors' code has the vector of the other end there, which depends on all tokens), and so is padding.
        after = tf.where(input_mask[:, :, tf.newaxis] > 0, after, tf.zeros([], after.dtype))
        before = tf.pad(before[:, :-1], [[0, 0], [1, 0], [0, 0]])
        after = tf.pad(after[:, 1:], [[0, 0], [0, 1], [0, 0]])
        hidden = tf.concat([before, after], axis=-1)  # [B, S, 2 G]
        asked = gather_positions(tf.stop_gradient(hidden), positions)  # [B, M, 2 G]
        return ClozeOutput(*(self.head(vectors, context=context) for vectors in (asked, hidden)))
