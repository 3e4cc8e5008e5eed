"""Electric: an energy for every token, trained by noise-contrastive estimation (Clark et al. 2020b)."""

import math
from typing import ClassVar, Literal

import keras
import tensorflow as tf

from electra_tf.data.batch import Batch, word_tokens
from electra_tf.flops.passes import HeadPass, NetworkPass
from electra_tf.models.embeddings import tied_embeddings
from electra_tf.models.encoder import Encoder
from electra_tf.models.generators import Distribution, GeneratorOutput
from electra_tf.models.heads import MaskedLmHead
from electra_tf.models.layers import INFERENCE, ForwardContext
from electra_tf.models.two_towers import TwoTowerGenerator
from electra_tf.tasks.pretrain.as_masked_lm import MaskedLmByDiscriminator
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.electra import Electra, ElectraConfig, ElectraForward
from electra_tf.tasks.pretrain.generator_objective import CorruptedInput, masked_tokens
from electra_tf.tasks.pretrain.objective import register_objective
from electra_tf.tasks.terms import Total, count_of, weighted_total


class ElectricConfig(ElectraConfig):
    """An energy for every token, trained to distinguish data from the samples of a two-tower cloze model.

    `generator` gives the sizes of each tower, `masked_lm_loss_weight` the weight of the towers' loss over all tokens,
    and `replaced_token_loss_weight` the weight of the noise-contrastive loss.
    Source: Clark et al. 2020b; the authors' code with `electric_objective`.
    """

    needs_generator_network: ClassVar[bool] = True

    name: Literal["electric"]
    tying: Literal["none", "embeddings"] = "embeddings"  # the towers cannot share the encoder

    def require_fit(self, run: PretrainingConfig) -> None:
        super().require_fit(run)
        self.require_samples_of_the_generator()  # the loss needs the probability of each sample
        fractions = {masking.masked_fraction for masking in (run.masking, *run.stage_maskings)}
        is_constant = len(fractions) == 1 and isinstance(run.masking.masked_fraction, float)
        if run.masking.scheme == "rare_tokens" or not is_constant:
            raise ValueError(
                "the loss of objective.name 'electric' needs the same share of noise of all tokens and in all steps: "
                "masking.scheme must not be rare_tokens, and masking.masked_fraction one number, without one in stages"
            )

    def generator_passes(self, run: PretrainingConfig, trained: bool = True) -> tuple[NetworkPass, ...]:
        """Both towers over the whole input, under one head: at all positions, and again at the sampled ones."""
        encoder = self.generator_encoder(run)
        both = 2 * encoder.hidden_size
        all_tokens = HeadPass("vocabulary", "all", input_size=both)
        sampling = HeadPass("vocabulary", "masked", input_size=both, trained=False)
        return (
            NetworkPass("generator_left_to_right", encoder, (), trained),
            NetworkPass("generator_right_to_left", encoder, (all_tokens, sampling), trained),
        )


@register_objective(ElectricConfig)
class Electric(Electra):
    """A generator q with known sampling probabilities, and an encoder that learns an unnormalised density.

    The encoder's output is an energy E(x_t) instead of the logit of replacement: the model is
    p(x_t | the others) ~ exp(-E(x_t)), and the probability that a token is noise follows from p and q. A sample equal
    to the original is noise too. In the names of the terms "replaced" means noise.

    Source: `electric_objective` and `two_tower_generator` of the authors' code.
    """

    def build_networks(self) -> tuple[TwoTowerGenerator, Encoder]:
        config, settings, dtype = self.config, self.config.objective, self.layer_dtype
        sizes = settings.generator_encoder(config)
        embeddings, own_embeddings = tied_embeddings(settings.tying, sizes, config.encoder, dtype)
        before, after = (
            Encoder(sizes, embeddings, attention_mask, name=f"generator_{attention_mask}", dtype=dtype)
            for attention_mask in ("left_to_right", "right_to_left")
        )
        head = MaskedLmHead(sizes, embeddings, name="generator_predictions", dtype=dtype)
        generator = TwoTowerGenerator(before, after, head, name="generator_network", dtype=dtype)
        return generator, Encoder(config.encoder, own_embeddings, name="electra", dtype=dtype)

    def denominators(self, batch: Batch) -> dict[str, tf.Tensor]:
        return {**super().denominators(batch), "words": count_of(word_tokens(batch))}

    def generate(self, batch: Batch, context: ForwardContext) -> GeneratorOutput:
        """The towers' predictions. Neither tower attends to the token that it predicts, so the input is unmasked."""
        return super().generate({**batch, "masked_input_ids": batch["input_ids"]}, context)

    def corrupt(self, batch: Batch, logits: Distribution, context: ForwardContext) -> CorruptedInput:
        """As ELECTRA, but every sample counts as noise, also one equal to the original."""
        return super().corrupt(batch, logits, context)._replace(is_replaced=masked_tokens(batch))

    def discriminate(self, batch: Batch, generated: GeneratorOutput, context: ForwardContext) -> ElectraForward:
        forward = super().discriminate(batch, generated, context)
        assert generated.everywhere is not None, "the generator has two towers"
        # The losses of the original and of the corrupted tokens, each given the original tokens around it.
        losses = generated.everywhere.token_losses(batch["input_ids"], forward.corrupted.input_ids)
        logits = self.noise_logits(forward.replaced_token_logits, losses.other)
        return forward._replace(replaced_token_logits=logits, token_losses=losses.token)

    def noise_logits(self, energies: tf.Tensor, token_losses: tf.Tensor) -> tf.Tensor:
        """The log odds of noise: E(x) + log q(x) + log(p / (1 - p)), where p is the fraction of noise: [B, S] float32.

        Args: energies: [B, S] float32.        token_losses: [B, S] float32, -log q(x).
        """
        noise_fraction = self.config.masking.fraction_at(1.0)
        return energies - token_losses + math.log(noise_fraction / (1.0 - noise_fraction))

    def energies(self, inputs: Batch) -> tf.Tensor:
        """[B, S] float32: -log p(x_t | the other tokens), up to a constant for each t; inputs as for `call`.

        The negative sum over a text is a pseudo-log-likelihood from one forward pass.
        """
        return super().detection_logits(inputs)

    def detection_logits(self, inputs: Batch) -> tf.Tensor:
        """[B, S] float32: the log odds that each token of the input is a sample of the generator."""
        unused = {"masked_lm_positions": tf.zeros_like(inputs["input_ids"][:, :1])}
        everywhere = self.generate({**inputs, **unused}, INFERENCE).everywhere
        assert everywhere is not None, "the generator has two towers"
        return self.noise_logits(self.energies(inputs), everywhere.losses(inputs["input_ids"]))

    def as_masked_lm(self) -> MaskedLmByDiscriminator:
        # Energies are negative log-probabilities: the lowest is the best.
        return MaskedLmByDiscriminator(self, self.energies, lambda energies, generator_probs: -energies)

    @property
    def detection_layers(self) -> list[keras.layers.Layer]:
        return [*super().detection_layers, self.generator]

    def loss_totals(self, batch: Batch, forward: ElectraForward) -> dict[str, Total]:
        """The generator's loss over all tokens except [CLS] and [SEP], and the discriminator's loss of ELECTRA."""
        masked_lm = weighted_total(forward.token_losses, word_tokens(batch), "words")
        return {**super().loss_totals(batch, forward), "masked_lm": masked_lm}
