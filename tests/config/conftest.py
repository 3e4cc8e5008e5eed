from collections.abc import Callable

import pytest
import yaml

from electra_tf.config.errors import UserError
from electra_tf.tasks.pretrain.config import load_config

ENCODER = {
    "vocab_size": 47,
    "embedding_size": 12,
    "hidden_size": 16,
    "num_layers": 3,
    "num_heads": 2,
    "intermediate_size": 20,
}


@pytest.fixture
def settings():
    """`settings(train=...)`: what a file of a small run holds, some of its sections changed."""

    def build(**changes) -> dict:
        return {
            "encoder": ENCODER,
            "objective": {"name": "electra", "generator": {"size_fraction": 0.5}},
            "data": {"max_seq_length": 10},
            "optimizer": {"learning_rate": 1e-3},
            "train": {"num_steps": 8, "batch_size": 4},
            **changes,
        }

    return build


@pytest.fixture
def write(tmp_path):
    """`write(values, name)`: the path of a file of these settings, or of this text."""

    def build(values: dict | str, name: str = "run.yaml"):
        text = values if isinstance(values, str) else yaml.safe_dump(values)
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return build


@pytest.fixture
def message_of():
    """`message_of(function, ...)`: the one line with which a call of it with these arguments is refused."""

    def call(function: Callable, *arguments) -> str:
        with pytest.raises(UserError) as caught:
            function(*arguments)
        message = str(caught.value)
        assert "\n" not in message
        return message

    return call


@pytest.fixture
def refusal(message_of):
    """`refusal(path, "a.b=value", ...)`: the one line that says why the file is refused."""
    return lambda path, *overrides: message_of(load_config, path, overrides)
