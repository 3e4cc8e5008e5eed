"""What the benchmarks share: the project's root, limits with verdicts, exit statuses, and other Python interpreters."""

import subprocess
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from electra_tf.cli.process import run_command
from electra_tf.config.errors import UserError
from electra_tf.files import is_remote

PROJECT = Path(__file__).resolve().parents[1]


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


def run_check(check: Callable[[], bool]) -> int:
    """Runs a benchmark. Returns the exit status: 0 if the check holds, 1 if not, 2 for a `UserError`."""
    results: list[bool] = []
    status = run_command(lambda: results.append(check()))
    return status or int(not all(results))


def local_directory(path: str) -> Path:
    """The type of a flag that takes no URL."""
    if is_remote(path):
        raise ArgumentTypeError(f"{path}: expected a directory of this machine")
    return Path(path)


def last_line(text: str) -> str:
    """The last line of a program's output that is not empty."""
    return (text.strip().splitlines() or ["no message"])[-1].strip()


def output_of_jax_python(python: str, arguments: Sequence[str | PathLike]) -> str:
    """What the Python of an environment of benchmarks/requirements-tpu-compile.txt prints.

    Raises: UserError: if it fails, with the last line of its error output.
    """
    try:
        return subprocess.run([python, *arguments], check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        reason = last_line(getattr(error, "stderr", "") or str(error))
        raise UserError(
            f"--jax_python={python} has no TPU compiler ({reason}); make an environment of "
            "benchmarks/requirements-tpu-compile.txt and give its Python"
        ) from None
