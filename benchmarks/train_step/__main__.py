"""Seconds of a training step of ELECTRA: ours, PyTorch with Hugging Face's classes, and Model Garden's.

    python -m venv PEERS && PEERS/bin/pip install -r benchmarks/requirements-peers.txt
    python -m benchmarks.train_step --peers_python=PEERS/bin/python

All train the same ELECTRA-Small jointly: batch 32, length 128, vocabulary 30,522, dropout on, clipping, AdamW. Each is
a process of its own, started once; then they take turns, round by round, so that what else the machine does meets all
of them. A round also measures what a large product of matrices reaches, and each one's share of that, counting 9.0
GFLOP an example. Ratios are medians of those of single rounds.

Needs a quiet machine: a library whose threads wait for each other at every operation, as PyTorch's do, loses far more
than what another program takes. `others` is the part of the cores that others took meanwhile; each turn waits up to
--patience seconds for them to end.

Prints tables and a line PASS or FAIL for each floor; exits 1 if one fails. A contender whose packages are missing is
listed with the reason.
"""

import argparse
import json
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path

from benchmarks.builder import Verdict
from benchmarks.train_step_processes import (
    CONTENDERS,
    QUIET,
    NotAvailable,
    Process,
    Turn,
    options_of,
    wait_for_quiet,
)
from electra_tf.cli.flags import flag_parser, run_command

_SMALL = Path(__file__).resolve().parents[1] / "configs" / "pretrain" / "small.yaml"
OVER_EAGER = {"float32": 1.3, "bfloat16": 1.2}
OVER_COMPILED = 1.0
SHARE_OF_MATMUL = 0.75  # in float32

Rounds = dict[str, list[Turn]]


def parse_flags(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = flag_parser(__doc__)
    parser.add_argument(
        "--contenders",
        default=",".join(name for name, contender in CONTENDERS.items() if contender.by_default),
        metavar="A,B",
        help=f"of {', '.join(CONTENDERS)}",
    )
    parser.add_argument("--peers_python", default=sys.executable, metavar="PYTHON", help="interpreter that has PyTorch")
    parser.add_argument("--config", default=_SMALL, metavar="FILE", help="YAML file with the sizes of all")
    parser.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="A.B=VALUE", help="changes a setting"
    )
    parser.add_argument("--batch_size", type=int, default=32, help="examples of a step")
    parser.add_argument("--threads", type=int, default=2, help="cores that each may use")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each")
    parser.add_argument("--steps_per_round", type=int, default=3, help="timed steps of a turn; it begins with one more")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds a turn waits for a quiet machine")
    parser.add_argument("--gflop_per_example", type=float, default=9.0, help="of a step, forward and backward")
    parser.add_argument("--json", metavar="FILE", help="every number measured")
    flags = parser.parse_args(arguments)
    for name in ("batch_size", "threads", "rounds", "steps_per_round", "gflop_per_example"):
        if getattr(flags, name) <= 0:
            parser.error(f"--{name} must be positive")
    flags.contenders = flags.contenders.split(",")
    for name in flags.contenders:
        if name not in CONTENDERS:
            parser.error(f"--contenders: {name!r} is none of {', '.join(CONTENDERS)}")
    return flags


