"""The search of appendix A: short runs over a grid of settings, all for the same FLOPs, and a table of what they reach.

    python -m experiments.search --config=configs/pretrain/small.yaml --data_dir=DATA --output_dir=RUNS \\
        --flops_budget=1e15 --set optimizer.warmup_steps=100 --vary optimizer.learning_rate=1e-4,2e-4,3e-4,5e-4 \\
        --vary objective.replaced_token_loss_weight=1,10,20,50,100 --seeds 0 1 --sort=replaced_token_loss

Every combination of the values is a run for each seed, in RUNS/COMBINATION-seedN, with as many steps as the budget pays
for; what its process prints is in RUNS/COMBINATION-seedN.log. All settings are checked before the first run starts.
Each run ends with one line, the search with a table in Markdown. The same command continues runs that were interrupted
and skips those that are finished. A run that fails, because it diverges for example, is noted under the table; the
others go on, and the exit status is 1.

Settings that go together are a value in YAML: --vary "encoder={hidden_size: 128, num_heads: 2},{hidden_size: 192,
num_heads: 3}". Runs keep one checkpoint and no milestones, unless --set says otherwise.
"""

import itertools
import math
import os
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from electra_tf.cli.flags import add_objective_module_flag, add_set_flag, flag_parser
from electra_tf.config.errors import UserError
from electra_tf.files import is_remote
from experiments.processes import PROJECT, core_shares, local_directory, run_all, run_experiment

# `--set` may say otherwise.
_KEEP_LITTLE = ("train.keep_checkpoints=1", "train.milestone_fractions=[]")
_FLAGS_OF_SETTINGS = {
    "train.seed": "--seeds",
    "train.num_steps": "--flops_budget",
    "train.flops_budget": "--flops_budget",
    "train.flops_convention": "--flops_convention",
}
_LONGEST_NAME = 255  # bytes, of a file in most file systems


@dataclass(frozen=True)
class SearchRun:
    """One run of a search.

    Attributes:
        combination: what varies, as a name: `learning_rate=1e-4,num_layers=3`.        directory: of the run.
        num_steps: what the budget pays for.        command: that trains it, or continues it.
    """

    combination: str
    directory: Path
    num_steps: int
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
        from electra_tf.runs.directory import RunDirectory
        from electra_tf.runs.json_lines import evaluation_at

        return bool(evaluation_at(RunDirectory(self.directory).metrics_file, self.num_steps))


def main(argv: list[str] | None = None) -> int:
    arguments = _flags().parse_args(argv)
    return run_experiment(lambda: _search(arguments))


def _flags() -> ArgumentParser:
    parser = flag_parser(__doc__)
    add = parser.add_argument
    add("--config", required=True, metavar="FILE", help="YAML file that the runs have in common")
    add(
        "--data_dir",
        action="append",
        required=True,
        dest="data_dirs",
        metavar="DIR",
        help="output of build_pretraining_dataset.py; repeatable: a run reads the one of its data.max_seq_length and "
        "encoder.vocab_size",
    )
    add("--output_dir", required=True, type=local_directory, metavar="DIR", help="local directory of the runs")
    add("--flops_budget", required=True, metavar="FLOPS", help="what each run may cost")
    add("--flops_convention", choices=("paper", "hardware"), default="paper", help="see docs/flops.md")
    add(
        "--vary",
        action="append",
        required=True,
        metavar="A.B=VALUE,VALUE",
        help="the values that a setting takes in turn; repeatable",
    )
    add_set_flag(parser)
    add_objective_module_flag(parser)
    add("--seeds", type=int, nargs="+", default=[0], metavar="N", help="one run each")
    add("--jobs", type=int, default=1, metavar="N", help="runs at once, each on its share of the cores; 1 on a GPU")
    add(
        "--sort",
        metavar="METRIC",
        help="held-out metric that orders the table: the lowest loss first, the highest of any other; without it the "
        "rows have the order of the values",
    )
    add("--markdown", metavar="FILE", help="file for the table; replaced if it exists")
    return parser


def _search(arguments: Namespace) -> bool:
    """Returns: whether every run has come to its end."""
    shares = core_shares(arguments.jobs)
    parent = os.path.dirname(arguments.markdown or "") or "."
    if not is_remote(parent) and not os.path.isdir(parent):
        raise UserError(f"--markdown={arguments.markdown}: {parent} is no directory; make it, or give another file")

    from electra_tf.files import write_atomically

    runs = plan(arguments)
    failures = run_all([run for run in runs if not run.is_finished()], shares)
    unknown_metric = None
    try:
        text = results_markdown(runs, failures, arguments.sort)
    except UserError as error:  # what hours of runs reached is printed all the same
        text, unknown_metric = results_markdown(runs, failures, None), error
    print(text, end="", flush=True)
    if arguments.markdown:
        write_atomically(arguments.markdown, text.encode())
    if unknown_metric:
        raise unknown_metric
    return not failures


