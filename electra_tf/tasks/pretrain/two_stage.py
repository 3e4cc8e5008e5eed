"""Two-stage training: first the generator, then the discriminator, which begins with the frozen generator's weights.

Source: paper, section 3.2, "Training Algorithms".
"""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.settings import Count
from electra_tf.data.batch import Batch
from electra_tf.flops.passes import PhaseCost
from electra_tf.models.encoder import Encoder
from electra_tf.models.generators import GeneratorOutput
from electra_tf.models.layers import ForwardContext
from electra_tf.tasks.base import Evaluated
from electra_tf.tasks.pretrain.bert_mlm import MaskedLm
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.electra import Electra, ElectraConfig, ElectraForward
from electra_tf.tasks.pretrain.objective import Objective, register_objective
from electra_tf.tasks.terms import Term, Total


class TwoStageConfig(ElectraConfig):
    """First the generator is trained, then, with it frozen, the discriminator (paper, section 3.2)."""

    needs_generator_network: ClassVar[bool] = True

    name: Literal["two_stage"]
    # The second phase would also train shared tables, although the generator is frozen.
    tying: Literal["none"] = "none"
    generator_steps: Count | None = None  # steps of the first phase; null: half of train.num_steps
    # The discriminator begins with the generator's weights; otherwise it sometimes learns only the majority class
    # (paper, section 3.2).
    initialize_from_generator: bool = True
    # each_phase: a warm-up and a decay in each phase, as in two trainings of n steps (the paper's words);
    # whole_run: one warm-up and one decay over both.
    schedule: Literal["each_phase", "whole_run"] = "each_phase"

    def require_fit(self, run: PretrainingConfig) -> None:
        super().require_fit(run)
        for loss in ("masked_lm", "replaced_token"):  # each phase has one
            self.require_some_weight([loss])
        steps = self.phase_steps(run)
        if min(steps) < 1:
            raise ValueError(
                f"objective.generator_steps {steps[0]} and train.num_steps {run.train.num_steps} give one phase no "
                "steps; each of the two phases needs at least one"
            )
        if self.initialize_from_generator:
            names = type(run.encoder).model_fields
            self._require_equal_sizes(run, names, "objective.initialize_from_generator true")

    def phase_steps(self, run: PretrainingConfig) -> tuple[int, int]:
        """The number of steps of each phase."""
        first = self.generator_steps or run.train.num_steps // 2
        return first, run.train.num_steps - first

    def phase_costs(self, run: PretrainingConfig) -> tuple[PhaseCost, ...]:
        first, second = self.phase_steps(run)
        frozen = self.generator_passes(run, trained=False)
        return PhaseCost(first, self.generator_passes(run)), PhaseCost(second, (*frozen, self.encoder_pass(run)))


@register_objective(TwoStageConfig)
class TwoStage(Electra):
    """ELECTRA's networks, trained one after the other by the two objectives in `phases`.

    The first phase evaluates and exports the generator (as in figure 3 of the paper), the second the discriminator.
    In a notebook: `first, second = objective.phases()`, then `first.fit(...)`, `second.begin()`, `second.fit(...)`.
    """

    def __init__(self, config: PretrainingConfig, **model_options: Any):
        super().__init__(config, **model_options)
        phases = (GeneratorPhase(self, name="generator_phase"), DiscriminatorPhase(self, name="discriminator_phase"))
        # Hidden in functions from Keras, so that files have the networks once, under the same names as ELECTRA's.
        self._get_phases: Callable[[], tuple[Objective, ...]] = lambda: phases

    def phases(self) -> tuple[Objective, ...]:
        return self._get_phases()

    def forward(self, batch: Batch, context: ForwardContext) -> ElectraForward:
        """The forward pass of the second phase, in which the frozen generator has no dropout."""
        return self.discriminate(batch, self.generate(batch, context.frozen()), context)

    @property
    def phase_steps(self) -> tuple[int, ...]:
        return self.config.objective.phase_steps(self.config)

    @property
    def schedule_steps(self) -> tuple[int, ...]:
        return self.phase_steps if self.config.objective.schedule == "each_phase" else super().schedule_steps

    def create_variables(self) -> None:
        super().create_variables()
        for phase in self.phases():
            phase.name_terms()  # this object owns the variables

    def train_step(self, batch: Batch) -> dict[str, tf.Tensor]:
        raise NotImplementedError("two_stage is trained phase by phase: call `fit` of each of its `phases`")


class _Phase(Objective):
    """An objective on the networks of a `TwoStage`, which owns their variables."""

    def __init__(self, networks: TwoStage, **model_options: Any):
        super().__init__(networks.config, **model_options)
        self.get_networks: Callable[[], TwoStage] = lambda: networks


class GeneratorPhase(_Phase, MaskedLm):
    """The generator with the masked-LM loss; its step does not contain the discriminator."""

    @property
    def encoder(self) -> Encoder:
        return self.get_networks().generator.encoder

    @property
    def trained_variables(self) -> list[tf.Variable]:
        return self.get_networks().generator.trainable_variables

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"masked_lm": self.config.objective.masked_lm_loss_weight}

    def generate(self, batch: Batch, context: ForwardContext) -> GeneratorOutput:
        return self.get_networks().generate(batch, context)

    def as_masked_lm(self) -> Evaluated:
        raise UserError(
            "as_masked_lm: the discriminator of objective.name 'two_stage' is not trained yet in the first phase; "
            "continue the run"
        )


class DiscriminatorPhase(_Phase):
    """The discriminator with its loss, on the samples of the frozen generator."""

    @property
    def encoder(self) -> Encoder:
        return self.get_networks().discriminator

    @property
    def trained_variables(self) -> list[tf.Variable]:
        networks = self.get_networks()
        return [*networks.discriminator.trainable_variables, *networks.replaced_token_head.trainable_variables]

    def begin(self) -> None:
        """Copies the generator's embeddings and layers into the discriminator; the head keeps its initial weights."""
        if not self.config.objective.initialize_from_generator:
            return
        networks = self.get_networks()
        source, target = networks.generator.encoder, networks.discriminator
        for generator_weight, weight in zip(source.weights, target.weights, strict=True):
            weight.assign(generator_weight.numpy())

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"replaced_token": self.config.objective.replaced_token_loss_weight}

    def denominators(self, batch: Batch) -> dict[str, tf.Tensor]:
        return self.get_networks().denominators(batch)

    def training_terms(self, batch: Batch, context: ForwardContext) -> dict[str, Total]:
        terms = self.get_networks().training_terms(batch, context)
        return {name: term for name, term in terms.items() if name != "masked_lm"}

    def evaluation_terms(self, batch: Batch, context: ForwardContext) -> dict[str, Term]:
        return self.get_networks().evaluation_terms(batch, context)

    def as_masked_lm(self) -> Evaluated:
        return self.get_networks().as_masked_lm()