def compare(flags: argparse.Namespace) -> bool:
    """Prints the report; returns whether every floor is held."""
    with ExitStack() as stack:
        processes = _start(flags, stack)
        rounds: Rounds = {name: [] for name in processes}
        rates: list[dict[str, float]] = []
        for _ in range(flags.rounds):
            rates.append(_matmul_rates(processes))
            for name, process in processes.items():
                wait_for_quiet(flags.patience)
                rounds[name].append(process.take_turn(flags.steps_per_round))
    work = flags.batch_size * flags.gflop_per_example
    shares = shares_of_matmul(rounds, rates, work)
    print_table(processes, rounds, shares, work)
    print_rates(rates)
    ratios = print_ratios(rounds)
    verdicts = judge(rounds, shares)
    print(*verdicts, sep="\n")
    disturbed = sum(turn.share_of_others > QUIET for turns in rounds.values() for turn in turns)
    if disturbed:
        print(f"{disturbed} turns were disturbed: others took more than {QUIET:.0%} of the cores; measure again")
    if flags.json:
        report = {
            "flags": {name: str(value) for name, value in vars(flags).items()},
            "matmul_gflops": rates,
            "share_of_matmul": shares,
            "ratios": ratios,
            "contenders": {name: process.report(rounds[name]) for name, process in processes.items()},
        }
        Path(flags.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return all(verdict.holds for verdict in verdicts)


def _start(flags: argparse.Namespace, stack: ExitStack) -> dict[str, Process]:
    """Starts the contenders, one after the other, and runs the first step of each."""
    processes = {}
    overrides = [*flags.overrides, f"train.batch_size={flags.batch_size}"]
    for name in flags.contenders:
        options = options_of(CONTENDERS[name], flags.config, overrides, flags.threads)
        python = flags.peers_python if CONTENDERS[name].kind == "pytorch" else sys.executable
        try:
            processes[name] = stack.enter_context(Process(name, CONTENDERS[name], python, options))
            print(f"started {name}: {processes[name].start_seconds:.1f} s to the first step", file=sys.stderr)
        except NotAvailable as reason:
            print(f"missing {name}: {reason}")
    return processes


def _matmul_rates(processes: dict[str, Process]) -> dict[str, float]:
    """GFLOP/s by precision: of each library the first contender measures, and the best library counts."""
    best: dict[str, float] = {}
    for kind in ("ours", "pytorch"):
        process = next((process for process in processes.values() if process.contender.kind == kind), None)
        for precision, rate in process.ask("matmul").items() if process else ():
            best[precision] = max(rate, best.get(precision, 0.0))
    return best


def shares_of_matmul(rounds: Rounds, rates: list[dict[str, float]], work: float) -> dict[str, float]:
    """What part of the matmul rate of its precision each contender reaches, the median over the rounds.

    Args:
        rates: GFLOP/s by precision, for each round.        work: GFLOP of a step.
    """
    return {
        name: statistics.median(
            work / turn.seconds / rate[CONTENDERS[name].precision]
            for turn, rate in zip(turns, rates, strict=True)
            if CONTENDERS[name].precision in rate
        )
        for name, turns in rounds.items()
        if all(CONTENDERS[name].precision in rate for rate in rates)
    }


def speed_ratio(rounds: Rounds, name: str, peer: str) -> float:
    """How many times faster one is than the other: the median over the rounds."""
    return statistics.median(
        theirs.seconds / ours.seconds for ours, theirs in zip(rounds[name], rounds[peer], strict=True)
    )


def fastest_of(rounds: Rounds, kind: str, precision: str, compiled: bool | None = None) -> str | None:
    """The contender of a kind with the lowest median; None where none was measured."""
    names = [
        name
        for name in rounds
        if (CONTENDERS[name].kind, CONTENDERS[name].precision) == (kind, precision)
        and compiled in (None, CONTENDERS[name].compiled)
    ]
    return min(names, key=lambda name: statistics.median(turn.seconds for turn in rounds[name]), default=None)


def judge(rounds: Rounds, shares: dict[str, float]) -> list[Verdict]:
    """The floors that what was measured can be held against; of ours the fastest of a precision counts."""
    verdicts = []
    for precision, floor in OVER_EAGER.items():
        ours = fastest_of(rounds, "ours", precision)
        if ours is None:
            continue
        for compiled, limit in ((False, floor), (True, OVER_COMPILED)):
            peer = fastest_of(rounds, "pytorch", precision, compiled)
            if peer is not None:
                verdicts.append(Verdict(f"{ours} over {peer}", speed_ratio(rounds, ours, peer), limit))
        if precision == "float32" and ours in shares:
            verdicts.append(Verdict(f"{ours}, share of the matmul rate", shares[ours], SHARE_OF_MATMUL))
    return verdicts


def print_table(processes: dict[str, Process], rounds: Rounds, shares: dict[str, float], work: float) -> None:
    """A line for each contender."""
    print(
        f"{'':>30}  {'s/step':>7} {'lowest to highest':>17}  {'GFLOP/s':>7}  {'of matmul':>9}  {'others':>6}  "
        f"{'start, s':>8}  {'peak, GiB':>9}  losses of step 1: all = masked-LM + 50 x replaced-token"
    )
    for name, turns in rounds.items():
        seconds = [turn.seconds for turn in turns]
        losses = processes[name].first_losses
        share = f"{shares[name]:.0%}" if name in shares else "-"
        print(
            f"{name:>30}  {statistics.median(seconds):7.3f} {min(seconds):8.3f} {max(seconds):8.3f}  "
            f"{work / statistics.median(seconds):7.0f}  {share:>9}  "
            f"{statistics.median(turn.share_of_others for turn in turns):6.0%}  {processes[name].start_seconds:8.1f}  "
            f"{max(turn.peak_bytes for turn in turns) / 2**30:9.2f}  "
            f"{losses['loss']:.3f} = {losses['masked_lm']:.3f} + 50 x {losses['replaced_token']:.4f}"
        )


def print_rates(rates: list[dict[str, float]]) -> None:
    """The matmul rates of the rounds."""
    print("\nlarge matmul, GFLOP/s (the better of TensorFlow and PyTorch), median (lowest to highest)")
    for precision in rates[0] if rates else ():
        values = [rate[precision] for rate in rates]
        print(f"{precision:>30}  {statistics.median(values):7.0f} ({min(values):.0f} to {max(values):.0f})")


def print_ratios(rounds: Rounds) -> dict[str, float]:
    """Ours over each peer of the same precision; Model Garden's is compared with float32."""
    ratios = {
        f"{name} over {peer}": speed_ratio(rounds, name, peer)
        for name in rounds
        for peer in rounds
        if CONTENDERS[name].kind == "ours" != CONTENDERS[peer].kind
        and CONTENDERS[name].precision == CONTENDERS[peer].precision
    }
    print("\ntimes as fast")
    for pair, ratio in ratios.items():
        print(f"  {ratio:6.2f}  {pair}")
    print()
    return ratios


def main(arguments: list[str] | None = None) -> int:
    flags = parse_flags(arguments)
    held: list[bool] = []
    status = run_command(lambda: held.append(compare(flags)))
    return status or int(not all(held))


if __name__ == "__main__":
    sys.exit(main())
