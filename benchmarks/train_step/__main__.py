"""Seconds of a training step of ELECTRA, and of a start to its first step: ours beside PyTorch and another checkout.

    python -m venv PEERS && PEERS/bin/pip install -r benchmarks/requirements-peers.txt
    python -m benchmarks.train_step --peers_python=PEERS/bin/python
    python -m benchmarks.train_step --peers_python=PEERS/bin/python --baseline=OTHER_CHECKOUT

All contenders train the same ELECTRA-Small jointly: batch 32, length 128, vocabulary 30,522, dropout, clipping, AdamW.
Each runs in its own process and is started --starts times, in turns; after the last start the processes take turns,
round by round, so that other load on the machine affects all of them. Each ratio is the median of the ratios within
rounds. --baseline adds our step as another checkout of this project computes it (`git worktree add`).

The machine must be quiet: PyTorch's threads wait for each other at every operation, so another program slows PyTorch
more than it slows TensorFlow. `others` is the share of the cores that other programs used; each turn waits up to
--patience seconds for them to end.

Prints tables and PASS or FAIL for each limit; exits 1 if one fails. A contender whose packages are missing is listed
with the reason.
"""

import argparse
import json
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path

from benchmarks.common import PROJECT, Verdict, run_check
from benchmarks.train_step.contenders import (
    CONTENDERS,
    QUIET,
    Measured,
    NotAvailable,
    Process,
    wait_for_quiet,
    with_baseline,
)
from electra_tf.cli.flags import add_set_flag, flag_parser

OVER_EAGER = {"float32": 1.3, "bfloat16": 1.2}
OVER_COMPILED = 1.0
OVER_BASELINE = 0.95
START_OVER_EAGER = 1.5  # seconds from a start to the first step, over those of PyTorch eager

Results = dict[str, Measured]


