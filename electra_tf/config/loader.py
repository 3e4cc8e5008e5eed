"""Reads a run's YAML file, its optional parents and `--set` overrides, and checks them against a schema."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from electra_tf.config.errors import UserError, close_name, did_you_mean
from electra_tf.files import is_remote, read_bytes

Inherit = Callable[[dict, dict], dict]
ConfigT = TypeVar("ConfigT", bound=BaseModel)


class _StrictLoader(yaml.SafeLoader):
    """A safe loader that refuses a key given twice; plain YAML silently keeps the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        repeated = {key for key in keys if keys.count(key) > 1}
        if repeated:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {sorted(map(str, repeated))[0]!r} is given twice", node.start_mark
            )
        return super().construct_mapping(node, deep)


def read_values(
    path: str | os.PathLike | None, overrides: Sequence[str] = (), inherit: Mapping[str, Inherit] = MappingProxyType({})
) -> tuple[dict, str]:
    """Reads a run's YAML file, its parents and `--set` overrides, and checks nothing yet.

    Args:
        path, overrides: as `load_config` of pre-training; without a path there are the overrides alone.
        inherit: for groups of settings by name, see `merge`.
    Returns: the settings, and how to name their source in errors.
    Raises: UserError: for a missing file, broken YAML or an override that is not `a.b=value`.
    """
    values = {} if path is None else _read_with_base(os.fspath(path), (), inherit)
    changes: dict = {}
    for override in overrides:
        _add_override(changes, override, values, inherit)
    if path is None:
        return changes, "--set"
    return merge(values, changes, inherit), f"{path} as changed by --set" if changes else str(path)


def validate(values: dict, model: type[ConfigT], source: str) -> ConfigT:
    """Checks a mapping against a schema. `source` names it in errors. Raises: UserError."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(_describe(problem, model) for problem in error.errors())
        raise UserError(f"config {source}: {problems}") from None


def config_to_yaml(config: BaseModel) -> str:
    """The resolved configuration as YAML text; reading it back gives an equal configuration."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)


def _read_with_base(path: str, seen: tuple[str, ...], inherit: Mapping[str, Inherit]) -> dict:
    values = _read_yaml(path)
    base = values.pop("base", None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise UserError(f"config {path}: base is {base!r}; expected the path of one YAML file, relative to this one")
    resolved = path if is_remote(path) else os.path.realpath(path)
    if resolved in seen:
        raise UserError(f"config {path}: its base leads back to itself; remove one of the `base:` lines")
    base_path = os.path.join(os.path.dirname(path), base)
    return merge(_read_with_base(base_path, (*seen, resolved), inherit), values, inherit)


def _read_yaml(path: str) -> dict:
    content = read_bytes(path)
    if content is None:
        raise UserError(f"config {path} does not exist; give the path of a YAML file")
    try:
        values = yaml.load(content.decode(), Loader=_StrictLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"config {path}: not readable as YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise UserError(f"config {path}: holds {type(values).__name__}; expected a mapping such as `train: ...`")
    return values


def merge(base: dict, changes: dict, inherit: Mapping[str, Inherit] = MappingProxyType({})) -> dict:
    """`base` with `changes` on top, mapping by mapping.

    Args:
        inherit: for groups of settings by name: from the base's settings and the changes to them, those of the base's
            that stay. All stay of a group that is not named.
    """
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            merged[key] = merge(inherit[key](old, value) if key in inherit else old, value, inherit)
        else:
            merged[key] = value
    return merged


def _add_override(changes: dict, override: str, values: dict, inherit: Mapping[str, Inherit]) -> None:
    """Writes one override into `changes`, which are later merged into `values`."""
    path, separator, text = override.partition("=")
    if not separator or not path:
        raise UserError(f"--set {override!r}: expected a.b=value, for example --set train.num_steps=1000")
    try:
        value = yaml.load(text, Loader=_StrictLoader)
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise UserError(f"--set {override!r}: the value is not readable as YAML: {reason}") from None
    *parents, last = path.strip().split(".")
    node, below = changes, values
    for parent in parents:
        node, below = node.setdefault(parent, {}), below.get(parent, {})
        if not (isinstance(node, dict) and isinstance(below, dict)):
            raise UserError(f"--set {override!r}: {parent} is a value, not a group of settings")
    old = node.get(last)
    node[last] = merge(old, value, inherit) if isinstance(old, dict) and isinstance(value, dict) else value


def _describe(problem: Any, model: type[BaseModel]) -> str:
    """One clause for one of pydantic's errors: where, what was found, what was expected."""
    models, path = [model], []
    for part in map(str, problem["loc"]):
        children = [child for parent in models for child in groups_in(parent, part)]
        # Pydantic names the member of a union it chose, by its class or its kind: no part of the path in the file.
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
    if problem["type"] == "model_type":
        names = ", ".join(dict.fromkeys(field for child in models for field in child.model_fields))
        return f"{name} is {problem['input']!r}; it is a group of settings: {names}"
    message = problem["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if problem["type"] == "value_error":
        return f"{name}: {message}"
    return f"{name} is {problem['input']!r}; {message}"


def _nearest_setting(path: str, fields: Iterable[str], model: type[BaseModel]) -> str:
    """As `did_you_mean`: an equal name in another group, else one that is near in this group, else in any group."""
    group, _, unknown = path.rpartition(".")
    elsewhere = {p.rpartition(".")[2]: p for p in reversed(_setting_paths(model)) if p.rpartition(".")[0] != group}
    if (unknown in elsewhere or not close_name(unknown, fields)) and (match := close_name(unknown, elsewhere)):
        return f"; did you mean {elsewhere[match]}?"
    return did_you_mean(unknown, fields)


def _setting_paths(model: type[BaseModel], prefix: str = "") -> list[str]:
    """The dotted path of every setting below a group."""
    paths = []
    for field in model.model_fields:
        paths.append(f"{prefix}{field}")
        paths += [path for child in groups_in(model, field) for path in _setting_paths(child, f"{prefix}{field}.")]
    return paths


def groups_in(model: type[BaseModel], field: str) -> list[type[BaseModel]]:
    """The groups of settings that a field of a group may hold."""
    if field not in model.model_fields:
        return []
    annotation = model.model_fields[field].annotation
    # Members of a union may stand there with the kind that tells them apart.
    candidates = get_args(annotation) or (annotation,)
    candidates = [get_args(each)[0] if get_origin(each) is Annotated else each for each in candidates]
    return [candidate for candidate in candidates if isinstance(candidate, type) and issubclass(candidate, BaseModel)]


def _kinds(model: type[BaseModel]) -> tuple[str, ...]:
    """The value of `kind` by which a file asks for this group of settings among several; empty where there is one."""
    return get_args(model.model_fields["kind"].annotation) if "kind" in model.model_fields else ()
