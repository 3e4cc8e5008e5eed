"""Reads a run's YAML file, its optional parent and `--set` overrides into a checked `PretrainingConfig`."""

import difflib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from electra_tf.config.errors import UserError
from electra_tf.config.objectives import OBJECTIVE_SETTINGS, ObjectiveSettings, common_settings
from electra_tf.config.schema import PretrainingConfig


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


def load_config(path: str | os.PathLike, overrides: list[str] | tuple[str, ...] = ()) -> PretrainingConfig:
    """Loads a run's configuration.

    Args:
        path: a YAML file; its `base:`, if any, names a parent file relative to it.
        overrides: `a.b=value` texts; the value is YAML. Of two for one setting the later wins. Together they change
            the file as a child file would.

    Raises: UserError: for a missing file, broken YAML, an unknown key, a wrong type or an impossible combination.
    """
    values = _read_with_base(Path(path), seen=())
    changes: dict = {}
    for override in overrides:
        _add_override(changes, override, values)
    return parse_config(merge(values, changes), source=f"{path} as changed by --set" if changes else str(path))


def parse_config(values: dict, source: str) -> PretrainingConfig:
    """Checks a mapping against the schema. `source` names it in errors. Raises: UserError."""
    model = PretrainingConfig[_objective_settings(values, source)]
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(_describe(problem, model) for problem in error.errors())
        raise UserError(f"config {source}: {problems}") from None


def _objective_settings(values: dict, source: str) -> type[ObjectiveSettings]:
    """The type of the settings that `objective.name` asks for. Raises: UserError: if there is none of that name."""
    objective = values.get("objective")
    name = objective.get("name") if isinstance(objective, dict) else None
    if name is None:
        return ObjectiveSettings  # which says what is missing
    if isinstance(name, str) and name in OBJECTIVE_SETTINGS:
        return OBJECTIVE_SETTINGS[name]
    raise UserError(
        f"config {source}: objective.name is {name!r}{_nearest(str(name), OBJECTIVE_SETTINGS)}; one of your own needs "
        "--objective_module"
    )


def config_to_yaml(config: PretrainingConfig) -> str:
    """The resolved configuration as YAML text; reading it back gives an equal configuration."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)


def _read_with_base(path: Path, seen: tuple[Path, ...]) -> dict:
    values = _read_yaml(path)
    base = values.pop("base", None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise UserError(f"config {path}: base is {base!r}; expected the path of one YAML file, relative to this one")
    base_path = path.parent / base
    if path.resolve() in seen:
        raise UserError(f"config {path}: its base leads back to itself; remove one of the `base:` lines")
    return merge(_read_with_base(base_path, (*seen, path.resolve())), values)


def _read_yaml(path: Path) -> dict:
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)
    except OSError as error:
        raise UserError(f"config {path}: {error.strerror or error}; give the path of a YAML file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"config {path}: not readable as YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise UserError(f"config {path}: holds {type(values).__name__}; expected a mapping such as `train: ...`")
    return values


def merge(base: dict, changes: dict) -> dict:
    """`base` with `changes` on top, mapping by mapping.

    Under an objective of another name those settings of the base's stay that both have in common; the others mean
    nothing to it. Nothing stays of a generator of another kind.
    """
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            merged[key] = merge(_KEPT_SETTINGS.get(key, lambda old, _: old)(old, value), value)
        else:
            merged[key] = value
    return merged


def _kept_of_objective(old: dict, changes: dict) -> dict:
    """What stays of an objective's settings under these changes to them."""
    name, new_name = old.get("name"), changes.get("name", old.get("name"))
    if name == new_name:
        return old
    common = common_settings(str(name), str(new_name))
    return {setting: value for setting, value in old.items() if setting in common}


def _kept_of_generator(old: dict, changes: dict) -> dict:
    """What stays of a generator's settings under these changes to them."""
    kind = old.get("kind", "transformer")
    return old if changes.get("kind", kind) == kind else {}


_KEPT_SETTINGS = {"objective": _kept_of_objective, "generator": _kept_of_generator}


def _add_override(changes: dict, override: str, values: dict) -> None:
    """Writes one override into `changes`, which are later merged into `values`."""
    path, separator, text = override.partition("=")
    if not separator or not path:
        raise UserError(f"--set {override!r}: expected a.b=value, for example --set train.num_steps=1000")
    try:
        value = yaml.load(text, Loader=_StrictLoader)
    except yaml.YAMLError as error:
        raise UserError(
            f"--set {override!r}: the value is not readable as YAML: {' '.join(str(error).split())}"
        ) from None
    *parents, last = path.strip().split(".")
    node, below = changes, values
    for parent in parents:
        node, below = node.setdefault(parent, {}), below.get(parent, {})
        if not (isinstance(node, dict) and isinstance(below, dict)):
            raise UserError(f"--set {override!r}: {parent} is a value, not a group of settings")
    old = node.get(last)
    node[last] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value


def _describe(problem: Any, model: type[BaseModel]) -> str:
    """One clause for one of pydantic's errors: where, what was found, what was expected."""
    models, path = [model], []
    for part in map(str, problem["loc"]):
        children = [child for parent in models for child in _children(parent, part)]
        # Pydantic names the member of a union it chose, by its class or its kind: no part of the path in the file.
        chosen = [] if children else [child for child in models if part in (child.__name__, *_kinds(child))]
        if not chosen:
            path.append(part)
        models = children or chosen or models
    name = ".".join(path) or "the settings"
    if problem["type"] == "union_tag_invalid":
        kind = problem["ctx"]["tag"]
        return f"{name}.kind is {kind!r}{_nearest(kind, [known for child in models for known in _kinds(child)])}"
    if problem["type"] == "extra_forbidden":
        return (
            f"{name} is not a setting{_nearest(path[-1], {field for child in models for field in child.model_fields})}"
        )
    if problem["type"] == "missing":
        return f"{name} is missing; start from a preset with `base:` or give it"
    message = problem["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if problem["type"] == "value_error":
        return f"{name}: {message}"
    return f"{name} is {problem['input']!r}; {message}"


def _nearest(unknown: str, known: Iterable[str]) -> str:
    """'; did you mean ...' for an unknown word, or what there is."""
    names = sorted(known)
    matches = difflib.get_close_matches(unknown, names, n=1, cutoff=0.5)
    return f"; did you mean {matches[0]}?" if matches else f"; there are: {', '.join(names)}"


def _children(model: type[BaseModel], field: str) -> list[type[BaseModel]]:
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
