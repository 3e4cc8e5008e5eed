"""Trains runs of the toy task, of one phase or two, reads and compares their files, and ends runs as a kill would."""

import contextlib
import itertools
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.train.reporting import Reporter
from electra_tf.train.run_directory import RATES
from tests import toy
from tests.toy import Regression, toy_config, toy_run


class OutputAlone(Regression):
    trained_variables = property(lambda self: self.output_layer.trainable_variables)


class TwoPhases(Regression):
    """The first three steps train the output layer alone. Then its bias becomes 7, and the others train everything."""

    phase_steps = property(lambda self: (3, self.config.train.num_steps - 3))

    def __init__(self, config):
        super().__init__(config)
        self.first = OutputAlone(config)
        self.first.hidden, self.first.output_layer = self.hidden, self.output_layer

    def phases(self):
        return self.first, self

    def begin(self):
        self.output_layer.bias.assign([7.0])

    def create_variables(self):
        self.first.create_variables()
        super().create_variables()


def train_toy(model_dir, config=None, stage=None, strategy=None, **options) -> dict:
    """Trains the toy task. Returns: the metrics of the last evaluation."""
    run = toy_run(config or toy_config(), model_dir, strategy)
    return toy.train_toy(run, stage and [stage], **options).metrics


def lines(model_dir) -> list[dict]:
    """The lines of metrics.jsonl without rates."""
    with tf.io.gfile.GFile(os.path.join(model_dir, "metrics.jsonl")) as stream:
        reports = map(json.loads, stream.read().splitlines())
        return [{name: value for name, value in report.items() if name not in RATES} for report in reports]


def tensors(prefix) -> dict[str, np.ndarray]:
    """All tensors of a checkpoint but TensorFlow's own, such as its count of saves."""
    reader = tf.compat.v1.train.NewCheckpointReader(str(prefix))
    names = [name for name in reader.get_variable_to_shape_map() if not name.startswith(("_CHECK", "save_counter"))]
    return {name: reader.get_tensor(name) for name in names}


def assert_same_checkpoints(one, other, *checkpoints: str) -> None:
    for name in checkpoints:
        # As bytes: a NaN equals itself, and -0 differs from 0.
        first, second = (
            {key: values.tobytes() for key, values in tensors(os.path.join(run, name)).items()} for run in (one, other)
        )
        differing = [key for key in first.keys() | second.keys() if first.get(key) != second.get(key)]
        assert not differing, f"{name}: {differing}"


def assert_same_run(one, other, *checkpoints: str) -> None:
    """Equal reports, and equal bytes of these checkpoints, such as "checkpoints/step-8"."""
    assert lines(one) == lines(other), f"the reports of {one} and {other} differ"
    assert_same_checkpoints(one, other, *checkpoints)


class Killed(BaseException):
    """In place of a kill: nothing is closed or flushed afterwards."""


@contextlib.contextmanager
def killed_at(owner: Any, name: str, number: int = 1, when: str = "after") -> Iterator[None]:
    """Ends the block before or after a call, counted from 1, of a function of a module or a class."""
    original, calls = getattr(owner, name), itertools.count(1)

    def killing(*arguments, **options):
        is_last = next(calls) == number
        if is_last and when == "before":
            raise Killed
        result = original(*arguments, **options)
        if is_last:
            raise Killed
        return result

    with pytest.MonkeyPatch.context() as patched, pytest.raises(Killed):
        patched.setattr(owner, name, killing)
        patched.setattr(Reporter, "close", lambda self: None)
        yield


def wait_until(is_reached: Callable[[], bool], process: subprocess.Popen, log: Path, seconds: float = 300.0) -> None:
    """Waits for a moment of a process that still runs then; it fails with the end of its log."""
    deadline = time.monotonic() + seconds
    while not is_reached():
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.0005)
