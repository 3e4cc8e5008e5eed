"""Times ELECTRA's training step and its start, compared with PyTorch and another checkout.

    python -m venv PEERS && PEERS/bin/pip install -r benchmarks/requirements-peers.txt
    python -m benchmarks.train_step --peers_python=PEERS/bin/python
    python -m benchmarks.train_step --peers_python=PEERS/bin/python --baseline=OTHER_CHECKOUT

All contenders train the same ELECTRA-Small jointly: batch 32, length 128, vocabulary 30,522, dropout, clipping, AdamW.
With `_avx512`, MKL is made to use AVX-512 on a processor that is not Intel's; these peers exist only on such
processors. Limits are checked against the fastest eager and the fastest compiled peer.

Each contender runs in its own process, which is started --starts times, in turns with the others. After the last start
the processes take turns, round by round, so that other load on the machine affects all of them. Each ratio is the
median of the ratios within rounds. The processor's name and both libraries' rates of matrix products are printed first,
because the ratios depend on them.

The machine must be quiet: PyTorch's threads wait for each other at every operation, so another program slows PyTorch
more than TensorFlow. `others` is the share of the cores that other programs used. Each turn waits up to --patience
seconds for them to end.

Prints tables and PASS or FAIL for each limit, and exits 1 if one fails. A contender that does not start ends the
command, so that no row is missing: --contenders chooses others.
"""

import argparse
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

from benchmarks.harness import (
    PROJECT,
    Process,
    Verdict,
    comparison_flags,
    conclude,
    in_checkout,
    print_disturbed,
    print_table,
    ratio,
    running,
    shown,
    take_turns,
)
from benchmarks.processor import (
    AVX512,
    HAS_AVX512_ROWS,
    mkl_with_avx512,
    print_processor,
    print_processor_and_products,
)
from electra_tf.cli.process import run_command

OVER_EAGER = {"float32": 1.8, "bfloat16": 1.6}
OVER_COMPILED = 1.0
OVER_BASELINE = 0.95
START_OVER_EAGER = 1.3  # ceiling of our seconds from a start to the first step over PyTorch's


@dataclass(frozen=True)
class Contender:
    """A way to compute the step.

    Attributes:
        kind: `ours`, `baseline` (ours in another checkout) or `pytorch`.
        precision: the precision of matrix products.
        compiled: whether XLA or torch.compile compiles the whole step.
        avx512: whether MKL is made to use AVX-512.
    """

    kind: str
    precision: str
    compiled: bool = False
    avx512: bool = False

    @property
    def settings(self) -> list[str] | dict[str, object]:
        """Options of the worker: settings of the configuration for ours, arguments of `PyTorchStep` for PyTorch."""
        if self.kind == "pytorch":
            return {"precision": self.precision, "compiled": self.compiled}
        return [f"train.precision={self.precision}", f"train.xla={str(self.compiled).lower()}"]


def all_contenders(has_avx512_rows: bool) -> dict[str, Contender]:
    """All contenders by name. bfloat16 has no row with AVX-512, because MKL does not compute its products."""
    chosen = {
        f"{kind}_{precision}{suffix if compiled else ''}": Contender(kind, precision, compiled)
        for kind, suffix in (("ours", "_xla"), ("pytorch", "_compile"))
        for precision in OVER_EAGER
        for compiled in (False, True)
    }
    if has_avx512_rows:
        float32 = [name for name in chosen if name.startswith("pytorch_float32")]
        chosen |= {f"{name}{AVX512}": replace(chosen[name], avx512=True) for name in float32}
    return chosen


CONTENDERS = all_contenders(HAS_AVX512_ROWS)


@dataclass(frozen=True)
class Measured:
    """All measurements of one contender.

    Attributes:
        starts: seconds of each start, to the end of the first step.        first_losses: losses of that step.
        turns: for each round `seconds` (of each step), `peak_bytes` and `others`.
    """

    contender: Contender
    starts: list[float]
    first_losses: dict[str, float]
    turns: list[dict]

    @property
    def start(self) -> float:
        return statistics.median(self.starts)

    @property
    def seconds(self) -> list[float]:
        """The median seconds of a step in each round."""
        return [statistics.median(turn["seconds"]) for turn in self.turns]


Results = Mapping[str, Measured]


