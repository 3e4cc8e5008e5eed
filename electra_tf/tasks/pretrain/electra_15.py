"""ELECTRA 15 %: the discriminator's loss is over 15 % of the tokens (paper, section 3.5)."""

import math
from typing import Literal

import tensorflow as tf

from electra_tf.data.batch import Batch, word_tokens
from electra_tf.models.layers import ForwardContext
from electra_tf.ops.positions import put_at_positions, select_distinct
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.electra import Electra, ElectraConfig
from electra_tf.tasks.pretrain.generator_objective import masked_tokens
from electra_tf.tasks.pretrain.objective import register_objective
from electra_tf.tasks.terms import count_of


class Electra15Config(ElectraConfig):
    """ELECTRA whose discriminator loss is over 15 % of the tokens only (paper, section 3.5).

    The loss is a mean over these tokens, so each has 6.7 times the weight that it has in ELECTRA;
    a `replaced_token_loss_weight` of 7.5, which is 0.15 * 50, gives each token its weight in ELECTRA.
    """

    name: Literal["electra_15"]
    # masked: the masked tokens. random: equally many, drawn again from the same candidates, masked or not (our reading
    # of footnote 8). random_unmasked: equally many, drawn from the unmasked candidates only (footnote 8 to the letter);
    # these are never replaced, so "original" is always the right answer.
    loss_positions: Literal["masked", "random", "random_unmasked"] = "masked"

    def require_fit(self, run: PretrainingConfig) -> None:
        super().require_fit(run)
        if self.disallow_correct and self.loss_positions == "masked":
            raise ValueError(
                "objective.disallow_correct true replaces every masked token, and these are the only tokens in the "
                "loss of objective.name 'electra_15', so it has a single class; set it to false"
            )

    def specials_fraction(self, run: PretrainingConfig) -> float:
        return 0.0

    @property
    def learns_replaced_tokens(self) -> bool:
        return super().learns_replaced_tokens and self.loss_positions != "random_unmasked"

    @property
    def frequencies_reveal_replaced_tokens(self) -> bool:
        # At masked positions a frequent token is often the original, and a rare one is often a sample.
        return super().frequencies_reveal_replaced_tokens or self.loss_positions == "masked"


@register_objective(Electra15Config)
class Electra15(Electra):
    """ELECTRA whose discriminator learns from the masked tokens alone, or from equally many drawn at random.

    The networks, their inputs and the generator's loss are ELECTRA's. The metrics of the discriminator
    (`replaced_fraction`, accuracy, the loss of a constant predictor) are over the same tokens as its loss.
    """

    def loss_mask(self, batch: Batch, context: ForwardContext) -> tf.Tensor:
        masked = masked_tokens(batch)
        if self.config.objective.loss_positions == "masked":
            return masked
        candidates = self._candidates(batch, masked)
        num_slots = batch["masked_lm_positions"].shape[1]
        drawn = select_distinct(candidates, num_slots, context.stream("loss_positions"))
        num_drawn = _num_drawn(masked, candidates)[:, tf.newaxis]
        used = tf.cast(tf.range(num_slots) < num_drawn, tf.float32)
        return put_at_positions(tf.zeros_like(masked), tf.ones_like(drawn), drawn, used)

    def denominators(self, batch: Batch) -> dict[str, tf.Tensor]:
        counts = masked = masked_tokens(batch)
        if self.config.objective.loss_positions != "masked":
            counts = _num_drawn(masked, self._candidates(batch, masked))
        return {**super().denominators(batch), "counted_tokens": count_of(counts)}

    @property
    def originals_per_sample(self) -> float:
        ratios = {"masked": 0.0, "random": super().originals_per_sample, "random_unmasked": math.inf}
        return ratios[self.config.objective.loss_positions]

    def _candidates(self, batch: Batch, masked: tf.Tensor) -> tf.Tensor:
        """[B, S] bool: the tokens that may be drawn."""
        words = word_tokens(batch)
        return words & (masked == 0) if self.config.objective.loss_positions == "random_unmasked" else words


def _num_drawn(masked: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
    """[B] int32: min(masked tokens, candidates) of each example."""
    return tf.minimum(tf.reduce_sum(masked, axis=1), tf.reduce_sum(tf.cast(candidates, tf.int32), axis=1))
