"""The contenders of `benchmarks.train_step`, and the process in which each of them waits for its turn."""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from benchmarks.common import PROJECT, last_line
from electra_tf.config.errors import UserError

_MESSAGE_CHARACTERS = 400  # of the last line that a process printed before it died
QUIET = 0.05  # a turn is disturbed if other programs used more than this share of the cores
_SAMPLE_SECONDS = 1.0
# The worker's module, by the file that defines it: now, and before benchmarks became packages.
_WORKERS = {
    "benchmarks/train_step/worker.py": "benchmarks.train_step.worker",
    "benchmarks/train_step_worker.py": "benchmarks.train_step_worker",
}


@dataclass(frozen=True)
class Contender:
    """What is measured.

    Attributes:
        kind: `ours`, `baseline` (ours in another checkout) or `pytorch`.
        precision: of its matrix products.
        compiled: whether a compiler (XLA, torch.compile) makes one program of the step.
        checkout: the directory whose code runs.
    """

    kind: str
    precision: str
    compiled: bool
    checkout: Path = PROJECT

    def settings(self) -> list[str] | dict[str, object]:
        """What distinguishes it: settings of the configuration for ours, arguments of `PyTorchStep` for PyTorch."""
        if self.kind == "pytorch":
            return {"precision": self.precision, "compiled": self.compiled}
        return [f"train.precision={self.precision}", f"train.xla={str(self.compiled).lower()}"]

    def config_file(self, path: Path) -> Path:
        """Its configuration: a file of this checkout stands for the same file of its own checkout."""
        path = path.resolve()
        return self.checkout / path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path

    def worker_module(self) -> str:
        """Raises: UserError: if the checkout has no worker of this benchmark."""
        for file, module in _WORKERS.items():
            if (self.checkout / file).is_file():
                return module
        raise UserError(
            f"--baseline={self.checkout} is not a checkout of this project: it has none of {', '.join(_WORKERS)}"
        )


CONTENDERS = {
    "ours_float32": Contender("ours", "float32", compiled=False),
    "ours_float32_xla": Contender("ours", "float32", compiled=True),
    "ours_bfloat16": Contender("ours", "bfloat16", compiled=False),
    "ours_bfloat16_xla": Contender("ours", "bfloat16", compiled=True),
    "pytorch_float32": Contender("pytorch", "float32", compiled=False),
    "pytorch_float32_compile": Contender("pytorch", "float32", compiled=True),
    "pytorch_bfloat16": Contender("pytorch", "bfloat16", compiled=False),
    "pytorch_bfloat16_compile": Contender("pytorch", "bfloat16", compiled=True),
}


def with_baseline(names: list[str], checkout: Path | None) -> dict[str, Contender]:
    """The contenders of these names; with a checkout, each of ours is followed by its `baseline_...` there."""
    chosen = {}
    for name in names:
        chosen[name] = CONTENDERS[name]
        if checkout and CONTENDERS[name].kind == "ours":
            baseline = replace(CONTENDERS[name], kind="baseline", checkout=checkout.resolve())
            chosen[name.replace("ours", "baseline")] = baseline
    return chosen


@dataclass(frozen=True)
class Turn:
    """What a contender did in a round.

    Attributes:
        seconds: of a step, the median.        all_seconds: of each step.
        peak_bytes: the highest resident set size of the process so far.
        share_of_others: the share of all cores that other programs used meanwhile.
    """

    seconds: float
    all_seconds: list[float] = field(repr=False)
    peak_bytes: int
    share_of_others: float


class NotAvailable(Exception):
    """A contender cannot take part; the message says why."""


