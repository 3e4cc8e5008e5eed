"""Generators propose tokens for the masked positions."""

from typing import NamedTuple

import tensorflow as tf
import tf_keras

from electra_tf.models.context import INFERENCE, ForwardContext
from electra_tf.models.encoder import Encoder, EncoderOutput
from electra_tf.models.heads import MaskedLmHead, gather_positions
from electra_tf.models.vocabulary_scores import VocabularyScores


class Proposal(NamedTuple):
    """A generator's answer.

    Attributes:
        scores: of every vocabulary entry at each masked position.
        hidden: [B, M, G], the vectors the scores were computed from.
        encoder_output: of the whole sequence.
    """

    scores: VocabularyScores
    hidden: tf.Tensor
    encoder_output: EncoderOutput

    @property
    def logits(self) -> tf.Tensor:
        """[B, M, V] float32."""
        return self.scores.logits


class TransformerGenerator(tf_keras.layers.Layer):
    """A masked language model: an encoder and a masked-LM head.

    Call:
        masked_input_ids, input_mask, segment_ids: [B, S] int32.        positions: [B, M] int32.
    Returns: `Proposal`.
    """

    def __init__(self, encoder: Encoder, head: MaskedLmHead, **layer_options):
        super().__init__(**layer_options)
        self.encoder = encoder
        self.head = head

    def call(
        self,
        masked_input_ids: tf.Tensor,
        input_mask: tf.Tensor,
        segment_ids: tf.Tensor,
        positions: tf.Tensor,
        context: ForwardContext = INFERENCE,
    ) -> Proposal:
        output = self.encoder(masked_input_ids, input_mask=input_mask, segment_ids=segment_ids, context=context)
        hidden = gather_positions(output.sequence_output, positions)  # [B, M, G]
        return Proposal(self.head(hidden, training=context.training), hidden, output)
