"""A training that is killed again and again, compared bit for bit with one that never was; and what a resume takes.

    python -m benchmarks.kills --data_dir=DIR --kills=30

Runs the same small training twice as a subprocess: once from start to end, and once killed at aimed moments (while it
starts, in a step, in a checkpoint, after one, in an evaluation, by kill -9; and by SIGTERM) with a random delay, each
time started again by the same command. Prints a table, and exits 1 if weights, optimizer state, milestones,
metrics.jsonl or TensorBoard's events differ in a bit. Then gives the time from a start to the first step for runs that
stand at a few steps, beside that of a new run.
"""

import argparse
import random
import signal
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.killed_runs import AIMS, PROJECT, Attempt, KilledRun, differences, training_command
from electra_tf.cli.flags import add_set_flag, flag_parser, run_command
from electra_tf.config.errors import UserError

_DEFAULT_CONFIG = PROJECT / "configs" / "pretrain" / "tiny.yaml"
# Reports, checkpoints and evaluations fall on different steps, and together.
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
    parser.add_argument("--config", default=_DEFAULT_CONFIG, help="of the run; the vocabulary must be the data set's")
    add_set_flag(parser)
    parser.add_argument("--num_steps", type=int, default=300, help="of the run")
    parser.add_argument("--kills", type=int, default=30, help="how many; the aims take turns")
    parser.add_argument("--seed", type=int, default=0, help="of the delays and the order of the aims")
    parser.add_argument("--work_dir", type=Path, help="where the runs are kept; None: a temporary directory")
    parser.add_argument(
        "--resume_steps", type=int, nargs="*", default=[10, 1_000, 100_000], help="steps to measure a resume at"
    )
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each resume; the median is given")
    return parser.parse_args(arguments)


def kill_again_and_again(run: KilledRun, num_kills: int, chance: random.Random) -> list[Attempt]:
    """Kills a run `num_kills` times, then lets it end. An aim that the run no longer reaches ends the killing.

    Raises: RuntimeError: if a call ends otherwise than it should.
    """
    aims = [AIMS[number % len(AIMS)] for number in range(num_kills)]
    chance.shuffle(aims)
    attempts = []
    for aim in [*aims, None]:
        attempt = run.attempt(aim, chance)
        attempts.append(attempt)
        print(_row(len(attempts), attempt), flush=True)
        if attempt.exit_code not in _ENDED_BY:
            raise RuntimeError(f"a call ended with status {attempt.exit_code}:\n{run.log_tail()}")
        if attempt.exit_code == 0:
            break
    return attempts


def _row(number: int, attempt: Attempt) -> str:
    seconds = f"{attempt.seconds_to_end:5.1f} s" if attempt.exit_code > 0 else "       "
    return (
        f"| {number:3} | {attempt.aim:18} | {_ENDED_BY.get(attempt.exit_code, '?'):7} | {seconds} | {attempt.state} |"
    )


def measure(flags: argparse.Namespace, work_dir: Path) -> bool:
    """Prints the report; returns whether the runs are equal."""
    chance = random.Random(flags.seed)
    settings = [*_SETTINGS, f"train.num_steps={flags.num_steps}", *flags.overrides]
    command = training_command(flags.config, [flags.data_dir], settings)
    if any(work_dir.iterdir()):
        raise UserError(f"--work_dir={work_dir} is not empty; give a new directory")
    whole, killed = KilledRun(command, work_dir / "whole"), KilledRun(command, work_dir / "killed")
    if whole.attempt(None, chance).exit_code != 0:
        raise RuntimeError(f"the run that nobody killed failed:\n{whole.log_tail()}")
    print("| call | killed | ended by | after | what the directory shows then |\n|---|---|---|---|---|")
    attempts = kill_again_and_again(killed, flags.kills, chance)
    found = differences(whole.model_dir, killed.model_dir)
    num_kills = sum(attempt.exit_code != 0 for attempt in attempts)
    print(f"{num_kills} kills; " + ("bit-identical" if not found else f"DIFFERENT: {'; '.join(found[:5])}"), flush=True)
    if flags.resume_steps:
        _print_resume_times(flags, whole.model_dir, work_dir)
    return not found


def _print_resume_times(flags: argparse.Namespace, source: Path, work_dir: Path) -> None:
    from benchmarks.resume_times import run_standing_at, seconds_to_first_step

    settings = [f"train.num_steps={2 * max(flags.resume_steps)}", "train.log_every_steps=1", *flags.overrides]
    command = training_command(flags.config, [flags.data_dir], settings)
    directories = {step: work_dir / f"at-{step}" for step in flags.resume_steps}
    for step, directory in directories.items():
        run_standing_at(step, source, directory, settings)
    seconds: dict[int, list[float]] = {step: [] for step in (0, *directories)}
    # In turns, so that what else the machine does meets all.
    for repeat in range(flags.repeats):
        for step in seconds:
            directory = directories.get(step, work_dir / f"new-{repeat}")
            seconds[step].append(seconds_to_first_step(command, directory, step))
    print("| standing at step | start to first step, s | more than a new run, s |\n|---|---|---|")
    for step, times in seconds.items():
        more = statistics.median(times) - statistics.median(seconds[0])
        print(f"| {step or 'new'} | {statistics.median(times):.1f} | {more:.1f} |")


def main(arguments: list[str] | None = None) -> int:
    flags = parse_flags(arguments)
    equal = []

    def run() -> None:
        with tempfile.TemporaryDirectory(prefix="kills_") as temporary:
            work_dir = flags.work_dir or Path(temporary)
            work_dir.mkdir(parents=True, exist_ok=True)
            equal.append(measure(flags, work_dir))

    status = run_command(run)
    return status or int(not all(equal))


if __name__ == "__main__":
    sys.exit(main())
