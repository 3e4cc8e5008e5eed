"""The runs of a search: every combination of the values, and the checks before the first run starts."""

import itertools
import json
import re
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.common import PROJECT
from electra_tf.cli.configuration import config_of
from electra_tf.config.errors import UserError
from electra_tf.runs.checkpoints import steps_in
from electra_tf.runs.directory import RunDirectory, lasting_settings
from electra_tf.runs.reported_lines import evaluation_at
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.input import open_stages, plan_stages
from electra_tf.text.manifest import Manifest

# `--set` may say otherwise.
_KEEP_LITTLE = ("train.keep_checkpoints=1", "train.milestone_fractions=[]")
_FLAGS_OF_SETTINGS = {
    "train.seed": "--seeds",
    "train.num_steps": "--flops_budget",
    "train.flops_budget": "--flops_budget",
    "train.flops_convention": "--flops_convention",
}
_LONGEST_NAME = 240  # bytes; with .log it must be within the 255 of most file systems


@dataclass(frozen=True)
class SearchRun:
    """One run of a search.

    Attributes:
        combination: what varies, as a name: `learning_rate=1e-4,num_layers=3`.        directory: of the run.
        data_dirs: one for each stage of the configuration.        command: that trains it, or continues it.
    """

    combination: str
    directory: Path
    config: PretrainingConfig
    data_dirs: tuple[str, ...]
    command: tuple[str, ...]
    output_file = None

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def log_file(self) -> Path:
        return self.directory.with_name(f"{self.name}.log")

    def is_finished(self) -> bool:
        """Whether the run has its last evaluation, which comes after its last checkpoint."""
        return bool(evaluation_at(RunDirectory(self.directory).metrics_file, self.config.train.num_steps))


def plan(arguments: Namespace) -> list[SearchRun]:
    """All runs, seed by seed, so that those of one seed can be compared when the search ends early.

    Raises: UserError: if a flag, or a setting, the data or the directory of any run does not fit.
    """
    keys, values = zip(*map(values_of, arguments.vary), strict=True)
    for key in [*keys, *(override.partition("=")[0].strip() for override in arguments.overrides)]:
        if key in _FLAGS_OF_SETTINGS:
            raise UserError(f"{key} is the same in all runs, or one of each seed; give {_FLAGS_OF_SETTINGS[key]}")
    data_sets = _data_sets(arguments.data_dirs)
    combinations = itertools.product(arguments.seeds, itertools.product(*values))
    runs = [_planned(arguments, keys, chosen, seed, data_sets) for seed, chosen in combinations]
    _require_different(runs)
    for run in runs:
        _require_fit(run)
    return runs


def values_of(text: str) -> tuple[str, tuple[str, ...]]:
    """The setting of a `--vary`, and its values as they were written. Raises: UserError: if it is not `a.b=x,y`."""
    key, _, values = text.partition("=")
    listed = f"[{values}]"
    try:
        nodes = yaml.compose(listed, yaml.SafeLoader).value
    except yaml.YAMLError:
        nodes = ()
    if not key.strip() or not nodes:
        raise UserError(f"--vary {text!r}: expected a.b=value,value, for example optimizer.learning_rate=1e-4,5e-4")
    return key.strip(), tuple(listed[node.start_mark.index : node.end_mark.index] for node in nodes)


def name_of(keys: Sequence[str], values: Sequence[str]) -> str:
    """The name of a combination, fit for a directory: `learning_rate=1e-4,objective.name=electra`.

    Of a setting's path it has the last part, or all where the last part is shared or says too little.
    """
    last_parts = [key.rpartition(".")[2] for key in keys]
    is_clear = [last_parts.count(part) == 1 and part not in ("name", "kind") for part in last_parts]
    names = [last if clear else key for key, last, clear in zip(keys, last_parts, is_clear, strict=True)]
    texts = [re.sub(r"[^\w.+-]+", "_", value).strip("_") for value in values]
    return ",".join(f"{name}={text}" for name, text in zip(names, texts, strict=True))