def plan(arguments: Namespace) -> list[SearchRun]:
    """All runs, seed by seed, so that those of one seed can be compared when the search ends early.

    Raises: UserError: if a flag or a setting of any run does not fit, or no data set does.
    """
    keys, values = zip(*map(values_of, arguments.vary), strict=True)
    for one, other in itertools.combinations(sorted(keys), 2):
        if f"{other}.".startswith(f"{one}."):
            raise UserError(f"--vary {one} and --vary {other} change one setting; give one --vary for both")
    for key in [*keys, *(override.partition("=")[0].strip() for override in arguments.overrides)]:
        if key == "train":
            raise UserError("train has settings that the search itself gives; name one, for example train.batch_size=4")
        if key in _FLAGS_OF_SETTINGS:
            raise UserError(f"{key} is the same in all runs, or one of each seed; give {_FLAGS_OF_SETTINGS[key]}")
    data_sets = _data_sets(arguments.data_dirs)
    runs: dict[str, SearchRun] = {}
    for seed, chosen in itertools.product(arguments.seeds, itertools.product(*values)):
        run = _planned(arguments, keys, chosen, seed, data_sets)
        if runs.setdefault(run.name, run) is not run:
            raise UserError(f"{run.name} would be run twice; give each value and each seed once")
        if len(run.log_file.name.encode()) > _LONGEST_NAME:
            raise UserError(f"{run.log_file.name} is too long for a file's name; vary fewer settings at once")
    return list(runs.values())


def values_of(text: str) -> tuple[str, tuple[str, ...]]:
    """The setting of a `--vary`, and its values as they were written. Raises: UserError: if it is not `a.b=x,y`."""
    import yaml

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
    from electra_tf.cli.configuration import config_of
    from electra_tf.tasks.pretrain.input import plan_stages

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
    needed = [(stage.config.data.max_seq_length, config.encoder.vocab_size) for stage in plan_stages(config)]
    if missing := next((each for each in needed if each not in data_sets), None):
        known = ", ".join(f"{length} and {size}" for length, size in data_sets)
        raise UserError(
            f"{combination} needs data of max_seq_length {missing[0]} and vocab_size {missing[1]}, --data_dir has "
            f"{known}; give --data_dir of such data too, or settings that fit"
        )
    directory, data_dirs = arguments.output_dir / f"{combination}-seed{seed}", [data_sets[each] for each in needed]
    _require_same(directory, config, data_dirs)
    flags = [f"--config={arguments.config}", f"--model_dir={directory}"]
    flags += [f"--data_dir={data_dir}" for data_dir in data_dirs] + [f"--set={override}" for override in overrides]
    flags += [f"--objective_module={arguments.objective_module}"] if arguments.objective_module else []
    command = (sys.executable, str(PROJECT / "run_pretraining.py"), *flags)
    return SearchRun(combination, directory, config.train.num_steps, command)


def _require_same(directory: Path, config, data_dirs: Sequence[str]) -> None:
    """Raises: UserError: if the directory holds a run of other settings or data."""
    from electra_tf.files import exists
    from electra_tf.runs.directory import RunDirectory
    from electra_tf.tasks.pretrain.input import open_stages

    known = RunDirectory(directory, "--output_dir")
    if exists(known.config_file):
        known.require_same_run(config)
        known.require_same_data([stage.identity for stage in open_stages(config, data_dirs)])


def _data_sets(data_dirs: Sequence[str]) -> dict[tuple[int, int], str]:
    """The data sets by sequence length and size of the vocabulary."""
    from electra_tf.text.manifest import HELD_OUT_SPLIT, Manifest

    data_sets: dict[tuple[int, int], str] = {}
    for data_dir in data_dirs:
        manifest = Manifest.load(data_dir)
        if HELD_OUT_SPLIT not in manifest.splits:
            raise UserError(f"--data_dir={data_dir} has no held-out split; build it with --held_out_fraction")
        other = data_sets.setdefault((manifest.max_seq_length, manifest.vocab_size), data_dir)
        if other != data_dir:
            raise UserError(f"--data_dir={other} and {data_dir} have one sequence length and vocabulary size; give one")
    return data_sets


def results_markdown(runs: Sequence[SearchRun], failures: Mapping[str, str], sort: str | None) -> str:
    """The table, one row a combination, and the runs that failed.

    Args:
        failures: by the run's name.        sort: a held-out metric; None: the rows have the order of the runs.
    Raises: UserError: if no run has that metric; it lists the existing ones.
    """
    from electra_tf.reports.runs import RunGroup, read_run
    from electra_tf.reports.tables import chosen_metrics, runs_table

    finished: dict[str, list] = {}
    for run in runs:
        if run.name not in failures:
            finished.setdefault(run.combination, []).append(read_run(run.directory))
    groups, table = [RunGroup(combination, tuple(members)) for combination, members in finished.items()], ""
    if groups:
        metrics = chosen_metrics(groups)
        if sort:
            metrics = list(dict.fromkeys([*chosen_metrics(groups, [sort]), *metrics]))
            sign = 1.0 if "loss" in sort else -1.0
            groups.sort(key=lambda group: sign * last.median if (last := group.last(sort)) else math.inf)
        table = runs_table(groups, metrics)
    failed = "".join(f"- {name} failed: {failure}\n" for name, failure in failures.items())
    return "\n".join(filter(None, [table, failed]))


if __name__ == "__main__":
    sys.exit(main())
