"""The settings of a fine-tuning run that every kind of task reads."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from electra_tf.config.schema import OptimizerConfig, RunConfig
from electra_tf.config.settings import CountOrZero, Fraction, NonNegative, Positive


class FinetuningOptimizerConfig(OptimizerConfig):
    """The optimizer of pre-training, with layerwise learning rates and a warm-up over a fraction of the steps."""

    warmup_steps: CountOrZero = 0  # above 0: replaces warmup_fraction
    warmup_fraction: Fraction = 0.1  # the warm-up as a share of the steps
    weight_decay_rate: NonNegative = 0.0  # the paper's; the authors' code has 0.01
    # The learning rate of a layer, as a multiple of the rate of the layer above it; 1: all layers have the same rate.
    layerwise_decay: Annotated[Positive, Field(le=1.0)]
    # authors: the top layer has `decay ** 2`, as in their code, which skips a power. even: it has `decay`.
    layerwise_decay_top: Literal["authors", "even"] = "authors"

    @model_validator(mode="before")
    @classmethod
    def _steps_replace_the_fraction(cls, values: Any) -> Any:
        if isinstance(values, dict) and "warmup_steps" in values:
            fraction = 0.0 if values["warmup_steps"] else values.get("warmup_fraction", 0.0)
            return {**values, "warmup_fraction": fraction}
        return values


class FinetuningRunConfig(RunConfig):
    """A run with a task. `electra_tf.tasks.finetune.config.FinetuningConfig` knows the settings of all kinds."""

    name: str
    task: Any
    optimizer: FinetuningOptimizerConfig