def parse_flags(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = flag_parser(__doc__)
    parser.add_argument("--contenders", default=",".join(CONTENDERS), metavar="A,B", help="which to measure")
    parser.add_argument("--peers_python", default=sys.executable, metavar="PYTHON", help="interpreter that has PyTorch")
    parser.add_argument("--baseline", type=Path, metavar="DIR", help="checkout of this project to compare ours with")
    small = PROJECT / "configs" / "pretrain" / "small.yaml"
    parser.add_argument("--config", type=Path, default=small, metavar="FILE", help="YAML file with the sizes of all")
    add_set_flag(parser)
    parser.add_argument("--batch_size", type=int, default=32, help="examples of a step")
    parser.add_argument("--threads", type=int, default=2, help="cores that each may use")
    parser.add_argument("--starts", type=int, default=1, help="timed starts of each")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each")
    parser.add_argument("--steps_per_round", type=int, default=3, help="timed steps of a turn, after an untimed one")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds a turn waits for a quiet machine")
    parser.add_argument("--json", metavar="FILE", help="file for all measurements")
    flags = parser.parse_args(arguments)
    for name in ("batch_size", "threads", "starts", "rounds", "steps_per_round"):
        if getattr(flags, name) <= 0:
            parser.error(f"--{name} must be positive")
    flags.contenders = flags.contenders.split(",")
    for name in flags.contenders:
        if name not in CONTENDERS:
            parser.error(f"--contenders: {name!r} is none of {', '.join(CONTENDERS)}")
    return flags


def measure(flags: argparse.Namespace) -> bool:
    """Prints the report; returns whether every limit holds."""
    with ExitStack() as stack:
        processes, results = _start(flags, stack)
        for _ in range(flags.rounds):
            for name, process in processes.items():
                wait_for_quiet(flags.patience)
                results[name].turns.append(process.take_turn(flags.steps_per_round))
    print_table(results, flags.batch_size)
    ratios = speed_ratios(results)
    starts = start_ratios(results)
    _print_ratios("times as fast as (seconds a step)", ratios)
    _print_ratios("start to first step, over PyTorch eager", starts)
    verdicts = judge(results)
    print("", *verdicts, sep="\n")
    disturbed = sum(turn.share_of_others > QUIET for measured in results.values() for turn in measured.turns)
    if disturbed:
        print(f"{disturbed} turns were disturbed: others used more than {QUIET:.0%} of the cores; measure again")
    if flags.json:
        report = {
            "flags": {name: str(value) for name, value in vars(flags).items()},
            "ratios": ratios,
            "start_ratios": starts,
            "contenders": {name: measured.report() for name, measured in results.items()},
        }
        Path(flags.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return all(verdict.holds for verdict in verdicts)


def _start(flags: argparse.Namespace, stack: ExitStack) -> tuple[dict[str, Process], Results]:
    """Starts every contender --starts times and runs its first step. Returns the last processes, which live on."""
    from benchmarks.train_step.ours import peer_sizes

    overrides = [*flags.overrides, f"train.batch_size={flags.batch_size}"]
    options = {"overrides": overrides, "num_threads": flags.threads, **peer_sizes(flags.config, overrides)}
    contenders = with_baseline(flags.contenders, flags.baseline)
    running: dict[str, Process] = {}
    results: Results = {}
    for number in range(flags.starts):
        for name in list(contenders):
            process = Process(name, contenders[name], flags.peers_python, flags.config, options)
            wait_for_quiet(flags.patience)
            try:
                process.__enter__()
            except NotAvailable as reason:
                print(f"missing {name}: {reason}")
                del contenders[name]
                results.pop(name, None)
                continue
            print(f"started {name}: {process.start_seconds:.1f} s to the first step", file=sys.stderr)
            results.setdefault(name, Measured(contenders[name], [], process.first_losses))
            results[name].start_seconds.append(process.start_seconds)
            if number + 1 < flags.starts:
                process.__exit__()
            else:
                running[name] = process
                stack.push(process)
    return running, results


def speed_ratio(results: Results, name: str, peer: str) -> float:
    """How many times faster one is than the other: the median over the rounds."""
    return statistics.median(
        theirs.seconds / ours.seconds for ours, theirs in zip(results[name].turns, results[peer].turns, strict=True)
    )


def speed_ratios(results: Results) -> dict[str, float]:
    """Of ours over every peer of the same precision, and over the baseline of the same compiler."""
    ratios = {}
    for name, ours in results.items():
        for peer, other in results.items():
            if ours.contender.kind != "ours" or other.contender.kind == "ours":
                continue
            if ours.contender.precision != other.contender.precision:
                continue
            if other.contender.kind == "pytorch" or ours.contender.compiled == other.contender.compiled:
                ratios[f"{name} over {peer}"] = speed_ratio(results, name, peer)
    return ratios


def start_ratios(results: Results) -> dict[str, float]:
    """Seconds from a start to the first step over those of PyTorch eager in the same precision."""
    eager = {
        measured.contender.precision: measured.start
        for measured in results.values()
        if measured.contender.kind == "pytorch" and not measured.contender.compiled
    }
    return {
        name: measured.start / eager[measured.contender.precision]
        for name, measured in results.items()
        if measured.contender.precision in eager
    }


def fastest_of(results: Results, kind: str, precision: str, compiled: bool | None = None) -> str | None:
    """The contender of a kind with the lowest median; None if none was measured."""
    names = [
        name
        for name, measured in results.items()
        if (measured.contender.kind, measured.contender.precision) == (kind, precision)
        and compiled in (None, measured.contender.compiled)
    ]
    return min(names, key=lambda name: results[name].seconds, default=None)


def judge(results: Results) -> list[Verdict]:
    """The limits that apply to what was measured; the fastest of ours counts in each precision."""
    verdicts = []
    for precision, floor in OVER_EAGER.items():
        ours = fastest_of(results, "ours", precision)
        if ours is None:
            continue
        for compiled, limit in ((False, floor), (True, OVER_COMPILED)):
            peer = fastest_of(results, "pytorch", precision, compiled)
            if peer is not None:
                verdicts.append(Verdict(f"{ours} over {peer}", speed_ratio(results, ours, peer), limit))
    for name, ratio in start_ratios(results).items():
        if name in CONTENDERS and CONTENDERS[name].kind == "ours" and not CONTENDERS[name].compiled:
            verdicts.append(Verdict(f"{name}, start over PyTorch eager", ratio, START_OVER_EAGER, is_ceiling=True))
    for pair, ratio in speed_ratios(results).items():
        if " over baseline" in pair:
            verdicts.append(Verdict(pair, ratio, OVER_BASELINE))
    return verdicts


def print_table(results: Results, batch_size: int) -> None:
    """Prints one row for each contender."""
    print(
        f"{'':>26}  {'s/step':>7} {'lowest to highest':>17}  {'examples/s':>10}  {'others':>6}  "
        f"{'start, s':>8}  {'peak, GiB':>9}  losses of step 1: all = masked-LM + 50 x replaced-token"
    )
    for name, measured in results.items():
        seconds = [turn.seconds for turn in measured.turns]
        losses = measured.first_losses
        print(
            f"{name:>26}  {measured.seconds:7.3f} {min(seconds):8.3f} {max(seconds):8.3f}  "
            f"{batch_size / measured.seconds:10.1f}  "
            f"{statistics.median(turn.share_of_others for turn in measured.turns):6.0%}  {measured.start:8.1f}  "
            f"{max(turn.peak_bytes for turn in measured.turns) / 2**30:9.2f}  "
            f"{losses['loss']:.3f} = {losses['masked_lm']:.3f} + 50 x {losses['replaced_token']:.4f}"
        )


def _print_ratios(title: str, ratios: dict[str, float]) -> None:
    print(f"\n{title}")
    for name, ratio in ratios.items():
        print(f"  {ratio:6.2f}  {name}")


def main(arguments: list[str] | None = None) -> int:
    flags = parse_flags(arguments)
    return run_check(lambda: measure(flags))


if __name__ == "__main__":
    sys.exit(main())
