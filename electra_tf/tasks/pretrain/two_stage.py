"""Two-stage training: the generator alone, then the discriminator from its weights, the generator frozen.

Source: paper, section 3.2, "Training Algorithms".
"""

from typing import ClassVar, Literal

import tensorflow as tf

from electra_tf.config.settings import Count
from electra_tf.flops.passes import Head, NetworkPass, Phase
from electra_tf.models.context import ForwardContext
from electra_tf.models.encoder import Encoder
from electra_tf.tasks.base import Batch
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.electra import Electra, ElectraConfig, ElectraForward
from electra_tf.tasks.pretrain.losses import masked_lm_loss
from electra_tf.tasks.pretrain.metrics import masked_lm_metrics
from electra_tf.tasks.pretrain.objective import Objective, register_objective
from electra_tf.tasks.terms import Term, Total


class TwoStageConfig(ElectraConfig):
    """First the generator alone, then the discriminator from its weights, the generator frozen (paper, section 3.2)."""

    needs_generator_network: ClassVar[bool] = True

    name: Literal["two_stage"]
    # Shared tables would be trained by the second stage, and the frozen generator with them.
    tying: Literal["none", "embeddings", "gradient_disentangled", "all"] = "none"
    generator_steps: Count | None = None  # of the first stage; null: half of train.num_steps
    # Without, the paper says, the discriminator sometimes learns nothing beyond the majority class.
    initialize_from_generator: bool = True
    # each_stage: warm-up and decay in each, as two trainings of n steps ("for n steps", the paper says of both);
    # whole_run: one warm-up and one decay, the switch in the middle of it.
    schedule: Literal["each_stage", "whole_run"] = "each_stage"

    def require_fit(self, run: PretrainingConfig) -> None:
        if self.tying != "none":
            raise ValueError(
                f"objective.tying {self.tying!r} shares weights with the generator, which the second stage of "
                "two_stage must keep frozen while it trains the discriminator's; leave objective.tying out"
            )
        super().require_fit(run)
        for stage, weight in (("first", "masked_lm_loss_weight"), ("second", "replaced_token_loss_weight")):
            if getattr(self, weight) == 0.0:
                raise ValueError(f"objective.{weight} is 0, so that the {stage} stage learns nothing; set it above 0")
        if self.generator_steps is not None and self.generator_steps >= run.train.num_steps:
            raise ValueError(
                f"objective.generator_steps {self.generator_steps} leaves nothing of train.num_steps "
                f"{run.train.num_steps} to the discriminator; lower the first or leave it out for half of the steps"
            )
        if run.train.num_steps < 2:
            raise ValueError("train.num_steps 1 is no two stages; set it to 2 or more")
        if self.initialize_from_generator:
            self._require_equal_sizes(run)

    def _require_equal_sizes(self, run: PretrainingConfig) -> None:
        if different := self._different_sizes(run, type(run.encoder).model_fields):
            raise ValueError(
                f"two_stage initialises the discriminator from a generator of its own size: {'; '.join(different)}; "
                "set objective.generator.size_fraction to 1.0 and leave its sizes out, or set "
                "objective.initialize_from_generator to false"
            )

    def stage_steps(self, run: PretrainingConfig) -> tuple[int, int]:
        """The steps of the two stages."""
        first = self.generator_steps or run.train.num_steps // 2
        return first, run.train.num_steps - first

    def phases(self, run: PretrainingConfig) -> tuple[Phase, ...]:
        first, second = self.stage_steps(run)
        discriminator = NetworkPass("discriminator", run.encoder, (Head("token", "all"),))
        return (
            Phase(first, self.generator_passes(run)),
            Phase(second, (*self.generator_passes(run, trained=False), discriminator)),
        )

    def schedule_steps(self, run: PretrainingConfig) -> tuple[int, ...]:
        return self.stage_steps(run) if self.schedule == "each_stage" else super().schedule_steps(run)


