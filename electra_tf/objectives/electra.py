"""ELECTRA: a masked-LM generator, and a discriminator that finds the tokens it replaced (paper, section 2)."""

from typing import NamedTuple

import tensorflow as tf

from electra_tf.config.schema import PretrainingConfig
from electra_tf.data.masking import put_at_positions
from electra_tf.models.context import INFERENCE, ForwardContext
from electra_tf.models.encoder import Encoder, EncoderOutput
from electra_tf.models.generators import Proposal, TransformerGenerator
from electra_tf.models.heads import MaskedLmHead, ReplacedTokenHead
from electra_tf.models.sampling import SAMPLERS
from electra_tf.models.tying import TYINGS
from electra_tf.models.vocabulary_scores import VocabularyScores
from electra_tf.objectives.base import PRECISION_POLICIES, Objective
from electra_tf.objectives.losses import masked_lm_loss, replaced_token_loss
from electra_tf.objectives.metrics import masked_lm_metrics, replaced_token_metrics
from electra_tf.objectives.terms import Ratio, Term, weighted_sum


class CorruptedInput(NamedTuple):
    """What the discriminator reads.

    Attributes:
        sampled_ids: [B, M] int32, the generator's draws.
        input_ids: [B, S] int32, the original with the draws written in.
        is_replaced: [B, S] int32, 1 where the token differs from the original.
    """

    sampled_ids: tf.Tensor
    input_ids: tf.Tensor
    is_replaced: tf.Tensor


class ElectraForward(NamedTuple):
    """Everything one forward pass computes."""

    proposal: Proposal
    corrupted: CorruptedInput
    discriminator_output: EncoderOutput
    replaced_token_logits: tf.Tensor  # [B, S] float32


class Electra(Objective):
    """Joint training of generator and discriminator: masked-LM loss + lambda * replaced-token loss."""

    def __init__(self, config: PretrainingConfig, **model_options):
        super().__init__(config, **model_options)
        settings, dtype = config.objective, PRECISION_POLICIES[config.train.precision]
        pair = TYINGS[settings.tying](config.encoder, settings.generator, dtype)
        masked_lm_head = MaskedLmHead(
            pair.generator.config, pair.generator.embeddings, name="generator_predictions", dtype=dtype
        )
        self.generator = TransformerGenerator(pair.generator, masked_lm_head, name="generator_network", dtype=dtype)
        self.discriminator = pair.discriminator
        self.replaced_token_head = ReplacedTokenHead(config.encoder, name="discriminator_predictions", dtype=dtype)

    @property
    def encoder(self) -> Encoder:
        return self.discriminator

    @property
    def loss_weights(self) -> dict[str, float]:
        settings = self.config.objective
        return {"masked_lm": settings.masked_lm_loss_weight, "replaced_token": settings.replaced_token_loss_weight}

    def term_weights(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        num_masked = tf.reduce_sum(batch["masked_lm_weights"])
        num_tokens = tf.reduce_sum(tf.cast(batch["input_mask"], tf.float32))
        return {
            "masked_lm": num_masked,
            "replaced_token": num_tokens,
            "replaced_fraction": num_tokens,
            "sampled_masked_lm_accuracy": num_masked,
        }

    def loss_terms(self, batch: dict[str, tf.Tensor], context: ForwardContext) -> dict[str, Ratio]:
        forward = self.forward(batch, context)
        replaced = tf.cast(forward.corrupted.is_replaced, tf.float32)
        return {
            **self._loss_ratios(batch, forward),
            # Not losses: what tells a discriminator that has learnt something from one that has not.
            "replaced_fraction": weighted_sum(replaced, tf.cast(batch["input_mask"], tf.float32)),
            "sampled_masked_lm_accuracy": self._sampled_accuracy(batch, forward),
        }

    def evaluation_terms(self, batch: dict[str, tf.Tensor], context: ForwardContext) -> dict[str, Term]:
        forward = self.forward(batch, context)
        losses = self._loss_ratios(batch, forward)
        return {
            "masked_lm_loss": losses["masked_lm"],
            **masked_lm_metrics(forward.proposal.logits, batch["masked_lm_ids"], batch["masked_lm_weights"]),
            "sampled_masked_lm_accuracy": self._sampled_accuracy(batch, forward),
            "replaced_token_loss": losses["replaced_token"],
            **replaced_token_metrics(
                forward.replaced_token_logits, forward.corrupted.is_replaced, over=batch["input_mask"]
            ),
        }

    def forward(self, batch: dict[str, tf.Tensor], context: ForwardContext) -> ElectraForward:
        """Generator, sampling and discriminator, in that order."""
        proposal = self.generator(
            batch["masked_input_ids"],
            input_mask=batch["input_mask"],
            segment_ids=batch["segment_ids"],
            positions=batch["masked_lm_positions"],
            context=context.scope("generator"),
        )
        corrupted = self.corrupt(batch, proposal.scores, context.scope("sampling"))
        output = self.discriminator(
            corrupted.input_ids,
            input_mask=batch["input_mask"],
            segment_ids=batch["segment_ids"],
            context=context.scope("discriminator"),
        )
        logits = self.replaced_token_head(output.sequence_output, training=context.training)
        return ElectraForward(proposal, corrupted, output, logits)

    def corrupt(self, batch: dict[str, tf.Tensor], scores: VocabularyScores, context: ForwardContext) -> CorruptedInput:
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

    def detect(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """[B, S] float32: each token's probability of having been replaced; inputs as for `call`."""
        output = self.discriminator(
            inputs["input_ids"], input_mask=inputs["input_mask"], segment_ids=inputs["segment_ids"], context=INFERENCE
        )
        return tf.sigmoid(self.replaced_token_head(output.sequence_output))

    def _sampled_accuracy(self, batch: dict[str, tf.Tensor], forward: ElectraForward) -> Ratio:
        """The share of the draws that hit the original token."""
        right = tf.cast(forward.corrupted.sampled_ids == batch["masked_lm_ids"], tf.float32)
        return weighted_sum(right, batch["masked_lm_weights"])

    def _loss_ratios(self, batch: dict[str, tf.Tensor], forward: ElectraForward) -> dict[str, Ratio]:
        return {
            "masked_lm": masked_lm_loss(forward.proposal.scores, batch["masked_lm_ids"], batch["masked_lm_weights"]),
            "replaced_token": replaced_token_loss(
                forward.replaced_token_logits, forward.corrupted.is_replaced, over=batch["input_mask"]
            ),
        }
