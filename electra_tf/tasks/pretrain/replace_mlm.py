"""Replace MLM: masked LM on inputs whose masked tokens are a generator's samples, not [MASK] (paper, section 3.5)."""

from typing import Literal, NamedTuple

import tensorflow as tf

from electra_tf.config.settings import NonNegative
from electra_tf.flops.passes import Head, NetworkPass, Phase
from electra_tf.models.context import ForwardContext
from electra_tf.models.generators import GeneratorOutput
from electra_tf.models.heads import MaskedLmHead, gather_positions
from electra_tf.models.vocabulary_logits import VocabularyLogits
from electra_tf.tasks.base import PRECISION_POLICIES
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.generator_objective import (
    CorruptedInput,
    GeneratorObjective,
    GeneratorObjectiveSettings,
    sample_ratios,
)
from electra_tf.tasks.pretrain.losses import masked_lm_loss
from electra_tf.tasks.pretrain.metrics import masked_lm_metrics, prediction_accuracy
from electra_tf.tasks.terms import Ratio, Term, weighted_sum


class ReplaceMlmConfig(GeneratorObjectiveSettings):
    """Masked LM on inputs whose masked tokens are samples of a generator instead of [MASK] (paper, section 3.5)."""

    name: Literal["replace_mlm"]
    # Of the network that is kept. The paper gives no weight; this loss is of the kind of the generator's, and its size.
    encoder_masked_lm_loss_weight: NonNegative = 1.0

    def phases(self, run: PretrainingConfig) -> tuple[Phase, ...]:
        encoder = NetworkPass("encoder", run.encoder, (Head("vocabulary", "masked"),))
        return (Phase(run.train.num_steps, (*self.generator_passes(run), encoder)),)


class ReplaceMlmForward(NamedTuple):
    """Everything one forward pass computes."""

    generated: GeneratorOutput
    corrupted: CorruptedInput
    scores: VocabularyLogits  # of the kept network, at the masked positions


class ReplaceMlm(GeneratorObjective):
    """Two masked language models: the generator fills in [MASK], the kept network mends what it filled in."""

    def __init__(self, config: PretrainingConfig, **model_options):
        super().__init__(config, **model_options)
        dtype = PRECISION_POLICIES[config.train.precision]
        self.prediction_head = MaskedLmHead(
            config.encoder, self.discriminator.embeddings, name="encoder_predictions", dtype=dtype
        )

    @property
    def loss_weights(self) -> dict[str, float]:
        settings = self.config.objective
        return {
            "masked_lm": settings.masked_lm_loss_weight,
            "encoder_masked_lm": settings.encoder_masked_lm_loss_weight,
        }

    def term_weights(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        num_masked = tf.reduce_sum(batch["masked_lm_weights"])
        return {
            "masked_lm": num_masked,
            "encoder_masked_lm": num_masked,
            "replaced_fraction": tf.reduce_sum(tf.cast(batch["input_mask"], tf.float32)),
            "sampled_masked_lm_accuracy": num_masked,
            "encoder_masked_lm_accuracy": num_masked,
        }

    def loss_terms(self, batch: dict[str, tf.Tensor], context: ForwardContext) -> dict[str, Ratio]:
        forward = self.forward(batch, context)
        right = forward.scores.is_top1(batch["masked_lm_ids"])
        return {
            **self._loss_ratios(batch, forward),
            # Not losses: how much the generator leaves to mend, and how often the encoder gives the original.
            **sample_ratios(batch, forward.corrupted),
            "encoder_masked_lm_accuracy": weighted_sum(right, batch["masked_lm_weights"]),
        }

    def evaluation_terms(self, batch: dict[str, tf.Tensor], context: ForwardContext) -> dict[str, Term]:
        forward = self.forward(batch, context)
        token_ids, weights = batch["masked_lm_ids"], batch["masked_lm_weights"]
        losses = self._loss_ratios(batch, forward)
        return {
            "masked_lm_loss": losses["masked_lm"],
            **masked_lm_metrics(forward.generated.logits, token_ids, weights),
            **sample_ratios(batch, forward.corrupted),
            "encoder_masked_lm_loss": losses["encoder_masked_lm"],
            "encoder_masked_lm_accuracy": prediction_accuracy(forward.scores.logits, token_ids, weights),
        }

    def forward(self, batch: dict[str, tf.Tensor], context: ForwardContext) -> ReplaceMlmForward:
        """Generator, sampling and the kept network's predictions, in that order."""
        generated = self.generate(batch, context)
        corrupted = self.corrupt(batch, generated.scores, context.scope("sampling"))
        output = self.encode(batch, corrupted, context)
        hidden = gather_positions(output.sequence_output, batch["masked_lm_positions"])  # [B, M, H]
        return ReplaceMlmForward(generated, corrupted, self.prediction_head(hidden, context=context))

    def _loss_ratios(self, batch: dict[str, tf.Tensor], forward: ReplaceMlmForward) -> dict[str, Ratio]:
        token_ids, weights = batch["masked_lm_ids"], batch["masked_lm_weights"]
        return {
            "masked_lm": masked_lm_loss(forward.generated.scores, token_ids, weights),
            "encoder_masked_lm": masked_lm_loss(forward.scores, token_ids, weights),
        }
