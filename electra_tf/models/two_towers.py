"""The cloze model of Electric: a distribution over the vocabulary for every token, without masking any.

Source: Clark et al. 2020b ("Pre-Training Transformers as Energy-Based Cloze Models"); `TwoTowerClozeTransformer` of the
authors' code.
"""

from typing import Any

import tensorflow as tf

from electra_tf.models.encoder import Encoder
from electra_tf.models.generators import GeneratorOutput
from electra_tf.models.heads import MaskedLmHead
from electra_tf.models.layers import INFERENCE, ForwardContext, Part


class TwoTowerGenerator(Part):
    """Two encoders that each attend to one side of a token, and a head that predicts the token from both.

    Args: left_to_right, right_to_left: encoders with these masks.        head: of vectors of twice their hidden size.
    Call: as of a `TransformerGenerator`, nothing masked. Returns: `GeneratorOutput` with `everywhere`.
    """

    def __init__(
        self, left_to_right: Encoder, right_to_left: Encoder, head: MaskedLmHead, **layer_options: Any
    ) -> None:
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
        position_ids: tf.Tensor | None = None,
        context: ForwardContext = INFERENCE,
    ) -> GeneratorOutput:
        inputs = {"input_mask": input_mask, "segment_ids": segment_ids, "position_ids": position_ids}
        before, after = (
            tower(input_ids, **inputs, context=context.fold_in(tower.name)).sequence_output
            for tower in (self.left_to_right, self.right_to_left)
        )
        # A token is predicted from its neighbours' vectors, because its own vector depends on the token. Padding and
        # the missing neighbours at both ends of a sequence are zeros. (At the ends the authors' code takes the vector
        # of the other end, which depends on all tokens.)
        zero = tf.zeros([], after.dtype)
        follows = (input_mask if position_ids is None else position_ids)[:, :, tf.newaxis] > 0
        before = tf.pad(before[:, :-1], [[0, 0], [1, 0], [0, 0]])
        before = before if position_ids is None else tf.where(follows, before, zero)
        after = tf.pad(tf.where(follows, after, zero)[:, 1:], [[0, 0], [0, 1], [0, 0]])
        hidden = tf.concat([before, after], axis=-1)  # [B, S, 2 G]
        selected = tf.gather(tf.stop_gradient(hidden), positions, batch_dims=1)  # [B, M, 2 G]
        return GeneratorOutput(self.head(selected, context=context), everywhere=self.head(hidden, context=context))
