"""N replicas = 1 replica: one global batch on 1, 2 and 4 devices and on 2 worker processes, ten steps each.

    python -m benchmarks.replicas

Dropout is on, float32, and the replicas hold unequal numbers of real and of masked tokens. Prints for every objective,
number of micro-batches, compiler and division the largest relative difference to one device that takes the batch whole:
of any loss of any step, and of any weight tensor, as the norm of the difference in the norm of the tensor. Exits 1 if
one is beyond the limit. About ten minutes on 2 cores.
"""

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.replicas_run import Variant
from electra_tf.cli.flags import flag_parser, run_command
from electra_tf.config.errors import UserError

LIMIT = 1e-6
# A bias before a softmax has no gradient but rounding, and Adam divides that by its own size: a tensor counts with at
# least this share of the root mean square of all weights, or the noise in it would be all that is measured.
_SMALLEST_SCALE = 1e-2
_PROJECT = Path(__file__).resolve().parents[1]
_RUN = [sys.executable, "-m", "benchmarks.replicas_run"]
DIVISIONS = {
    "1 device": ["--strategy=one_device"],
    "2 devices": ["--strategy=mirrored", "--devices=2"],
    "4 devices": ["--strategy=mirrored", "--devices=4"],
    "2 workers": ["--strategy=multi_worker_mirrored"],
}


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("--objective", nargs="+", default=["electra", "bert_mlm"], metavar="NAME")
    parser.add_argument("--accumulation", nargs="+", type=int, default=[1, 2, 4], metavar="K", help="micro-batches")
    parser.add_argument("--compiler", nargs="+", default=["tensorflow", "xla"], choices=["tensorflow", "xla"])
    parser.add_argument("--division", nargs="+", default=list(DIVISIONS), choices=list(DIVISIONS))
    parser.add_argument("--timeout", type=int, default=1800, metavar="N", help="seconds for all steps of a division")
    arguments = parser.parse_args(argv)
    within_limit: list[bool] = []
    status = run_command(lambda: within_limit.append(compare(arguments)))
    return status or int(not within_limit[0])


def compare(arguments: argparse.Namespace) -> bool:
    """Runs every division, prints the table, returns whether all differences are within the limit."""
    variants = [
        Variant(objective, accumulation, compiler == "xla")
        for objective in arguments.objective
        for accumulation in arguments.accumulation
        for compiler in arguments.compiler
    ]
    # What all are compared with: whole batches, on one device.
    references = {variant: variant._replace(accumulation=1) for variant in variants}
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="replicas_") as scratch:
        run_division("1 device", [*variants, *references.values()], Path(scratch) / "1 device", arguments.timeout)
        print(f"{'objective:micro-batches:compiler':34} {'division':10} {'losses':>9} {'weights':>9}  tensor")
        for division in arguments.division:
            directory = Path(scratch) / division
            run_division(division, variants, directory, arguments.timeout)
            for variant, reference in references.items():
                losses, weights, name = differences(
                    directory / f"{variant}.npz", Path(scratch) / "1 device" / f"{reference}.npz"
                )
                print(f"{str(variant):34} {division:10} {losses:9.1e} {weights:9.1e}  {name}", flush=True)
                worst = max(worst, *(found if found == found else float("inf") for found in (losses, weights)))
    print(f"largest difference {worst:.1e}, limit {LIMIT:.0e}")
    return worst <= LIMIT


def run_division(division: str, variants: list[Variant], directory: Path, timeout: int) -> None:
    """Runs the steps of the variants divided in one way; their results are then in `directory`.

    Raises: UserError: if a process fails or is not done in time.
    """
    directory.mkdir(exist_ok=True)
    flags = [f"--variant={variant}" for variant in dict.fromkeys(variants)]
    command = [*_RUN, str(directory), *DIVISIONS[division], *flags]
    environments = worker_environments(2) if division == "2 workers" else [{}]
    with contextlib.ExitStack() as processes:
        started = [processes.enter_context(_process(command, environment)) for environment in environments]
        for process in started:
            try:
                _, said = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                raise UserError(f"{division} did not end within {timeout} s; give a longer --timeout") from None
            if process.returncode:
                raise UserError(f"{division} ended with {process.returncode}: {said.strip().splitlines()[-1:]}")


def worker_environments(num_workers: int) -> list[dict[str, str]]:
    """What TF_CONFIG must be for each worker of a cluster on this machine, at ports that are free now."""
    with contextlib.ExitStack() as sockets:
        listeners = [sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(num_workers)]
        addresses = [f"127.0.0.1:{listener.getsockname()[1]}" for listener in listeners]
    tasks = [{"type": "worker", "index": index} for index in range(num_workers)]
    return [{"TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": task})} for task in tasks]


@contextlib.contextmanager
def _process(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen]:
    """A process that does not outlive this."""
    inherited = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    process = subprocess.Popen(
        command,
        cwd=_PROJECT,
        env={**inherited, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def differences(found_file: Path, expected_file: Path) -> tuple[float, float, str]:
    """The largest relative difference of two runs' losses, that of their weights, and the tensor it is in."""
    import numpy as np

    with np.load(found_file) as found, np.load(expected_file) as expected:
        names = [name for name in expected.files if name.startswith("weights/")]
        metrics = [name for name in expected.files if name.startswith("metrics/")]
        losses = max(
            float(np.max(np.abs(found[m] - expected[m]) / np.maximum(np.abs(expected[m]), 1e-30))) for m in metrics
        )
        squares = sum(float(np.sum(np.square(expected[name], dtype=np.float64))) for name in names)
        scale = np.sqrt(squares / sum(expected[name].size for name in names))
        by_tensor = {}
        for name in names:
            norm = np.linalg.norm(expected[name].astype(np.float64))
            least = _SMALLEST_SCALE * scale * np.sqrt(expected[name].size)
            by_tensor[name] = float(np.linalg.norm(found[name].astype(np.float64) - expected[name]) / max(norm, least))
    # A NaN compares as neither larger nor smaller; it must be found.
    worst = max(by_tensor, key=lambda name: by_tensor[name] if by_tensor[name] == by_tensor[name] else float("inf"))
    return losses, by_tensor[worst], worst.removeprefix("weights/")


if __name__ == "__main__":
    sys.exit(main())
