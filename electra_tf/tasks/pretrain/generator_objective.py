"""What objectives on the samples of a generator share: the pair of encoders, the draw, and the corrupted input."""

from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
import tensorflow as tf
from pydantic import Field

from electra_tf.config.errors import UserError
from electra_tf.config.networks import EncoderConfig, GeneratorConfig, TransformerGeneratorConfig
from electra_tf.config.settings import NonNegative, Positive
from electra_tf.data.corpus import PretrainingData
from electra_tf.flops.passes import Head, NetworkPass
from electra_tf.models.context import ForwardContext
from electra_tf.models.context_free_logits import ContextFreeLogits
from electra_tf.models.encoder import Encoder, EncoderOutput
from electra_tf.models.generators import (
    FIXED_GENERATORS,
    GeneratorOutput,
    TransformerGenerator,
    UniformGenerator,
    UnigramGenerator,
)
from electra_tf.models.heads import MaskedLmHead
from electra_tf.models.sampling import SAMPLERS
from electra_tf.models.tying import TYINGS, build_discriminator
from electra_tf.models.vocabulary_logits import VocabularyLogits
from electra_tf.ops.positions import put_at_positions
from electra_tf.tasks.base import PRECISION_POLICIES, Batch
from electra_tf.tasks.pretrain.config import ObjectiveSettings, PretrainingConfig
from electra_tf.tasks.pretrain.objective import Objective
from electra_tf.tasks.terms import (
    Total,
    weighted_total,
)


