"""Settings of adversarial training."""

from typing import TYPE_CHECKING, ClassVar, Literal

from electra_tf.config.objectives.electra import ElectraConfig
from electra_tf.config.passes import Head, NetworkPass
from electra_tf.config.settings import NonNegative

if TYPE_CHECKING:
    from electra_tf.config.schema import PretrainingConfig


class AdversarialConfig(ElectraConfig):
    """A generator that learns by reinforcement to fool the discriminator (paper, section 3.2 and appendix F)."""

    needs_generator_network: ClassVar[bool] = True

    name: Literal["adversarial"]
    masked_lm_loss_weight: NonNegative = 0.0  # the paper's generator is told of no token whether it is right
    policy_loss_weight: NonNegative = 1.0
    baseline_loss_weight: NonNegative = 1.0

    def require_fit(self, run: "PretrainingConfig") -> None:
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

    def generator_passes(self, run: "PretrainingConfig", trained: bool = True) -> tuple[NetworkPass, ...]:
        heads = (Head("vocabulary", "masked"), Head("unit", "masked", trains_encoder=False))
        return (NetworkPass("generator", self.generator_encoder(run), heads, trained),)
