"""The search of appendix A: short runs over a grid of settings, all for the same FLOPs, and a table of what they reach.

    python -m benchmarks.search --config=configs/pretrain/small.yaml --data_dir=DATA --output_dir=RUNS \\
        --flops_budget=1e15 --set optimizer.warmup_steps=100 --vary optimizer.learning_rate=1e-4,2e-4,3e-4,5e-4 \\
        --vary objective.replaced_token_loss_weight=1,10,20,50,100 --seeds 0 1 --markdown=search.md

Every combination of the values is a run for each seed, in RUNS/COMBINATION-seedN, with as many steps as the budget pays
for; what its process prints is in RUNS/COMBINATION-seedN.log. Nothing starts before the settings and the data of all
runs have been checked. Each run ends with one line, the search with a table in Markdown. The same command continues
runs that were interrupted and skips those that are finished. A run that fails, because it diverges for example, is
noted under the table; the others go on, and the exit status is 1.

Settings that go together are a value in YAML: --vary "encoder={hidden_size: 128, num_heads: 2},{hidden_size: 192,
num_heads: 3}". Runs keep one checkpoint and no milestones, unless --set says otherwise.
"""

import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from benchmarks.common import run_check
from benchmarks.processes import core_shares, run_all
from electra_tf.cli.configuration import add_objective_module_flag
from electra_tf.cli.flags import add_set_flag, flag_parser


def main(argv: list[str] | None = None) -> int:
    arguments = _flags().parse_args(argv)
    return run_check(lambda: _search(arguments))


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
    add("--output_dir", required=True, type=Path, metavar="DIR", help="local directory of the runs")
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
        help="held-out metric that orders the table: the lowest loss first, the highest of any other; without it each "
        "objective's own loss",
    )
    add("--markdown", metavar="FILE", help="file for the table; replaced if it exists")
    return parser


def _search(arguments: Namespace) -> bool:
    """Returns: whether every run has come to its end."""
    shares = core_shares(arguments.jobs)

    from benchmarks.search.grid import plan
    from benchmarks.search.results import results_markdown, run_line
    from electra_tf.files import write_atomically

    runs = plan(arguments)
    unfinished = [run for run in runs if not run.is_finished()]
    print(f"{len(runs)} runs, {len(runs) - len(unfinished)} of them finished before", file=sys.stderr, flush=True)
    failures, started = {}, time.monotonic()
    for number, (run, failure) in enumerate(run_all(unfinished, shares), start=1):
        if failure:
            failures[run.name] = failure
        seconds = time.monotonic() - started
        line = f"{number}/{len(unfinished)} after {seconds:,.0f} s: {run_line(run, failure)}"
        print(line, file=sys.stderr, flush=True)
    text = results_markdown(runs, failures, arguments.sort)
    print(text, end="")
    if arguments.markdown:
        write_atomically(arguments.markdown, text.encode())
    return not failures


if __name__ == "__main__":
    sys.exit(main())
