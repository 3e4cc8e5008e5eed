"""The benchmarks' common parts: contenders in their own processes, rounds of turns, ratios and verdicts."""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks.contenders import OVER_BASELINE, Contender, Limit
from benchmarks.processor import mkl_with_avx512
from electra_tf.cli.flags import add_set_flag, flag_parser
from electra_tf.config.errors import UserError
from electra_tf.config.loader import presets

PROJECT = Path(__file__).resolve().parents[1]
QUIET = 0.05  # a turn is disturbed if other programs use more than this share of the cores
_SAMPLE_SECONDS = 1.0
_MESSAGE_CHARACTERS = 400

Value = TypeVar("Value")


@dataclass(frozen=True)
class Verdict:
    """A measured value and its floor, or its ceiling if `is_ceiling`."""

    name: str
    value: float
    limit: float
    is_ceiling: bool = False

    @property
    def holds(self) -> bool:
        return self.value <= self.limit if self.is_ceiling else self.value >= self.limit

    def __str__(self) -> str:
        sign = "at most" if self.is_ceiling else "at least"
        return f"{'PASS' if self.holds else 'FAIL'}  {self.name}: {self.value:,.3g}, {sign} {self.limit:,.3g}"


def conclude(verdicts: Sequence[Verdict], json_file: str | None = None, flags=None, report: dict | None = None) -> bool:
    """Prints the verdicts and writes the report. Returns: whether every limit holds.

    Args:
        json_file: for the report; None: do not write it.        flags: the benchmark's; they are added to the report.
    """
    print("", *verdicts, sep="\n")
    if json_file:
        text = json.dumps({"flags": vars(flags), **report}, indent=1, default=str)
        Path(json_file).write_text(text + "\n", encoding="utf-8")
    return all(verdict.holds for verdict in verdicts)


def baseline_flags(description: str, rounds: int) -> argparse.ArgumentParser:
    """A parser with the flags of all benchmarks that compare ours with a baseline.

    Args:
        rounds: the default of --rounds.
    """
    parser = flag_parser(description)
    parser.add_argument("--baseline", type=Path, metavar="DIR", help="another checkout of this project to measure")
    parser.add_argument("--rounds", type=int, default=rounds, help="turns of each contender")
    return parser


def comparison_flags(
    description: str, contenders: Mapping[str, Contender], batch_size: str, rounds: int = 5
) -> argparse.ArgumentParser:
    """A parser with the flags of all benchmarks that run contenders in processes.

    Args:
        batch_size: the help text of --batch_size.        rounds: the default of --rounds.
    """
    parser = baseline_flags(description, rounds)
    add = parser.add_argument

    def chosen(text: str) -> dict[str, Contender]:
        names = text.split(",")
        if unknown := sorted(set(names) - contenders.keys()):
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is unknown; expected some of {', '.join(contenders)}")
        return {name: contenders[name] for name in names}

    add("--contenders", type=chosen, default=",".join(contenders), metavar="A,B", help="contenders to measure")
    add("--peers_python", default=sys.executable, metavar="PYTHON", help="interpreter with requirements-peers.txt")
    add("--config", type=config_file, default="small", metavar="FILE", help="sizes of all networks: a file or preset")
    add_set_flag(parser)
    add("--batch_size", type=int, default=32, help=batch_size)
    add("--threads", type=int, default=2, help="cores for each contender")
    add("--patience", type=float, default=60.0, help="longest wait for a quiet machine before a turn, in seconds")
    add("--json", metavar="FILE", help="file for all measurements")
    return parser


def config_file(name: str) -> Path:
    """The file of a configuration that a flag names, or of a preset."""
    return presets().get(name, Path(name))


# --- rounds


def take_turns(
    measurements: Mapping[str, Callable[[], Value]], rounds: int, patience: float = 0.0
) -> dict[str, list[Value]]:
    """Takes every measurement once in each round, so that other load on the machine affects all of them.

    Args:
        patience: the longest wait for a quiet machine before a turn, in seconds.
    Returns: by name the values of all rounds.
    """
    values: dict[str, list[Value]] = {name: [] for name in measurements}
    for _ in range(rounds):
        for name, measure in measurements.items():
            wait_for_quiet(patience)
            values[name].append(measure())
    return values


def ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """The median of the ratios `over` / `under` within rounds."""
    return statistics.median(one / other for one, other in zip(over, under, strict=True))


def judge(
    seconds: Mapping[str, Sequence[float]], contenders: Mapping[str, Contender], limits: Sequence[Limit], what: str = ""
) -> list[Verdict]:
    """Compares the fastest row of each group with that of another, and each of ours with its baseline.

    Args:
        seconds: by row, of each round.        what: begins the verdicts' names.
    """
    verdicts = []

    def fastest(group: str) -> str | None:
        rows = [name for name in seconds if name in contenders and contenders[name].group == group]
        return min(rows, key=lambda name: statistics.median(seconds[name]), default=None)

    pairs = [(fastest(limit.ours), fastest(limit.other), limit.floor) for limit in limits]
    pairs += [(name, baseline_of(name), OVER_BASELINE) for name in seconds if baseline_of(name) in seconds]
    for ours, other, floor in pairs:
        if ours and other:
            verdicts.append(Verdict(f"{what}{ours} over {other}", ratio(seconds[other], seconds[ours]), floor))
    return verdicts


def baseline_of(name: str) -> str:
    """The name of the row of a contender of ours in another checkout."""
    return name.replace("ours", "baseline") if name.startswith("ours") else ""


def shown(values: Sequence[float]) -> str:
    """The median, lowest and highest value as text."""
    digits = 0 if min(values) >= 1000 else 1 if min(values) >= 10 else 3
    median, lowest, highest = (
        f"{value:,.{digits}f}" for value in (statistics.median(values), min(values), max(values))
    )
    return f"{median} ({lowest} to {highest})"


