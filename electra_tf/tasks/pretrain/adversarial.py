"""Adversarial training: the generator learns by REINFORCE to fool the discriminator (paper, appendix F).

The sign. The generator maximises the discriminator's loss L_Disc. The paper prints no minus sign before the
log-likelihood, neither in L_Disc of section 2 nor in the reward of appendix F,

    R(x', x) = log D(x')  if x' = x,  else log(1 - D(x')).

R is the log-likelihood, at most 0, of the discriminator's right answer about the sample x', so the discriminator
minimises -R at that position. Maximising R as printed would reward samples that are easy to detect, but appendix F
describes a generator that maximises the loss. So, with the baseline b = log sigmoid(w . h_G) that predicts R,

    gradient of E[-R] = E[ gradient of log p_G(x') * ((-R) - (-b)) ] = E[ gradient of log p_G(x') * (b - R) ].

Gradient ascent on E[-R] is descent on the `policy` term, -log p_G(x') * (b - R) with b - R held constant: samples that
fool the discriminator more than predicted become more likely.
"""

from typing import Any, ClassVar, Literal

import tensorflow as tf

from electra_tf.config.settings import NonNegative
from electra_tf.data.batch import Batch
from electra_tf.flops.passes import HeadPass, NetworkPass
from electra_tf.models.generators import GeneratorOutput
from electra_tf.models.layers import ForwardContext, Linear, glorot_uniform
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.electra import Electra, ElectraConfig, ElectraForward
from electra_tf.tasks.pretrain.losses import at_masked_positions, over_masked_tokens
from electra_tf.tasks.pretrain.objective import register_objective
from electra_tf.tasks.terms import Term, Total


class AdversarialConfig(ElectraConfig):
    """A generator trained by REINFORCE to fool the discriminator (paper, section 3.2 and appendix F)."""

    needs_generator_network: ClassVar[bool] = True

    name: Literal["adversarial"]
    # As in ELECTRA, but not all: the two networks are trained against each other.
    tying: Literal["none", "embeddings", "gradient_disentangled"] = "embeddings"
    masked_lm_loss_weight: NonNegative = 0.0  # the paper's generator has no masked-LM loss
    policy_loss_weight: NonNegative = 1.0  # weight of the generator's loss, by REINFORCE
    baseline_loss_weight: NonNegative = 1.0  # weight of the loss of the baseline, which trains nothing else

    def require_fit(self, run: PretrainingConfig) -> None:
        super().require_fit(run)
        self.require_samples_of_the_generator()

    def generator_passes(self, run: PretrainingConfig, trained: bool = True) -> tuple[NetworkPass, ...]:
        heads = (HeadPass("vocabulary", "masked"), HeadPass("unit", "masked", trains_encoder=False))
        return (NetworkPass("generator", self.generator_encoder(run), heads, trained),)


@register_objective(AdversarialConfig)
class Adversarial(Electra):
    """ELECTRA with a generator that is rewarded for the discriminator's loss instead of trained by maximum likelihood.

    The discriminator is trained as in ELECTRA: the generator's losses send no gradient to it, except to shared
    embeddings. The baseline is a vector on top of the generator's encoder, to which it sends no gradient. The paper's
    sums are means over the masked tokens here.
    """

    def __init__(self, config: PretrainingConfig, **model_options: Any) -> None:
        super().__init__(config, **model_options)
        self.baseline = Linear(1, use_bias=False, kernel_initializer=glorot_uniform(), dtype="float32", name="baseline")

    @property
    def loss_weights(self) -> dict[str, float]:
        # A weight of 0 would still compute a gradient of zeros through the vocabulary.
        return {name: weight for name, weight in super().loss_weights.items() if weight > 0}

    def loss_totals(self, batch: Batch, forward: ElectraForward) -> dict[str, Total]:
        """As ELECTRA, with the generator's two losses over the masked tokens."""
        reward, logits = _reward(batch, forward), forward.head_logits
        # Where a position is selected twice, the sample in the discriminator's input.
        tokens = at_masked_positions(forward.corrupted.input_ids, batch)
        policy = forward.generated.distribution.losses(tokens) * _advantage(reward, logits)
        baseline = tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.exp(-reward), logits=logits)
        return {
            **super().loss_totals(batch, forward),
            "policy": over_masked_tokens(policy, batch),
            "baseline": over_masked_tokens(baseline, batch),
        }

    def extra_metrics(self, batch: Batch, forward: ElectraForward) -> dict[str, Total]:
        """As ELECTRA, with metrics of the generator over the masked tokens.

        `reward` is the discriminator's loss, -R; `advantage` is `reward` minus the baseline's prediction of it;
        `generator_entropy` is the entropy of the generator's distribution, in nats.
        """
        distribution, reward = forward.generated.distribution, _reward(batch, forward)
        values = {
            "reward": reward,
            "advantage": _advantage(reward, forward.head_logits),
            "generator_entropy": distribution.entropies(),
            "masked_lm_accuracy": distribution.is_top1(batch["masked_lm_ids"]),
        }
        totals = {name: over_masked_tokens(value, batch) for name, value in values.items()}
        return {**super().extra_metrics(batch, forward), **totals}

    def held_out_metrics(self, batch: Batch, forward: ElectraForward, context: ForwardContext) -> dict[str, Term]:
        metrics = super().held_out_metrics(batch, forward, context)
        return {name: term for name, term in metrics.items() if name != "masked_lm_accuracy"}  # already an extra metric

    def discriminate(self, batch: Batch, generated: GeneratorOutput, context: ForwardContext) -> ElectraForward:
        forward = super().discriminate(batch, generated, context)
        return forward._replace(head_logits=self.baseline_logits(generated))

    def baseline_logits(self, generated: GeneratorOutput) -> tf.Tensor:
        """[B, M] float32: w . h_G, whose gradient trains w alone."""
        return tf.squeeze(self.baseline(tf.stop_gradient(generated.hidden)), axis=-1)


def _reward(batch: Batch, forward: ElectraForward) -> tf.Tensor:
    """[B, M] float32: -R, the discriminator's losses at the masked positions, without their gradient."""
    losses = tf.nn.sigmoid_cross_entropy_with_logits(
        labels=tf.cast(forward.corrupted.is_replaced, tf.float32),
        logits=tf.stop_gradient(forward.replaced_token_logits),
    )
    return at_masked_positions(losses, batch)


def _advantage(reward: tf.Tensor, baseline_logits: tf.Tensor) -> tf.Tensor:
    return reward + tf.math.log_sigmoid(tf.stop_gradient(baseline_logits))
