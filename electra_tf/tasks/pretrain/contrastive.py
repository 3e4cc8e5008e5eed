"""ELECTRA with some inputs left clean, and a head on [CLS] that tells which were corrupted (paper, appendix H)."""

import math
from typing import Literal

import tensorflow as tf
import tf_keras

from electra_tf.config.settings import Fraction, NonNegative
from electra_tf.flops.passes import Head, NetworkPass, Phase
from electra_tf.models.context import ForwardContext
from electra_tf.models.context_free_logits import ContextFreeLogits
from electra_tf.models.layers import glorot_uniform
from electra_tf.models.vocabulary_logits import VocabularyLogits
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.electra import Electra, ElectraConfig, ElectraForward
from electra_tf.tasks.pretrain.generator_objective import CorruptedInput
from electra_tf.tasks.pretrain.losses import replaced_token_loss
from electra_tf.tasks.terms import Ratio, Term, weighted_sum


class ContrastiveConfig(ElectraConfig):
    """ELECTRA with some inputs left as they are, and a head that tells whether an input was corrupted (appendix H)."""

    name: Literal["contrastive"]
    clean_fraction: Fraction = 0.2  # of the inputs; the paper's
    # On the mean over inputs. The paper names none; at 1.0 it begins at ln 2, a fiftieth of the replaced-token loss.
    corrupted_input_loss_weight: NonNegative = 1.0

    def phases(self, run: PretrainingConfig) -> tuple[Phase, ...]:
        discriminator = NetworkPass("discriminator", run.encoder, (Head("token", "all"), Head("unit", "first")))
        return (Phase(run.train.num_steps, (*self.generator_passes(run), discriminator)),)


class Contrastive(Electra):
    """ELECTRA, whose discriminator also tells whether its input was corrupted at all.

    The losses of ELECTRA are as they are: the generator learns from every input, and the tokens of a clean one count
    as original. As a draw that hits the original counts as original, so does an input all of whose draws do.
    """

    def __init__(self, config: PretrainingConfig, **model_options):
        super().__init__(config, **model_options)
        # A logit, so float32 whatever the policy.
        self.corrupted_input_head = tf_keras.layers.Dense(
            1, kernel_initializer=glorot_uniform(), dtype="float32", name="corrupted_input_predictions"
        )

    @property
    def loss_weights(self) -> dict[str, float]:
        return {**super().loss_weights, "corrupted_input": self.config.objective.corrupted_input_loss_weight}

    @property
    def originals_per_sample(self) -> float:
        sampled_fraction = self.config.masking.masked_fraction * (1.0 - self.config.objective.clean_fraction)
        return (1.0 - sampled_fraction) / sampled_fraction if sampled_fraction else math.inf

    def term_weights(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        num_inputs = tf.reduce_sum(_are_real(batch))
        names = ("corrupted_input", "corrupted_input_accuracy", "corrupted_input_fraction")
        return {**super().term_weights(batch), **dict.fromkeys(names, num_inputs)}

    def evaluation_terms(self, batch: dict[str, tf.Tensor], context: ForwardContext) -> dict[str, Term]:
        terms = super().evaluation_terms(batch, context)
        return {"corrupted_input_loss": terms.pop("corrupted_input"), **terms}

    def corrupt(
        self, batch: dict[str, tf.Tensor], scores: VocabularyLogits | ContextFreeLogits, context: ForwardContext
    ) -> CorruptedInput:
        """As ELECTRA, but for the inputs that are left as they are, which are drawn example by example."""
        corrupted = super().corrupt(batch, scores, context)
        uniform = context.random.scope("clean").uniform(tf.shape(batch["input_ids"])[0], (1,))
        is_clean = uniform < self.config.objective.clean_fraction  # [B, 1]
        return CorruptedInput(
            corrupted.sampled_ids,
            tf.where(is_clean, batch["input_ids"], corrupted.input_ids),
            tf.where(is_clean, 0, corrupted.is_replaced),
        )

    def extra_metrics(self, batch: dict[str, tf.Tensor], forward: ElectraForward) -> dict[str, Ratio]:
        """The loss over inputs, how many are told right, and how many are corrupted: what always saying so is right."""
        logits = self.corrupted_input_head(forward.discriminator_output.pooled_output)[:, 0]  # [B]
        is_corrupted, real = tf.reduce_max(forward.corrupted.is_replaced, axis=1), _are_real(batch)
        right = (logits > 0.0) == (is_corrupted > 0)
        return {
            "corrupted_input": replaced_token_loss(logits, is_corrupted, over=real),
            "corrupted_input_accuracy": weighted_sum(tf.cast(right, tf.float32), real),
            "corrupted_input_fraction": weighted_sum(tf.cast(is_corrupted, tf.float32), real),
        }


def _are_real(batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """[B] float32: 0 for a row that is all padding."""
    return tf.cast(tf.reduce_max(batch["input_mask"], axis=1), tf.float32)
