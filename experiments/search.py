"""The search of appendix A: short runs over a grid of settings, all with equal FLOPs, and a table of their results.

    python -m experiments.search --config=small --data_dir=DATA --output_dir=RUNS \\
        --flops_budget=1e15 --set optimizer.warmup_steps=100 --vary optimizer.learning_rate=1e-4,2e-4,3e-4,5e-4 \\
        --vary objective.replaced_token_loss_weight=1,10,20,50,100 --seeds 0 1 --sort=replaced_token_loss

Each combination of values is one run for each seed, in RUNS/COMBINATION-seedN, with as many steps as the budget pays
for; its output is in RUNS/COMBINATION-seedN.log. All settings are checked before the first run starts. At the end the
search prints a table in Markdown on standard output. The same command continues interrupted runs and skips finished
ones. If a run fails, for example because it diverges, the others continue, the failure is noted under the table, and
the exit status is 1.

Settings that change together are one value in YAML: --vary "encoder={hidden_size: 128, num_heads: 2},{hidden_size:
192, num_heads: 3}". Runs keep one checkpoint and no milestones, unless --set changes that.
"""

import itertools
import math
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path

from electra_tf.cli.flags import add_config_flag, add_objective_module_flag, add_set_flag, flag_parser
from electra_tf.cli.process import run_command
from electra_tf.config.errors import UserError
from experiments.processes import core_shares, run_all

# `--set` wins over these.
_KEEP_LITTLE = ("train.keep_checkpoints=1", "train.milestone_fractions=[]")
_FLAGS_OF_SETTINGS = {"train.seed": "--seeds", "train.num_steps": "--flops_budget"}


def main(argv: list[str] | None = None) -> int:
    arguments = _flags().parse_args(argv)
    return run_command(lambda: _search(arguments))


def _flags() -> ArgumentParser:
    parser = flag_parser(__doc__)
    add = parser.add_argument
    add_config_flag(parser, required=True)
    data = "output of electra-tf build-data; repeatable: each run takes the one with its length and vocabulary size"
    add("--data_dir", action="append", required=True, dest="data_dirs", metavar="DIR", help=data)
    add("--output_dir", required=True, type=Path, metavar="DIR", help="local directory of the runs")
    add("--flops_budget", required=True, type=float, metavar="FLOPS", help="FLOPs of each run")
    add("--flops_convention", choices=("paper", "hardware"), default="paper", help="see docs/notes/flops.md")
    vary = "a setting and its values; repeatable"
    add("--vary", action="append", required=True, metavar="A.B=VALUE,VALUE", help=vary)
    add_set_flag(parser)
    add_objective_module_flag(parser)
    add("--seeds", type=int, nargs="+", default=[0], metavar="N", help="one run of each combination per seed")
    add("--jobs", type=int, default=1, metavar="N", help="simultaneous runs, which share the cores; 1 on a GPU")
    order = "held-out metric to sort the table by: the lowest loss, or the highest value of another metric, first"
    add("--sort", metavar="METRIC", help=order)
    return parser


def _search(arguments: Namespace) -> bool:
    """Returns: whether all runs have finished."""
    shares, runs = core_shares(arguments.jobs), plan(arguments)
    failures = run_all([run.process() for run in runs], shares)
    print(results_markdown([run.directory for run in runs], failures, arguments.sort), flush=True)
    return not failures


def plan(arguments: Namespace) -> list:
    """Every `PretrainingRun`, seed by seed, so that the runs of one seed can be compared if the search ends early.

    Raises: UserError: if a flag or a setting of a run is invalid, or no data set fits a run.
    """
    keys, values = zip(*map(values_of, arguments.vary), strict=True)
    for key in [*keys, *(override.partition("=")[0].strip() for override in arguments.overrides)]:
        if key in _FLAGS_OF_SETTINGS:
            raise UserError(f"{key} cannot be given here; give {_FLAGS_OF_SETTINGS[key]}")
        if keys.count(key) > 1:
            raise UserError(f"--vary {key} is given twice; give all values in one --vary")
    data_sets = _data_sets(arguments.data_dirs)
    grid = itertools.product(dict.fromkeys(arguments.seeds), itertools.product(*map(dict.fromkeys, values)))
    return [_planned(arguments, keys, chosen, seed, data_sets) for seed, chosen in grid]