class GeneratorObjectiveSettings(ObjectiveSettings):
    """Base of the objectives with a generator whose samples corrupt the input of the network that is kept."""

    # Whether there is nothing without a generator that learns.
    needs_generator_network: ClassVar[bool] = False

    generator: GeneratorConfig
    # What generator and discriminator share: see `electra_tf.models.tying`.
    tying: Literal["none", "embeddings", "gradient_disentangled", "all"] = "embeddings"
    masked_lm_loss_weight: NonNegative = 1.0  # of the generator
    # categorical and gumbel draw from the generator's distribution, in two ways, the second being the authors' and the
    # slower one; greedy takes the most likely token, for comparisons without chance.
    sampling: Literal["categorical", "gumbel", "greedy"] = "categorical"
    temperature: Annotated[Positive, Field(ge=1e-6)] = 1.0  # the likeliest token alone: sampling greedy
    disallow_correct: bool = False  # never sample the original token

    def require_fit(self, run: PretrainingConfig) -> None:
        if not self.has_generator_network:
            self._require_no_network()
            return
        generator = self.generator.encoder(run.encoder)
        if self.tying == "all":
            self._require_one_network(run)
        if self.tying != "none" and generator.embedding_size != run.encoder.embedding_size:
            raise ValueError(
                f"objective.tying {self.tying!r} shares the embeddings, but objective.generator.embedding_size is "
                f"{generator.embedding_size} and encoder.embedding_size {run.encoder.embedding_size}; leave the first "
                "out or set objective.tying to 'none'"
            )

    @property
    def has_generator_network(self) -> bool:
        """Whether the generator is a network; otherwise it is one distribution for all positions, without weights."""
        return isinstance(self.generator, TransformerGeneratorConfig)

    def _require_no_network(self) -> None:
        """What is said of the generator must make sense without weights and without scores of its own each position."""
        kind = self.generator.kind
        if self.needs_generator_network:
            raise ValueError(
                f"objective.generator.kind is {kind!r}, and objective {self.name} trains its generator; set the first "
                "to 'transformer'"
            )
        if self.tying in ("gradient_disentangled", "all"):
            raise ValueError(
                f"objective.tying is {self.tying!r}, but a {kind} generator has no weights to share; leave it out"
            )
        self._require_some_weight(ignored=("masked_lm_loss_weight",))
        if self.sampling != "categorical":
            raise ValueError(
                f"objective.sampling is {self.sampling!r}, which compares the scores of each position, and a {kind} "
                "generator has one table for all; leave it out"
            )

    def _require_one_network(self, run: PretrainingConfig) -> None:
        """With everything tied there is one network, of the discriminator's sizes."""
        if different := self._different_sizes(run, ("hidden_size", "num_layers")):
            raise ValueError(
                f"objective.tying 'all' needs a generator of the discriminator's size: {'; '.join(different)}; set "
                "objective.generator.size_fraction to 1.0 or objective.tying to 'embeddings'"
            )
        # Only what was given outright: a derived value is nobody's wish, and the one network does not use it.
        for name in ("num_heads", "intermediate_size"):
            value, expected = getattr(self.generator, name), getattr(run.encoder, name)
            if value not in (None, expected):
                raise ValueError(
                    f"objective.tying 'all' has one network for both, but objective.generator.{name} is {value} and "
                    f"encoder.{name} {expected}; leave the first out or set objective.tying to 'embeddings'"
                )

    def _different_sizes(self, run: PretrainingConfig, names: Iterable[str]) -> list[str]:
        """What is said of each of these sizes in which the generator is not the discriminator."""
        generator = self.generator.encoder(run.encoder)
        return [
            f"its {name} is {getattr(generator, name)}, the discriminator's {getattr(run.encoder, name)}"
            for name in names
            if getattr(generator, name) != getattr(run.encoder, name)
        ]

    def generator_encoder(self, run: PretrainingConfig) -> EncoderConfig:
        """The sizes of the generator's encoder, if it is one; with everything tied, those of the one network."""
        return run.encoder if self.tying == "all" else self.generator.encoder(run.encoder)

    def generator_passes(self, run: PretrainingConfig, trained: bool = True) -> tuple[NetworkPass, ...]:
        """The generator over the masked input, its head at the masked positions; none where it is no network."""
        if not self.has_generator_network:
            return ()
        encoder = self.generator_encoder(run)
        return (NetworkPass("generator", encoder, (Head("vocabulary", "masked"),), trained),)

    @property
    def learns_masked_lm(self) -> bool:
        return self.has_generator_network and self.masked_lm_loss_weight > 0


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

    Its settings are an `electra_tf.tasks.pretrain.generator_objective.GeneratorObjectiveSettings`.

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

    def generate(self, batch: Batch, context: ForwardContext) -> GeneratorOutput:
        """The generator's answer for the masked positions."""
        return self.generator(
            batch["masked_input_ids"],
            input_mask=batch["input_mask"],
            segment_ids=batch["segment_ids"],
            positions=batch["masked_lm_positions"],
            context=context.scope("generator"),
        )

    def corrupt(
        self, batch: Batch, scores: VocabularyLogits | ContextFreeLogits, context: ForwardContext
    ) -> CorruptedInput:
        """Writes the generator's draws into the original (not the masked) input.

        A draw that hits the original token counts as original (paper, section 2). No gradient flows through the draw.
        """
        settings = self.config.objective
        forbidden_ids = batch["masked_lm_ids"] if settings.disallow_correct else None
        sampled_ids = SAMPLERS[settings.sampling](scores, context, settings.temperature, forbidden_ids)
        corrupted_ids = put_at_positions(
            batch["input_ids"], sampled_ids, batch["masked_lm_positions"], batch["masked_lm_weights"]
        )
        is_replaced = tf.cast(corrupted_ids != batch["input_ids"], tf.int32)
        return CorruptedInput(sampled_ids, corrupted_ids, is_replaced)

    def encode(self, batch: Batch, corrupted: CorruptedInput, context: ForwardContext) -> EncoderOutput:
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


def masked_tokens(batch: Batch) -> tf.Tensor:
    """[B, S] int32: 1 for the tokens that were masked out."""
    positions, weights = batch["masked_lm_positions"], batch["masked_lm_weights"]
    return put_at_positions(tf.zeros_like(batch["input_ids"]), tf.ones_like(positions), positions, weights)


def sampled_accuracy(batch: Batch, corrupted: CorruptedInput) -> Total:
    """The share of the draws that hit the original token."""
    right = tf.cast(corrupted.sampled_ids == batch["masked_lm_ids"], tf.float32)
    return weighted_total(right, batch["masked_lm_weights"], "masked_tokens")


def sample_totals(batch: Batch, corrupted: CorruptedInput) -> dict[str, Total]:
    """Of what was drawn: `replaced_fraction` of the real tokens, and `sampled_masked_lm_accuracy`."""
    replaced = tf.cast(corrupted.is_replaced, tf.float32)
    return {
        "replaced_fraction": weighted_total(replaced, tf.cast(batch["input_mask"], tf.float32), "tokens"),
        "sampled_masked_lm_accuracy": sampled_accuracy(batch, corrupted),
    }
