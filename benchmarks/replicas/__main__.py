"""N replicas = 1 replica: trains one global batch on 1, 2 and 4 devices and on 2 worker processes, ten steps each.

    python -m benchmarks.replicas

Dropout is on, in float32, and the replicas hold unequal numbers of real and of masked tokens. Prints for every
objective, number of micro-batches, compiler and division the largest relative difference to one device that takes the
batch whole: of any loss of any step, and of any weight tensor (norm of the difference over the norm of the tensor).
Exits 1 if one exceeds the limit. Takes about ten minutes on 2 cores.
"""

import argparse
import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import PROJECT, last_line, run_check
from benchmarks.replicas.worker import Variant
from electra_tf.cli.flags import flag_parser
from electra_tf.config.errors import UserError

LIMIT = 1e-6
# A bias before a softmax has no gradient but rounding noise, which Adam divides by its own size. So the norm of a
# tensor counts as at least this share of the root mean square of all weights.
_SMALLEST_SCALE = 1e-2
_WORKER = [sys.executable, "-m", "benchmarks.replicas.worker"]
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
    return run_check(lambda: compare(arguments))


def compare(arguments: argparse.Namespace) -> bool:
    """Runs every division, prints the table, returns whether all differences are within the limit."""
    variants = [
        Variant(objective, accumulation, compiler == "xla")
        for objective, accumulation, compiler in itertools.product(
            arguments.objective, arguments.accumulation, arguments.compiler
        )
    ]
    # The references: whole batches on one device.
    references = {variant: variant._replace(accumulation=1) for variant in variants}
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="replicas_") as scratch:
        run_division("1 device", [*variants, *references.values()], Path(scratch) / "1 device", arguments.timeout)
        print(f"{'objective:micro-batches:compiler':34} {'division':10} {'losses':>9} {'weights':>9}  tensor")
        for division in arguments.division:
            directory = Path(scratch) / division
            run_division(division, variants, directory, arguments.timeout)
            for variant, reference in references.items():
                expected = Path(scratch) / "1 device" / f"{reference}.npz"
                losses, weights, name = differences(directory / f"{variant}.npz", expected)
                print(f"{str(variant):34} {division:10} {losses:9.1e} {weights:9.1e}  {name}", flush=True)
                worst = max(worst, _nan_as_infinity(losses), _nan_as_infinity(weights))
    print(f"largest difference {worst:.1e}, limit {LIMIT:.0e}")
    return worst <= LIMIT


def run_division(division: str, variants: list[Variant], directory: Path, timeout: int) -> None:
    """Runs the steps of the variants in one division; the results are then in `directory`.

    Raises: UserError: if a process fails or does not end in time.
    """
    directory.mkdir(exist_ok=True)
    flags = [f"--variant={variant}" for variant in dict.fromkeys(variants)]
    command = [*_WORKER, str(directory), *DIVISIONS[division], *flags]
    environments = worker_environments(2) if division == "2 workers" else [{}]
    with contextlib.ExitStack() as processes:
        started = [processes.enter_context(_process(command, environment)) for environment in environments]
        for process in started:
            try:
                _, errors = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                raise UserError(f"{division} did not end within {timeout} s; give a longer --timeout") from None
            if process.returncode:
                raise UserError(f"{division} ended with {process.returncode}: {last_line(errors)}")


def worker_environments(num_workers: int) -> list[dict[str, str]]:
    """TF_CONFIG for each worker of a cluster on this machine, at ports that are free now."""
    with contextlib.ExitStack() as sockets:
        listeners = [sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(num_workers)]
        addresses = [f"127.0.0.1:{listener.getsockname()[1]}" for listener in listeners]
    tasks = [{"type": "worker", "index": index} for index in range(num_workers)]
    return [{"TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": task})} for task in tasks]


@contextlib.contextmanager
def _process(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen]:
    """A process that is killed at the end of the block."""
    inherited = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    process = subprocess.Popen(
        command,
        cwd=PROJECT,
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


def differences(actual_file: Path, expected_file: Path) -> tuple[float, float, str]:
    """The largest relative difference of losses, that of weights, and the tensor that it is in."""
    import numpy as np

    with np.load(actual_file) as actual, np.load(expected_file) as expected:
        names = [name for name in expected.files if name.startswith("weights/")]
        metrics = [name for name in expected.files if name.startswith("metrics/")]
        losses = max(
            _nan_as_infinity(float(np.max(np.abs(actual[m] - expected[m]) / np.maximum(np.abs(expected[m]), 1e-30))))
            for m in metrics
        )
        squares = sum(float(np.sum(np.square(expected[name], dtype=np.float64))) for name in names)
        scale = np.sqrt(squares / sum(expected[name].size for name in names))
        by_tensor = {}
        for name in names:
            norm = np.linalg.norm(expected[name].astype(np.float64))
            least = _SMALLEST_SCALE * scale * np.sqrt(expected[name].size)
            by_tensor[name] = float(np.linalg.norm(actual[name].astype(np.float64) - expected[name]) / max(norm, least))
    worst = max(by_tensor, key=lambda name: _nan_as_infinity(by_tensor[name]))
    return losses, by_tensor[worst], worst.removeprefix("weights/")


def _nan_as_infinity(value: float) -> float:
    """NaN compares as neither larger nor smaller, but must be the worst."""
    return value if value == value else float("inf")


if __name__ == "__main__":
    sys.exit(main())
