"""What the tests of checkpoints and those of whole runs share."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.runs.checkpoint import Checkpoints
from electra_tf.runs.directory import RunDirectory
from electra_tf.runs.loop import Run
from electra_tf.tasks.pretrain import build_objective
from electra_tf.train.step import compile_task


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return RunDirectory(tmp_path / "run")


@pytest.fixture(scope="session")
def build(tiny_config) -> Callable:
    """`build(**changes)`: a compiled objective of the tiny configuration."""
    return lambda **changes: compile_task(build_objective(tiny_config(**changes)))


@pytest.fixture(scope="module")
def objective(build):
    return build()


@pytest.fixture(scope="session")
def opened() -> Callable[..., Checkpoints]:
    """`opened(objective, run, keep=1)`: the checkpoints of a run, of which its chief keeps two if nothing is said."""

    def open_them(objective, run: RunDirectory, **options) -> Checkpoints:
        return Checkpoints(objective, run, **{"chief": True, "keep": 2, **options})

    return open_them


def _state_of(objective) -> list[tf.Variable]:
    """Weights, the step, and the moments; the moments of the older generation of optimizers are its weights."""
    optimizer = objective.optimizer
    moments = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    return [*objective.trainable_variables, *moments]


@pytest.fixture(scope="session")
def fill() -> Callable[..., None]:
    """`fill(objective, 3)`: gives every variable values of its own, and the step counter this number."""

    def assign(objective, number: int) -> None:
        for index, variable in enumerate(_state_of(objective)):
            if variable.dtype.is_floating:
                variable.assign(tf.random.stateless_uniform(variable.shape, [number, index], dtype=variable.dtype))
        objective.optimizer.iterations.assign(number)

    return assign


@pytest.fixture(scope="session")
def values() -> Callable[..., list[np.ndarray]]:
    """`values(objective)`: those of every variable that `fill` fills."""
    return lambda objective: [variable.numpy() for variable in _state_of(objective)]


@pytest.fixture(scope="session")
def equal() -> Callable[[list[np.ndarray], list[np.ndarray]], bool]:
    """`equal(first, second)`: whether two lists hold the same arrays, bit for bit."""
    return lambda first, second: len(first) == len(second) and all(map(np.array_equal, first, second))


@pytest.fixture(scope="module")
def config(tiny_config):
    """Eight steps, saved and evaluated after four and at the end, with milestones at 2, 3 and 8."""
    return tiny_config(
        train={
            "num_steps": 8,
            "log_every_steps": 2,
            "save_every_steps": 4,
            "keep_checkpoints": 1,
            "milestone_fractions": (0.25, 0.375, 1.0),
        },
        evaluation={"every_steps": 4},
    )


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory, write_data) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "set")


@pytest.fixture(scope="session")
def run_of() -> Callable[..., Run]:
    """`run_of(config, model_dir)`: a run on one CPU device."""
    return lambda config, model_dir: Run(config, RunDirectory(model_dir), tf.distribute.OneDeviceStrategy("CPU:0"))
