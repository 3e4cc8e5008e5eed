"""What every group of settings is made of: immutable models, and numbers that check themselves."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _refuse_boolean(value: Any) -> Any:
    """Python counts true as 1; in a file it is a slip of the pen."""
    if isinstance(value, bool):
        raise ValueError(f"expected a number, found the boolean {str(value).lower()}")
    return value


# Numbers in text pass: YAML reads 1e-4, without a dot, as text.
Integer = Annotated[int, Field(le=2**31 - 1), BeforeValidator(_refuse_boolean)]  # sizes and steps reach int32 tensors
Count = Annotated[Integer, Field(gt=0)]
CountOrZero = Annotated[Integer, Field(ge=0)]
Real = Annotated[float, BeforeValidator(_refuse_boolean)]
Positive = Annotated[Real, Field(gt=0.0)]
NonNegative = Annotated[Real, Field(ge=0.0)]
Fraction = Annotated[Real, Field(ge=0.0, le=1.0)]
DropoutRate = Annotated[Real, Field(ge=0.0, lt=1.0)]


class Settings(BaseModel):
    """Base of every group of settings: immutable, and an unknown key or a number that is not finite is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