class Process:
    """A running contender, from its first step to the end of the `with` block.

    Args:
        options: `overrides` of the configuration, `num_threads`, and the sizes for the peers (`shape`, `networks`).
    Attributes:
        start_seconds: from the start of the process to the end of its first step.        first_losses: of that step.
    Raises: NotAvailable: on entry, if the first step fails.
    """

    def __init__(self, name: str, contender: Contender, python: str, config_file: Path, options: dict):
        self._name = name
        self._directory = contender.checkout
        self._num_threads = options["num_threads"]
        options = {
            **options,
            "kind": "ours" if contender.kind == "baseline" else contender.kind,
            "config": str(contender.config_file(config_file)),
            "settings": contender.settings(),
        }
        interpreter = python if contender.kind == "pytorch" else sys.executable
        self._command = [interpreter, "-m", contender.worker_module(), json.dumps(options)]

    def __enter__(self) -> "Process":
        environment = {
            **os.environ,
            "PYTHONPATH": str(self._directory),
            "OMP_NUM_THREADS": str(self._num_threads),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        start = time.perf_counter()
        self._errors = tempfile.TemporaryFile("w+")
        try:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._directory,
                env=environment,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
            )
        except OSError as error:
            self._errors.close()
            raise NotAvailable(f"{self._command[0]}: {error.strerror}") from None
        try:
            self.first_losses = self.ask("step")["losses"]
        except UserError as error:
            self.__exit__()
            raise NotAvailable(str(error)) from None
        self.start_seconds = time.perf_counter() - start
        return self

    def __exit__(self, *_) -> None:
        # Closing flushes the buffer, which fails if the process died before it read the last command.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.terminate()
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def ask(self, command: str) -> dict:
        """The answer to a command. Raises: UserError: if the process has died, with its last message."""
        with contextlib.suppress(BrokenPipeError):  # it has died, so its standard output has ended too
            self._process.stdin.write(f"{command}\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        status = self._process.wait()
        self._errors.seek(0)
        message = last_line(self._errors.read())[:_MESSAGE_CHARACTERS]
        raise UserError(f"{self._name} ended with status {status}: {message}")

    def ask_watched(self, command: str) -> tuple[dict, float]:
        """The answer to a command, and the share of all cores that other programs used meanwhile."""
        import psutil

        process = psutil.Process(self._process.pid)
        start, busy, own = time.perf_counter(), _busy_seconds(), _process_seconds(process)
        answer = self.ask(command)
        others = _busy_seconds() - busy - (_process_seconds(process) - own)
        elapsed = (time.perf_counter() - start) * psutil.cpu_count()
        return answer, max(0.0, others / elapsed)

    def take_turn(self, num_steps: int) -> Turn:
        """Runs this many timed steps."""
        answer, others = self.ask_watched(f"steps {num_steps}")
        return Turn(
            seconds=statistics.median(answer["seconds"]),
            all_seconds=answer["seconds"],
            peak_bytes=answer["peak_bytes"],
            share_of_others=others,
        )


@dataclass
class Measured:
    """All measurements of one contender.

    Attributes:
        start_seconds: of each start, to the end of the first step.        first_losses: of step 1.
    """

    contender: Contender
    start_seconds: list[float]
    first_losses: dict[str, float]
    turns: list[Turn] = field(default_factory=list)

    @property
    def start(self) -> float:
        return statistics.median(self.start_seconds)

    @property
    def seconds(self) -> float:
        """Of a step: the median of the rounds."""
        return statistics.median(turn.seconds for turn in self.turns)

    def report(self) -> dict:
        return {
            "checkout": str(self.contender.checkout),
            "start_to_first_step_seconds": self.start_seconds,
            "losses_of_step_1": self.first_losses,
            "turns": [asdict(turn) for turn in self.turns],
        }


def wait_for_quiet(patience: float) -> None:
    """Returns when the cores have been idle for a second, or after `patience` seconds."""
    import psutil

    deadline = time.perf_counter() + patience
    while time.perf_counter() < deadline:
        busy = _busy_seconds()
        time.sleep(_SAMPLE_SECONDS)
        if _busy_seconds() - busy <= QUIET * _SAMPLE_SECONDS * psutil.cpu_count():
            return


def _busy_seconds() -> float:
    """Time that all cores have worked since boot, with the time that a host took from this virtual machine."""
    import psutil

    times = psutil.cpu_times()
    return times.user + times.system + times.nice + times.irq + times.softirq + times.steal


def _process_seconds(process) -> float:
    times = process.cpu_times()
    return times.user + times.system
