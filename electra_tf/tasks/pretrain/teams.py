"""TEAMS: ELECTRA whose discriminator also selects each masked token from candidates (multi-word selection).

The candidates are the original and different samples of the generator. Detection and selection each have a last encoder
layer of their own on the layers that they share, and the lowest layers of the discriminator are the generator's too.

Source: Shen et al. 2021, "Training ELECTRA Augmented with Multi-word Selection", arXiv 2106.00139. What the abstract
leaves open is as in the authors' code, official/projects/teams of the TensorFlow Model Garden.
"""

from typing import Annotated, Any, ClassVar, Literal

import keras
import tensorflow as tf
from pydantic import Field

from electra_tf.config.settings import Fraction, NonNegative
from electra_tf.data.batch import Batch
from electra_tf.flops.passes import HeadPass, NetworkPass
from electra_tf.models.encoder import EncoderOutput
from electra_tf.models.generators import GeneratorOutput
from electra_tf.models.heads import ReplacedTokenBranch, WordSelectionHead
from electra_tf.models.layers import ForwardContext
from electra_tf.models.vocabulary_logits import VocabularyLogits
from electra_tf.ops.reference import key_mask_of
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.electra import Electra, ElectraConfig, ElectraForward
from electra_tf.tasks.pretrain.losses import at_masked_positions, over_masked_tokens
from electra_tf.tasks.pretrain.objective import register_objective
from electra_tf.tasks.terms import Total


class TeamsConfig(ElectraConfig):
    """ELECTRA whose discriminator also selects each masked token from candidates (TEAMS, Shen et al. 2021)."""

    needs_generator_network: ClassVar[bool] = True

    name: Literal["teams"]
    tying: Literal["none", "embeddings", "gradient_disentangled"] = "embeddings"  # of the embeddings, as for electra
    # Share of the generator's layers, from the lowest on, that are the discriminator's too (of equal width).
    shared_layers_fraction: Fraction = 0.5
    num_candidates: Annotated[int, Field(ge=2)] = 5  # tokens to select from: the original and samples of the generator
    replaced_token_loss_weight: NonNegative = 5.0  # ELECTRA's is 50
    word_selection_loss_weight: NonNegative = 2.0  # weight of the selection's loss, a mean over the masked tokens

    def num_shared_layers(self, run: PretrainingConfig) -> int:
        """The number of layers that generator and discriminator share, at most all but the discriminator's last."""
        number = round(self.shared_layers_fraction * self.generator_encoder(run).num_layers)
        return min(number, run.encoder.num_layers - 1)

    def require_fit(self, run: PretrainingConfig) -> None:
        super().require_fit(run)
        if self.num_shared_layers(run):
            sizes = ("hidden_size", "num_heads", "intermediate_size", "embedding_size")
            setting = f"objective.shared_layers_fraction {self.shared_layers_fraction}"
            self._require_equal_sizes(run, sizes, setting)

    def encoder_pass(self, run: PretrainingConfig) -> NetworkPass:
        sizes = run.encoder.model_copy(update={"num_layers": run.encoder.num_layers + 1})  # the detection's layer
        selection = HeadPass("token", "masked", inner_size=run.encoder.embedding_size, num_outputs=self.num_candidates)
        return NetworkPass("discriminator", sizes, (HeadPass("token", "all"), selection))


@register_objective(TeamsConfig)
class Teams(Electra):
    """ELECTRA with a second task of the discriminator: which of the candidates is the token at a masked position?

    The encoder, which is exported, ends with the selection's layer. The detection's takes the place of that last layer;
    exports leave it out, and `detect` with it.
    """

    def __init__(self, config: PretrainingConfig, **model_options: Any) -> None:
        super().__init__(config, **model_options)
        options = {"dtype": self.layer_dtype}
        self.replaced_token_head = ReplacedTokenBranch(config.encoder, name="discriminator_predictions", **options)
        self.word_selection_head = WordSelectionHead(
            config.encoder, self.discriminator.embeddings, name="word_selection_predictions", **options
        )

    def discriminate(self, batch: Batch, generated: GeneratorOutput, context: ForwardContext) -> ElectraForward:
        """As ELECTRA, with the logits of the candidates, [B, M, K] float32; the first candidate is the original."""
        forward = super().discriminate(batch, generated, context)
        candidates = self.candidates(batch, generated, context.fold_in("candidates"))
        hidden = at_masked_positions(forward.discriminator_output.sequence_output, batch)
        return forward._replace(head_logits=self.word_selection_head(hidden, candidates, context=context))

    def candidates(self, batch: Batch, generated: GeneratorOutput, context: ForwardContext) -> tf.Tensor:
        """[B, M, K] int32: the originals, and different other tokens drawn from the generator's distribution.

        They are drawn independently of the samples in the discriminator's input.
        """
        originals, num_others = batch["masked_lm_ids"], self.config.objective.num_candidates - 1
        temperature = self.sampling_temperature(context)
        assert isinstance(generated.distribution, VocabularyLogits), "the generator is a network"
        others = generated.distribution.sample_distinct(context, num_others, originals, temperature)
        return tf.concat([originals[..., tf.newaxis], others], axis=-1)

    def replaced_token_logits(self, output: EncoderOutput, batch: Batch, context: ForwardContext) -> tf.Tensor:
        """As ELECTRA, from the input of the encoder's last layer."""
        below = (output.embedding_output, *output.all_layer_outputs[:-1])[-1]
        key_mask = key_mask_of(batch["input_mask"], batch.get("position_ids"))
        return self.replaced_token_head(below, key_mask=key_mask, context=context.fold_in("detection"))

    @property
    def detection_layers(self) -> list[keras.layers.Layer]:
        return []

    def loss_totals(self, batch: Batch, forward: ElectraForward) -> dict[str, Total]:
        logits = forward.head_logits
        losses = tf.reduce_logsumexp(logits, axis=-1) - logits[..., 0]
        return {**super().loss_totals(batch, forward), "word_selection": over_masked_tokens(losses, batch)}

    def extra_metrics(self, batch: Batch, forward: ElectraForward) -> dict[str, Total]:
        """As ELECTRA, with the share of masked positions where the original is selected."""
        is_selected = forward.head_logits[..., 0] > tf.reduce_max(forward.head_logits[..., 1:], axis=-1)
        accuracy = over_masked_tokens(is_selected, batch)
        return {**super().extra_metrics(batch, forward), "word_selection_accuracy": accuracy}
