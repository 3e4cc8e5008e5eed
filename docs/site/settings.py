"""Prints docs/settings.md, the page of all settings and presets: `python -m docs.site.settings > docs/settings.md`.

A setting is described by the comment above it, or at the end of its line, in the class that declares it.
"""

import ast
import inspect
import itertools
import math
from collections.abc import Iterator
from typing import Any, get_args

import yaml
from pydantic import BaseModel

import electra_tf.tasks.pretrain  # noqa: F401  registers the objectives
from electra_tf.config.loader import presets
from electra_tf.config.schema import RunConfig
from electra_tf.config.validation import groups_in
from electra_tf.flops.budget import RunCost
from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.tasks.pretrain.config import OBJECTIVE_SETTINGS, PretrainingConfig, load_config
from electra_tf.tasks.pretrain.generator_objective import GeneratorObjectiveSettings
from electra_tf.weights.names import network_shapes

TABLE = "| setting | type | default | |\n|---|---|---|---|"
WORDS = {"string": "text", "boolean": "`true` or `false`", "null": "`null`"}
# JSON schema's names, and those that pydantic writes where a validator runs before the bound. The last one counts.
LOWER = {"gt": ">", "exclusiveMinimum": ">", "ge": "≥", "minimum": "≥"}
UPPER = {"lt": "<", "exclusiveMaximum": "<", "le": "≤", "maximum": "≤"}

INTRODUCTION = """\
# Settings and presets

Each preset, and each setting by its path, as in `--set train.batch_size=64`. The page is made from the schema and from
`configs/`: `python -m docs.site.settings > docs/settings.md`. For flags: `electra-tf COMMAND --help`.

Where the default is empty, a preset or a file must give the setting; in fine-tuning it follows from the encoder, the
task or the data. The presets `replication/*` are not here ([configurations](configs.md)).

## Presets

`--config=NAME`. The encoder is given as layers x hidden size, and its parameters are those without heads and generator.
Tokens include padding. FLOPs are those of the whole run, in both [conventions](notes/flops.md).

| preset | objective | encoder | parameters | length | batch | steps | million tokens | FLOPs: paper | hardware |
|---|---|---|---|---|---|---|---|---|---|
"""


def page() -> str:
    """The text of docs/settings.md. The presets of the replication are experiments, and not on it."""
    listed: set[type[BaseModel]] = set()  # groups within a group whose rows the page has already, by another path
    names = [name for name in sorted(presets(), key=_top_first) if not name.startswith("replication/")]
    objectives = [_group("objective.", GeneratorObjectiveSettings, listed, "objective (with a generator)")]
    objectives += [
        _group("objective.", group, listed, f"objective.name: {name}") for name, group in OBJECTIVE_SETTINGS.items()
    ]
    tasks = [
        _group("task.", group, listed, f"task.kind: {', '.join(get_args(group.model_fields['kind'].annotation))}")
        for group in groups_in(FinetuningConfig.model_fields["task"].annotation)
    ]
    parts = [
        [INTRODUCTION + "\n".join(_preset(name, load_config(name)) for name in names)],
        ["\n## Every run\n", TABLE, *_groups(RunConfig, listed)],
        ["\n## Pre-training\n", TABLE, *_groups(PretrainingConfig, listed), *objectives],
        ["\n## Fine-tuning\n\nThe settings of every run, with other defaults for some, and these:\n", TABLE],
        [*_rows(FinetuningConfig, "", listed), *_groups(FinetuningConfig, listed), *tasks],
    ]
    return "\n".join(itertools.chain(*parts)) + "\n"


def _groups(config: type[BaseModel], listed: set[type[BaseModel]]) -> Iterator[str]:
    """The rows of each group of settings that a configuration itself declares, with one type."""
    for name, comment in _comments(config).items():
        groups = groups_in(config.model_fields[name].annotation)
        if len(groups) == 1:
            yield _group("stages.0." if name == "stages" else f"{name}.", groups[0], listed, name, comment)