@register_objective(TwoStageConfig)
class TwoStage(Electra):
    """ELECTRA's networks, trained one after the other: `phases` are the two objectives that do it.

    What is evaluated, exported and kept is the discriminator; in the first stage, as in figure 3 of the paper, the
    generator. In a notebook, with `first, second = objective.phases`: `first.fit(...)`, `second.begin()`,
    `second.fit(...)`.
    """

    def __init__(self, config: PretrainingConfig, **model_options):
        super().__init__(config, **model_options)
        phases = (GeneratorStage(self, name="generator_stage"), DiscriminatorStage(self, name="discriminator_stage"))
        # Past Keras, which would take the phases for parts of the model: checkpoints hold the networks once, and under
        # the names of ELECTRA's.
        object.__setattr__(self, "_phases", phases)

    @property
    def phases(self) -> tuple[Objective, ...]:
        return self._phases

    def forward(self, batch: Batch, context: ForwardContext) -> ElectraForward:
        """The forward pass of the second stage: dropout is part of training, so the frozen generator has none."""
        return self.discriminate(batch, self.generate(batch, context.frozen()), context)

    @property
    def phase_steps(self) -> tuple[int, ...]:
        return self.config.objective.stage_steps(self.config)

    def create_variables(self) -> None:
        super().create_variables()
        for phase in self.phases:
            phase.create_variables()

    def train_step(self, batch: Batch) -> dict[str, tf.Tensor]:
        raise NotImplementedError("two_stage is trained phase by phase: call `fit` of each of its `phases`")


class _Stage(Objective):
    """An objective on the networks of another, whose weights it leaves to that one to keep."""

    def __init__(self, networks: TwoStage, **model_options):
        super().__init__(networks.config, **model_options)
        object.__setattr__(self, "networks", networks)


class GeneratorStage(_Stage):
    """The generator with the masked-LM loss. No discriminator is in its step."""

    @property
    def encoder(self) -> Encoder:
        return self.networks.generator.encoder

    @property
    def trained_variables(self) -> list[tf.Variable]:
        return self.networks.generator.trainable_variables

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"masked_lm": self.config.objective.masked_lm_loss_weight}

    def training_terms(self, batch: Batch, context: ForwardContext) -> dict[str, Total]:
        return {"masked_lm": masked_lm_loss(self.networks.generate(batch, context).scores, batch)}

    def evaluation_terms(self, batch: Batch, context: ForwardContext) -> dict[str, Term]:
        scores = self.networks.generate(batch, context).scores
        return {
            "masked_lm_loss": self.as_ratios(batch, {"loss": masked_lm_loss(scores, batch)})["loss"],
            **masked_lm_metrics(scores.logits, batch["masked_lm_ids"], batch["masked_lm_weights"]),
        }


class DiscriminatorStage(_Stage):
    """The discriminator with its loss, on the samples of a generator that only runs forward."""

    @property
    def encoder(self) -> Encoder:
        return self.networks.discriminator

    @property
    def trained_variables(self) -> list[tf.Variable]:
        networks = self.networks
        return [*networks.discriminator.trainable_variables, *networks.replaced_token_head.trainable_variables]

    def begin(self) -> None:
        """Gives the discriminator the generator's embeddings and layers. Its head is new: it has another task."""
        if not self.config.objective.initialize_from_generator:
            return
        source, target = self.networks.generator.encoder, self.networks.discriminator
        for old, new in zip(source.weights, target.weights, strict=True):
            new.assign(old.numpy())

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"replaced_token": self.config.objective.replaced_token_loss_weight}

    def denominators(self, batch: Batch) -> dict[str, tf.Tensor]:
        return self.networks.denominators(batch)

    def training_terms(self, batch: Batch, context: ForwardContext) -> dict[str, Total]:
        terms = self.networks.training_terms(batch, context)
        return {name: term for name, term in terms.items() if name != "masked_lm"}

    def evaluation_terms(self, batch: Batch, context: ForwardContext) -> dict[str, Term]:
        return self.networks.evaluation_terms(batch, context)

    def detect(self, inputs: Batch) -> tf.Tensor:
        """[B, S] float32: each token's probability of having been replaced; inputs as for `call`."""
        return self.networks.detect(inputs)
