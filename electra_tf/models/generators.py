"""Generators: networks or fixed tables that propose tokens for the masked positions."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from electra_tf.models.context_free_logits import ContextFreeLogits
from electra_tf.models.encoder import Encoder, EncoderOutput
from electra_tf.models.heads import MaskedLmHead
from electra_tf.models.layers import INFERENCE, ForwardContext, Part, Shape, as_tensor
from electra_tf.models.vocabulary_logits import VocabularyLogits

Distribution = VocabularyLogits | ContextFreeLogits


class GeneratorOutput(NamedTuple):
    """The output of a generator."""

    distribution: Distribution  # over the vocabulary, at each masked position
    # Of a `TransformerGenerator`: [B, M, G], what the logits were computed from; and the output for the whole sequence.
    hidden: tf.Tensor | None = None
    encoder_output: EncoderOutput | None = None
    # Of a `TwoTowerGenerator`, whose `distribution` has no gradient: the logits at all S positions, for losses only,
    # which need not compute them all at once.
    everywhere: VocabularyLogits | None = None

    @property
    def logits(self) -> tf.Tensor:
        """[B, M, V] float32, the logits of `distribution`."""
        return self.distribution.logits


class TransformerGenerator(Part):
    """A masked language model: an encoder and a masked-LM head.

    Call: as of an `Encoder`, and positions: [B, M] int32. Returns: `GeneratorOutput`.
    """

    def __init__(self, encoder: Encoder, head: MaskedLmHead, **layer_options: Any) -> None:
        super().__init__(**layer_options)
        self.encoder = encoder
        self.head = head

    def call(
        self,
        masked_input_ids: tf.Tensor,
        input_mask: tf.Tensor,
        segment_ids: tf.Tensor,
        positions: tf.Tensor,
        position_ids: tf.Tensor | None = None,
        context: ForwardContext = INFERENCE,
    ) -> GeneratorOutput:
        inputs = {"input_mask": input_mask, "segment_ids": segment_ids, "position_ids": position_ids}
        output = self.encoder(masked_input_ids, **inputs, context=context)
        hidden = tf.gather(output.sequence_output, positions, batch_dims=1)  # [B, M, G]
        return GeneratorOutput(self.head(hidden, context=context), hidden, output)


class _FixedGenerator(Part):
    """Proposes tokens from one distribution, whatever the input. Call and returns: as `TransformerGenerator`."""

    def __init__(self, vocab_size: int, **layer_options: Any) -> None:
        # bfloat16 would round the counts.
        super().__init__(dtype="float32", **layer_options)
        self.vocab_size = self.num_tokens = vocab_size

    def adopt_num_tokens(self, num_tokens: int) -> None:
        """See `MaskedLmHead.adopt_num_tokens`."""
        self.num_tokens = num_tokens

    def counts(self) -> tf.Tensor:
        """[V] float32: a number proportional to the probability of each vocabulary entry."""
        raise NotImplementedError

    def call(
        self, input_ids: tf.Tensor, positions: tf.Tensor, context: ForwardContext = INFERENCE, **others: tf.Tensor
    ) -> GeneratorOutput:
        return GeneratorOutput(ContextFreeLogits(self.counts(), positions))


class UniformGenerator(_FixedGenerator):
    """Proposes every vocabulary entry equally often, special tokens included. It has no weights.

    Source: `uniform_generator` of the authors' code.
    """

    def counts(self) -> tf.Tensor:
        return tf.pad(tf.ones([self.num_tokens]), [[0, self.vocab_size - self.num_tokens]])


class UnigramGenerator(_FixedGenerator):
    """Proposes tokens as often as they occur in the training text (paper, section 3.2).

    [UNK] stands for words of the text; the other special tokens are never proposed. The counts are a non-trainable
    variable, so that a checkpoint contains them; before `adopt_counts` all are 1.
    """

    def build(self, input_shape: Shape) -> None:
        self.token_counts = self.weight("token_counts", [self.vocab_size], "ones", trainable=False)

    def adopt_counts(self, token_counts: npt.NDArray[np.int64]) -> None:
        """Sets the counts, one for each token; they are rounded to float32."""
        self.token_counts.assign(np.pad(token_counts.astype(np.float32), (0, self.vocab_size - len(token_counts))))

    def counts(self) -> tf.Tensor:
        return as_tensor(self.token_counts)


# By `objective.generator.kind`; both take the vocabulary's size.
FIXED_GENERATORS: dict[str, type[_FixedGenerator]] = {"unigram": UnigramGenerator, "uniform": UniformGenerator}
