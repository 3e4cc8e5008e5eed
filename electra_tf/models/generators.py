"""Generators propose tokens for the masked positions."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tf_keras

from electra_tf.models.context_free_logits import ContextFreeLogits
from electra_tf.models.encoder import Encoder, EncoderOutput
from electra_tf.models.heads import MaskedLmHead, gather_positions
from electra_tf.models.layers import INFERENCE, ForwardContext
from electra_tf.models.vocabulary_logits import VocabularyLogits


class GeneratorOutput(NamedTuple):
    """A generator's answer.

    Attributes:
        scores: of every vocabulary entry at each masked position.
        hidden: [B, M, G], the vectors the scores were computed from; None where the generator is no network.
        encoder_output: of the whole sequence; None likewise.
    """

    scores: VocabularyLogits | ContextFreeLogits
    hidden: tf.Tensor | None = None
    encoder_output: EncoderOutput | None = None

    @property
    def logits(self) -> tf.Tensor:
        """[B, M, V] float32."""
        return self.scores.logits


class TransformerGenerator(tf_keras.layers.Layer):
    """A masked language model: an encoder and a masked-LM head.

    Call:
        masked_input_ids, input_mask, segment_ids: [B, S] int32.        positions: [B, M] int32.
    Returns: `GeneratorOutput`.
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
    ) -> GeneratorOutput:
        output = self.encoder(masked_input_ids, input_mask=input_mask, segment_ids=segment_ids, context=context)
        hidden = gather_positions(output.sequence_output, positions)  # [B, M, G]
        return GeneratorOutput(self.head(hidden, context=context), hidden, output)


class _FixedGenerator(tf_keras.layers.Layer):
    """Proposes by one table of chances whatever the input. Call and returns: as `TransformerGenerator`."""

    def __init__(self, vocab_size: int, **layer_options):
        # Chances in bfloat16 would be no proportions any more.
        super().__init__(dtype="float32", **layer_options)
        self.vocab_size = vocab_size

    def counts(self) -> tf.Tensor:
        """[V] float32: the chance of each entry of the vocabulary, in proportion."""
        raise NotImplementedError

    def call(
        self,
        masked_input_ids: tf.Tensor,
        input_mask: tf.Tensor,
        segment_ids: tf.Tensor,
        positions: tf.Tensor,
        context: ForwardContext = INFERENCE,
    ) -> GeneratorOutput:
        return GeneratorOutput(ContextFreeLogits(self.counts(), positions))


class UniformGenerator(_FixedGenerator):
    """Proposes every vocabulary entry equally often, special tokens included, as `uniform_generator` of the authors.

    It has no weights.
    """

    def counts(self) -> tf.Tensor:
        return tf.ones([self.vocab_size])


class UnigramGenerator(_FixedGenerator):
    """Proposes tokens as often as the training text has them, whatever stands around them (paper, section 3.2).

    What no text has is never proposed: [PAD], [MASK], and the [CLS] and [SEP] that examples are put together with,
    which are never masked out either. [UNK] stands for words of the text and comes as often as they do.

    The counts are a variable that is not trained, so that a checkpoint has them; until `adopt_counts` all are 1.
    """

    def build(self, input_shape):
        self.token_counts = self.add_weight(
            name="token_counts", shape=[self.vocab_size], initializer="ones", trainable=False
        )
        super().build(input_shape)

    def adopt_counts(self, token_counts: np.ndarray) -> None:
        """Takes the counts of every vocabulary entry, [V]; to 24 bits, as float32 has them."""
        self.token_counts.assign(token_counts.astype(np.float32))

    def counts(self) -> tf.Tensor:
        return tf.convert_to_tensor(self.token_counts)


# By the kind that a configuration asks for; both take the vocabulary's size.
FIXED_GENERATORS = {"unigram": UnigramGenerator, "uniform": UniformGenerator}
