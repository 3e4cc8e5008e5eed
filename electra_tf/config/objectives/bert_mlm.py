"""Settings of the masked-LM baseline."""

from typing import TYPE_CHECKING, Literal

from electra_tf.config.objectives.base import ObjectiveSettings
from electra_tf.config.passes import Head, NetworkPass, Phase
from electra_tf.config.settings import NonNegative

if TYPE_CHECKING:
    from electra_tf.config.schema import PretrainingConfig


class BertMlmConfig(ObjectiveSettings):
    """The masked-LM baseline: the full-size encoder itself predicts the masked tokens."""

    name: Literal["bert_mlm"]
    masked_lm_loss_weight: NonNegative = 1.0

    def phases(self, run: "PretrainingConfig") -> tuple[Phase, ...]:
        network = NetworkPass("masked_lm_network", run.encoder, (Head("vocabulary", "masked"),))
        return (Phase(run.train.num_steps, (network,)),)

    @property
    def learns_masked_lm(self) -> bool:
        return self.masked_lm_loss_weight > 0
