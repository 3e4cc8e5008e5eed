"""What all calls from Python share: settings, strategies, the state of the user's process, and the names in errors."""

import contextlib
import json
import random
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from electra_tf.config.errors import TrainingStopped, UserError
from electra_tf.train.distribution import STRATEGIES, build_strategy
from electra_tf.train.signals import Interrupted, Interruption

_NAMES = {
    "set": "settings",
    "input": "inputs",
    "coverage_input": "coverage_inputs",
    "train_file": "train",
    "validation_file": "validation",
    "test_file": "test",
}
_FLAG = re.compile(r"(?<![\w-])--(\w+)")


@contextlib.contextmanager
def users_process() -> Iterator[None]:
    """Leaves random states alone, and lets errors name arguments in place of flags."""
    state = random.getstate()
    random.seed(0)  # initial values without a seed of their own
    try:
        yield
    except (UserError, TrainingStopped) as error:
        message = _FLAG.sub(lambda flag: _NAMES.get(flag[1], flag[1]), str(error))
        raise type(error)(message.replace("the flag", "the argument")) from None
    finally:
        random.setstate(state)


@contextlib.contextmanager
def started_strategy(name: str) -> Iterator[tf.distribute.Strategy]:
    """Starts a strategy, and restores TensorFlow's options at the end.

    Raises: UserError: there is none of this name, or it has no devices.
    """
    if name not in STRATEGIES:
        raise UserError(f"strategy is {name!r}, expected one of {', '.join(STRATEGIES)}")
    if tf.config.list_physical_devices("GPU"):
        yield build_strategy(name)  # sets no option
        return
    options = tf.config.optimizer  # reading them starts TensorFlow
    grappler = options.get_experimental_options()["disable_meta_optimizer"]
    try:
        yield build_strategy(name)
    finally:
        options.set_experimental_options({"disable_meta_optimizer": grappler})


@contextlib.contextmanager
def interruptible() -> Iterator[Interruption | None]:
    """Lets SIGINT end a training after a checkpoint. Yields None in another thread than the main one, which gets none.

    Raises: KeyboardInterrupt: the training has ended so, or SIGINT came at its end.
    """
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


def overrides_of(settings: Mapping[str, Any] | None) -> list[tuple[str, Any]]:
    """Settings by path, with numbers and arrays of NumPy as Python's. Raises: UserError: they are no settings."""
    if not isinstance(settings or {}, Mapping):
        raise UserError(f"settings is {settings!r:.80}, expected a dictionary such as {{'train.num_steps': 1000}}")
    return list(json.loads(json.dumps(dict(settings or {}), default=_plain)).items())


def _plain(value: Any) -> Any:
    if not hasattr(value, "tolist"):
        raise UserError(f"settings has {value!r:.80}, expected a number, a text, a list or a dictionary")
    return value.tolist()
