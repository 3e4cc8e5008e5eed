"""Settings of Electric."""

from typing import TYPE_CHECKING, ClassVar, Literal

from electra_tf.config.objectives.electra import ElectraConfig
from electra_tf.config.passes import Head, NetworkPass

if TYPE_CHECKING:
    from electra_tf.config.schema import PretrainingConfig


class ElectricConfig(ElectraConfig):
    """An energy for every token, learnt by telling it from the noise of a cloze model of two towers.

    `generator` has the sizes of each tower, `masked_lm_loss_weight` is that of the towers' loss over all tokens, and
    `replaced_token_loss_weight` that of the noise-contrastive loss.
    Source: Clark et al. 2020b; the authors' code with `electric_objective`.
    """

    needs_generator_network: ClassVar[bool] = True

    name: Literal["electric"]
    tying: Literal["none", "embeddings"] = "embeddings"

    def require_fit(self, run: "PretrainingConfig") -> None:
        super().require_fit(run)
        # The loss reckons with the noise's own distribution, that of the towers as they are.
        for setting, expected in (("temperature", 1.0), ("disallow_correct", False)):
            if getattr(self, setting) != expected:
                raise ValueError(
                    f"objective.{setting} {getattr(self, setting)} draws from another distribution than the one whose "
                    "probabilities objective.name 'electric' takes; leave it out"
                )
        if self.sampling == "greedy":
            raise ValueError(
                "objective.sampling 'greedy' draws nothing, and objective.name 'electric' reckons with the chance of "
                "each draw; leave it out"
            )
        if run.masking.strategy == "rare_tokens":
            raise ValueError(
                "masking.strategy 'rare_tokens' draws noise for some tokens more often than for others, and "
                "objective.name 'electric' reckons with one share for all; leave it out"
            )
        if run.masking.masked_fraction >= 1.0:
            raise ValueError(
                "masking.masked_fraction 1.0 leaves no token that is not noise, and objective.name 'electric' tells "
                "the two apart; set it below 1.0 (0.15, say)"
            )

    def generator_passes(self, run: "PretrainingConfig", trained: bool = True) -> tuple[NetworkPass, ...]:
        """Both towers over the whole input, under one head at all positions, and again at those that are drawn."""
        encoder = self.generator_encoder(run)
        both = 2 * encoder.hidden_size
        learning = Head("vocabulary", "all", input_size=both)
        drawing = Head("vocabulary", "masked", input_size=both, trained=False)
        return (
            NetworkPass("generator_left_to_right", encoder, (), trained),
            NetworkPass("generator_right_to_left", encoder, (learning, drawing), trained),
        )
