"""What all calls from Python share: settings, strategies, the state of the user's process, and the names in errors."""

import contextlib
import json
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from operator import methodcaller
from typing import Any

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.loader import Override
from electra_tf.train.distribution import build_strategy, share_cores, split_cpu
from electra_tf.train.signals import Interrupted, Interruption


@contextlib.contextmanager
def users_process() -> Iterator[None]:
    """Leaves Python's random state alone, from which initial values are drawn."""
    state = random.getstate()
    random.seed(0)  # initial values without a seed of their own
    try:
        yield
    finally:
        random.setstate(state)


@contextlib.contextmanager
def started_strategy(
    name: str, tpu: str = "local", logical_cpu_devices: int = 1, num_at_once: int = 1
) -> Iterator[tf.distribute.Strategy]:
    """Starts a strategy, and restores TensorFlow's options at the end.

    Args: num_at_once: the parts of a batch, or batches, that one CPU computes at the same time, see `share_cores`.
    Raises: UserError: it has no devices, or the arguments do not go together.
    """
    fitting = {"tpu": tpu == "local" or name == "tpu"}
    fitting["logical_cpu_devices"] = logical_cpu_devices == 1 or name not in ("one_device", "tpu")
    if unused := [argument for argument, is_fitting in fitting.items() if not is_fitting]:
        raise UserError(f"{unused[0]} has no effect with strategy={name}; remove it or give its strategy")
    if logical_cpu_devices > 1:
        split_cpu(logical_cpu_devices)
    elif name == "one_device":
        share_cores(num_at_once)
    if tf.config.list_physical_devices("GPU"):
        yield build_strategy(name, tpu)  # sets no option
        return
    options = tf.config.optimizer  # reading them starts TensorFlow
    grappler = options.get_experimental_options()["disable_meta_optimizer"]
    try:
        yield build_strategy(name, tpu)
    finally:
        options.set_experimental_options({"disable_meta_optimizer": grappler})


@contextlib.contextmanager
def interruptible() -> Iterator[Interruption | None]:
    """Lets SIGINT end a training after a checkpoint. Yields None in another thread than the main one, which gets none.

    In a command, which receives all signals, it yields that interruption.

    Raises: KeyboardInterrupt: the training has ended so, or SIGINT came at its end.
    """
    if Interruption.of_command is not None:
        yield Interruption.of_command
        return
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    try:
        with Interruption(of_process=False) as interruption:
            yield interruption
    except Interrupted:
        raise KeyboardInterrupt from None
    if interruption.has_signal:
        raise KeyboardInterrupt


# Settings by path, `{"train.num_steps": 1000}`, or as texts, `["train.num_steps=1000"]`.
GivenSettings = Mapping[str, Any] | Sequence[str] | None


def overrides_of(settings: GivenSettings, seed: int | None = None) -> list[Override]:
    """Settings for the reader of configurations, with numbers and arrays of NumPy as Python's.

    Args: seed: another `train.seed`; None: that of the settings.
    """
    seeds = [] if seed is None else [("train.seed", seed)]
    if settings is not None and not isinstance(settings, Mapping):
        return [*settings, *seeds]
    return [*json.loads(json.dumps({**(settings or {}), **dict(seeds)}, default=methodcaller("tolist"))).items()]