def _planned(
    arguments: Namespace, keys: Sequence[str], values: Sequence[str], seed: int, data_sets: dict[tuple[int, int], str]
) -> SearchRun:
    overrides = [
        *_KEEP_LITTLE,
        *arguments.overrides,
        *(f"{key}={value}" for key, value in zip(keys, values, strict=True)),
        "train.num_steps=null",
        f"train.flops_budget={arguments.flops_budget}",
        f"train.flops_convention={arguments.flops_convention}",
        f"train.seed={seed}",
    ]
    config = config_of(Namespace(**{**vars(arguments), "overrides": overrides}))
    combination = name_of(keys, values)
    data_dirs = tuple(_data_dirs(config, data_sets, combination))
    directory = arguments.output_dir / f"{combination}-seed{seed}"
    flags = [f"--config={arguments.config}", f"--model_dir={directory}"]
    flags += [f"--data_dir={data_dir}" for data_dir in data_dirs] + [f"--set={override}" for override in overrides]
    flags += [f"--objective_module={arguments.objective_module}"] if arguments.objective_module else []
    command = (sys.executable, str(PROJECT / "run_pretraining.py"), *flags)
    return SearchRun(combination, directory, config, data_dirs, command)


def _data_sets(data_dirs: Sequence[str]) -> dict[tuple[int, int], str]:
    """The data sets by sequence length and size of the vocabulary."""
    data_sets: dict[tuple[int, int], str] = {}
    for data_dir in data_dirs:
        manifest = Manifest.load(data_dir)
        other = data_sets.setdefault((manifest.max_seq_length, manifest.vocab_size), data_dir)
        if other != data_dir:
            raise UserError(f"--data_dir={other} and {data_dir} have one sequence length and vocabulary size; give one")
    return data_sets


def _data_dirs(config: PretrainingConfig, data_sets: dict[tuple[int, int], str], combination: str) -> Iterator[str]:
    """The data set of each stage of a run."""
    for stage in plan_stages(config):
        key = (stage.config.data.max_seq_length, config.encoder.vocab_size)
        if key not in data_sets:
            known = ", ".join(f"{length} and {size}" for length, size in data_sets)
            raise UserError(
                f"{combination} needs data of max_seq_length {key[0]} and vocab_size {key[1]}, --data_dir has {known}; "
                "give --data_dir of such data too, or settings that fit"
            )
        yield data_sets[key]


def _require_different(runs: Sequence[SearchRun]) -> None:
    """Raises: UserError: if two runs have one name, or no difference that affects their weights, or a name is long."""
    first: dict[str, SearchRun] = {}
    for run in runs:
        settings = json.dumps(lasting_settings(run.config.model_dump(mode="json")), sort_keys=True)
        for known_by in (run.name, settings):
            if (other := first.setdefault(known_by, run)) is not run:
                raise UserError(f"{other.name} and {run.name} would be the same run; give each value and seed once")
        if len(run.name.encode()) > _LONGEST_NAME:
            raise UserError(f"{run.name} is too long for a directory's name; vary fewer settings at once")


def _require_fit(run: SearchRun) -> None:
    """Raises: UserError: if the data of a run does not fit, or its directory holds a run of other settings or data."""
    stages = open_stages(run.config, run.data_dirs)
    if not stages[-1].num_evaluation_batches:
        raise UserError(f"{stages[-1].source} has no held-out split; build it with --held_out_fraction")
    directory = RunDirectory(run.directory)
    if not run.is_finished() and not steps_in(directory.checkpoints):
        return
    try:
        directory.require_same_run(run.config)
        directory.require_same_data([stage.identity for stage in stages])
    except UserError as error:
        difference = str(error).partition(";")[0]
        raise UserError(
            f"{difference}; give the flags of the search in that directory, or a new --output_dir"
        ) from None
