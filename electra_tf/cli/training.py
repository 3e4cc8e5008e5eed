"""What the commands that train share: the flags of the machine, the strategy they name, and how a process ends."""

import argparse
import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from electra_tf.cli.flags import ExitStatus, errors_reported
from electra_tf.cli.tpu_installation import require_importable_tensorflow, require_tpu_packages
from electra_tf.config.errors import end_without_teardown
from electra_tf.runs.interruption import Interrupted, Interruption

if TYPE_CHECKING:
    import tensorflow as tf


def add_strategy_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that `require_packages` and `strategy_of` read."""
    parser.add_argument(
        "--strategy",
        default="one_device",
        choices=["one_device", "mirrored", "multi_worker_mirrored", "tpu"],
        help="tf.distribute strategy; multi_worker_mirrored reads TF_CONFIG",
    )
    parser.add_argument(
        "--tpu", default="local", metavar="NAME", help="local (on a TPU VM), a TPU's name, or grpc://HOST:PORT"
    )
    parser.add_argument("--logical_cpu_devices", type=int, default=1, metavar="N", help="split the CPU into N devices")


def require_packages(arguments: argparse.Namespace) -> None:
    """Raises: UserError: if TensorFlow, or what a TPU needs beside it, is not installed; imports neither."""
    require_importable_tensorflow()
    if arguments.strategy == "tpu":
        require_tpu_packages(arguments.tpu)


def strategy_of(arguments: argparse.Namespace) -> "tf.distribute.Strategy":
    """Starts the strategy of the flags. Raises: UserError: if its devices are not there."""
    from electra_tf.train.distribution import build_strategy, split_cpu

    if arguments.logical_cpu_devices > 1:
        split_cpu(arguments.logical_cpu_devices)
    return build_strategy(arguments.strategy, arguments.tpu)


@contextlib.contextmanager
def training_process(strategy: str, ends_process: bool) -> Iterator[tuple[ExitStatus, Interruption]]:
    """A command that signals may end early: reports its errors, and sets the exit status.

    Args:
        strategy: the name of the strategy.
        ends_process: whether the process has nothing else to do.
    """
    with Interruption() as interruption, errors_reported() as status:
        try:
            yield status, interruption
        except Interrupted as interrupted:
            status.code = interrupted.exit_code
    # Workers that are done wait for each other in TensorFlow's own teardown.
    if ends_process and (status.code or strategy != "multi_worker_mirrored"):
        end_without_teardown(status.code)


def run_training(command: Callable[[Interruption], None], strategy: str, ends_process: bool) -> int:
    """Runs a command as a `training_process`. Returns: the exit status."""
    with training_process(strategy, ends_process) as (status, interruption):
        command(interruption)
    return status.code
