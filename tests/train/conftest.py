"""One whole run of the toy task, and evaluations with given scores."""

import shutil
from collections.abc import Callable

import pytest

from electra_tf.train.device_loop import DeviceLoop
from tests.train.runs import train_toy


@pytest.fixture(scope="session")
def whole(tmp_path_factory) -> tuple[str, dict]:
    """A finished run of eight steps, not to be changed: its directory, and the metrics of its last evaluation."""
    model_dir = str(tmp_path_factory.mktemp("whole") / "run")
    return model_dir, train_toy(model_dir)


@pytest.fixture
def copied(whole, tmp_path) -> str:
    """A copy of the whole run that a test may change."""
    return str(shutil.copytree(whole[0], tmp_path / "copied"))


@pytest.fixture
def scored(monkeypatch) -> Callable[..., None]:
    """`scored(5.0, 9.0)`: the values of `squared_error` that the next evaluations report."""

    def give(*scores: float) -> None:
        values, evaluate = iter(scores), DeviceLoop.evaluate
        monkeypatch.setattr(
            DeviceLoop, "evaluate", lambda *given: evaluate(*given)._replace(metrics={"squared_error": next(values)})
        )

    return give
