"""BERT, the masked-LM baseline: the full-size encoder predicts the masked tokens (the paper's "BERT" rows)."""

from typing import Any, Literal

from electra_tf.config.settings import NonNegative
from electra_tf.data.batch import Batch, mask_and_segments
from electra_tf.flops.passes import HeadPass, NetworkPass, PhaseCost
from electra_tf.models.encoder import Encoder, build_encoder
from electra_tf.models.generators import GeneratorOutput, TransformerGenerator
from electra_tf.models.heads import MaskedLmHead
from electra_tf.models.layers import ForwardContext
from electra_tf.tasks.pretrain.as_masked_lm import MaskedLmByArgmax
from electra_tf.tasks.pretrain.config import ObjectiveSettings, PretrainingConfig
from electra_tf.tasks.pretrain.losses import mask_token_metrics, masked_lm_accuracy, masked_lm_loss
from electra_tf.tasks.pretrain.objective import Objective, register_objective
from electra_tf.tasks.terms import Term, Total


class BertMlmConfig(ObjectiveSettings):
    """The masked-LM baseline: the full-size encoder predicts the masked tokens."""

    name: Literal["bert_mlm"]
    masked_lm_loss_weight: NonNegative = 1.0  # weight of the only loss

    def phase_costs(self, run: PretrainingConfig) -> tuple[PhaseCost, ...]:
        network = NetworkPass("masked_lm_network", run.encoder, (HeadPass("vocabulary", "masked"),))
        return (PhaseCost(run.train.num_steps, (network,)),)


class MaskedLm(Objective):
    """Base of objectives whose only network predicts the masked tokens. A subclass defines `encoder` and `generate`."""

    def generate(self, batch: Batch, context: ForwardContext) -> GeneratorOutput:
        """The predictions at the masked positions."""
        raise NotImplementedError

    def forward(self, batch: Batch, context: ForwardContext) -> Any:
        return self.generate(batch, context)

    def loss_totals(self, batch: Batch, forward: Any) -> dict[str, Total]:
        return {"masked_lm": masked_lm_loss(forward.distribution, batch)}

    def extra_metrics(self, batch: Batch, forward: Any) -> dict[str, Total]:
        return mask_token_metrics(forward.distribution, batch)

    def held_out_metrics(self, batch: Batch, forward: Any, context: ForwardContext) -> dict[str, Term]:
        return {"masked_lm_accuracy": masked_lm_accuracy(forward.logits, batch)}


@register_objective(BertMlmConfig)
class BertMlm(MaskedLm):
    """A masked language model: the network of a generator, at full size."""

    def __init__(self, config: PretrainingConfig, **model_options: Any) -> None:
        super().__init__(config, **model_options)
        dtype = self.layer_dtype
        encoder = build_encoder(config.encoder, dtype)
        head = MaskedLmHead(config.encoder, encoder.embeddings, name="generator_predictions", dtype=dtype)
        self.masked_lm = TransformerGenerator(encoder, head, name="masked_lm_network", dtype=dtype)

    @property
    def encoder(self) -> Encoder:
        return self.masked_lm.encoder

    def generate(self, batch: Batch, context: ForwardContext) -> GeneratorOutput:
        inputs = {**mask_and_segments(batch), "positions": batch["masked_lm_positions"]}
        return self.masked_lm(batch["masked_input_ids"], **inputs, context=context.fold_in("masked_lm"))

    def as_masked_lm(self) -> MaskedLmByArgmax:
        return MaskedLmByArgmax(self)
