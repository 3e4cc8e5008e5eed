"""Times ELECTRA's training step and its start, compared with PyTorch and another checkout.

    python -m venv PEERS && PEERS/bin/pip install -r benchmarks/requirements-peers.txt
    python -m benchmarks.train_step --peers_python=PEERS/bin/python --baseline=OTHER_CHECKOUT

Each contender of benchmarks/contenders.py is a process that is started --starts times, in turns with the others; then
they take turns, round by round. Each ratio is the median of the ratios within rounds. The machine must be quiet:
another program slows PyTorch more than TensorFlow, so each turn waits up to --patience seconds. `others` is the share
of the cores that other programs used. Prints tables and PASS or FAIL for each limit, and exits 1 if one fails, 2 if a
contender does not start. See docs/notes/performance.md.
"""

import argparse
import statistics
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from benchmarks.contenders import START_OVER_PYTORCH, TRAIN_STEP, TRAIN_STEP_LIMITS
from benchmarks.harness import (
    Process,
    Verdict,
    comparison_flags,
    conclude,
    in_checkout,
    judge,
    print_disturbed,
    print_table,
    processes_of,
    running,
    shown,
    take_turns,
)
from benchmarks.processor import print_processor
from electra_tf.cli.process import run_command

Starts = Mapping[str, float]  # by row, the median seconds from the start of the process to the end of its first step


def parse_flags(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = comparison_flags(__doc__, TRAIN_STEP, batch_size="examples in a step")
    parser.add_argument("--starts", type=int, default=1, help="timed starts of each contender")
    parser.add_argument("--steps_per_round", type=int, default=3, help="timed steps in a turn, after an untimed one")
    return parser.parse_args(arguments)


def measure(flags: argparse.Namespace) -> bool:
    """Takes all measurements and prints the report. Returns: whether every limit holds."""
    from benchmarks.train_step.ours import peer_sizes

    processor = print_processor()
    overrides = [*flags.overrides, f"train.batch_size={flags.batch_size}"]
    options = {"overrides": overrides, "num_threads": flags.threads, **peer_sizes(flags.config, overrides)}

    def of_checkout(checkout: Path) -> dict:
        return {"config": str(in_checkout(flags.config, checkout))}

    processes = processes_of(flags.contenders, "benchmarks.train_step.worker", flags, options, of_checkout)
    with running(processes, flags.patience, flags.starts) as alive:
        asked = {name: partial(each.ask_watched, f"steps {flags.steps_per_round}") for name, each in alive.items()}
        turns = take_turns(asked, flags.rounds, flags.patience)
    seconds = {name: [statistics.median(turn["seconds"]) for turn in turns[name]] for name in turns}
    starts = {name: statistics.median(process.start_seconds) for name, process in processes.items()}
    _print_results(flags.batch_size, seconds, starts, turns, processes)
    print_disturbed([turn["others"] for taken in turns.values() for turn in taken])
    measured = {
        name: {"starts": process.start_seconds, "first_losses": process.first["losses"], "turns": turns[name]}
        for name, process in processes.items()
    }
    verdicts = judge(seconds, flags.contenders, TRAIN_STEP_LIMITS) + judge_starts(starts)
    return conclude(verdicts, flags.json, flags, {"processor": processor, "contenders": measured})


def judge_starts(starts: Starts) -> list[Verdict]:
    """Compares the start of each of ours without XLA with the earliest of PyTorch's eager rows in its precision."""
    verdicts = []
    for name in ("ours_float32", "ours_bfloat16"):
        group = name.replace("ours", "pytorch")
        eager = [starts[row] for row, each in TRAIN_STEP.items() if each.group == group and row in starts]
        if name in starts and eager:
            value = starts[name] / min(eager)
            verdicts.append(Verdict(f"{name}, start over PyTorch's", value, START_OVER_PYTORCH, is_ceiling=True))
    return verdicts


def _print_results(
    batch_size: int, seconds: dict[str, list[float]], starts: Starts, turns: dict, processes: Mapping[str, Process]
) -> None:
    headings = ["", "seconds a step", "examples/s", "others", "start, s", "peak, GiB", "loss of step 1"]
    rows = []
    for name, of_rounds in seconds.items():
        others = statistics.median(turn["others"] for turn in turns[name])
        peak = max(turn["peak_bytes"] for turn in turns[name]) / 2**30
        cells = [name, shown(of_rounds), f"{batch_size / statistics.median(of_rounds):.1f}", f"{others:.0%}"]
        loss = processes[name].first["losses"]["loss"]
        rows.append([*cells, f"{starts[name]:.1f}", f"{peak:.2f}", f"{loss:.4f}"])
    print_table("Steps", headings, rows)


def main(arguments: list[str] | None = None) -> int:
    flags = parse_flags(arguments)
    return run_command(lambda: measure(flags))


if __name__ == "__main__":
    sys.exit(main())
