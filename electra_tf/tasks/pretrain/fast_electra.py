"""Fast-ELECTRA: the discriminator learns from the samples of a frozen masked language model that was trained before.

Source: Dong et al. 2023, "Fast-ELECTRA for Efficient Pre-training", arXiv 2310.07347.
"""

from typing import Annotated, Any, ClassVar, Literal

import tensorflow as tf
from pydantic import Field

from electra_tf.config.settings import Positive
from electra_tf.data.batch import Batch
from electra_tf.flops.passes import PhaseCost
from electra_tf.models.layers import ForwardContext
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.electra import Electra, ElectraConfig, ElectraForward
from electra_tf.tasks.pretrain.objective import register_objective


class FastElectraConfig(ElectraConfig):
    """Replaced-token detection on the samples of a frozen masked language model (Dong et al. 2023)."""

    needs_generator_network: ClassVar[bool] = True

    name: Literal["fast_electra"]
    # The path of the frozen model, as for --init_from; read once, at the start of a run. `generator` states its sizes.
    auxiliary: str
    tying: Literal["none"] = "none"  # the discriminator's loss would train shared weights
    masked_lm_loss_weight: Annotated[float, Field(ge=0.0, le=0.0)] = 0.0  # reported, never trained
    # After a share u of the updates the temperature is `1 + (initial_temperature - 1) exp(-u / temperature_decay)`.
    # 1: constant. The paper's samples become harder, but formula and decay are not verified against it.
    initial_temperature: Annotated[Positive, Field(ge=1e-6)] = 1.0
    temperature_decay: Positive = 0.1  # how slowly the temperature falls, as a share of the updates
    temperature: Annotated[float, Field(ge=1.0, le=1.0)] = 1.0  # temperature at the end, and in evaluation

    @property
    def trains_generator(self) -> bool:
        return False

    @property
    def depends_on_num_steps(self) -> bool:
        return self.initial_temperature != self.temperature

    def phase_costs(self, run: PretrainingConfig) -> tuple[PhaseCost, ...]:
        frozen = self.generator_passes(run, trained=False)
        return (PhaseCost(run.train.num_steps, (*frozen, self.encoder_pass(run))),)


@register_objective(FastElectraConfig)
class FastElectra(Electra):
    """ELECTRA without the generator's training. Its masked-LM loss is reported and stays the same up to sampling.

    `electra_tf.weights.warm_start.load_auxiliary` gives the generator its weights, which are in every checkpoint but
    not among the trainable variables.
    """

    def __init__(self, config: PretrainingConfig, **model_options: Any) -> None:
        super().__init__(config, **model_options)
        self.generator.trainable = False

    def forward(self, batch: Batch, context: ForwardContext) -> ElectraForward:
        """As ELECTRA's, with a generator that has no dropout."""
        return self.discriminate(batch, self.generate(batch, context.frozen()), context)

    def sampling_temperature(self, context: ForwardContext) -> float | tf.Tensor:
        """That of the step in training; in evaluation that of a finished run, 1."""
        settings = self.config.objective
        if not (context.training and settings.depends_on_num_steps):
            return settings.temperature
        assert context.random is not None, "the temperature depends on the step"
        done = tf.cast(context.random.step, tf.float32) / self.config.train.num_steps
        surplus = settings.initial_temperature - settings.temperature
        return settings.temperature + surplus * tf.exp(-done / settings.temperature_decay)