def values_of(text: str) -> tuple[str, tuple[str, ...]]:
    """The setting of a `--vary` and its values, unparsed. Raises: UserError: if the text is not `a.b=x,y`."""
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
    """The name of a combination, usable for a directory: `learning_rate=1e-4,objective.name=electra`.

    A setting is named by the last part of its path, or by the whole path if the last part is ambiguous.
    """
    last_parts = [key.rpartition(".")[2] for key in keys]
    is_clear = [last_parts.count(part) == 1 and part not in ("name", "kind") for part in last_parts]
    names = [last if clear else key for key, last, clear in zip(keys, last_parts, is_clear, strict=True)]
    texts = [re.sub(r"[^\w.+-]+", "_", value).strip("_") for value in values]
    return ",".join(f"{name}={text}" for name, text in zip(names, texts, strict=True))


def _planned(
    arguments: Namespace, keys: Sequence[str], values: Sequence[str], seed: int, data_sets: dict[tuple[int, int], str]
):
    from electra_tf.cli.configuration import config_of
    from electra_tf.tasks.pretrain.stages import plan_stages
    from experiments.pretraining import PretrainingRun, flops, length_overrides, steps_within

    chosen = (f"{key}={value}" for key, value in zip(keys, values, strict=True))
    overrides = [*_KEEP_LITTLE, *arguments.overrides, *chosen, f"train.seed={seed}"]
    config = config_of(Namespace(**{**vars(arguments), "overrides": overrides}))
    budget, cost = Fraction(arguments.flops_budget), partial(flops, config, arguments.flops_convention)
    combination, num_steps = name_of(keys, values), steps_within(budget, cost)
    if not num_steps:
        price = f"{float(cost(1)):.4g} FLOPs"
        raise UserError(f"--flops_budget={arguments.flops_budget:g} is below a step of {combination}: {price}")
    needed = [(stage.config.data.max_seq_length, config.encoder.vocab_size) for stage in plan_stages(config)]
    if missing := next((each for each in needed if each not in data_sets), None):
        text = "max_seq_length={} and vocab_size={}".format(*missing)
        raise UserError(f"{combination} needs a --data_dir with {text}; none has them")
    run = PretrainingRun(
        arguments.output_dir / f"{combination}-seed{seed}",
        arguments.config,
        (*overrides, *length_overrides(config, num_steps)),
        tuple(data_sets[each] for each in needed),
        (f"--objective_module={arguments.objective_module}",) if arguments.objective_module else (),
    )
    run.require_same_run()
    return run


def _data_sets(data_dirs: Sequence[str]) -> dict[tuple[int, int], str]:
    """The data sets by sequence length and vocabulary size."""
    from electra_tf.data.manifest import HELD_OUT_SPLIT, Manifest

    data_sets = {}
    for data_dir in data_dirs:
        manifest = Manifest.load(data_dir)
        if HELD_OUT_SPLIT not in manifest.splits:
            raise UserError(f"--data_dir={data_dir} has no held-out split; build it with --held_out_fraction")
        if data_sets.setdefault((manifest.max_seq_length, manifest.vocab_size), data_dir) != data_dir:
            raise UserError(f"--data_dir={data_dir} has the length and vocabulary size of another; give one")
    return data_sets


def results_markdown(directories: Sequence[Path], failures: Mapping[str, str], sort: str | None) -> str:
    """The table with a row for each combination, and the list of failed runs.

    Args:
        directories: of the runs, COMBINATION-seedN.        failures: reasons by the run's name.
        sort: a held-out metric; None: keep the order of the runs.
    Raises: UserError: if no run has that metric.
    """
    from electra_tf.reports.runs import RunGroup, read_run
    from electra_tf.reports.tables import chosen_metrics, runs_table

    finished: dict[str, list] = {}
    for directory in directories:
        if directory.name not in failures:
            combination, _, _ = directory.name.rpartition("-seed")
            finished.setdefault(combination, []).append(read_run(directory))
    groups, table = [RunGroup(combination, tuple(members)) for combination, members in finished.items()], ""
    if groups:
        metrics = chosen_metrics(groups)
        if sort:
            metrics = list(dict.fromkeys([*chosen_metrics(groups, [sort]), *metrics]))
            sign = 1.0 if "loss" in sort else -1.0
            groups.sort(key=lambda group: sign * last.median if (last := group.last(sort)) else math.inf)
        table = runs_table(groups, metrics)
    failed = "\n".join(f"- {name} failed: {failure}" for name, failure in failures.items())
    return "\n\n".join(filter(None, [table, failed]))


if __name__ == "__main__":
    sys.exit(main())
