"""The gradients that an objective must and must not send."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from electra_tf.convert.tf1 import tf1_variables
from electra_tf.models.context import ForwardContext
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import build_objective

TABLE = "electra/embeddings/word_embeddings"


@pytest.fixture(scope="module")
def gradients(tiny_config, tiny_batch):
    """`gradients(tying, masked_lm, replaced_token)`: of a total loss with these weights, by the authors' names."""

    def compute(tying: str, masked_lm: float, replaced_token: float) -> dict[str, np.ndarray]:
        tf_keras.utils.set_random_seed(2)
        config = tiny_config(
            encoder={"hidden_dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.3},
            objective={
                "tying": tying,
                "sampling": "greedy",
                "masked_lm_loss_weight": masked_lm,
                "replaced_token_loss_weight": replaced_token,
            },
        )
        objective = build_objective(config)
        batch = tiny_batch(config, [10, 7, 5, 8])
        variables = tf1_variables(objective)
        with tf.GradientTape() as tape:
            terms = objective.loss_terms(batch, ForwardContext(random=RandomStream(0, 0, 0)))
            weights = objective.loss_weights.items()
            loss = tf.add_n([weight * terms[name].total / terms[name].weight for name, weight in weights])
        found = tape.gradient(loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return {name: tf.convert_to_tensor(gradient).numpy() for name, gradient in found.items()}

    return compute


def of_generator(name: str) -> bool:
    return name.startswith(("generator/", "generator_predictions/"))


def without_attention_key_bias(gradients: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """It shifts all scores of a query alike, so its gradient is zero in theory and rounding in practice."""
    return {name: gradient for name, gradient in gradients.items() if not name.endswith("key/bias")}


def test_the_replaced_token_loss_sends_nothing_into_the_generator(gradients):
    found = without_attention_key_bias(gradients("embeddings", 0.0, 50.0))
    assert all(gradient.any() != of_generator(name) for name, gradient in found.items())


def test_the_masked_lm_loss_sends_nothing_into_the_discriminator(gradients):
    found = without_attention_key_bias(gradients("embeddings", 1.0, 0.0))
    for name, gradient in found.items():
        shared = name.startswith("electra/embeddings/")
        assert gradient.any() == (of_generator(name) or shared), name


def test_with_nothing_tied_the_masked_lm_loss_leaves_the_discriminators_tables_alone(gradients):
    found = gradients("none", 1.0, 0.0)
    assert not found[TABLE].any()
    assert found["generator/embeddings/word_embeddings"].any()


@pytest.mark.parametrize("tying", ["none", "embeddings"])
def test_the_total_gradient_is_the_sum_of_both(gradients, tying):
    both, masked_lm, replaced_token = (gradients(tying, *weights) for weights in ((1, 50), (1, 0), (0, 50)))
    for name, total in both.items():
        # Entries are sums of a few hundred products; relative to the largest of the variable.
        scale = max(np.abs(total).max(), 1e-3)
        assert np.abs(masked_lm[name] + replaced_token[name] - total).max() <= 1e-5 * scale, name


def test_the_loss_weights_are_factors_of_the_gradients(gradients):
    once, thrice = gradients("embeddings", 1.0, 0.0)[TABLE], gradients("embeddings", 3.0, 0.0)[TABLE]
    assert np.abs(thrice - 3 * once).max() <= 1e-6 * np.abs(thrice).max()
    fifty, one = gradients("embeddings", 0.0, 50.0)[TABLE], gradients("embeddings", 0.0, 1.0)[TABLE]
    assert np.abs(fifty - 50 * one).max() <= 1e-5 * np.abs(fifty).max()


def test_every_token_of_the_vocabulary_is_pushed_by_the_masked_lm_loss(gradients):
    assert (np.abs(gradients("embeddings", 1.0, 0.0)[TABLE]).max(axis=1) > 0).all()
