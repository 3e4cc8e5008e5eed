"""Settings of ELECTRA 15%."""

from typing import TYPE_CHECKING, Literal

from electra_tf.config.objectives.electra import ElectraConfig

if TYPE_CHECKING:
    from electra_tf.config.schema import PretrainingConfig


class Electra15Config(ElectraConfig):
    """ELECTRA whose discriminator loss counts 15 % of the tokens only (paper, section 3.5).

    The loss stays a mean over the tokens that count, so each of them weighs about seven times what it does in ELECTRA;
    a `replaced_token_loss_weight` of 7.5, which is 0.15 * 50, would leave the tokens their weight.
    """

    name: Literal["electra_15"]
    # masked: those that were masked out. random: a draw of its own from the same candidates, as many; some are masked
    # ones (footnote 8). random_unmasked: the footnote's letter, a draw from the others alone. No token among these is
    # ever replaced, so that nothing can be learnt but to answer "original".
    loss_positions: Literal["masked", "random", "random_unmasked"] = "masked"

    def require_fit(self, run: "PretrainingConfig") -> None:
        super().require_fit(run)
        if self.disallow_correct and self.loss_positions == "masked":
            raise ValueError(
                "objective.disallow_correct true has every masked token replaced, and objective.name 'electra_15' "
                "counts no others, so there is nothing to tell apart; set it to false"
            )

    @property
    def learns_replaced_tokens(self) -> bool:
        return super().learns_replaced_tokens and self.loss_positions != "random_unmasked"
