"""Settings of Replace MLM."""

from typing import TYPE_CHECKING, Literal

from electra_tf.config.objectives.electra import GeneratorObjectiveSettings
from electra_tf.config.passes import Head, NetworkPass, Phase
from electra_tf.config.settings import NonNegative

if TYPE_CHECKING:
    from electra_tf.config.schema import PretrainingConfig


class ReplaceMlmConfig(GeneratorObjectiveSettings):
    """Masked LM on inputs whose masked tokens are samples of a generator instead of [MASK] (paper, section 3.5)."""

    name: Literal["replace_mlm"]
    # Of the network that is kept. The paper gives no weight; this loss is of the kind of the generator's, and its size.
    encoder_masked_lm_loss_weight: NonNegative = 1.0

    def phases(self, run: "PretrainingConfig") -> tuple[Phase, ...]:
        encoder = NetworkPass("encoder", run.encoder, (Head("vocabulary", "masked"),))
        return (Phase(run.train.num_steps, (*self.generator_passes(run), encoder)),)
