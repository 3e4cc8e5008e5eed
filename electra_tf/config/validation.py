"""Checks settings against a schema, and describes mistakes in one line."""

from collections.abc import Iterable
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from electra_tf.config.errors import UserError, close_name, did_you_mean

ConfigT = TypeVar("ConfigT", bound=BaseModel)


def validate(values: dict, model: type[ConfigT], source: str) -> ConfigT:
    """Checks a mapping against a schema. Raises: UserError, with the mapping's name `source`: a setting is wrong."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(_describe(problem, model) for problem in error.errors())
        raise UserError(f"config {source}: {problems}") from None


def _describe(problem: Any, model: type[BaseModel]) -> str:
    """Describes one of pydantic's errors: which setting, its value, what was expected."""
    models, path = [model], []
    for part in map(str, problem["loc"]):
        children = [child for parent in models for child in _groups_in(parent, part)]
        # Pydantic's path also names the chosen member of a union, by its class or kind; the file has no such key.
        chosen = [] if children else [child for child in models if part in (child.__name__, *_kinds(child))]
        if not chosen:
            path.append(part)
        models = children or chosen or models
    name = ".".join(path) or "the settings"
    if problem["type"] == "union_tag_invalid":
        kind = problem["ctx"]["tag"]
        return f"{name}.kind is {kind!r}{did_you_mean(kind, [known for child in models for known in _kinds(child)])}"
    if problem["type"] == "extra_forbidden":
        fields = {field for child in models for field in child.model_fields}
        return f"{name} is not a setting{_nearest_setting(name, fields, model)}"
    if problem["type"] == "missing":
        return f"{name} is missing; start from a preset with `base:` or give it"
    message = problem["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if problem["type"] == "value_error":
        return f"{name}: {message}"
    return f"{name} is {problem['input']!r:.100}; {message}"


def _nearest_setting(path: str, fields: Iterable[str], model: type[BaseModel]) -> str:
    """As `did_you_mean` for this group, but prefers a similar name in another group to the list of all names."""
    group, _, unknown = path.rpartition(".")
    if not close_name(unknown, fields):
        others = [setting for setting in reversed(_setting_paths(model)) if setting.rpartition(".")[0] != group]
        elsewhere = {setting.rpartition(".")[2]: setting for setting in others}
        if match := close_name(unknown, elsewhere):
            return f"; did you mean {elsewhere[match]}?"
    return did_you_mean(unknown, fields)


def _setting_paths(model: type[BaseModel], prefix: str = "") -> list[str]:
    """The dotted paths of all settings of a group and its subgroups."""
    paths = []
    for field in model.model_fields:
        paths.append(f"{prefix}{field}")
        paths += [path for child in _groups_in(model, field) for path in _setting_paths(child, f"{prefix}{field}.")]
    return paths


def _groups_in(model: type[BaseModel], field: str) -> list[type[BaseModel]]:
    """The groups of settings that a field of a group may hold: one, or the members of a union."""
    if field not in model.model_fields:
        return []
    annotation = model.model_fields[field].annotation
    candidates = get_args(annotation) or (annotation,)
    candidates = [get_args(each)[0] if get_origin(each) is Annotated else each for each in candidates]
    return [candidate for candidate in candidates if isinstance(candidate, type) and issubclass(candidate, BaseModel)]


def _kinds(model: type[BaseModel]) -> tuple[str, ...]:
    """The allowed values of a group's setting `kind`; empty if it has none."""
    return get_args(model.model_fields["kind"].annotation) if "kind" in model.model_fields else ()
