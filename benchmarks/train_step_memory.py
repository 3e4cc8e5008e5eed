"""The memory of a training step: how much it holds, and how much more with each example.

    python -m benchmarks.train_step_memory
    python -m benchmarks.train_step_memory --config=configs/pretrain/small.yaml --set train.precision=bfloat16

Runs a few steps of the configuration, by default ELECTRA-Base at length 512, in a process for each row, and prints the
most memory that process ever held (resident set): at two batch sizes, whose difference gives the bytes that an example
keeps from the way there to the way back, with and without train.rematerialize; and for a batch in micro-batches of one
size by train.gradient_accumulation_steps, which should need no more than one of them alone. Exits 1 if it needs more
than --growth times that.
"""

import argparse
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.builder import Verdict
from benchmarks.train_step_processes import Contender, NotAvailable, Process, options_of
from electra_tf.cli.flags import add_set_flag, flag_parser, run_command
from electra_tf.config.errors import UserError

_BASE = Path(__file__).resolve().parents[1] / "configs" / "pretrain" / "base.yaml"
_OURS = Contender("ours", "float32")


@dataclass(frozen=True)
class Setting:
    """One row: a batch, in how many micro-batches, with or without rematerialisation."""

    batch_size: int
    accumulation_steps: int
    rematerialize: bool

    @property
    def overrides(self) -> list[str]:
        return [
            f"train.batch_size={self.batch_size}",
            f"train.gradient_accumulation_steps={self.accumulation_steps}",
            f"train.rematerialize={str(self.rematerialize).lower()}",
        ]

    def __str__(self) -> str:
        kept = "rematerialised" if self.rematerialize else "all kept"
        return f"{self.batch_size:5} in {self.accumulation_steps:3}, {kept:14}"


@dataclass(frozen=True)
class Measured:
    """Peak memory in bytes, and seconds of a step."""

    peak_bytes: int
    seconds: float


def parse_flags(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = flag_parser(__doc__)
    parser.add_argument("--config", default=_BASE, metavar="FILE", help="YAML file of the run to measure")
    add_set_flag(parser)
    parser.add_argument("--micro_batch", type=int, default=2, help="examples; measured too: three times as many")
    parser.add_argument("--accumulation_steps", type=int, default=8, help="micro-batches of the large batch")
    parser.add_argument("--threads", type=int, default=2, help="cores to use")
    parser.add_argument("--growth", type=float, default=1.25, help="ceiling of the large batch's memory over a small's")
    flags = parser.parse_args(arguments)
    for name in ("micro_batch", "accumulation_steps", "threads"):
        if getattr(flags, name) <= 0:
            parser.error(f"--{name} must be positive")
    return flags


def measure(flags: argparse.Namespace) -> bool:
    """Prints the report; returns whether the ceilings are held."""
    print(f"{'batch in micro-batches':>28}  {'peak, GiB':>9}  {'s/step':>7}")
    verdicts = []
    for rematerialize in (False, True):
        small, large, accumulated = (
            Setting(flags.micro_batch, 1, rematerialize),
            Setting(3 * flags.micro_batch, 1, rematerialize),
            Setting(flags.micro_batch * flags.accumulation_steps, flags.accumulation_steps, rematerialize),
        )
        found = {setting: run_setting(setting, flags) for setting in (small, large, accumulated)}
        for setting, measured in found.items():
            print(f"{setting!s:>28}  {measured.peak_bytes / 2**30:9.2f}  {measured.seconds:7.2f}")
        each = (found[large].peak_bytes - found[small].peak_bytes) / (large.batch_size - small.batch_size)
        fixed = found[small].peak_bytes - each * small.batch_size
        print(f"{'':>28}  {each / 2**20:.0f} MiB for each example and {fixed / 2**30:.2f} GiB whatever the batch\n")
        growth = found[accumulated].peak_bytes / found[small].peak_bytes
        name = f"{accumulated.batch_size} examples in micro-batches over {small.batch_size}, memory"
        verdicts.append(
            Verdict(f"{name}, {'rematerialised' if rematerialize else 'all kept'}", growth, flags.growth, True)
        )
    print(*verdicts, sep="\n")
    return all(verdict.holds for verdict in verdicts)


def run_setting(setting: Setting, flags: argparse.Namespace) -> Measured:
    """Runs a few steps in a process of their own. Raises: UserError: it dies, as one without enough memory does."""
    options = options_of(_OURS, flags.config, [*flags.overrides, *setting.overrides], flags.threads)
    try:
        with Process(f"{setting}", _OURS, sys.executable, options) as process:
            answer = process.ask("steps 1")
    except NotAvailable as error:
        raise UserError(str(error)) from None
    return Measured(answer["peak_bytes"], statistics.median(answer["seconds"]))


def main(arguments: list[str] | None = None) -> int:
    flags = parse_flags(arguments)
    held: list[bool] = []
    status = run_command(lambda: held.append(measure(flags)))
    return status or int(not all(held))


if __name__ == "__main__":
    sys.exit(main())
