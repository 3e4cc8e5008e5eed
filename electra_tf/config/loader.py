"""Reads a run's YAML file, its optional parents and `--set` overrides; `validation` checks them."""

import copy
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from pydantic import BaseModel
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

from electra_tf.checkout import configs_folder
from electra_tf.config.errors import UserError, did_you_mean
from electra_tf.files import read_bytes

Inherit = Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]
Override = str | tuple[str, Any]  # `a.b=value` with YAML as its value, or the path and the value itself

_MAX_NODES = 100_000  # values, lists and mappings of a file; an alias counts as all that it stands for
_ONE_SETTING = frozenset({"learning_rate_multipliers"})  # mappings that are replaced as a whole


class _Loader(yaml.SafeLoader):
    """Refuses duplicate keys, of which PyYAML silently keeps the last. A key may differ from that of a merge, `<<`.

    And aliases of aliases that make a few lines larger than any memory.
    """

    num_nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        is_alias, before = self.check_event(yaml.AliasEvent), self.num_nodes
        node = super().compose_node(parent, index)
        self.num_nodes += getattr(node, "size", 1) if is_alias else 1
        if self.num_nodes > _MAX_NODES:
            raise ComposerError(None, None, f"it has more than {_MAX_NODES} values", node and node.start_mark)
        if not is_alias:
            node.size = self.num_nodes - before
        return node

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node] | None) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)  # before merges add the keys of others
        keys = [(key.tag, key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        if twice := [key for (_, key), count in Counter(keys).items() if count > 1]:
            raise ConstructorError(None, None, f"the key {twice[0]!r} is given twice", node.start_mark)
        return node


def read_values(
    path: str | os.PathLike[str] | None,
    overrides: Sequence[Override] = (),
    inherit: Mapping[str, Inherit] = MappingProxyType({}),
    kind: str = "pretrain",
) -> tuple[dict[str, Any], str]:
    """Reads a run's YAML file, its parents and `--set` overrides, without checking the settings.

    Args:
        path: a file, or the name of a preset; None: read only the overrides.
        overrides: see `electra_tf.tasks.pretrain.config.load_config`.
        inherit: see `merge`.
        kind: of the presets, see `presets`.
    Returns: the settings, and the name of their source for error messages.
    Raises: UserError: a file is missing or not valid YAML, or an override is not `a.b=value`.
    """
    values = {} if path is None else _read_with_base(os.fspath(path), "", inherit, presets(kind))
    changes: dict[str, Any] = {}
    for override in overrides:
        _add_override(changes, override, values, inherit)
    source = f"{path} as changed by settings" if changes else str(path)
    return merge(values, changes, inherit), "settings" if path is None else source


def presets(kind: str = "pretrain") -> dict[str, Path]:
    """By name (`ablations/electra_15`), the configurations that come with the project: of `pretrain` or `finetune`."""
    folder = configs_folder() / kind
    return {file.relative_to(folder).with_suffix("").as_posix(): file for file in sorted(folder.glob("**/*.yaml"))}


def config_to_yaml(config: BaseModel | dict[str, Any]) -> str:
    """A configuration, or the settings for one, as YAML text; reading it back gives an equal configuration."""
    return yaml.safe_dump(config if isinstance(config, dict) else config.model_dump(mode="json"), sort_keys=False)


def _read_with_base(
    name: str, folder: str, inherit: Mapping[str, Inherit], known: Mapping[str, Path]
) -> dict[str, Any]:
    """Reads a preset, or a file as seen from a folder, and its parents."""
    path = str(known[name]) if name in known else os.path.join(folder, name)
    if (content := read_bytes(path)) is None:
        preset = os.path.splitext(os.path.basename(path))[0]
        raise UserError(f"config {path}: no such file, and no preset{did_you_mean(preset, known)}")
    values = _load_yaml(content, f"config {path}")
    if not isinstance(values, dict):
        raise UserError(f"config {path}: contains a {type(values).__name__}; expected a mapping such as `train: ...`")
    base = values.pop("base", None)
    if base is None:
        return values
    return merge(_read_with_base(str(base), os.path.dirname(path), inherit, known), values, inherit)


def _load_yaml(content: bytes | str, source: str) -> Any:
    """Reads YAML. Raises: UserError: it is invalid; `source` names it."""
    try:
        return yaml.load(content, Loader=_Loader)
    # The last three: `2001-13-45`, `!!bool maybe`, thousands of brackets.
    except (yaml.YAMLError, ValueError, KeyError, RecursionError) as error:
        raise UserError(f"{source}: invalid YAML: {' '.join(str(error).split())}") from None


def merge(
    base: dict[str, Any], changes: dict[str, Any], inherit: Mapping[str, Inherit] = MappingProxyType({})
) -> dict[str, Any]:
    """Returns `base` updated with `changes`, recursively in nested mappings.

    Args:
        inherit: functions by the names of groups. A function gets the base's settings of its group and the changes to
            them, and returns the settings to inherit. Other groups inherit all settings.
    """
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        if isinstance(value, dict) and isinstance(old, dict) and key not in _ONE_SETTING:
            merged[key] = merge(inherit[key](old, value) if key in inherit else old, value, inherit)
        else:
            merged[key] = value
    return merged


def _add_override(
    changes: dict[str, Any], override: Override, values: dict[str, Any], inherit: Mapping[str, Inherit]
) -> None:
    """Adds one override to `changes`, which are later merged into `values`."""
    if isinstance(override, tuple):
        path, value = override
        override = f"{path}={value}"
    else:
        path, separator, text = override.partition("=")
        if not separator or not path:
            raise UserError(f"{override!r}: expected a.b=value, for example train.num_steps=1000")
        value = _load_yaml(text, f"{override!r:.100}")
    *parents, last = path.strip().split(".")
    node, below = changes, values
    for number, part in enumerate((*parents, last)):
        known = [str(index) for index in range(len(node))] if isinstance(node, list) else [part]
        if part not in known or not (isinstance(node, dict | list) and isinstance(below, dict)):
            group = ".".join(parents[:number])
            found = f"a list of the entries {', '.join(known) or 'none'}" if isinstance(node, list) else "a value"
            raise UserError(f"{override!r}: {group} is {found}, not a group of settings with {part!r}")
        if number == len(parents):
            break
        if isinstance(node, list):
            node, below = node[int(part)], {}
        else:
            below = below.get(part, {})
            # Merging replaces a list as a whole, so that an entry is changed in a copy of the list.
            node = node.setdefault(part, copy.deepcopy(below) if isinstance(below, list) else {})
            below = {} if isinstance(node, list) else below
    key: Any = int(last) if isinstance(node, list) else last
    old = node[key] if isinstance(node, list) else node.get(key)
    if isinstance(old, dict) and isinstance(value, dict) and last not in _ONE_SETTING:
        value = merge(old, value, inherit)
    node[key] = value
