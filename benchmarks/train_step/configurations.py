"""Times the training steps of several configurations, and of PyTorch with the same sizes, in turns.

    python -m benchmarks.train_step.configurations --threads=1 --json=seconds.json --peers_python=PEERS/bin/python
        --configs A.yaml B.yaml --peers A.yaml

Each configuration is timed with the batch and length of each of its input stages, stage by stage. For those of --peers
PyTorch trains transformers' classes of the same sizes; they need the objective electra. Prints the median seconds of a
step, and over those of the first configuration the median of the ratios within rounds.
"""

import argparse
import json
import statistics
import sys
from functools import partial
from pathlib import Path

from benchmarks.harness import Process, print_disturbed, print_table, ratio, running, shown, take_turns
from benchmarks.processor import AVX512, HAS_AVX512_ROWS, mkl_with_avx512, print_processor
from electra_tf.cli.flags import add_set_flag, flag_parser
from electra_tf.cli.process import run_command

Rounds = dict[str, list[float]]  # by contender, the median seconds of a step in each round


def parse_flags(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = flag_parser(__doc__)
    add = parser.add_argument
    add("--configs", type=Path, nargs="+", required=True, metavar="FILE", help="configurations with the same stages")
    add("--peers", type=Path, nargs="*", default=[], metavar="FILE", help="configurations that PyTorch trains too")
    add("--peers_python", default=sys.executable, metavar="PYTHON", help="interpreter with PyTorch")
    add_set_flag(parser)
    add("--threads", type=int, default=2, help="cores for each contender")
    add("--rounds", type=int, default=5, help="turns of each contender")
    add("--steps_per_round", type=int, default=20, help="timed steps in a turn, after an untimed one")
    add("--patience", type=float, default=60.0, help="longest wait for a quiet machine before a turn, in seconds")
    add("--json", metavar="FILE", help="file for all measurements")
    return parser.parse_args(arguments)


def measure(flags: argparse.Namespace) -> None:
    from electra_tf.tasks.pretrain.config import load_config
    from electra_tf.tasks.pretrain.input import plan_stages

    processor, results = print_processor(), []
    for plan in plan_stages(load_config(flags.configs[0], flags.overrides)):
        sizes = {"batch_size": plan.batch_size, "max_seq_length": plan.config.data.max_seq_length}
        rounds, others = _rounds_of_stage(flags, sizes)
        first = next(iter(rounds.values()))
        rows = [[name, shown(each), f"{ratio(each, first):.3f}"] for name, each in rounds.items()]
        print_table(
            f"{sizes['batch_size']} x {sizes['max_seq_length']}", ["", "seconds a step", "over the first"], rows
        )
        print_disturbed(others)
        results.append({**sizes, "seconds": rounds})
    if flags.json:
        content = {"processor": processor, "threads": flags.threads, "stages": results}
        Path(flags.json).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _rounds_of_stage(flags: argparse.Namespace, sizes: dict[str, int]) -> tuple[Rounds, list[float]]:
    """The seconds of a step by contender and round, and of each turn the share of the cores that others used."""
    overrides = [*flags.overrides, f"train.batch_size={sizes['batch_size']}", "stages=[]"]
    overrides.append(f"data.max_seq_length={sizes['max_seq_length']}")
    with running(_processes(flags, overrides), flags.patience) as alive:
        asked = {name: partial(each.ask_watched, f"steps {flags.steps_per_round}") for name, each in alive.items()}
        turns = take_turns(asked, flags.rounds, flags.patience)
    rounds = {name: [statistics.median(turn["seconds"]) for turn in taken] for name, taken in turns.items()}
    return rounds, [turn["others"] for taken in turns.values() for turn in taken]


def _processes(flags: argparse.Namespace, overrides: list[str]) -> dict[str, Process]:
    from benchmarks.train_step.ours import peer_sizes

    processes, common = {}, {"num_threads": flags.threads, "overrides": overrides}
    for config in flags.configs:
        options = {**common, "kind": "ours", "config": str(config), "settings": []}
        processes[config.stem] = Process(config.stem, "benchmarks.train_step.worker", options)
    for config in flags.peers:
        options = {**common, "kind": "pytorch", "settings": {}, **peer_sizes(config, overrides)}
        environments = {"": None} | ({AVX512: mkl_with_avx512} if HAS_AVX512_ROWS else {})
        for suffix, environment in environments.items():
            name = f"pytorch_{config.stem}{suffix}"
            processes[name] = Process(
                name, "benchmarks.train_step.worker", options, flags.peers_python, environment=environment
            )
    return processes


def main(arguments: list[str] | None = None) -> int:
    flags = parse_flags(arguments)
    return run_command(lambda: measure(flags))


if __name__ == "__main__":
    sys.exit(main())
