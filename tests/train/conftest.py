"""Shared by the tests of runs: one whole run of the toy task, and readers of a run's files."""

import json
import os
import shutil
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.train.device_loop import DeviceLoop
from electra_tf.train.run_directory import RATES
from tests import toy
from tests.toy import toy_config, toy_run


@pytest.fixture(scope="session")
def train_toy() -> Callable[..., dict]:
    """`train_toy(model_dir, config, stage, **options)`: trains the toy task; the metrics of the last evaluation."""

    def call(model_dir, config=None, stage=None, strategy=None, **options) -> dict:
        run = toy_run(config or toy_config(), model_dir, strategy)
        return toy.train_toy(run, stage and [stage], **options).metrics

    return call


@pytest.fixture(scope="session")
def whole(train_toy, tmp_path_factory) -> tuple[str, dict]:
    """A finished run of eight steps, not to be changed: its directory, and the metrics of its last evaluation."""
    model_dir = str(tmp_path_factory.mktemp("whole") / "run")
    return model_dir, train_toy(model_dir)


@pytest.fixture
def copied(whole, tmp_path) -> str:
    """A copy of the whole run that a test may change."""
    return str(shutil.copytree(whole[0], tmp_path / "copied"))


@pytest.fixture(scope="session")
def lines() -> Callable[[str], list[dict]]:
    """`lines(model_dir)`: metrics.jsonl without rates."""

    def read(model_dir) -> list[dict]:
        with tf.io.gfile.GFile(os.path.join(model_dir, "metrics.jsonl")) as stream:
            reports = map(json.loads, stream.read().splitlines())
            return [{name: value for name, value in report.items() if name not in RATES} for report in reports]

    return read


@pytest.fixture(scope="session")
def tensors() -> Callable[[str], dict[str, np.ndarray]]:
    """`tensors(prefix)`: all tensors of a checkpoint but TensorFlow's own, such as its count of saves."""

    def read(prefix) -> dict[str, np.ndarray]:
        reader = tf.compat.v1.train.NewCheckpointReader(str(prefix))
        names = [name for name in reader.get_variable_to_shape_map() if not name.startswith(("_CHECK", "save_counter"))]
        return {name: reader.get_tensor(name) for name in names}

    return read


@pytest.fixture(scope="session")
def assert_same_run(lines, tensors) -> Callable[..., None]:
    """`assert_same_run(one, other, "checkpoints/step-8")`: equal reports, and equal bytes of these checkpoints."""

    def compare(one, other, *checkpoints: str) -> None:
        assert lines(one) == lines(other)
        for name in checkpoints:
            # As bytes: a NaN equals itself, and -0 differs from 0.
            first, second = (
                {key: values.tobytes() for key, values in tensors(os.path.join(run, name)).items()}
                for run in (one, other)
            )
            assert first.keys() == second.keys()
            assert [key for key in first if first[key] != second[key]] == []

    return compare


@pytest.fixture
def scored(monkeypatch) -> Callable[..., None]:
    """`scored(5.0, 9.0)`: the values of `squared_error` that the next evaluations report."""

    def give(*scores: float) -> None:
        values, evaluate = iter(scores), DeviceLoop.evaluate
        monkeypatch.setattr(
            DeviceLoop, "evaluate", lambda *given: evaluate(*given)._replace(metrics={"squared_error": next(values)})
        )

    return give
