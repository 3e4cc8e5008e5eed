"""The settings of a pre-training run, and their reader.

Each objective defines its own settings beside its model, as a subclass of `ObjectiveSettings`.
"""

import itertools
import os
from collections.abc import Collection, Sequence
from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field, model_validator

from electra_tf.config.errors import UserError, did_you_mean
from electra_tf.config.loader import Override, read_values
from electra_tf.config.schema import MaskedFraction, MaskingConfig, RunConfig
from electra_tf.config.settings import Count, Settings
from electra_tf.config.validation import validate
from electra_tf.flops.passes import PhaseCost

# Filled by `register_objective`.
OBJECTIVE_SETTINGS: dict[str, type["ObjectiveSettings"]] = {}


class ObjectiveSettings(Settings):
    """Base of an objective's settings.

    A subclass has a field `name: Literal["..."]`, the name in a configuration, and a field `TERM_loss_weight` for each
    term that is a loss.
    """

    name: str

    @property
    def loss_weights(self) -> dict[str, float]:
        """The weight of each loss, by the name of its term."""
        return {name.removesuffix("_loss_weight"): value for name, value in self if name.endswith("_loss_weight")}

    @model_validator(mode="after")
    def _learns_something(self) -> "ObjectiveSettings":
        self.require_some_weight(self.loss_weights)
        return self

    def require_some_weight(self, losses: Collection[str]) -> None:
        """Raises: ValueError: if all of these losses have weight 0."""
        if losses and not any(self.loss_weights[name] for name in losses):
            settings = ", ".join(f"{name}_loss_weight" for name in losses)
            raise ValueError(f"{settings}: all are 0, so nothing is trained; set one above 0")

    def require_fit(self, run: "PretrainingConfig") -> None:
        """Raises: ValueError: if these settings and the rest of the run contradict each other."""

    def phase_costs(self, run: "PretrainingConfig") -> tuple[PhaseCost, ...]:
        """The networks that the steps of each phase compute; the numbers of steps add up to `train.num_steps`."""
        raise NotImplementedError

    @property
    def has_generator_network(self) -> bool:
        """True if a network with weights generates tokens for another one."""
        return False

    @property
    def trains_generator(self) -> bool:
        """True if that network is trained, so that the run gives a generator to other runs and formats."""
        return self.has_generator_network

    @property
    def depends_on_num_steps(self) -> bool:
        """True if an update depends on the length of the run by more than its learning rate."""
        return False

    @property
    def learns_masked_lm(self) -> bool:
        """True if a term `masked_lm` is minimised from scratch, so that its health check applies."""
        return self.loss_weights.get("masked_lm", 0.0) > 0

    @property
    def learns_replaced_tokens(self) -> bool:
        """True if `replaced_token` is minimised and `replaced_fraction` reported, so that the health check applies."""
        return self.loss_weights.get("replaced_token", 0.0) > 0

    @property
    def frequencies_reveal_replaced_tokens(self) -> bool:
        """True if a token's frequency alone predicts whether it was replaced, so that detecting it proves little."""
        return False

    def specials_fraction(self, run: "PretrainingConfig") -> float:
        """The share of [CLS] and [SEP] among the tokens of the `replaced_token` loss, in the shortest sequences."""
        return 2.0 / min(stage.max_seq_length for stage in run.all_stages)


ObjectiveT = TypeVar("ObjectiveT", bound=ObjectiveSettings)


class StageConfig(Settings):
    """Consecutive steps with their own sequence length, batch size and data set, and the same optimizer."""

    num_steps: Count  # steps of this stage
    max_seq_length: Annotated[Count, Field(ge=8)]  # as data.max_seq_length, in this stage
    batch_size: Count  # as train.batch_size, in this stage
    # As masking.masked_fraction, in this stage. null: that of the run, or this stage's part of its way.
    masked_fraction: MaskedFraction | None = None


