"""The masked-LM baseline: the full-size encoder predicts the masked tokens itself (the paper's "BERT" rows)."""

import tensorflow as tf

from electra_tf.config.schema import PretrainingConfig
from electra_tf.models.context import ForwardContext
from electra_tf.models.embeddings import Embeddings
from electra_tf.models.encoder import Encoder
from electra_tf.models.generators import Proposal, TransformerGenerator
from electra_tf.models.heads import MaskedLmHead
from electra_tf.objectives.base import PRECISION_POLICIES, Objective
from electra_tf.objectives.losses import masked_lm_loss
from electra_tf.objectives.metrics import masked_lm_metrics
from electra_tf.objectives.terms import Ratio, Term


class BertMlm(Objective):
    """Masked language modelling alone. Its network is what a generator is, at full size."""

    def __init__(self, config: PretrainingConfig, **model_options):
        super().__init__(config, **model_options)
        dtype = PRECISION_POLICIES[config.train.precision]
        embeddings = Embeddings(config.encoder, name="embeddings", dtype=dtype)
        encoder = Encoder(config.encoder, embeddings, name="electra", dtype=dtype)
        head = MaskedLmHead(config.encoder, embeddings, name="generator_predictions", dtype=dtype)
        self.masked_lm = TransformerGenerator(encoder, head, name="masked_lm_network", dtype=dtype)

    @property
    def encoder(self) -> Encoder:
        return self.masked_lm.encoder

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"masked_lm": self.config.objective.masked_lm_loss_weight}

    def term_weights(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {"masked_lm": tf.reduce_sum(batch["masked_lm_weights"])}

    def loss_terms(self, batch: dict[str, tf.Tensor], context: ForwardContext) -> dict[str, Ratio]:
        scores = self.forward(batch, context).scores
        return {"masked_lm": masked_lm_loss(scores, batch["masked_lm_ids"], batch["masked_lm_weights"])}

    def evaluation_terms(self, batch: dict[str, tf.Tensor], context: ForwardContext) -> dict[str, Term]:
        scores = self.forward(batch, context).scores
        return {
            "masked_lm_loss": masked_lm_loss(scores, batch["masked_lm_ids"], batch["masked_lm_weights"]),
            **masked_lm_metrics(scores.logits, batch["masked_lm_ids"], batch["masked_lm_weights"]),
        }

    def forward(self, batch: dict[str, tf.Tensor], context: ForwardContext) -> Proposal:
        """The predictions at the masked positions."""
        return self.masked_lm(
            batch["masked_input_ids"],
            input_mask=batch["input_mask"],
            segment_ids=batch["segment_ids"],
            positions=batch["masked_lm_positions"],
            context=context.scope("masked_lm"),
        )
