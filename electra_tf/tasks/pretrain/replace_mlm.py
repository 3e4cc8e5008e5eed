"""Replace MLM: masked LM with a generator's samples in place of [MASK] (paper, section 3.5)."""

from typing import Any, Literal, NamedTuple

from electra_tf.config.settings import NonNegative
from electra_tf.data.batch import Batch
from electra_tf.flops.passes import HeadPass, NetworkPass
from electra_tf.models.generators import GeneratorOutput
from electra_tf.models.heads import MaskedLmHead
from electra_tf.models.layers import ForwardContext
from electra_tf.models.vocabulary_logits import VocabularyLogits
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.generator_objective import CorruptedInput, GeneratorObjective, GeneratorObjectiveSettings
from electra_tf.tasks.pretrain.losses import at_masked_positions, masked_lm_accuracy, masked_lm_loss, over_masked_tokens
from electra_tf.tasks.pretrain.objective import register_objective
from electra_tf.tasks.terms import Term, Total, weighted_total


class ReplaceMlmConfig(GeneratorObjectiveSettings):
    """Masked LM with a generator's samples in place of [MASK] (paper, section 3.5)."""

    name: Literal["replace_mlm"]
    # The weight of the encoder's loss. The paper gives none; it is a masked-LM loss like the generator's.
    encoder_masked_lm_loss_weight: NonNegative = 1.0

    def encoder_pass(self, run: PretrainingConfig) -> NetworkPass:
        return NetworkPass("encoder", run.encoder, (HeadPass("vocabulary", "masked"),))


class ReplaceMlmForward(NamedTuple):
    """The results of one forward pass."""

    generated: GeneratorOutput
    corrupted: CorruptedInput
    logits: VocabularyLogits  # the encoder's, at the masked positions


@register_objective(ReplaceMlmConfig)
class ReplaceMlm(GeneratorObjective):
    """Two masked language models: the generator predicts from [MASK], the encoder from the generator's samples."""

    def __init__(self, config: PretrainingConfig, **model_options: Any) -> None:
        super().__init__(config, **model_options)
        self.prediction_head = MaskedLmHead(
            config.encoder, self.discriminator.embeddings, name="encoder_predictions", dtype=self.layer_dtype
        )

    def forward(self, batch: Batch, context: ForwardContext) -> ReplaceMlmForward:
        generated = self.generate(batch, context)
        corrupted = self.corrupt(batch, generated.distribution, context.fold_in("sampling"))
        hidden = at_masked_positions(self.encode(batch, corrupted, context).sequence_output, batch)  # [B, M, H]
        return ReplaceMlmForward(generated, corrupted, self.prediction_head(hidden, context=context))

    def loss_totals(self, batch: Batch, forward: ReplaceMlmForward) -> dict[str, Total]:
        return {**super().loss_totals(batch, forward), "encoder_masked_lm": masked_lm_loss(forward.logits, batch)}

    def extra_metrics(self, batch: Batch, forward: ReplaceMlmForward) -> dict[str, Total]:
        return {
            "replaced_fraction": weighted_total(forward.corrupted.is_replaced, batch["input_mask"], "tokens"),
            **super().extra_metrics(batch, forward),
            "encoder_masked_lm_accuracy": over_masked_tokens(forward.logits.is_top1(batch["masked_lm_ids"]), batch),
        }

    def held_out_metrics(self, batch: Batch, forward: ReplaceMlmForward, context: ForwardContext) -> dict[str, Term]:
        accuracy = masked_lm_accuracy(forward.logits.logits, batch)
        return {**super().held_out_metrics(batch, forward, context), "encoder_masked_lm_accuracy": accuracy}
