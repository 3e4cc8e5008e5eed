"""Random-token detection: the discriminator alone, on randomly replaced tokens. ELECTRA without a generator."""

from typing import Literal

from electra_tf.config.settings import NonNegative
from electra_tf.data.batch import mask_and_segments
from electra_tf.flops.passes import HeadPass, NetworkPass, PhaseCost
from electra_tf.models.embeddings import Embeddings
from electra_tf.models.encoder import Encoder
from electra_tf.models.heads import ReplacedTokenHead
from electra_tf.tasks.pretrain import Objective, register_objective
from electra_tf.tasks.pretrain.config import ObjectiveSettings
from electra_tf.tasks.pretrain.losses import replaced_token_loss, replaced_token_metrics
from electra_tf.tasks.terms import weighted_total


class RandomTokenDetectionConfig(ObjectiveSettings):
    """The settings under `objective:`."""

    name: Literal["random_token_detection"]
    replaced_token_loss_weight: NonNegative = 50.0  # of the loss `replaced_token`; a term without one is only reported

    def require_fit(self, run):
        if run.masking.mask_token_fraction > 0:
            raise ValueError(
                f"masking.mask_token_fraction is {run.masking.mask_token_fraction}: a [MASK] is always a replaced "
                "token; set it to 0 and masking.random_token_fraction to 1"
            )

    def phase_costs(self, run):  # what a step computes, from which its FLOPs follow
        network = NetworkPass("discriminator", run.encoder, (HeadPass("token", "all"),))
        return (PhaseCost(run.train.num_steps, (network,)),)


@register_objective(RandomTokenDetectionConfig)
class RandomTokenDetection(Objective):
    """Binary cross-entropy over all tokens: was this token drawn at random?"""

    def __init__(self, config, **model_options):
        super().__init__(config, **model_options)
        embeddings = Embeddings(config.encoder, name="embeddings", dtype=self.layer_dtype)
        self.discriminator = Encoder(config.encoder, embeddings, name="electra", dtype=self.layer_dtype)
        self.head = ReplacedTokenHead(config.encoder, name="discriminator_predictions", dtype=self.layer_dtype)

    @property
    def encoder(self):  # what is exported after pre-training
        return self.discriminator

    def forward(self, batch, context):  # what the methods below are given
        ids = batch["masked_input_ids"]  # with random_token_fraction 1.0, random tokens at the selected positions
        output = self.discriminator(ids, **mask_and_segments(batch), context=context.fold_in("discriminator"))
        return self.head(output.sequence_output, context=context), ids != batch["input_ids"]

    def loss_totals(self, batch, forward):
        # `tokens` is one of the denominators that `Objective.denominators` computes from the batch.
        return {"replaced_token": replaced_token_loss(*forward, batch["input_mask"], "tokens")}

    def extra_metrics(self, batch, forward):
        _, is_replaced = forward
        return {"replaced_fraction": weighted_total(is_replaced, batch["input_mask"], "tokens")}

    def held_out_metrics(self, batch, forward, context):
        return replaced_token_metrics(*forward, batch["input_mask"])
