"""ELECTRA with some inputs left uncorrupted, and a head on [CLS] that detects corrupted inputs (paper, appendix H)."""

import math
from typing import Any, Literal

import tensorflow as tf

from electra_tf.config.settings import Fraction, NonNegative
from electra_tf.data.batch import Batch
from electra_tf.flops.passes import HeadPass, NetworkPass
from electra_tf.models.generators import Distribution, GeneratorOutput
from electra_tf.models.layers import ForwardContext, Linear, glorot_uniform
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.electra import Electra, ElectraConfig, ElectraForward
from electra_tf.tasks.pretrain.generator_objective import CorruptedInput
from electra_tf.tasks.pretrain.losses import replaced_token_loss
from electra_tf.tasks.pretrain.objective import register_objective
from electra_tf.tasks.terms import Total, count_of, weighted_total


class ContrastiveConfig(ElectraConfig):
    """ELECTRA with some inputs left uncorrupted, and a head that detects corrupted inputs (paper, appendix H)."""

    name: Literal["contrastive"]
    clean_fraction: Fraction = 0.2  # share of the inputs that stay uncorrupted; the paper's
    # The weight of the mean over inputs. The paper gives none; at 1.0 this loss begins at ln 2, 1/50 of the weighted
    # replaced-token loss.
    corrupted_input_loss_weight: NonNegative = 1.0

    def encoder_pass(self, run: PretrainingConfig) -> NetworkPass:
        return NetworkPass("discriminator", run.encoder, (HeadPass("token", "all"), HeadPass("unit", "first")))


@register_objective(ContrastiveConfig)
class Contrastive(Electra):
    """ELECTRA, whose discriminator also predicts whether its input was corrupted at all.

    ELECTRA's losses stay the same: the generator learns from every input, and the tokens of a clean input count as
    original. An input whose samples all equal the originals counts as clean.
    """

    def __init__(self, config: PretrainingConfig, **model_options: Any) -> None:
        super().__init__(config, **model_options)
        # A logit is float32 under every dtype policy.
        self.corrupted_input_head = Linear(
            1, kernel_initializer=glorot_uniform(), dtype="float32", name="corrupted_input_predictions"
        )

    @property
    def originals_per_sample(self) -> float:
        sampled_fraction = self.config.masking.fraction_at(1.0) * (1.0 - self.config.objective.clean_fraction)
        return (1.0 - sampled_fraction) / sampled_fraction if sampled_fraction else math.inf

    def denominators(self, batch: Batch) -> dict[str, tf.Tensor]:
        return {**super().denominators(batch), "examples": count_of(_real_rows(batch))}

    def corrupt(self, batch: Batch, logits: Distribution, context: ForwardContext) -> CorruptedInput:
        """As ELECTRA, except that each example stays clean with probability `clean_fraction`."""
        corrupted = super().corrupt(batch, logits, context)
        uniform = context.stream("clean").uniform(tf.shape(batch["input_ids"])[0], (1,))
        is_clean = uniform < self.config.objective.clean_fraction  # [B, 1]
        return corrupted._replace(
            input_ids=tf.where(is_clean, batch["input_ids"], corrupted.input_ids),
            is_replaced=tf.where(is_clean, 0, corrupted.is_replaced),
        )

    def discriminate(self, batch: Batch, generated: GeneratorOutput, context: ForwardContext) -> ElectraForward:
        """As ELECTRA, with the logits of a corrupted input, [B] float32."""
        forward = super().discriminate(batch, generated, context)
        return forward._replace(head_logits=self.corrupted_input_head(forward.discriminator_output.pooled_output)[:, 0])

    def loss_totals(self, batch: Batch, forward: ElectraForward) -> dict[str, Total]:
        loss = replaced_token_loss(forward.head_logits, _is_corrupted(forward), _real_rows(batch), "examples")
        return {**super().loss_totals(batch, forward), "corrupted_input": loss}

    def extra_metrics(self, batch: Batch, forward: ElectraForward) -> dict[str, Total]:
        """As ELECTRA, with the accuracy of the loss over inputs, and the fraction of corrupted inputs."""
        is_corrupted, real = _is_corrupted(forward), _real_rows(batch)
        correct = (forward.head_logits > 0.0) == (is_corrupted > 0)
        return {
            **super().extra_metrics(batch, forward),
            "corrupted_input_accuracy": weighted_total(correct, real, "examples"),
            "corrupted_input_fraction": weighted_total(is_corrupted, real, "examples"),
        }


def _is_corrupted(forward: ElectraForward) -> tf.Tensor:
    """[B] int32: 1 for an input with a replaced token."""
    return tf.reduce_max(forward.corrupted.is_replaced, axis=1)


def _real_rows(batch: Batch) -> tf.Tensor:
    """[B] int32: 0 for a row of padding only."""
    return tf.reduce_max(batch["input_mask"], axis=1)
