"""Settings of two-stage training."""

from typing import TYPE_CHECKING, ClassVar, Literal

from electra_tf.config.objectives.electra import ElectraConfig
from electra_tf.config.passes import Head, NetworkPass, Phase
from electra_tf.config.settings import Count

if TYPE_CHECKING:
    from electra_tf.config.schema import PretrainingConfig


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

    def require_fit(self, run: "PretrainingConfig") -> None:
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

    def _require_equal_sizes(self, run: "PretrainingConfig") -> None:
        if different := self._different_sizes(run, type(run.encoder).model_fields):
            raise ValueError(
                f"two_stage initialises the discriminator from a generator of its own size: {'; '.join(different)}; "
                "set objective.generator.size_fraction to 1.0 and leave its sizes out, or set "
                "objective.initialize_from_generator to false"
            )

    def stage_steps(self, run: "PretrainingConfig") -> tuple[int, int]:
        """The steps of the two stages."""
        first = self.generator_steps or run.train.num_steps // 2
        return first, run.train.num_steps - first

    def phases(self, run: "PretrainingConfig") -> tuple[Phase, ...]:
        first, second = self.stage_steps(run)
        discriminator = NetworkPass("discriminator", run.encoder, (Head("token", "all"),))
        return (
            Phase(first, self.generator_passes(run)),
            Phase(second, (*self.generator_passes(run, trained=False), discriminator)),
        )

    def schedule_steps(self, run: "PretrainingConfig") -> tuple[int, ...]:
        return self.stage_steps(run) if self.schedule == "each_stage" else super().schedule_steps(run)
