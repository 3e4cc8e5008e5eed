"""Speed and memory of the dataset builder, compared with the same job on Hugging Face's tokenizer.

    python -m benchmarks.builder --input=text:corpus.txt --vocab_file=vocab.txt --work_dir=/tmp/bench

Each contender is a program, which is timed from its start to the finished shards, in turns with the others. Give at
least 300 MB of text, because start-ups dominate with less. The peer (benchmarks.builder_peer) uses all cores, so run
this on as many cores as our builder has processes, with `taskset` if needed. Memory is the PSS of the whole process
tree, which divides a page among all programs that map it, so no other program may use TensorFlow meanwhile. The same
builds show what the first process does alone, which bounds the number of processes that pay. --wikipedia also times raw
dumps, in MB of XML per second: give at least 100 MB. Prints tables and PASS or FAIL for each limit, and exits 1 if one
fails.
"""

import argparse
import bz2
import glob
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.contenders import OVER_BASELINE
from benchmarks.harness import (
    PROJECT,
    Verdict,
    baseline_flags,
    baseline_of,
    conclude,
    print_table,
    ratio,
    run,
    shown,
    take_turns,
)
from benchmarks.processor import print_processor
from electra_tf.cli.process import run_command
from electra_tf.config.errors import UserError

ONE_PROCESS, TWO_PROCESSES = "ours, 1 process", "ours, 2 processes"
OURS, PEER = ("build_pretraining_dataset.py",), ("-m", "benchmarks.builder_peer")
RUST_THREADS, RUST_PROCESSES = "hugging_face, threads", "hugging_face, 2 processes"

NUM_PROCESSES = 2
_SAMPLING_SECONDS = 0.05
# The lowest figures of docs/notes/performance.md for 300 MB of text, less 5 %.
ONE_PROCESS_TOKENS = 1.35e6  # a second, start-up included
TWO_OVER_ONE = 1.75
OVER_RUST = {ONE_PROCESS: 1.75, TWO_PROCESSES: 3.3}
MEMORY_GIB = 0.7
MEMORY_GROWTH = 1.3  # peak memory with the largest text over the smallest


class Bench(NamedTuple):
    """Runs the contenders, with one vocabulary and one directory for texts and data sets."""

    vocab_file: str
    directory: Path

    def command(self, program: Sequence[str], source: str, num_processes: int) -> list[str]:
        """The command of a builder for a source."""
        flags = (f"--input={source}", f"--vocab_file={self.vocab_file}", f"--output_dir={self.directory / 'data_set'}")
        return [sys.executable, *program, *flags, f"--num_processes={num_processes}"]

    def build(
        self, program: Sequence[str], source: str, num_processes: int, checkout: Path = PROJECT
    ) -> tuple[float, int]:
        """Runs a build. Returns: its seconds, and the number of tokens that it read."""
        seconds, output = run(self.command(program, source, num_processes), checkout)
        if program == PEER:
            num_tokens = json.loads(output)["num_tokens"]
        else:
            manifest = json.loads((self.directory / "data_set" / "manifest.json").read_text(encoding="utf-8"))
            num_tokens = manifest["counts"]["num_tokens_read"]
        shutil.rmtree(self.directory / "data_set")
        return seconds, num_tokens

    def rate(self, program: Sequence[str], text: Path, num_processes: int, checkout: Path = PROJECT) -> float:
        """Tokens per second of one build from plain text."""
        source = str(text) if program == PEER else f"text:{text}"
        seconds, num_tokens = self.build(program, source, num_processes, checkout)
        return num_tokens / seconds


def head_of(source: Path, num_bytes: int, target: Path) -> Path:
    """Writes the whole documents in the first `num_bytes` of a text file."""
    with open(source, "rb") as file:
        head = file.read(num_bytes)
        target.write_bytes(head.rpartition(b"\n\n")[0] if file.read(1) else head)
    return target


def measure_speed(bench: Bench, text: Path, flags: argparse.Namespace) -> list[Verdict]:
    """Measures tokens per second of all contenders."""
    ours = {ONE_PROCESS: 1, TWO_PROCESSES: NUM_PROCESSES}
    contenders = {name: partial(bench.rate, OURS, text, number) for name, number in ours.items()}
    contenders[RUST_THREADS] = partial(bench.rate, PEER, text, 1)
    contenders[RUST_PROCESSES] = partial(bench.rate, PEER, text, NUM_PROCESSES)
    baselines = {name: baseline_of(name) for name in ours} if flags.baseline else {}
    for name, baseline in baselines.items():
        contenders[baseline] = partial(bench.rate, OURS, text, ours[name], flags.baseline.resolve())
    rates = take_turns(contenders, flags.rounds)
    _print_rates(f"End to end, {text.stat().st_size / 1e6:.1f} MB of text", "tokens/s", rates)
    faster_rust = max(RUST_THREADS, RUST_PROCESSES, key=lambda name: statistics.median(rates[name]))
    pairs = [(TWO_PROCESSES, ONE_PROCESS, TWO_OVER_ONE)]
    pairs += [(name, faster_rust, limit) for name, limit in OVER_RUST.items()]
    pairs += [(name, baseline, OVER_BASELINE) for name, baseline in baselines.items()]
    return [
        Verdict("tokens/s of 1 process", statistics.median(rates[ONE_PROCESS]), ONE_PROCESS_TOKENS),
        *(Verdict(f"{over} over {under}", ratio(rates[over], rates[under]), limit) for over, under, limit in pairs),
    ]


