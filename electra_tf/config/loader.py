"""Reads a run's YAML file, its optional parents and `--set` overrides; `validation` checks them."""

import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import yaml
from pydantic import BaseModel

from electra_tf.config.errors import UserError
from electra_tf.files import is_remote, read_bytes

Inherit = Callable[[dict, dict], dict]


class _StrictLoader(yaml.SafeLoader):
    """A safe loader that refuses duplicate keys; PyYAML silently keeps the last one."""

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
    """Reads a run's YAML file, its parents and `--set` overrides, without checking the settings.

    Args:
        path, overrides: see `electra_tf.tasks.pretrain.config.load_config`; None: read only the overrides.
        inherit: see `merge`.
    Returns: the settings, and the name of their source for error messages.
    Raises: UserError: a file is missing or not valid YAML, or an override is not `a.b=value`.
    """
    values = {} if path is None else _read_with_base(os.fspath(path), (), inherit)
    changes: dict = {}
    for override in overrides:
        _add_override(changes, override, values, inherit)
    if path is None:
        return changes, "--set"
    return merge(values, changes, inherit), f"{path} as changed by --set" if changes else str(path)


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
        raise UserError(f"config {path}: the `base:` lines form a circle; remove one of them")
    base_path = os.path.join(os.path.dirname(path), base)
    return merge(_read_with_base(base_path, (*seen, resolved), inherit), values, inherit)


def _read_yaml(path: str) -> dict:
    if (content := read_bytes(path)) is None:
        raise UserError(f"config {path}: no such file")
    try:
        values = yaml.load(content, Loader=_StrictLoader)
    except yaml.YAMLError as error:
        raise UserError(f"config {path}: invalid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise UserError(f"config {path}: contains a {type(values).__name__}; expected a mapping such as `train: ...`")
    return values


def merge(base: dict, changes: dict, inherit: Mapping[str, Inherit] = MappingProxyType({})) -> dict:
    """Returns `base` updated with `changes`, recursively in nested mappings.

    Args:
        inherit: functions by the names of groups. A function gets the base's settings of its group and the changes to
            them, and returns the settings to inherit. Other groups inherit all settings.
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
    """Adds one override to `changes`, which are later merged into `values`."""
    path, separator, text = override.partition("=")
    if not separator or not path:
        raise UserError(f"--set {override!r}: expected a.b=value, for example --set train.num_steps=1000")
    try:
        value = yaml.load(text, Loader=_StrictLoader)
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise UserError(f"--set {override!r}: the value is invalid YAML: {reason}") from None
    *parents, last = path.strip().split(".")
    node, below = changes, values
    for parent in parents:
        node, below = node.setdefault(parent, {}), below.get(parent, {})
        if not (isinstance(node, dict) and isinstance(below, dict)):
            raise UserError(f"--set {override!r}: {parent} is a value, not a group of settings")
    old = node.get(last)
    node[last] = merge(old, value, inherit) if isinstance(old, dict) and isinstance(value, dict) else value
