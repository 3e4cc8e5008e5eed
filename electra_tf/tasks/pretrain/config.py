"""The settings of a pre-training run, and how they are read: `load_config`, `parse_config`.

Each objective defines its own settings beside its model, as a subclass of `ObjectiveSettings`.
"""

import os
from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field, model_validator

from electra_tf.config.errors import UserError
from electra_tf.config.loader import merge, nearest, read_values, validate
from electra_tf.config.schema import MaskingConfig, RunConfig
from electra_tf.config.settings import Count, Settings
from electra_tf.flops.budget import validate_within_budget
from electra_tf.flops.passes import Phase

# Filled by `register_objective`.
OBJECTIVE_SETTINGS: dict[str, type["ObjectiveSettings"]] = {}


class ObjectiveSettings(Settings):
    """Base of an objective's settings. A subclass has a field `name: Literal["..."]`, the name in a configuration."""

    name: str

    @model_validator(mode="after")
    def _learns_something(self) -> "ObjectiveSettings":
        self._require_some_weight(ignored=())
        return self

    def _require_some_weight(self, ignored: tuple[str, ...]) -> None:
        """Raises: ValueError: if all losses except the ignored ones have weight 0."""
        weights = {name: value for name, value in self if name.endswith("_loss_weight") and name not in ignored}
        if weights and not any(weights.values()):
            raise ValueError(f"{', '.join(weights)}: all 0, so there is nothing to learn; set one above 0")

    def require_fit(self, run: "PretrainingConfig") -> None:
        """Raises: ValueError: if the rest of the run does not fit these settings."""

    def phases(self, run: "PretrainingConfig") -> tuple[Phase, ...]:
        """What the training steps compute, phase by phase; their steps add up to `train.num_steps`."""
        raise NotImplementedError

    def schedule_steps(self, run: "PretrainingConfig") -> tuple[int, ...]:
        """The lengths of the ranges of steps that each have a warm-up and a decay; they add up to the run's."""
        return (run.train.num_steps,)

    @property
    def learns_masked_lm(self) -> bool:
        """True if a term `masked_lm` is minimised from scratch, which the health check watches."""
        return False

    @property
    def learns_replaced_tokens(self) -> bool:
        """True if a term `replaced_token` is minimised and `replaced_fraction` reported, for the health check."""
        return False


def common_settings(first: str, second: str) -> frozenset[str]:
    """The settings of the nearest common base class of two objectives, without `name`; none if a name is unknown."""
    if not {first, second} <= OBJECTIVE_SETTINGS.keys():
        return frozenset()
    other = OBJECTIVE_SETTINGS[second]
    ancestor = next(cls for cls in OBJECTIVE_SETTINGS[first].__mro__ if issubclass(other, cls))
    return frozenset(ancestor.model_fields) - {"name"}


ObjectiveT = TypeVar("ObjectiveT", bound=ObjectiveSettings)


class StageConfig(Settings):
    """Consecutive steps with their own sequence length, batch size and data set, and the same optimizer."""

    num_steps: Count
    max_seq_length: Annotated[Count, Field(ge=8)]
    batch_size: Count


