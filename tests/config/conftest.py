from collections.abc import Callable

import pytest
import yaml

from electra_tf.config.errors import UserError
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config
from tests.toy import ENCODER

STAGES = [
    {"num_steps": 5, "max_seq_length": 8, "batch_size": 6},
    {"num_steps": 3, "max_seq_length": 10, "batch_size": 4},
]


@pytest.fixture
def settings() -> Callable[..., dict]:
    """`settings(train=...)`: the settings of a small run, with some groups replaced."""

    def build(**changes) -> dict:
        return {
            "encoder": {**ENCODER, "num_layers": 3, "max_position_embeddings": 512},
            "objective": {"name": "electra", "generator": {"size_fraction": 0.5}},
            "data": {"max_seq_length": 10},
            "optimizer": {"learning_rate": 1e-3},
            "train": {"num_steps": 8, "batch_size": 4},
            **changes,
        }

    return build


@pytest.fixture
def write(tmp_path):
    """`write(values, name)`: the path of a file with these settings, or with this text."""

    def build(values: dict | str, name: str = "run.yaml"):
        text = values if isinstance(values, str) else yaml.safe_dump(values)
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return build


@pytest.fixture
def load(write, settings) -> Callable[..., PretrainingConfig]:
    """`load("a.b=value", ...)`: the configuration of the small run with these settings changed."""
    return lambda *overrides: load_config(write(settings()), overrides)


@pytest.fixture
def refusal(write, settings) -> Callable[..., str]:
    """`refusal("a.b=value", ..., content=...)`: the one-line error for the small run, or for another file."""

    def message(*overrides: str, content: dict | str | None = None) -> str:
        with pytest.raises(UserError) as caught:
            load_config(write(settings() if content is None else content), overrides)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return message
