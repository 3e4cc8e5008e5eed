"""Compares a training that is killed many times with an uninterrupted one, bit for bit.

    python -m benchmarks.kills --data_dir=DIR --kills=30

Runs the same small training twice as a subprocess: once from start to end, and once killed at chosen moments (while it
starts, in a step, in a checkpoint, after one, in an evaluation, with kill -9; and with SIGTERM) plus a random delay,
each time started again by the same command. Prints a table, and exits 1 if weights, optimizer state, milestones,
metrics.jsonl or TensorBoard's events differ in a bit.
"""

import argparse
import random
import signal
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import PROJECT, run_check
from benchmarks.kills.killed_run import AIMS, Attempt, KilledRun, training_command
from benchmarks.kills.run_files import differences
from electra_tf.cli.flags import add_set_flag, flag_parser
from electra_tf.config.errors import UserError

_DEFAULT_CONFIG = PROJECT / "configs" / "pretrain" / "tiny.yaml"
# Reports, checkpoints and evaluations fall on different steps, and sometimes on the same one.
_SETTINGS = (
    "train.log_every_steps=4",
    "train.save_every_steps=5",
    "evaluation.every_steps=10",
    "evaluation.max_batches=3",
    "train.keep_checkpoints=3",
)
_ENDED_BY = {-signal.SIGKILL: "SIGKILL", 128 + signal.SIGTERM: "143", 0: "the end"}


def parse_flags(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = flag_parser(__doc__)
    parser.add_argument(
        "--data_dir", required=True, help="data set of build_pretraining_dataset.py, with a held-out split"
    )
    parser.add_argument("--config", default=_DEFAULT_CONFIG, help="of the run, with the data set's vocabulary size")
    add_set_flag(parser)
    parser.add_argument("--num_steps", type=int, default=300, help="of the run")
    parser.add_argument("--kills", type=int, default=30, help="number of kills; the moments take turns")
    parser.add_argument("--seed", type=int, default=0, help="of the delays and the order of the moments")
    parser.add_argument("--work_dir", type=Path, help="new directory for the runs; None: a temporary one")
    return parser.parse_args(arguments)


def kill_repeatedly(run: KilledRun, num_kills: int, delays: random.Random) -> list[Attempt]:
    """Kills a run up to `num_kills` times, then lets it end.

    Raises: RuntimeError: if a call ends with an unexpected status.
    """
    aims = [AIMS[number % len(AIMS)] for number in range(num_kills)]
    delays.shuffle(aims)
    attempts = []
    for aim in [*aims, None]:
        attempt = run.attempt(aim, delays)
        attempts.append(attempt)
        print(_row(len(attempts), attempt), flush=True)
        if attempt.exit_code not in _ENDED_BY:
            raise RuntimeError(f"a call ended with status {attempt.exit_code}:\n{run.log_tail()}")
        if attempt.exit_code == 0:
            break
    return attempts


def _row(number: int, attempt: Attempt) -> str:
    seconds = f"{attempt.seconds_to_end:5.1f} s" if attempt.exit_code > 0 else "       "
    ended_by = _ENDED_BY.get(attempt.exit_code, "?")
    return f"| {number:3} | {attempt.aim:18} | {ended_by:7} | {seconds} | {attempt.state} |"


def measure(flags: argparse.Namespace, work_dir: Path) -> bool:
    """Prints the report; returns whether the runs are equal."""
    delays = random.Random(flags.seed)
    settings = [*_SETTINGS, f"train.num_steps={flags.num_steps}", *flags.overrides]
    command = training_command(flags.config, [flags.data_dir], settings)
    if any(work_dir.iterdir()):
        raise UserError(f"--work_dir={work_dir} is not empty; give a new directory")
    whole, killed = KilledRun(command, work_dir / "whole"), KilledRun(command, work_dir / "killed")
    if whole.attempt(None, delays).exit_code != 0:
        raise RuntimeError(f"the uninterrupted run failed:\n{whole.log_tail()}")
    print("| call | killed | ended by | after | state of the directory then |\n|---|---|---|---|---|")
    attempts = kill_repeatedly(killed, flags.kills, delays)
    found = differences(whole.model_dir, killed.model_dir)
    num_kills = sum(attempt.exit_code != 0 for attempt in attempts)
    print(f"{num_kills} kills; " + ("bit-identical" if not found else f"DIFFERENT: {'; '.join(found[:5])}"), flush=True)
    return not found


def main(arguments: list[str] | None = None) -> int:
    flags = parse_flags(arguments)

    def check() -> bool:
        with tempfile.TemporaryDirectory(prefix="kills_") as temporary:
            work_dir = flags.work_dir or Path(temporary)
            work_dir.mkdir(parents=True, exist_ok=True)
            return measure(flags, work_dir)

    return run_check(check)


if __name__ == "__main__":
    sys.exit(main())
