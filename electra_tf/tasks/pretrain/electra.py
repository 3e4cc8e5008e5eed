"""ELECTRA: a masked-LM generator, and a discriminator that detects the tokens it replaced (paper, section 2)."""

import functools
import math
from typing import Any, Literal, NamedTuple

import keras
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.settings import NonNegative
from electra_tf.data.batch import Batch
from electra_tf.flops.passes import HeadPass, NetworkPass
from electra_tf.models.encoder import EncoderOutput
from electra_tf.models.generators import GeneratorOutput
from electra_tf.models.heads import ReplacedTokenHead
from electra_tf.models.layers import INFERENCE, ForwardContext
from electra_tf.tasks.pretrain.as_masked_lm import MaskedLmByDiscriminator, data_probabilities
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.generator_objective import CorruptedInput, GeneratorObjective, GeneratorObjectiveSettings
from electra_tf.tasks.pretrain.losses import replaced_token_loss, replaced_token_metrics
from electra_tf.tasks.pretrain.objective import register_objective
from electra_tf.tasks.terms import Term, Total, count_of, weighted_total


class ElectraConfig(GeneratorObjectiveSettings):
    """Replaced-token detection with a jointly trained generator (paper, section 2)."""

    name: Literal["electra"]
    # Weight of the discriminator's loss: the paper's lambda, for means over tokens as in the authors' code.
    replaced_token_loss_weight: NonNegative = 50.0

    def encoder_pass(self, run: PretrainingConfig) -> NetworkPass:
        return NetworkPass("discriminator", run.encoder, (HeadPass("token", "all"),))


class ElectraForward(NamedTuple):
    """The results of one forward pass."""

    generated: GeneratorOutput
    corrupted: CorruptedInput
    loss_mask: tf.Tensor  # [B, S] int32, see `Electra.loss_mask`
    discriminator_output: EncoderOutput
    replaced_token_logits: tf.Tensor  # [B, S] float32; in Electric the log odds of noise
    head_logits: Any = None  # of a subclass's further head
    token_losses: tf.Tensor | None = None  # [B, S] float32; in Electric, the generator's -log p of the original tokens


@register_objective(ElectraConfig)
class Electra(GeneratorObjective):
    """Joint training of generator and discriminator: masked-LM loss + lambda * replaced-token loss."""

    def __init__(self, config: PretrainingConfig, **model_options: Any) -> None:
        super().__init__(config, **model_options)
        self.replaced_token_head = ReplacedTokenHead(
            config.encoder, name="discriminator_predictions", dtype=self.layer_dtype
        )

    def loss_mask(self, batch: Batch, context: ForwardContext) -> tf.Tensor:
        """[B, S] int32: 1 for the tokens in the discriminator's loss and metrics; here all real tokens."""
        return batch["input_mask"]

    def denominators(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Adds `counted_tokens`, the number of tokens in the discriminator's loss."""
        return {**super().denominators(batch), "counted_tokens": count_of(batch["input_mask"])}

    def forward(self, batch: Batch, context: ForwardContext) -> ElectraForward:
        """Generator, sampling and discriminator, in that order."""
        return self.discriminate(batch, self.generate(batch, context), context)

    def discriminate(self, batch: Batch, generated: GeneratorOutput, context: ForwardContext) -> ElectraForward:
        """The steps after the generator: sampling and the discriminator."""
        corrupted = self.corrupt(batch, generated.distribution, context.fold_in("sampling"))
        output = self.encode(batch, corrupted, context)
        logits = self.replaced_token_logits(output, batch, context)
        return ElectraForward(generated, corrupted, self.loss_mask(batch, context), output, logits)

    def replaced_token_logits(self, output: EncoderOutput, batch: Batch, context: ForwardContext) -> tf.Tensor:
        """[B, S] float32: the head's logits for an output of the discriminator; positive means replaced."""
        return self.replaced_token_head(output.sequence_output, context=context)

    def loss_totals(self, batch: Batch, forward: ElectraForward) -> dict[str, Total]:
        logits, is_replaced = forward.replaced_token_logits, forward.corrupted.is_replaced
        loss = replaced_token_loss(logits, is_replaced, forward.loss_mask, "counted_tokens")
        return {**super().loss_totals(batch, forward), "replaced_token": loss}

    def extra_metrics(self, batch: Batch, forward: ElectraForward) -> dict[str, Total]:
        """The metrics that the health checks compare with the losses."""
        replaced = weighted_total(forward.corrupted.is_replaced, forward.loss_mask, "counted_tokens")
        return {"replaced_fraction": replaced, **super().extra_metrics(batch, forward)}

    def held_out_metrics(self, batch: Batch, forward: ElectraForward, context: ForwardContext) -> dict[str, Term]:
        logits, is_replaced = forward.replaced_token_logits, forward.corrupted.is_replaced
        detection = replaced_token_metrics(logits, is_replaced, forward.loss_mask)
        return {**super().held_out_metrics(batch, forward, context), **detection}

    def detect(self, inputs: Batch) -> tf.Tensor:
        """[B, S] float32: the probability that each token was replaced; inputs as for `call`."""
        return tf.sigmoid(self.detection_logits(inputs))

    def detection_logits(self, inputs: Batch) -> tf.Tensor:
        """[B, S] float32: the logits of `detect`."""
        return self.replaced_token_logits(self.call(inputs), inputs, INFERENCE)

    @property
    def detection_layers(self) -> list[keras.layers.Layer]:
        """The layers that `detect` uses in an export; none if exports have no `detect`."""
        return [self.discriminator, self.replaced_token_head]

    @property
    def originals_per_sample(self) -> float:
        """The number of original tokens per sampled token in the discriminator's loss: a of the paper's appendix G.

        The paper's (1 - k/n) / (k/n) with k/n = `masked_fraction` at the end of the run. It is approximate: [CLS] and
        [SEP] are real tokens and never sampled, whole-word masking may select fewer than k, and selection with
        replacement selects some tokens twice.
        """
        masked_fraction = self.config.masking.fraction_at(1.0)
        return (1.0 - masked_fraction) / masked_fraction

    def as_masked_lm(self) -> MaskedLmByDiscriminator:
        """By the formula of appendix G. Raises: UserError: the discriminator was not trained as it assumes."""
        settings = self.config.objective
        for problem, is_so in {
            "objective.disallow_correct is true": settings.disallow_correct,
            "objective.sampling is greedy": settings.sampling == "greedy",
            "masking.scheme is rare_tokens": self.config.masking.scheme == "rare_tokens",
            f"objective.name {settings.name!r} was trained without replaced tokens": math.isinf(
                self.originals_per_sample
            ),
        }.items():
            if is_so:
                raise UserError(
                    f"as_masked_lm: {problem}, but the formula requires samples of the generator's distribution at "
                    "positions selected with equal probability; give a run of electra with other settings"
                )
        formula = functools.partial(data_probabilities, originals_per_sample=self.originals_per_sample)
        return MaskedLmByDiscriminator(self, self.detection_logits, formula)