class Usage(NamedTuple):
    """What a program used, sampled every 50 ms.

    Attributes:
        peak: the highest proportional set size of its process tree in bytes: a page that n processes share counts 1/n
            for each.
        first, others: processor seconds of its first process, and of all others.
    """

    peak: int
    first: float
    others: float


def usage_of(command: Sequence[str]) -> Usage:
    """Runs a program. Raises: UserError: it fails."""
    import psutil

    highest = 0
    seconds: dict[int, float] = {}  # by process

    def watch(process: subprocess.Popen) -> None:
        nonlocal highest
        with suppress(psutil.NoSuchProcess):  # it ended between two samples
            root = psutil.Process(process.pid)
            while process.poll() is None:
                pss = 0
                for each in (root, *root.children(recursive=True)):
                    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):  # denied while a process ends
                        pss += each.memory_full_info().pss
                        seconds[each.pid] = sum(each.cpu_times()[:2])
                highest = max(highest, pss)
                time.sleep(_SAMPLING_SECONDS)

    run(command, watch=watch)
    first, *others = seconds.values()
    return Usage(highest, first, sum(others))


def measure_memory(bench: Bench, text: Path, megabytes: list[float]) -> list[Verdict]:
    """Measures the peak memory of builds from heads of the text, and the processor time of their first process."""
    usages = {}
    for size in sorted(megabytes):
        head = head_of(text, int(size * 1e6), bench.directory / "head.txt")
        usages[head.stat().st_size / 1e6] = usage_of(bench.command(OURS, f"text:{head}", NUM_PROCESSES))
        shutil.rmtree(bench.directory / "data_set")
    title = f"{NUM_PROCESSES} processes, sampled every {_SAMPLING_SECONDS * 1000:.0f} ms"
    rows = [
        [f"{size:,.1f}", f"{usage.peak / 2**20:,.0f}", f"{usage.first:.2f}", f"{usage.others:.2f}"]
        for size, usage in usages.items()
    ]
    print_table(title, ["MB of text", "peak PSS, MiB", "first process, CPU s", "the others, CPU s"], rows)
    small, large = usages[min(usages)], usages[max(usages)]
    first, others = large.first - small.first, large.others - small.others
    if first > 0:
        print(f"Of the text that the largest has more, the others take {others / first:.0f} times the first's time.\n")
    growth = large.peak / small.peak
    return [
        Verdict("peak memory, GiB", max(usage.peak for usage in usages.values()) / 2**30, MEMORY_GIB, is_ceiling=True),
        Verdict("peak memory, largest text over smallest", growth, MEMORY_GROWTH, is_ceiling=True),
    ]


def measure_dumps(bench: Bench, pattern: str, rounds: int) -> None:
    """Measures whole builds from dumps in MB of XML per second. Parsing wikitext takes nearly all of the time."""
    size = 0
    for path in glob.glob(pattern, recursive=True):
        with bz2.open(path) if path.endswith(".bz2") else open(path, "rb") as file:
            size += sum(map(len, iter(partial(file.read, 2**20), b"")))
    source = f"wikipedia:{pattern}"
    numbers = {ONE_PROCESS: 1, TWO_PROCESSES: NUM_PROCESSES}
    builds = take_turns({name: partial(bench.build, OURS, source, number) for name, number in numbers.items()}, rounds)
    rates = {name: [size / 1e6 / seconds for seconds, _ in of_rounds] for name, of_rounds in builds.items()}
    _print_rates(f"Raw dumps, {size / 1e6:.1f} MB of XML", "MB/s", rates)
    print(f"2 processes over 1: {ratio(rates[TWO_PROCESSES], rates[ONE_PROCESS]):.2f}\n")


def _print_rates(title: str, unit: str, rates: dict[str, list[float]]) -> None:
    print_table(title, ["", unit], [[name, shown(values)] for name, values in rates.items()])


def parse_flags(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = baseline_flags(__doc__, rounds=3)
    parser.add_argument("--input", required=True, metavar="text:FILE", help="plain text, blank lines between documents")
    parser.add_argument("--vocab_file", required=True, help="BERT's uncased vocab.txt")
    parser.add_argument("--work_dir", required=True, type=Path, help="local directory for texts and data sets")
    parser.add_argument(
        "--memory_megabytes",
        type=float,
        nargs="*",
        default=[20.0, 80.0, 330.0],
        help="sizes of the texts, cut from --input, whose builds' peak memory is measured; no number: skip",
    )
    parser.add_argument(
        "--wikipedia", metavar="GLOB", help="raw Wikipedia dumps whose builds are timed; put the pattern in quotes"
    )
    return parser.parse_args(arguments)


def measure(flags: argparse.Namespace) -> bool:
    """Takes all measurements that the flags select. Returns: whether every limit holds."""
    text_format, _, name = flags.input.partition(":")
    text = Path(name).resolve()
    if text_format != "text" or not text.is_file():
        raise UserError(f"--input={flags.input}: expected text:FILE with a file of plain text")
    print_processor()
    flags.work_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="benchmark-", dir=flags.work_dir.resolve()) as directory:
        bench = Bench(str(Path(flags.vocab_file).resolve()), Path(directory))
        verdicts = measure_speed(bench, text, flags)
        if flags.memory_megabytes:
            verdicts += measure_memory(bench, text, flags.memory_megabytes)
        if flags.wikipedia:
            measure_dumps(bench, str(Path(flags.wikipedia).resolve()), flags.rounds)
    return conclude(verdicts)


def main(arguments: list[str] | None = None) -> int:
    flags = parse_flags(arguments)
    return run_command(lambda: measure(flags))


if __name__ == "__main__":
    sys.exit(main())
