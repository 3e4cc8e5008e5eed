"""The base of all groups of settings, and the kinds of numbers in them."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo


def _refuse_boolean(value: Any) -> Any:
    """Refuses true and false, which pydantic would take for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError(f"expected a number, found the boolean {str(value).lower()}")
    return value


def _refuse_repetition(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(values)) < len(values):
        raise ValueError(f"expected different labels, found {', '.join(values)}")
    return values


# A number written as text is accepted: YAML reads 1e-4, which has no dot, as text.
Integer = Annotated[int, Field(le=2**31 - 1), BeforeValidator(_refuse_boolean)]  # sizes and steps reach int32 tensors
Count = Annotated[Integer, Field(gt=0)]
CountOrZero = Annotated[Integer, Field(ge=0)]
Real = Annotated[float, BeforeValidator(_refuse_boolean)]
Positive = Annotated[Real, Field(gt=0.0)]
NonNegative = Annotated[Real, Field(ge=0.0)]
Fraction = Annotated[Real, Field(ge=0.0, le=1.0)]
DropoutRate = Annotated[Real, Field(ge=0.0, lt=1.0)]
Labels = Annotated[tuple[str, ...], AfterValidator(_refuse_repetition)]


SettingT = TypeVar("SettingT")
_MAY_CHANGE = "may change"
# A setting that may differ between two calls of one run: it changes no weight, or only after a loss that is not finite.
MayChange = Annotated[SettingT, _MAY_CHANGE]


def is_free(field: FieldInfo) -> bool:
    """Whether a setting has the mark `MayChange`."""
    return _MAY_CHANGE in field.metadata


class Settings(BaseModel):
    """Base of every group of settings: immutable, without unknown keys, with finite numbers only."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    # A setting, and by its value the settings that not all of its values have: others must be at their defaults.
    CHOICE: ClassVar[str] = ""
    OWNERS: ClassVar[Mapping[str, Collection[str]]] = {}

    @model_validator(mode="after")
    def _require_settings_of_the_choice(self) -> Self:
        for name in dict.fromkeys(name for names in self.OWNERS.values() for name in names):
            chosen, value = getattr(self, self.CHOICE), getattr(self, name)
            if name not in self.OWNERS.get(chosen, ()) and value != type(self).model_fields[name].default:
                others = " or ".join(owner for owner, names in self.OWNERS.items() if name in names)
                remedy = f"leave it out or change {self.CHOICE}"
                raise ValueError(f"{name} {value} is of the {self.CHOICE} {others}, not of {chosen}; {remedy}")
        return self
