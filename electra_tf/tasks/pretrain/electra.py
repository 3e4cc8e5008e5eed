"""ELECTRA: a masked-LM generator, and a discriminator that finds the tokens it replaced (paper, section 2)."""

from typing import Literal, NamedTuple

import tensorflow as tf
import tf_keras

from electra_tf.config.settings import NonNegative
from electra_tf.flops.passes import Head, NetworkPass, Phase
from electra_tf.models.context import INFERENCE, ForwardContext
from electra_tf.models.encoder import EncoderOutput
from electra_tf.models.generators import GeneratorOutput
from electra_tf.models.heads import ReplacedTokenHead
from electra_tf.tasks.base import PRECISION_POLICIES
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.generator_objective import (
    CorruptedInput,
    GeneratorObjective,
    GeneratorObjectiveSettings,
    sampled_accuracy,
)
from electra_tf.tasks.pretrain.losses import masked_lm_loss, replaced_token_loss
from electra_tf.tasks.pretrain.metrics import masked_lm_metrics, replaced_token_metrics
from electra_tf.tasks.terms import Ratio, Term, weighted_sum


class ElectraConfig(GeneratorObjectiveSettings):
    """Replaced-token detection beside a jointly trained generator (paper, section 2)."""

    name: Literal["electra"]
    replaced_token_loss_weight: NonNegative = 50.0  # lambda of the paper, on means over tokens as in the authors' code

    def phases(self, run: PretrainingConfig) -> tuple[Phase, ...]:
        discriminator = NetworkPass("discriminator", run.encoder, (Head("token", "all"),))
        return (Phase(run.train.num_steps, (*self.generator_passes(run), discriminator)),)

    @property
    def learns_replaced_tokens(self) -> bool:
        return self.replaced_token_loss_weight > 0


class ElectraForward(NamedTuple):
    """Everything one forward pass computes."""

    generated: GeneratorOutput
    corrupted: CorruptedInput
    discriminator_output: EncoderOutput
    replaced_token_logits: tf.Tensor  # [B, S] float32


class Electra(GeneratorObjective):
    """Joint training of generator and discriminator: masked-LM loss + lambda * replaced-token loss."""

    def __init__(self, config: PretrainingConfig, **model_options):
        super().__init__(config, **model_options)
        dtype = PRECISION_POLICIES[config.train.precision]
        self.replaced_token_head = ReplacedTokenHead(config.encoder, name="discriminator_predictions", dtype=dtype)

    @property
    def loss_weights(self) -> dict[str, float]:
        settings = self.config.objective
        return {"masked_lm": settings.masked_lm_loss_weight, "replaced_token": settings.replaced_token_loss_weight}

    def term_weights(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        num_masked = tf.reduce_sum(batch["masked_lm_weights"])
        num_tokens = self.num_counted_tokens(batch)
        return {
            "masked_lm": num_masked,
            "replaced_token": num_tokens,
            "replaced_fraction": num_tokens,
            "sampled_masked_lm_accuracy": num_masked,
        }

    def loss_terms(self, batch: dict[str, tf.Tensor], context: ForwardContext) -> dict[str, Ratio]:
        forward, counted = self.forward(batch, context), self.counted_tokens(batch, context)
        replaced = tf.cast(forward.corrupted.is_replaced, tf.float32)
        return {
            **self._loss_ratios(batch, forward, counted),
            # Not losses: what tells a discriminator that has learnt something from one that has not.
            "replaced_fraction": weighted_sum(replaced, tf.cast(counted, tf.float32)),
            "sampled_masked_lm_accuracy": sampled_accuracy(batch, forward.corrupted),
            **self.extra_metrics(batch, forward),
        }

    def evaluation_terms(self, batch: dict[str, tf.Tensor], context: ForwardContext) -> dict[str, Term]:
        forward, counted = self.forward(batch, context), self.counted_tokens(batch, context)
        losses = self._loss_ratios(batch, forward, counted)
        return {
            "masked_lm_loss": losses["masked_lm"],
            **masked_lm_metrics(forward.generated.logits, batch["masked_lm_ids"], batch["masked_lm_weights"]),
            "sampled_masked_lm_accuracy": sampled_accuracy(batch, forward.corrupted),
            "replaced_token_loss": losses["replaced_token"],
            **replaced_token_metrics(forward.replaced_token_logits, forward.corrupted.is_replaced, over=counted),
            **self.extra_metrics(batch, forward),
        }

    def extra_metrics(self, batch: dict[str, tf.Tensor], forward: ElectraForward) -> dict[str, Ratio]:
        """What a subclass has beside ELECTRA's terms, in training and in evaluation."""
        return {}

    def forward(self, batch: dict[str, tf.Tensor], context: ForwardContext) -> ElectraForward:
        """Generator, sampling and discriminator, in that order."""
        return self.discriminate(batch, self.generate(batch, context), context)

    def discriminate(
        self, batch: dict[str, tf.Tensor], generated: GeneratorOutput, context: ForwardContext
    ) -> ElectraForward:
        """What comes after the generator: its draws, and the discriminator's answer to them."""
        corrupted = self.corrupt(batch, generated.scores, context.scope("sampling"))
        output = self.encode(batch, corrupted, context)
        logits = self.replaced_token_head(output.sequence_output, context=context)
        return ElectraForward(generated, corrupted, output, logits)

    def detect(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """[B, S] float32: each token's probability of having been replaced; inputs as for `call`."""
        return tf.sigmoid(self.detection_logits(inputs))

    def detection_logits(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """[B, S] float32: the logits of `detect`."""
        output = self.discriminator(
            inputs["input_ids"], input_mask=inputs["input_mask"], segment_ids=inputs["segment_ids"], context=INFERENCE
        )
        return self.replaced_token_head(output.sequence_output)

    @property
    def detection_layers(self) -> list[tf_keras.layers.Layer]:
        """What `detect` reads."""
        return [self.discriminator, self.replaced_token_head]

    @property
    def originals_per_sample(self) -> float:
        """How many original tokens the discriminator's loss has for every sampled one: a of the paper's appendix G.

        The paper's (1 - k/n) / (k/n) with k/n = `masked_fraction`. It is an approximation: [CLS] and [SEP] are real
        tokens and never sampled, whole words may give less than k, and draws with replacement hit some twice.
        """
        masked_fraction = self.config.masking.masked_fraction
        return (1.0 - masked_fraction) / masked_fraction

    def counted_tokens(self, batch: dict[str, tf.Tensor], context: ForwardContext) -> tf.Tensor:
        """[B, S] int32: 1 for the tokens that the discriminator's loss and metrics are over: all real ones."""
        return batch["input_mask"]

    def num_counted_tokens(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """How many `counted_tokens` will be. Scalar float32."""
        return tf.reduce_sum(tf.cast(batch["input_mask"], tf.float32))

    def _loss_ratios(
        self, batch: dict[str, tf.Tensor], forward: ElectraForward, counted: tf.Tensor
    ) -> dict[str, Ratio]:
        return {
            "masked_lm": masked_lm_loss(forward.generated.scores, batch["masked_lm_ids"], batch["masked_lm_weights"]),
            "replaced_token": replaced_token_loss(
                forward.replaced_token_logits, forward.corrupted.is_replaced, over=counted
            ),
        }
