"""Settings of ELECTRA beside a contrastive objective on whole inputs."""

from typing import TYPE_CHECKING, Literal

from electra_tf.config.objectives.electra import ElectraConfig
from electra_tf.config.passes import Head, NetworkPass, Phase
from electra_tf.config.settings import Fraction, NonNegative

if TYPE_CHECKING:
    from electra_tf.config.schema import PretrainingConfig


class ContrastiveConfig(ElectraConfig):
    """ELECTRA with some inputs left as they are, and a head that tells whether an input was corrupted (appendix H)."""

    name: Literal["contrastive"]
    clean_fraction: Fraction = 0.2  # of the inputs; the paper's
    # On the mean over inputs. The paper names none; at 1.0 it begins at ln 2, a fiftieth of the replaced-token loss.
    corrupted_input_loss_weight: NonNegative = 1.0

    def phases(self, run: "PretrainingConfig") -> tuple[Phase, ...]:
        discriminator = NetworkPass("discriminator", run.encoder, (Head("token", "all"), Head("unit", "first")))
        return (Phase(run.train.num_steps, (*self.generator_passes(run), discriminator)),)