def _group(prefix: str, group: type[BaseModel], listed: set[type[BaseModel]], title: str, comment: str = "") -> str:
    """A row with the title and description of a group, and one for each setting."""
    parents = {each: f"`{other}`" for other, each in OBJECTIVE_SETTINGS.items()}
    parents[GeneratorObjectiveSettings] = "every objective with a generator"
    also = f"The settings of {parents[group.__base__]}, and:" if group.__base__ in parents else ""
    described = " ".join(f"{inspect.getdoc(group)} {comment} {also}".split())
    return "\n".join([f"| **{title}** | | | {described} |", *_rows(group, prefix, listed)])


def _rows(group: type[BaseModel], prefix: str, listed: set[type[BaseModel]]) -> Iterator[str]:
    """A row for each setting that a class itself declares, and for those of the groups in it that are not `listed`."""
    schemas = group.model_json_schema()["properties"]
    for name, comment in _comments(group).items():
        groups, schema, default = groups_in(group.model_fields[name].annotation), schemas[name], ""
        if groups and not prefix or name == "kind" or f"{prefix}{name}" == "objective.name":  # a row above has it
            continue
        if "default" in schema and not groups:
            default = f"`{yaml.safe_dump(schema['default'], default_flow_style=True).splitlines()[0]}`"
        yield f"| `{prefix}{name}` | {'settings' if groups else _type(schema)} | {default} | {comment} |"
        for each in groups:
            if each not in listed:
                listed.add(each)
                yield from _rows(each, f"{prefix}{name}.", listed)


def _type(schema: dict[str, Any]) -> str:
    """The type of a setting in words, from its JSON schema."""
    if "anyOf" in schema:
        return ", or ".join(map(_type, schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if schema["type"] == "array":
        return f"list of {_type(schema.get('items') or schema['prefixItems'][0])}"
    if schema["type"] == "object":
        return f"mapping of text to {_type(schema['additionalProperties'])}"
    limits = {name: value for name, value in schema.items() if name in LOWER | UPPER and value != 2**31 - 1}
    bounds = ([f"{side[name]} {limits[name]:g}" for name in side if name in limits][-1:] for side in (LOWER, UPPER))
    return f"{WORDS.get(schema['type'], schema['type'])} {', '.join(itertools.chain(*bounds))}".strip()


def _comments(group: type[BaseModel]) -> dict[str, str]:
    """The fields that a class itself declares, each with its comment."""
    lines = inspect.getsource(group).splitlines()
    comments = {}
    for node in ast.parse("\n".join(lines)).body[0].body:
        if isinstance(node, ast.AnnAssign) and node.target.id in group.model_fields:
            above = itertools.takewhile(lambda line: line.strip().startswith("#"), reversed(lines[: node.lineno - 1]))
            parts = [*reversed([*above]), lines[node.end_lineno - 1][node.end_col_offset :]]
            text = " ".join(part.strip().removeprefix("#").strip() for part in parts).strip().replace("|", "\\|")
            is_value = text.split(" ")[0].endswith(":")  # of the setting
            comments[node.target.id] = text if is_value else text[:1].upper() + text[1:]
    return comments


def _top_first(name: str) -> tuple[int, str]:
    return name.count("/"), name


def _preset(name: str, run: PretrainingConfig) -> str:
    spent = RunCost(run).spent(run.train.num_steps)
    parts = [(stage.max_seq_length, stage.batch_size) for stage in run.stages]
    lengths, batches = zip(*parts or [(run.data.max_seq_length, run.train.batch_size)], strict=True)
    cells = [
        *(f"`{name}`", run.objective.name, f"{run.encoder.num_layers} x {run.encoder.hidden_size}"),
        f"{sum(map(math.prod, network_shapes(run.encoder).values())):,}",
        *(", ".join(f"{number:,}" for number in dict.fromkeys(numbers)) for numbers in (lengths, batches)),
        *(f"{run.train.num_steps:,}", f"{spent.token_slots / 1e6:,.0f}"),
        *(f"{float(spent.flops(each)):.4g}".replace("e+", "e") for each in ("paper", "hardware")),
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(page(), end="")
