"""Settings of All-Tokens MLM."""

from typing import TYPE_CHECKING, Literal

from electra_tf.config.objectives.electra import GeneratorObjectiveSettings
from electra_tf.config.passes import Head, NetworkPass, Phase
from electra_tf.config.settings import NonNegative

if TYPE_CHECKING:
    from electra_tf.config.schema import PretrainingConfig


class AllTokensMlmConfig(GeneratorObjectiveSettings):
    """Prediction of every token of an input whose masked tokens are samples of a generator (paper, section 3.5)."""

    name: Literal["all_tokens_mlm"]
    # Of the network that is kept, on the mean over all tokens. The paper gives no weight.
    all_tokens_lm_loss_weight: NonNegative = 1.0
    # A probability for each token that it is to be copied from the input; false: the softmax alone.
    copy_mechanism: bool = True

    def phases(self, run: "PretrainingConfig") -> tuple[Phase, ...]:
        copy_head = (Head("unit", "all"),) if self.copy_mechanism else ()
        encoder = NetworkPass("encoder", run.encoder, (Head("vocabulary", "all"), *copy_head))
        return (Phase(run.train.num_steps, (*self.generator_passes(run), encoder)),)
