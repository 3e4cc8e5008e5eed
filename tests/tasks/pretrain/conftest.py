"""What the tests of objectives share: a batch written down, tiny objectives, and numpy's forms of their formulas.

The batch is `[CLS] 11 12 [SEP] 13 [SEP]` and `[CLS] 21 22 [SEP]` with two of padding; masked are 13, 11 and 22.
"""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from electra_tf.models.layers import ForwardContext
from electra_tf.models.vocabulary_logits import VocabularyLogits
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import Objective, build_objective

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


@pytest.fixture(scope="session")
def sampling() -> ForwardContext:
    """Inference with random numbers to sample with."""
    return ForwardContext(random=RandomStream(4, 0, 0))


@pytest.fixture(scope="session")
def build(tiny_config) -> Callable[..., Objective]:
    """`build("electra", temperature=2.0)`: a tiny objective without dropout, with weights large enough to matter."""

    def objective(name: str, changes: dict | None = None, **settings) -> Objective:
        tf_keras.utils.set_random_seed(2)
        encoder = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.3}
        return build_objective(tiny_config(encoder=encoder, objective={"name": name, **settings}, **(changes or {})))

    return objective


@pytest.fixture(scope="session")
def values() -> Callable[..., dict[str, float]]:
    """`values(objective, batch, context)`: the training terms, divided."""

    def divide(objective: Objective, batch: dict[str, tf.Tensor], context: ForwardContext) -> dict[str, float]:
        ratios = objective.as_ratios(batch, objective.training_terms(batch, context))
        return {name: ratio.value() for name, ratio in ratios.items()}

    return divide


@pytest.fixture(scope="session")
def logits_of() -> Callable[..., VocabularyLogits]:
    """`logits_of(array)`: given [B, M, V] logits as a generator returns them."""

    def wrap(logits) -> VocabularyLogits:
        logits = tf.convert_to_tensor(logits, tf.float32)
        return VocabularyLogits(logits, tf.eye(logits.shape[-1]), tf.zeros([logits.shape[-1]]))

    return wrap


@pytest.fixture(scope="session")
def certain(logits_of) -> Callable[..., VocabularyLogits]:
    """`certain(ids)`: the logits of a generator that gives each of these tokens all of the probability."""
    return lambda token_ids: logits_of(100.0 * tf.one_hot(token_ids, 47))


@pytest.fixture(scope="session")
def log_softmax() -> Callable[[np.ndarray], np.ndarray]:
    """In float64, over the last axis."""

    def formula(logits) -> np.ndarray:
        logits = np.asarray(logits, np.float64)
        return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))

    return formula