class PretrainingConfig(RunConfig, Generic[ObjectiveT]):
    """A whole pre-training run. `parse_config` finds the type of `objective` by its name."""

    objective: ObjectiveT
    masking: MaskingConfig = MaskingConfig()
    # Empty: one stage of train.num_steps, train.batch_size and data.max_seq_length. With stages these settings are the
    # sum of the steps and the values of the last stage. One schedule covers all stages.
    stages: tuple[StageConfig, ...] = ()

    @model_validator(mode="wrap")
    @classmethod
    def _length_may_follow_from_a_budget(cls, values: Any, validate: Any) -> "PretrainingConfig":
        return validate_within_budget(values, validate)

    @model_validator(mode="after")
    def _parts_fit_together(self) -> "PretrainingConfig":
        self._batches_divide()
        self._stages_fit()
        self.objective.require_fit(self)
        return self

    def _batches_divide(self) -> None:
        parts = self.train.gradient_accumulation_steps
        batches = [("train", self.train.batch_size)]
        batches += [(f"stages.{index}", stage.batch_size) for index, stage in enumerate(self.stages)]
        for name, batch_size in batches:
            if batch_size % parts:
                raise ValueError(
                    f"{name}.batch_size {batch_size} does not divide into train.gradient_accumulation_steps {parts}; "
                    f"set the first to {max(1, batch_size // parts) * parts}, say"
                )

    def _stages_fit(self) -> None:
        """The stages add up to the training, and the settings outside of them are those of the last stage."""
        if not self.stages:
            return
        num_steps = sum(stage.num_steps for stage in self.stages)
        if num_steps != self.train.num_steps:
            raise ValueError(
                f"stages have {num_steps} steps together, train.num_steps is {self.train.num_steps}; set it to "
                f"{num_steps}, or change stages.*.num_steps"
            )
        longest = self.encoder.max_position_embeddings
        for index, stage in enumerate(self.stages):
            if stage.max_seq_length > longest:
                raise ValueError(
                    f"stages.{index}.max_seq_length {stage.max_seq_length} is longer than the position table, "
                    f"encoder.max_position_embeddings {longest}; lower the first or raise the second"
                )
        last = self.stages[-1]
        for name, value, expected in (
            ("data.max_seq_length", self.data.max_seq_length, last.max_seq_length),
            ("train.batch_size", self.train.batch_size, last.batch_size),
        ):
            if value != expected:
                raise ValueError(f"{name} is {value}, and {expected} in the last of the stages; set it to {expected}")

    @property
    def max_predictions(self) -> int:
        """M, the slots for masked positions of one sequence."""
        return self.masking.max_predictions(self.data.max_seq_length)


def load_config(path: str | os.PathLike, overrides: list[str] | tuple[str, ...] = ()) -> PretrainingConfig:
    """Loads a run's configuration.

    Args:
        path: a YAML file; its `base:`, if any, names a parent file relative to it.
        overrides: `a.b=value` texts; the value is YAML. Of two for one setting the later is used. Together they
            change the file as a child file would.

    Raises: UserError: for a missing file, broken YAML, an unknown key, a wrong type or an impossible combination.
    """
    return parse_config(*read_values(path, overrides, _INHERITED))


def merge_settings(base: dict, changes: dict) -> dict:
    """The settings `base` changed by `changes`, as by a child file or by `--set`."""
    return merge(base, changes, _INHERITED)


def parse_config(values: dict, source: str) -> PretrainingConfig:
    """Checks a mapping against the schema. `source` names it in errors. Raises: UserError."""
    return validate(values, PretrainingConfig[_objective_settings(values, source)], source)


def _objective_settings(values: dict, source: str) -> type[ObjectiveSettings]:
    """The settings class that `objective.name` names. Raises: UserError: if there is none."""
    objective = values.get("objective")
    name = objective.get("name") if isinstance(objective, dict) else None
    if name is None:
        return ObjectiveSettings  # whose validation names what is missing
    if isinstance(name, str) and name in OBJECTIVE_SETTINGS:
        return OBJECTIVE_SETTINGS[name]
    raise UserError(
        f"config {source}: objective.name is {name!r}{nearest(str(name), OBJECTIVE_SETTINGS)}; for an objective "
        "of your own give --objective_module=FILE, a file in which @register_objective stands over its class"
    )


def _inherited_of_objective(old: dict, changes: dict) -> dict:
    """A child that changes `objective.name` inherits only the settings that both objectives define."""
    name, new_name = old.get("name"), changes.get("name", old.get("name"))
    if name == new_name:
        return old
    common = common_settings(str(name), str(new_name))
    return {setting: value for setting, value in old.items() if setting in common}


def _inherited_of_generator(old: dict, changes: dict) -> dict:
    """A generator of another kind inherits nothing."""
    kind = old.get("kind", "transformer")
    return old if changes.get("kind", kind) == kind else {}


_INHERITED = {"objective": _inherited_of_objective, "generator": _inherited_of_generator}
