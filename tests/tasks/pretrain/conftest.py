"""A batch written down, and tiny objectives, for the tests of all objectives.

The batch is `[CLS] 11 12 [SEP] 13 [SEP]` and `[CLS] 21 22 [SEP]` with two of padding; masked are 13, 11 and 22.
"""

from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.encoder import Encoder
from electra_tf.models.layers import INFERENCE, ForwardContext
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import Objective, build_objective

MASKED = np.array([[0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0]])
WORDS = np.array([[0, 1, 1, 0, 1, 0], [0, 1, 1, 0, 0, 0]])
_ROWS = {
    "input_ids": [[2, 11, 12, 3, 13, 3], [2, 21, 22, 3, 0, 0]],
    "masked_input_ids": [[2, 4, 12, 3, 4, 3], [2, 21, 4, 3, 0, 0]],
    "input_mask": [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]],
    "segment_ids": [[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]],
    "masked_lm_positions": [[4, 1], [2, 0]],
    "masked_lm_ids": [[13, 11], [22, 0]],
}


@pytest.fixture(scope="session")
def batch() -> dict[str, tf.Tensor]:
    tensors = {name: tf.constant(rows) for name, rows in _ROWS.items()}
    weights, losses = tf.constant([[1.0, 1.0], [1.0, 0.0]]), tf.constant([[2.5, 1.5], [4.25, 0.0]])
    return {**tensors, "masked_lm_weights": weights, "mask_token_weights": weights, "unigram_losses": losses}


def vectors_of(encoder: Encoder, batch: dict[str, tf.Tensor], ids: str = "input_ids") -> np.ndarray:
    """[B, S, H]: an encoder's output for one of the tensors of ids of a batch."""
    inputs = (batch[name] for name in (ids, "input_mask", "segment_ids"))
    return encoder(*inputs, context=INFERENCE).sequence_output.numpy()


@pytest.fixture(scope="session")
def sampling() -> ForwardContext:
    """Inference with random numbers to sample with."""
    return ForwardContext(random=RandomStream(4, 0, 0))


@pytest.fixture(scope="session")
def build(tiny_config) -> Callable[..., Objective]:
    """`build("electra", temperature=2.0)`: a tiny objective without dropout, with weights large enough to matter.

    Args: changes: of the other groups.        fresh: for a test that changes it; others share one.
    """
    shared: dict[str, Objective] = {}

    def objective(name: str, changes: dict | None = None, fresh: bool = False, **settings) -> Objective:
        key = repr((name, changes, settings))
        if not fresh and key in shared:
            return shared[key]
        changes = dict(changes or {})
        encoder = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.3}
        encoder |= changes.pop("encoder", {})
        keras.utils.set_random_seed(2)
        built = build_objective(tiny_config(encoder=encoder, objective={"name": name, **settings}, **changes))
        return built if fresh else shared.setdefault(key, built)

    return objective
