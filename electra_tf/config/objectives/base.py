"""What the settings of every objective have in common, and the list of them by name."""

from typing import TYPE_CHECKING, get_args

from pydantic import model_validator

from electra_tf.config.passes import Phase
from electra_tf.config.settings import Settings

if TYPE_CHECKING:
    from electra_tf.config.schema import PretrainingConfig

OBJECTIVE_SETTINGS: dict[str, type["ObjectiveSettings"]] = {}


class ObjectiveSettings(Settings):
    """Base of an objective's settings. A subclass has a field `name: Literal["..."]`, the one that a file gives.

    Defining the subclass is all it takes for configurations to know it.
    """

    name: str

    @model_validator(mode="after")
    def _learns_something(self) -> "ObjectiveSettings":
        self._require_some_weight(ignored=())
        return self

    def _require_some_weight(self, ignored: tuple[str, ...]) -> None:
        """Raises: ValueError: if no loss but the ignored ones has a weight."""
        weights = {name: value for name, value in self if name.endswith("_loss_weight") and name not in ignored}
        if weights and not any(weights.values()):
            raise ValueError(f"{', '.join(weights)}: all 0, so there is nothing to learn; set one above 0")

    @classmethod
    def __pydantic_init_subclass__(cls, **options):
        super().__pydantic_init_subclass__(**options)
        # One name: a base that several objectives share has none of its own.
        if names := get_args(cls.model_fields["name"].annotation):
            OBJECTIVE_SETTINGS[names[0]] = cls

    def require_fit(self, run: "PretrainingConfig") -> None:
        """Raises: ValueError: if the rest of the run does not go with these settings."""

    def phases(self, run: "PretrainingConfig") -> tuple[Phase, ...]:
        """What the training steps of a run compute, in order; the steps add up to `train.num_steps`."""
        raise NotImplementedError

    def schedule_steps(self, run: "PretrainingConfig") -> tuple[int, ...]:
        """The lengths of the parts with a warm-up and decay of their own, in steps that add up to the run's."""
        return (run.train.num_steps,)

    @property
    def learns_masked_lm(self) -> bool:
        """Whether a term `masked_lm` is minimised from scratch."""
        return False

    @property
    def learns_replaced_tokens(self) -> bool:
        """Whether a term `replaced_token` is minimised beside a term `replaced_fraction`."""
        return False


def common_settings(first: str, second: str) -> frozenset[str]:
    """The settings that two objectives have from one class, and which so mean the same to both; never their names.

    Those with a generator have all that is said about it in common. Of an unknown name there is nothing.
    """
    if not {first, second} <= OBJECTIVE_SETTINGS.keys():
        return frozenset()
    other = OBJECTIVE_SETTINGS[second]
    ancestor = next(cls for cls in OBJECTIVE_SETTINGS[first].__mro__ if issubclass(other, cls))
    return frozenset(ancestor.model_fields) - {"name"}