def parse_flags(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = comparison_flags(__doc__, batch_size="examples in a step")
    parser.add_argument("--contenders", default=",".join(CONTENDERS), metavar="A,B", help="contenders to measure")
    parser.add_argument("--starts", type=int, default=1, help="timed starts of each contender")
    parser.add_argument("--steps_per_round", type=int, default=3, help="timed steps in a turn, after an untimed one")
    flags = parser.parse_args(arguments)
    flags.contenders = flags.contenders.split(",")
    if unknown := sorted(set(flags.contenders) - CONTENDERS.keys()):
        parser.error(f"--contenders: {unknown[0]!r} is unknown; expected some of {', '.join(CONTENDERS)}")
    return flags


def measure(flags: argparse.Namespace) -> bool:
    """Takes all measurements and prints the report. Returns: whether every limit holds."""
    contenders = _with_baseline(flags.contenders, flags.baseline is not None)
    has_peer = any(each.kind == "pytorch" for each in contenders.values())
    processor = print_processor_and_products(flags) if has_peer else print_processor()
    processes = _processes(contenders, flags)
    with running(processes, flags.patience, flags.starts) as alive:
        turns = take_turns(
            {name: partial(process.ask_watched, f"steps {flags.steps_per_round}") for name, process in alive.items()},
            flags.rounds,
            flags.patience,
        )
    results = {
        name: Measured(contenders[name], process.start_seconds, process.first["losses"], turns[name])
        for name, process in alive.items()
    }
    ratios, starts = speed_ratios(results), start_ratios(results)
    _print_results(results, flags.batch_size)
    pairs = [*ratios.items(), *((f"{name}, start over PyTorch eager", each) for name, each in starts.items())]
    print_table("Ratios", ["", "times as fast, or as long"], [[name, f"{each:.2f}"] for name, each in pairs])
    print_disturbed([turn["others"] for each in results.values() for turn in each.turns])
    measured = {name: asdict(each) for name, each in results.items()}
    report = {"processor": processor, "ratios": ratios, "start_ratios": starts, "contenders": measured}
    return conclude(judge(results), flags.json, flags, report)


def _with_baseline(names: Sequence[str], has_baseline: bool) -> dict[str, Contender]:
    """The contenders with these names. With a baseline, each of ours is followed by its `baseline_...`."""
    chosen = {}
    for name in names:
        chosen[name] = contender = CONTENDERS[name]
        if has_baseline and contender.kind == "ours":
            baseline = Contender("baseline", contender.precision, contender.compiled)
            chosen[name.replace("ours", "baseline")] = baseline
    return chosen


def _processes(contenders: Mapping[str, Contender], flags: argparse.Namespace) -> dict[str, Process]:
    from benchmarks.train_step.ours import peer_sizes

    overrides = [*flags.overrides, f"train.batch_size={flags.batch_size}"]
    common = {"overrides": overrides, "num_threads": flags.threads, **peer_sizes(flags.config, overrides)}
    processes = {}
    for name, contender in contenders.items():
        checkout = flags.baseline.resolve() if contender.kind == "baseline" else PROJECT
        options = {
            **common,
            "kind": "pytorch" if contender.kind == "pytorch" else "ours",
            "config": str(in_checkout(flags.config, checkout)),
            "settings": contender.settings,
        }
        python = flags.peers_python if contender.kind == "pytorch" else sys.executable
        environment = mkl_with_avx512 if contender.avx512 else None
        processes[name] = Process(name, "benchmarks.train_step.worker", options, python, checkout, environment)
    return processes


def speed_ratio(results: Results, name: str, peer: str) -> float:
    """The speed of `name` over the speed of `peer`."""
    return ratio(results[peer].seconds, results[name].seconds)


def speed_ratios(results: Results) -> dict[str, float]:
    """Our speed over each peer's in the same precision, and over the baseline's in the same precision and compiler."""
    ratios = {}
    for name, ours in ((name, each.contender) for name, each in results.items()):
        for peer, other in ((name, each.contender) for name, each in results.items()):
            is_comparable = ours.kind == "ours" != other.kind and ours.precision == other.precision
            if is_comparable and (other.kind == "pytorch" or ours.compiled == other.compiled):
                ratios[f"{name} over {peer}"] = speed_ratio(results, name, peer)
    return ratios


def start_ratios(results: Results) -> dict[str, float]:
    """The seconds from start to first step, divided by the least of PyTorch eager in the same precision."""
    eager = defaultdict(list)
    for each in results.values():
        if each.contender.kind == "pytorch" and not each.contender.compiled:
            eager[each.contender.precision].append(each.start)
    return {
        name: each.start / min(eager[each.contender.precision])
        for name, each in results.items()
        if each.contender.precision in eager
    }


def fastest_of(results: Results, kind: str, precision: str, compiled: bool | None = None) -> str | None:
    """The measured contender of a kind with the lowest median, or None."""
    names = [
        name
        for name, each in results.items()
        if (each.contender.kind, each.contender.precision) == (kind, precision)
        and compiled in (None, each.contender.compiled)
    ]
    return min(names, key=lambda name: statistics.median(results[name].seconds), default=None)


def judge(results: Results) -> list[Verdict]:
    """The verdicts on all measured pairs.

    In each precision the fastest of ours is compared with the fastest eager and the fastest compiled peer.
    """
    verdicts = []
    for precision, floor in OVER_EAGER.items():
        ours = fastest_of(results, "ours", precision)
        for compiled, limit in ((False, floor), (True, OVER_COMPILED)):
            peer = fastest_of(results, "pytorch", precision, compiled)
            if ours and peer:
                verdicts.append(Verdict(f"{ours} over {peer}", speed_ratio(results, ours, peer), limit))
    for name, each in start_ratios(results).items():
        if results[name].contender.kind == "ours" and not results[name].contender.compiled:
            verdicts.append(Verdict(f"{name}, start over PyTorch eager", each, START_OVER_EAGER, is_ceiling=True))
    for pair, each in speed_ratios(results).items():
        if " over baseline" in pair:
            verdicts.append(Verdict(pair, each, OVER_BASELINE))
    return verdicts


def _print_results(results: Results, batch_size: int) -> None:
    headings = ["", "seconds a step", "examples/s", "others", "start, s", "peak, GiB", "loss of step 1"]
    headings += ["= masked-LM", "+ 50 x replaced-token"]
    rows = []
    for name, each in results.items():
        others = statistics.median(turn["others"] for turn in each.turns)
        peak = max(turn["peak_bytes"] for turn in each.turns) / 2**30
        cells = [name, shown(each.seconds), f"{batch_size / statistics.median(each.seconds):.1f}", f"{others:.0%}"]
        cells += [f"{each.start:.1f}", f"{peak:.2f}"]
        rows.append([*cells, *(f"{each.first_losses[key]:.4f}" for key in ("loss", "masked_lm", "replaced_token"))])
    print_table("Steps", headings, rows)


def main(arguments: list[str] | None = None) -> int:
    flags = parse_flags(arguments)
    return run_command(lambda: measure(flags))


if __name__ == "__main__":
    sys.exit(main())
