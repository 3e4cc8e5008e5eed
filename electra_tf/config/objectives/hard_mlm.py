"""Settings of the masked-LM baseline with learned masks."""

from typing import TYPE_CHECKING, Literal

from electra_tf.config.networks import EncoderConfig, TransformerGeneratorConfig
from electra_tf.config.objectives.bert_mlm import BertMlmConfig
from electra_tf.config.passes import Head, NetworkPass, Phase
from electra_tf.config.settings import NonNegative, Positive

if TYPE_CHECKING:
    from electra_tf.config.schema import PretrainingConfig


class HardMlmConfig(BertMlmConfig):
    """A masked LM whose masks fall where a small network guesses that it will struggle (paper, appendix H)."""

    name: Literal["hard_mlm"]
    # The network that guesses, as fractions of the encoder; it has tables of its own.
    difficulty: TransformerGeneratorConfig = TransformerGeneratorConfig(size_fraction=0.25)
    # Of its squared error in nats. A hundredth: an untrained masked LM loses 10 nats a token.
    difficulty_loss_weight: NonNegative = 0.01
    # A token is drawn in proportion to exp(guessed loss / this), both in nats: the smaller, the more of the masks fall
    # on the hardest tokens; a large one is uniform masking.
    mask_temperature: Positive = 2.0

    def require_fit(self, run: "PretrainingConfig") -> None:
        super().require_fit(run)
        self.difficulty_encoder(run)  # or what is wrong with its sizes
        for setting, expected in (("strategy", "uniform"), ("selection", "distinct")):
            if (found := getattr(run.masking, setting)) != expected:
                raise ValueError(
                    f"masking.{setting} is {found!r}, but objective.name 'hard_mlm' has its masks fall where its small "
                    f"network says; set it to {expected!r}"
                )

    def difficulty_encoder(self, run: "PretrainingConfig") -> EncoderConfig:
        """The sizes of the network that guesses."""
        return self.difficulty.encoder(run.encoder, "objective.difficulty")

    def phases(self, run: "PretrainingConfig") -> tuple[Phase, ...]:
        (phase,) = super().phases(run)
        difficulty = NetworkPass("difficulty", self.difficulty_encoder(run), (Head("unit", "all"),))
        return (Phase(phase.num_steps, (difficulty, *phase.passes)),)

    @property
    def learns_masked_lm(self) -> bool:
        # Of tokens that are chosen for being hard the loss may stay near ln V, which is no sign that nothing is learnt.
        return False