def print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a Markdown table."""
    from electra_tf.data.tables import markdown_table

    print(f"\n{title}\n\n{markdown_table(headings, rows)}\n", flush=True)


def print_disturbed(shares_of_others: Sequence[float]) -> None:
    """Prints how many turns were disturbed, if any."""
    if disturbed := sum(share > QUIET for share in shares_of_others):
        print(f"{disturbed} turns were disturbed: others used over {QUIET:.0%} of the cores; repeat the measurement")


def wait_for_quiet(patience: float) -> None:
    """Returns when the cores have been idle for a second, or after `patience` seconds."""
    import psutil

    deadline = time.perf_counter() + patience
    while time.perf_counter() < deadline:
        busy = _busy_seconds()
        time.sleep(_SAMPLE_SECONDS)
        if _busy_seconds() - busy <= QUIET * _SAMPLE_SECONDS * psutil.cpu_count():
            return


# --- processes


def run(
    command: Sequence[str],
    directory: Path = PROJECT,
    watch: Callable[[subprocess.Popen], object] = subprocess.Popen.wait,
) -> tuple[float, str]:
    """Runs a program in the root of a checkout.

    Args:
        watch: is given the running program, and returns when it ends.
    Returns: its wall-clock seconds, and its standard output.
    Raises: UserError: if it fails, with the last line of its error output.
    """
    environment = {**os.environ, "PYTHONPATH": str(directory)}
    # The output must not be a pipe: that stays open until the last helper process ends, up to a second later.
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=directory, env=environment, stdout=output, stderr=errors)
        try:
            watch(process)
            status = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        seconds = time.perf_counter() - start
        if status:
            errors.seek(0)
            program = " ".join(" ".join(command).split())  # one line, even if an argument has several
            raise UserError(f"exit status {status} from {program}: {last_line(errors.read())}")
        output.seek(0)
        return seconds, output.read()


class Process:
    """A contender in its own process, which answers commands inside the `with` block: see `benchmarks.worker`.

    Args:
        name: in messages.        module: the worker's.        options: for the worker, sent as JSON.
        python: the interpreter.        checkout: the directory whose code runs.
        variables: further environment variables.
    Attributes:
        start_seconds: for each start, the time from the start of the process to the end of its first step.
        first: the answer to the first `step`.
    Raises: UserError: on entry, if the process cannot be started or the first step fails.
    """

    def __init__(
        self,
        name: str,
        module: str,
        options: dict,
        python: str = sys.executable,
        checkout: Path = PROJECT,
        variables: Mapping[str, str] | None = None,
    ):
        self._name, self._directory = name, checkout
        self._command = [python, "-m", module, json.dumps(options)]
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(checkout),
            "OMP_NUM_THREADS": str(options["num_threads"]),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            **(variables or {}),
        }
        self.start_seconds: list[float] = []

    def __enter__(self) -> "Process":
        self._errors = tempfile.TemporaryFile("w+")
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._errors}
        start = time.perf_counter()
        try:
            self._process = subprocess.Popen(
                self._command, cwd=self._directory, env=self._environment, text=True, **streams
            )
        except OSError as error:
            raise UserError(f"{self._command[0]}: {error.strerror}") from None
        try:
            self.first = self.ask("step")
        except BaseException:
            self.__exit__()
            raise
        self.start_seconds.append(time.perf_counter() - start)
        return self

    def __exit__(self, *_) -> None:
        # Closing flushes the buffer, which fails if the process has died.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.terminate()
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def ask(self, command: str) -> dict:
        """The answer to a command. Raises: UserError: if the process has ended."""
        with contextlib.suppress(BrokenPipeError):  # it has died, so that `readline` returns nothing
            self._process.stdin.write(f"{command}\n")
            self._process.stdin.flush()
        if line := self._process.stdout.readline():
            return json.loads(line)
        status = self._process.wait()
        self._errors.seek(0)
        message = last_line(self._errors.read())[:_MESSAGE_CHARACTERS]
        raise UserError(f"{self._name} ended with status {status}: {message}")

    def ask_watched(self, command: str) -> dict:
        """The answer to a command. Its `others` is the share of all cores that other programs used meanwhile."""
        import psutil

        process = psutil.Process(self._process.pid)
        start, busy, own = time.perf_counter(), _busy_seconds(), _process_seconds(process)
        answer = self.ask(command)
        others = _busy_seconds() - busy - (_process_seconds(process) - own)
        elapsed = (time.perf_counter() - start) * psutil.cpu_count()
        return {**answer, "others": max(0.0, others / elapsed)}


def processes_of(
    contenders: Mapping[str, Contender],
    worker: str,
    flags: argparse.Namespace,
    options: dict,
    of_checkout: Callable[[Path], dict] = lambda checkout: {},
) -> dict[str, Process]:
    """The processes of contenders. With --baseline each of ours is followed by the same in that checkout.

    Args:
        worker: a module.        options: of all workers.        of_checkout: further options of ours in a checkout.
    """
    processes = {}
    for name, contender in contenders.items():
        own = {**options, "kind": contender.kind, "settings": contender.settings}
        variables = mkl_with_avx512() if contender.avx512 else {}
        if contender.kind != "ours":
            processes[name] = Process(name, worker, own, flags.peers_python, variables=variables)
            continue
        checkouts = {name: PROJECT, **({baseline_of(name): flags.baseline.resolve()} if flags.baseline else {})}
        for row, checkout in checkouts.items():
            further = {**own, **of_checkout(checkout)}
            processes[row] = Process(row, worker, further, checkout=checkout, variables=variables)
    return processes


@contextlib.contextmanager
def running(processes: Mapping[str, Process], patience: float, starts: int = 1) -> Iterator[Mapping[str, Process]]:
    """Starts each process `starts` times, in turns.

    Yields: the running processes.
    Raises: UserError: if one does not start, because a comparison without it would look complete.
    """
    with contextlib.ExitStack() as stack:
        for number in range(starts):
            for name, process in processes.items():
                wait_for_quiet(patience)
                process.__enter__()
                print(f"started {name}: {process.start_seconds[-1]:.1f} s to the first step", file=sys.stderr)
                if number + 1 < starts:
                    process.__exit__()
                else:
                    stack.push(process)
        yield processes


def in_checkout(path: Path, checkout: Path) -> Path:
    """The path of a file of this checkout in another one. Other paths are returned unchanged."""
    path = path.resolve()
    return checkout.resolve() / path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path


def last_line(text: str) -> str:
    """The last line with text of a program's output."""
    return (text.strip().splitlines() or ["no message"])[-1].strip()


def _busy_seconds() -> float:
    """The busy time of all cores since boot, including time that a host took from this virtual machine."""
    import psutil

    times = psutil.cpu_times()
    return times.user + times.system + times.nice + times.irq + times.softirq + times.steal


def _process_seconds(process) -> float:
    times = process.cpu_times()
    return times.user + times.system
