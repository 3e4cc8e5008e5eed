"""The base of every pre-training objective, and the registry that finds them by name."""

from collections.abc import Callable, Sequence
from typing import get_args

import tensorflow as tf

from electra_tf.data.batch import empty_batch
from electra_tf.flops.budget import RunCost, known_cost
from electra_tf.tasks.base import Batch, HealthCheck, Task
from electra_tf.tasks.pretrain.config import OBJECTIVE_SETTINGS, ObjectiveSettings, PretrainingConfig
from electra_tf.tasks.pretrain.health import pretraining_health_checks

OBJECTIVES: "dict[str, type[Objective]]" = {}


class Objective(Task):
    """A pre-training task. Its batches are those of `electra_tf.data.batch`.

    Attributes:
        config: a `PretrainingConfig`, whose `objective` group has the settings class that the objective registered.
    """

    config: PretrainingConfig

    def call(self, inputs: Batch):
        """Inference on `input_ids`, `input_mask`, `segment_ids` ([B, S] int32): the encoder's `EncoderOutput`."""
        return self.encoder(inputs["input_ids"], input_mask=inputs["input_mask"], segment_ids=inputs["segment_ids"])

    def denominators(self, batch: Batch) -> dict[str, tf.Tensor]:
        """`masked_tokens`, the number of slots in use, and `tokens`, that of real tokens."""
        return {
            "masked_tokens": tf.reduce_sum(batch["masked_lm_weights"]),
            "tokens": tf.reduce_sum(tf.cast(batch["input_mask"], tf.float32)),
        }

    def empty_batch(self) -> Batch:
        return empty_batch(1, min(8, self.config.encoder.max_position_embeddings), max_predictions=1)

    @property
    def schedule_steps(self) -> tuple[int, ...]:
        return self.config.objective.schedule_steps(self.config)

    @property
    def cost(self) -> RunCost | None:
        return known_cost(self.config)

    @property
    def health_checks(self) -> Sequence[HealthCheck]:
        return pretraining_health_checks(self.config)


def register_objective(settings: type[ObjectiveSettings]) -> Callable[[type[Objective]], type[Objective]]:
    """A class decorator that registers an objective under the `name` of its settings.

    The modules of `electra_tf.tasks.pretrain` are imported with the package; `--objective_module` names one outside it.

    Raises: ValueError: if the name is taken.
    """
    (name,) = get_args(settings.model_fields["name"].annotation)

    def register(objective: type[Objective]) -> type[Objective]:
        if name in OBJECTIVES:
            raise ValueError(f"the name {name!r} is already that of {OBJECTIVES[name].__name__}; choose another")
        OBJECTIVES[name], OBJECTIVE_SETTINGS[name] = objective, settings
        return objective

    return register


def build_objective(config: PretrainingConfig) -> Objective:
    """The objective that `config.objective.name` names, with its variables created."""
    objective = OBJECTIVES[config.objective.name](config, name=config.objective.name)
    objective.create_variables()
    return objective
