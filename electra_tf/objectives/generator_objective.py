"""What objectives on the samples of a generator share: the pair of encoders, the draw, and the corrupted input."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import PretrainingConfig
from electra_tf.data.corpus import PretrainingData
from electra_tf.data.masking import put_at_positions
from electra_tf.models.context import ForwardContext
from electra_tf.models.encoder import Encoder, EncoderOutput
from electra_tf.models.fixed_scores import FixedScores
from electra_tf.models.generators import (
    FIXED_GENERATORS,
    Proposal,
    TransformerGenerator,
    UniformGenerator,
    UnigramGenerator,
)
from electra_tf.models.heads import MaskedLmHead
from electra_tf.models.sampling import SAMPLERS
from electra_tf.models.tying import TYINGS, build_discriminator
from electra_tf.models.vocabulary_scores import VocabularyScores
from electra_tf.objectives.base import PRECISION_POLICIES, Objective
from electra_tf.objectives.terms import Ratio, weighted_sum


class CorruptedInput(NamedTuple):
    """What the network above the generator reads.

    Attributes:
        sampled_ids: [B, M] int32, the generator's draws.
        input_ids: [B, S] int32, the original with the draws written in.
        is_replaced: [B, S] int32, 1 where the token differs from the original.
    """

    sampled_ids: tf.Tensor
    input_ids: tf.Tensor
    is_replaced: tf.Tensor


class GeneratorObjective(Objective):
    """Base of the objectives with a generator beside the network that is kept.

    Its settings are an `electra_tf.config.objectives.electra.GeneratorObjectiveSettings`.

    Attributes:
        generator: proposes tokens for the masked positions.
        discriminator: the encoder that reads what is made of them, and is kept.
    """

    def __init__(self, config: PretrainingConfig, **model_options):
        super().__init__(config, **model_options)
        self.generator, self.discriminator = self.build_networks()

    def build_networks(self) -> "tuple[Generator, Encoder]":
        """The generator, and the encoder above it."""
        return _networks(self.config)

    def adopt_data(self, data: PretrainingData) -> None:
        if not isinstance(self.generator, UnigramGenerator):
            return
        counts = data.text_token_counts("objective.generator.kind unigram")
        if self.config.objective.disallow_correct and np.count_nonzero(counts) < 2:
            raise UserError(
                f"objective.disallow_correct never draws the original, and the text of {data.directory} has no other "
                "word; leave it out or give more text"
            )
        self.generator.adopt_counts(counts)

    @property
    def encoder(self) -> Encoder:
        return self.discriminator

    def propose(self, batch: dict[str, tf.Tensor], context: ForwardContext) -> Proposal:
        """The generator's answer for the masked positions."""
        return self.generator(
            batch["masked_input_ids"],
            input_mask=batch["input_mask"],
            segment_ids=batch["segment_ids"],
            positions=batch["masked_lm_positions"],
            context=context.scope("generator"),
        )

    def corrupt(
        self, batch: dict[str, tf.Tensor], scores: VocabularyScores | FixedScores, context: ForwardContext
    ) -> CorruptedInput:
        """Writes the generator's draws into the original (not the masked) input.

        A draw that hits the original token counts as original (paper, section 2). No gradient flows through the draw.
        """
        settings = self.config.objective
        ruled_out = batch["masked_lm_ids"] if settings.disallow_correct else None
        sampled_ids = SAMPLERS[settings.sampling](scores, context, settings.temperature, ruled_out)
        corrupted_ids = put_at_positions(
            batch["input_ids"], sampled_ids, batch["masked_lm_positions"], batch["masked_lm_weights"]
        )
        is_replaced = tf.cast(corrupted_ids != batch["input_ids"], tf.int32)
        return CorruptedInput(sampled_ids, corrupted_ids, is_replaced)

    def encode(self, batch: dict[str, tf.Tensor], corrupted: CorruptedInput, context: ForwardContext) -> EncoderOutput:
        """The vectors that the kept encoder makes of the corrupted input."""
        return self.discriminator(
            corrupted.input_ids,
            input_mask=batch["input_mask"],
            segment_ids=batch["segment_ids"],
            context=context.scope("discriminator"),
        )


Generator = TransformerGenerator | UnigramGenerator | UniformGenerator


def _networks(config: PretrainingConfig) -> tuple[Generator, Encoder]:
    """The generator, and the encoder above it."""
    settings, dtype = config.objective, PRECISION_POLICIES[config.train.precision]
    if not settings.has_generator_network:
        generator = FIXED_GENERATORS[settings.generator.kind](config.encoder.vocab_size, name="generator_network")
        return generator, build_discriminator(config.encoder, dtype)
    pair = TYINGS[settings.tying](config.encoder, settings.generator, dtype)
    masked_lm_head = MaskedLmHead(
        pair.generator.config,
        pair.generator.embeddings,
        name="generator_predictions",
        dtype=dtype,
    )
    generator = TransformerGenerator(pair.generator, masked_lm_head, name="generator_network", dtype=dtype)
    return generator, pair.discriminator


def masked_tokens(batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """[B, S] int32: 1 for the tokens that were masked out."""
    positions, weights = batch["masked_lm_positions"], batch["masked_lm_weights"]
    return put_at_positions(tf.zeros_like(batch["input_ids"]), tf.ones_like(positions), positions, weights)


def sampled_accuracy(batch: dict[str, tf.Tensor], corrupted: CorruptedInput) -> Ratio:
    """The share of the draws that hit the original token."""
    right = tf.cast(corrupted.sampled_ids == batch["masked_lm_ids"], tf.float32)
    return weighted_sum(right, batch["masked_lm_weights"])


def sample_ratios(batch: dict[str, tf.Tensor], corrupted: CorruptedInput) -> dict[str, Ratio]:
    """Of what was drawn: `replaced_fraction` of the real tokens, and `sampled_masked_lm_accuracy`."""
    replaced = tf.cast(corrupted.is_replaced, tf.float32)
    return {
        "replaced_fraction": weighted_sum(replaced, tf.cast(batch["input_mask"], tf.float32)),
        "sampled_masked_lm_accuracy": sampled_accuracy(batch, corrupted),
    }
