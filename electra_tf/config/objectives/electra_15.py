"""Settings of ELECTRA 15%."""

from typing import Literal

from electra_tf.config.objectives.electra import ElectraConfig


class Electra15Config(ElectraConfig):
    """ELECTRA whose discriminator loss counts 15 % of the tokens only (paper, section 3.5).

    The loss stays a mean over the tokens that count, so `replaced_token_loss_weight` weighs each of them about seven
    times as much as ELECTRA's does. The paper's sums are 0.15 of the weight on means.
    """

    name: Literal["electra_15"]
    # masked: those that were masked out. random: a draw of its own from the same candidates, as many; some are masked
    # ones (footnote 8). random_unmasked: the footnote's letter, a draw from the others alone. No token among these is
    # ever replaced, so that nothing can be learnt but to answer "original".
    loss_positions: Literal["masked", "random", "random_unmasked"] = "masked"

    @property
    def learns_replaced_tokens(self) -> bool:
        return super().learns_replaced_tokens and self.loss_positions != "random_unmasked"
