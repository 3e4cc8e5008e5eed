"""Adversarial training: the generator learns by REINFORCE to fool the discriminator (paper, appendix F).

The sign. The generator is to maximise L_Disc, the discriminator's loss. By section 2 that is minus the log-likelihood
of the right answers; appendix F leaves the minus out, so its

    R(x', x) = log D(x')  if x' = x,  else log(1 - D(x'))

is the log-likelihood, at most 0, that the discriminator gives the right answer about the sample x', and L_Disc at that
position is -R. To ascend R as printed would reward samples that are easy to tell, all of them fakes that anything could
tell; the generator described there was right in 58 % of the cases and came from maximising L_Disc. So here, with the
baseline b = log sigmoid(w . h_G) that predicts R (and exp(b) the probability exp(R) of the right answer),

    gradient of E[L_Disc] = E[ gradient of log p_G(x') * ((-R) - (-b)) ] = E[ gradient of log p_G(x') * (b - R) ]

and gradient ascent on it is descent on the `policy` term, -log p_G(x') * (b - R) with b - R held constant: what fools
the discriminator more than expected becomes more likely.
"""

from typing import ClassVar, Literal

import tensorflow as tf
import tf_keras

from electra_tf.config.settings import NonNegative
from electra_tf.flops.passes import Head, NetworkPass
from electra_tf.models.layers import glorot_uniform
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.electra import Electra, ElectraConfig, ElectraForward
from electra_tf.tasks.terms import Ratio, weighted_sum


class AdversarialConfig(ElectraConfig):
    """A generator that learns by reinforcement to fool the discriminator (paper, section 3.2 and appendix F)."""

    needs_generator_network: ClassVar[bool] = True

    name: Literal["adversarial"]
    masked_lm_loss_weight: NonNegative = 0.0  # the paper's generator is told of no token whether it is right
    policy_loss_weight: NonNegative = 1.0
    baseline_loss_weight: NonNegative = 1.0

    def require_fit(self, run: PretrainingConfig) -> None:
        super().require_fit(run)
        if self.tying == "all":
            raise ValueError(
                "objective.tying 'all' makes generator and discriminator one network, which adversarial would train "
                "for and against the same loss; set it to 'embeddings' or 'none'"
            )
        own_distribution = {"temperature": 1.0, "disallow_correct": False}
        for name, expected in own_distribution.items():
            if (found := getattr(self, name)) != expected:
                raise ValueError(
                    f"objective.{name} is {found}, but the policy gradient of adversarial is that of tokens drawn from "
                    f"the generator's own distribution; leave it out"
                )
        if self.sampling == "greedy":
            raise ValueError(
                "objective.sampling 'greedy' draws nothing, and the policy gradient of adversarial is that of drawn "
                "tokens; set it to 'categorical'"
            )

    def generator_passes(self, run: PretrainingConfig, trained: bool = True) -> tuple[NetworkPass, ...]:
        heads = (Head("vocabulary", "masked"), Head("unit", "masked", trains_encoder=False))
        return (NetworkPass("generator", self.generator_encoder(run), heads, trained),)


class Adversarial(Electra):
    """ELECTRA with a generator that is rewarded for the discriminator's loss instead of taught the masked tokens.

    The discriminator is trained as ever: nothing of the generator's terms reaches it (but through shared embeddings,
    which are the generator's too). The baseline is a vector on top of the generator's encoder, which it leaves as the
    policy gradient makes it. Sums of the paper are means over the masked tokens, as everywhere.
    """

    def __init__(self, config: PretrainingConfig, **model_options):
        super().__init__(config, **model_options)
        self.baseline = tf_keras.layers.Dense(
            1, use_bias=False, kernel_initializer=glorot_uniform(), dtype="float32", name="baseline"
        )

    @property
    def loss_weights(self) -> dict[str, float]:
        settings = self.config.objective
        weights = {
            **super().loss_weights,
            "policy": settings.policy_loss_weight,
            "baseline": settings.baseline_loss_weight,
        }
        # A weight of 0 would still send a gradient of zeros back through the vocabulary.
        return {name: weight for name, weight in weights.items() if weight > 0}

    def term_weights(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        num_masked = tf.reduce_sum(batch["masked_lm_weights"])
        return {**super().term_weights(batch), **dict.fromkeys(_TERMS, num_masked)}

    def extra_metrics(self, batch: dict[str, tf.Tensor], forward: ElectraForward) -> dict[str, Ratio]:
        """The generator's two losses; how well it fools; how right, and how sure of itself, it is.

        `reward` is the discriminator's mean loss at the masked positions, -R; `advantage` what of it the baseline did
        not expect; `generator_entropy` that of its distributions at the masked positions, in nats.
        """
        scores, weights = forward.generated.scores, batch["masked_lm_weights"]
        reward = self._rewards(batch, forward)
        baseline_logits = self._baseline_logits(forward)
        advantage = reward + tf.math.log_sigmoid(tf.stop_gradient(baseline_logits))
        # What stands there: where a position was drawn for twice, the token that the discriminator has seen.
        tokens = tf.gather(forward.corrupted.input_ids, batch["masked_lm_positions"], batch_dims=1)
        values = {
            "policy": scores.losses(tokens) * advantage,
            "baseline": tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.exp(-reward), logits=baseline_logits),
            "reward": reward,
            "advantage": advantage,
            "generator_entropy": scores.entropies(),
            "masked_lm_accuracy": scores.is_top1(batch["masked_lm_ids"]),
        }
        return {name: weighted_sum(values[name], weights) for name in _TERMS}

    def _rewards(self, batch: dict[str, tf.Tensor], forward: ElectraForward) -> tf.Tensor:
        """[B, M] float32: the discriminator's loss at each masked position, a number without a gradient."""
        labels = tf.cast(forward.corrupted.is_replaced, tf.float32)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(
            labels=labels, logits=tf.stop_gradient(forward.replaced_token_logits)
        )
        return tf.gather(losses, batch["masked_lm_positions"], batch_dims=1)

    def _baseline_logits(self, forward: ElectraForward) -> tf.Tensor:
        """[B, M] float32: w . h_G. Only w learns from it."""
        return tf.squeeze(self.baseline(tf.stop_gradient(forward.generated.hidden)), axis=-1)


_TERMS = ("policy", "baseline", "reward", "advantage", "generator_entropy", "masked_lm_accuracy")
