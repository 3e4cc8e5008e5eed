"""The contenders of `benchmarks.train_step`, and the process in which each waits for its turn."""

import contextlib
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType

from electra_tf.config.errors import UserError
from electra_tf.tasks.pretrain.config import load_config

_PROJECT = Path(__file__).resolve().parents[1]
_LAST_LINE = 400  # characters of the last that a process said before it died
QUIET = 0.05  # of the cores; more than that in the hands of others disturbs a measurement
_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Contender:
    """What is measured.

    Attributes:
        kind: whose step, see `benchmarks.train_step_worker.KINDS`.
        precision: of its products.
        compiled: whether a compiler (XLA, torch.compile) made the program.
        settings: of the step: overrides of the configuration for ours, arguments for PyTorch's.
        by_default: whether it takes part without being asked for.
    """

    kind: str
    precision: str
    compiled: bool = False
    settings: tuple[str, ...] | Mapping[str, object] = ()
    by_default: bool = True


def _ours(precision: str, xla: bool) -> Contender:
    settings = (f"train.precision={precision}", f"train.xla={str(xla).lower()}")
    return Contender("ours", precision, compiled=xla, settings=settings)


def _pytorch(precision: str, compiled: bool, all_positions: bool = False) -> Contender:
    settings = {"precision": precision, "compiled": compiled, "all_positions": all_positions}
    return Contender("pytorch", precision, compiled, MappingProxyType(settings), by_default=not all_positions)


CONTENDERS = {
    "ours_float32": _ours("float32", xla=False),
    "ours_float32_xla": _ours("float32", xla=True),
    "ours_bfloat16": _ours("bfloat16", xla=False),
    "ours_bfloat16_xla": _ours("bfloat16", xla=True),
    "pytorch_float32": _pytorch("float32", compiled=False),
    "pytorch_float32_compile": _pytorch("float32", compiled=True),
    "pytorch_bfloat16": _pytorch("bfloat16", compiled=False),
    "pytorch_bfloat16_compile": _pytorch("bfloat16", compiled=True),
    # Hugging Face's forward pass as it stands: logits of every position, not only of the masked ones.
    "pytorch_float32_all_positions": _pytorch("float32", compiled=False, all_positions=True),
    "model_garden_float32": Contender("model_garden", "float32"),
}


@dataclass(frozen=True)
class Turn:
    """What a contender did in a round.

    Attributes:
        seconds: of a step, the median.        all_seconds: of each step.
        peak_bytes: the most memory the process has held so far.
        share_of_others: the part of all cores that other programs took meanwhile.
    """

    seconds: float
    all_seconds: list[float] = field(repr=False)
    peak_bytes: int
    share_of_others: float


class NotAvailable(Exception):
    """A contender cannot take part; says why."""


def options_of(contender: Contender, config_file: str | Path, overrides: Sequence[str], num_threads: int) -> dict:
    """What the process of a contender is told: the sizes of batch and networks are those of the configuration.

    Raises: UserError: the configuration is broken, or its objective is not electra, which the peers do not have.
    """
    config = load_config(config_file, list(overrides))
    if config.objective.name != "electra":
        raise UserError(
            f"config {config_file}: objective.name is {config.objective.name!r}; the peers have 'electra' only"
        )
    settings = contender.settings
    return {
        "kind": contender.kind,
        "num_threads": num_threads,
        "config": str(Path(config_file).resolve()),
        "overrides": list(overrides),
        "settings": dict(settings) if isinstance(settings, Mapping) else list(settings),
        "shape": {
            "num_examples": config.train.batch_size,
            "max_seq_length": config.data.max_seq_length,
            "num_slots": config.max_predictions,
            "vocab_size": config.encoder.vocab_size,
            "masked_fraction": config.masking.masked_fraction,
        },
        "networks": {
            "discriminator": config.encoder.model_dump(),
            "generator": config.objective.generator.encoder(config.encoder).model_dump(),
        },
    }


class Process:
    """A running contender, from its first step to the end of the `with` block.

    Attributes:
        contender: what runs.        start_seconds: from the start of the process to the end of its first step.
        first_losses: of that step.
    Raises: NotAvailable: on entry, when its first step does not come about.
    """

    def __init__(self, name: str, contender: Contender, python: str, options: dict):
        self.contender = contender
        self._name = name
        self._command = [python, "-m", "benchmarks.train_step_worker", json.dumps(options)]
        self._num_threads = options["num_threads"]

    def __enter__(self) -> "Process":
        environment = {
            **os.environ,
            "PYTHONPATH": str(_PROJECT),
            "OMP_NUM_THREADS": str(self._num_threads),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        start = time.perf_counter()
        self._errors = tempfile.TemporaryFile("w+")
        try:
            self._process = subprocess.Popen(
                self._command,
                cwd=_PROJECT,
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
        # What a process that died has not read is still in the buffer, and closing would write it.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.terminate()
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def ask(self, command: str) -> dict:
        """The answer to a command. Raises: UserError: the process has died, with the last it said."""
        with contextlib.suppress(BrokenPipeError):  # it has died; its standard output has ended too
            self._process.stdin.write(f"{command}\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        status = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().strip().splitlines() or ["no message"]
        raise UserError(f"{self._name} ended with status {status}: {said[-1][:_LAST_LINE]}")

    def take_turn(self, num_steps: int) -> Turn:
        """Runs so many timed steps."""
        import psutil

        process = psutil.Process(self._process.pid)
        start, busy, own = time.perf_counter(), _busy_seconds(), _process_seconds(process)
        answer = self.ask(f"steps {num_steps}")
        others = _busy_seconds() - busy - (_process_seconds(process) - own)
        elapsed = (time.perf_counter() - start) * psutil.cpu_count()
        return Turn(
            seconds=statistics.median(answer["seconds"]),
            all_seconds=answer["seconds"],
            peak_bytes=answer["peak_bytes"],
            share_of_others=max(0.0, others / elapsed),
        )

    def report(self, turns: list[Turn]) -> dict:
        """All that is known of it."""
        return {
            "start_to_first_step_seconds": self.start_seconds,
            "losses_of_step_1": self.first_losses,
            "turns": [asdict(turn) for turn in turns],
        }


def wait_for_quiet(patience: float) -> None:
    """Returns when the cores have been idle for a second, or after `patience` seconds."""
    import psutil

    deadline = time.perf_counter() + patience
    while time.perf_counter() < deadline:
        busy = _busy_seconds()
        time.sleep(_LOOK_SECONDS)
        if _busy_seconds() - busy <= QUIET * _LOOK_SECONDS * psutil.cpu_count():
            return


def _busy_seconds() -> float:
    """What all cores have worked since the machine started; a guest's time stolen by its host counts too."""
    import psutil

    times = psutil.cpu_times()
    return times.user + times.system + times.nice + times.irq + times.softirq + times.steal


def _process_seconds(process) -> float:
    times = process.cpu_times()
    return times.user + times.system
