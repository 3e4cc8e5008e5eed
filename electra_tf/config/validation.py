"""Checks settings against a schema, and describes mistakes in one line."""

from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from electra_tf.config.errors import UserError, close_name, list_briefly

ConfigT = TypeVar("ConfigT", bound=BaseModel)


def validate(values: dict[str, Any], model: type[ConfigT], source: str) -> ConfigT:
    """Checks a mapping against a schema. Raises: UserError, with the mapping's name `source`: a setting is wrong."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(_describe(problem, model) for problem in error.errors())
        raise UserError(f"config {source}: {problems}") from None


def _describe(problem: Any, model: type[BaseModel]) -> str:
    """Describes one of pydantic's errors: which setting, its value, what was expected."""
    paths, place = [*settings_of(model)], [str(part) for part in problem["loc"]]
    known = {part for path in paths for part in path.split(".")}
    if problem["type"] == "extra_forbidden":
        known.add(place[-1])
    # Pydantic also names the chosen member of a union; the file has no such key.
    name = ".".join(part for part in place if part in known or part.isdecimal()) or "the settings"
    if problem["type"] == "extra_forbidden":
        return f"{name} is not a setting{_nearest_setting(name, paths)}"
    if problem["type"] == "missing":
        return f"{name} is missing; start from a preset with `base:` or give it"
    message = problem["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if problem["type"] == "value_error":
        return f"{name}: {message}"
    return f"{name} is {problem['input']!r:.100}; {message}"


def _nearest_setting(unknown: str, paths: list[str]) -> str:
    """As `did_you_mean`, by the last part of a path. A setting in the same group is preferred."""
    group, _, name = unknown.rpartition(".")
    in_group = [path for path in paths if path.rpartition(".")[0] == group]
    path_of = {path.rpartition(".")[2]: path for path in (*paths, *in_group)}
    if unknown in paths:
        return " of this kind"
    if match := close_name(name, path_of, cutoff=0.7):
        return f"; did you mean {path_of[match]}?"
    return f"; there are: {list_briefly(sorted(in_group or paths), most=50)}"


def settings_of(model: type[BaseModel], prefix: str = "") -> dict[str, FieldInfo]:
    """All settings of a group and its subgroups by their dotted paths, also of the members of a union."""
    settings = {}
    for name, field in model.model_fields.items():
        settings[f"{prefix}{name}"] = field
        for group in groups_in(field.annotation):
            settings |= settings_of(group, f"{prefix}{name}.")
    return settings


def groups_in(annotation: Any) -> list[type[BaseModel]]:
    """The groups of settings in the type of a field: one, or the members of a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [group for part in get_args(annotation) for group in groups_in(part)]