class PretrainingConfig(RunConfig, Generic[ObjectiveT]):
    """All settings of a pre-training run. `parse_config` finds the type of `objective` by its name."""

    objective: ObjectiveT
    masking: MaskingConfig = MaskingConfig()
    # Empty: one stage of train.num_steps, train.batch_size and data.max_seq_length. With stages, train.num_steps is the
    # sum of their steps and the other two are the values of the last stage (as is masking.masked_fraction, if that has
    # its own). One schedule covers all stages.
    stages: tuple[StageConfig, ...] = ()

    @model_validator(mode="after")
    def _parts_fit_together(self) -> "PretrainingConfig":
        if self.stages:
            last, own = self.stages[-1], self.masking.masked_fraction
            for name, value, expected in (
                ("train.num_steps", self.train.num_steps, sum(stage.num_steps for stage in self.stages)),
                ("data.max_seq_length", self.data.max_seq_length, last.max_seq_length),
                ("train.batch_size", self.train.batch_size, last.batch_size),
                ("masking.masked_fraction", own, last.masked_fraction or own),
            ):
                if value != expected:
                    where = "the stages together" if name == "train.num_steps" else "the last of the stages"
                    raise ValueError(f"{name} is {value}, but {expected} in {where}; set it to {expected}")
        self.objective.require_fit(self)
        return self

    @property
    def lengths(self) -> dict[str, int]:
        of_stages = {f"stages.{index}.max_seq_length": each.max_seq_length for index, each in enumerate(self.stages)}
        return super().lengths | of_stages

    @property
    def varies_with_num_steps(self) -> bool:
        is_scheduled = isinstance(self.masking.masked_fraction, tuple)
        return is_scheduled or len(self.objective.phase_costs(self)) > 1 or self.objective.depends_on_num_steps

    @property
    def all_stages(self) -> tuple[StageConfig, ...]:
        """The stages; without `stages` the whole run as one."""
        sizes = {"max_seq_length": self.data.max_seq_length, "batch_size": self.train.batch_size}
        return self.stages or (StageConfig(num_steps=self.train.num_steps, **sizes),)

    @property
    def stage_maskings(self) -> tuple[MaskingConfig, ...]:
        """The masking of each of `all_stages`, its `masked_fraction` from the stage's first step to its last."""
        ends = itertools.accumulate((stage.num_steps for stage in self.stages), initial=0)
        shares = itertools.pairwise(end / self.train.num_steps for end in ends)
        return tuple(
            self.masking.model_copy(update={"masked_fraction": stage.masked_fraction})
            if stage.masked_fraction
            else self.masking.between(*share)
            for stage, share in zip(self.stages, shares, strict=True)
        ) or (self.masking,)


def load_config(path: str | os.PathLike[str], overrides: Sequence[Override] = ()) -> PretrainingConfig:
    """Loads a run's configuration.

    Args:
        path: a YAML file; its `base:`, if any, names a parent file relative to it.
        overrides: `a.b=value` texts, whose value is YAML, or pairs of a path and a value. Together they change the file
            as a child file would; the last one for a setting counts.
    Raises: UserError: for a missing file, broken YAML, an unknown key, a wrong type or an impossible combination.
    """
    return parse_config(*read_values(path, overrides, INHERITED))


def parse_config(values: dict[str, Any], source: str) -> PretrainingConfig:
    """Checks a mapping against the schema. `source` names it in errors. Raises: UserError."""
    objective = values.get("objective")
    name = objective.get("name") if isinstance(objective, dict) else None
    if name is not None and (not isinstance(name, str) or name not in OBJECTIVE_SETTINGS):
        raise UserError(
            f"config {source}: objective.name is {name!r}{did_you_mean(str(name), OBJECTIVE_SETTINGS)}; an objective "
            "of your own needs objective_module=FILE, the file that registers its class with @register_objective"
        )
    # Without a name the validation reports that it is missing.
    objective_kind = OBJECTIVE_SETTINGS.get(str(name), ObjectiveSettings)
    schema: type[PretrainingConfig[Any]] = PretrainingConfig[objective_kind]  # type: ignore[valid-type]
    return validate(values, schema, source)


def _inherited_of_objective(old: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A child that changes `objective.name` inherits only the settings that both objectives define."""
    name, new_name = str(old.get("name")), str(changes.get("name", old.get("name")))
    if name == new_name:
        return old
    if not {name, new_name} <= OBJECTIVE_SETTINGS.keys():
        return {}
    new = OBJECTIVE_SETTINGS[new_name]
    bases = (base for base in OBJECTIVE_SETTINGS[name].__mro__ if issubclass(base, ObjectiveSettings))
    common = next(base for base in bases if issubclass(new, base)).model_fields
    return {setting: value for setting, value in old.items() if setting in common and setting != "name"}


def _inherited_of_generator(old: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A child that changes `generator.kind` inherits no settings of the generator."""
    kind = old.get("kind", "transformer")
    return old if changes.get("kind", kind) == kind else {}


# For `merge`: what a group of a child takes over from its base.
INHERITED = {"objective": _inherited_of_objective, "generator": _inherited_of_generator}
