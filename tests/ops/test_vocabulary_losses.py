"""Losses over the vocabulary at all positions, made in parts."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.vocabulary_logits import VocabularyLogits
from electra_tf.ops import vocabulary_losses

B, S, E, V = 3, 5, 7, 300  # V' is 384
TOKENS = np.random.default_rng(1).integers(0, V, [B, S])
OTHERS = np.random.default_rng(2).integers(0, V, [B, S])
UPSTREAM = np.random.default_rng(3).normal(size=[B, S])


@pytest.fixture(scope="module")
def tensors() -> list[np.ndarray]:
    """Vectors, table and bias."""
    draws = np.random.default_rng(0)
    return [draws.normal(size=shape).astype(np.float32) for shape in ([B, S, E], [V, E], [V])]


def losses_and_gradients(tensors, training: bool = True, **options):
    @tf.function(**options)
    def compute(vectors, table, bias):
        with tf.GradientTape() as tape:
            tape.watch([vectors, table, bias])
            scores = VocabularyLogits(vectors, table, bias, training)
            found = scores.token_losses(tf.constant(TOKENS, tf.int32), tf.constant(OTHERS, tf.int32))
            # What is only reported must add nothing.
            total = tf.reduce_sum(found.token * UPSTREAM.astype(np.float32) + found.other + found.likeliest)
        return found, tape.gradient(total, [vectors, table, bias])

    return compute(*(tf.constant(values) for values in tensors))


def expected_losses_and_gradients(tensors):
    vectors, table, bias = (values.astype(np.float64) for values in tensors)
    logits = vectors @ table.T + bias
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    def of(ids: np.ndarray) -> np.ndarray:
        return -np.take_along_axis(log_probs, ids[..., None], -1)[..., 0]

    of_logits = (np.exp(log_probs) - np.eye(V)[TOKENS]) * UPSTREAM[..., None]
    gradients = of_logits @ table, np.einsum("bsv,bse->ve", of_logits, vectors), of_logits.sum((0, 1))
    return (of(TOKENS), of(OTHERS), -log_probs.max(-1)), gradients


# 15 vectors: in one part, in four of 4 with one place left over, and one by one, also below a single vector's scores.
LIMITS = (2**26, 4 * 384, 384, 1)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("training", [True, False])
def test_losses_and_gradients_are_those_of_the_softmax_in_parts_of_any_size(tensors, monkeypatch, limit, training):
    monkeypatch.setattr(vocabulary_losses, "_SCORES_AT_ONCE", limit)
    losses, gradients = losses_and_gradients(tensors, training)
    expected_losses, expected_gradients = expected_losses_and_gradients(tensors)
    for found, expected in zip([*losses, *gradients], [*expected_losses, *expected_gradients], strict=True):
        assert found.numpy() == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_parts_are_the_same_in_a_program_that_is_compiled_as_a_whole(tensors, monkeypatch):
    monkeypatch.setattr(vocabulary_losses, "_SCORES_AT_ONCE", 4 * 384)
    found = tf.nest.flatten(losses_and_gradients(tensors, jit_compile=True))
    expected = tf.nest.flatten(expected_losses_and_gradients(tensors))
    for values, wanted in zip(found, expected, strict=True):
        assert values.numpy() == pytest.approx(wanted, rel=1e-5, abs=1e-5)


def largest_product(function, *inputs) -> int:
    """The most scores in the result of a product that a traced function reaches."""
    graph = function.get_concrete_function(*inputs).graph.as_graph_def(add_shapes=True)
    nodes = [*graph.node, *(node for called in graph.library.function for node in called.node_def)]
    shapes = [node.attr["_output_shapes"].list.shape[0] for node in nodes if node.op == "MatMul"]
    return max(int(np.prod([size.size for size in shape.dim])) for shape in shapes)


def test_there_are_never_more_scores_at_once_than_the_limit(tensors, monkeypatch):
    def compute(vectors, table, bias):
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            scores = VocabularyLogits(vectors, table, bias, training=True)
            losses = scores.token_losses(tf.constant(TOKENS, tf.int32), tf.constant(OTHERS, tf.int32)).token
        return tape.gradient(losses, vectors)

    specs = [tf.TensorSpec(values.shape, tf.float32) for values in tensors]
    assert largest_product(tf.function(compute), *specs) == 15 * 384
    monkeypatch.setattr(vocabulary_losses, "_SCORES_AT_ONCE", 4 * 384)
    # The gradient of the table, of 384 x 7, is larger than four vectors' scores.
    assert largest_product(tf.function(compute), *specs) == max(4 * 384, 384 * E)


@pytest.mark.parametrize("limit", [2**26, 4 * 384])
def test_the_likeliest_token_is_told_by_an_equal_loss(tensors, monkeypatch, limit):
    monkeypatch.setattr(vocabulary_losses, "_SCORES_AT_ONCE", limit)
    vectors, table, bias = tensors
    best = np.argmax(vectors @ table.T + bias, axis=-1)
    ids = np.where(np.arange(S) < 3, best, (best + 1) % V)
    scores = VocabularyLogits(*map(tf.constant, tensors), training=True)
    found = scores.token_losses(tf.constant(ids, tf.int32), tf.constant(best, tf.int32))
    assert (found.token <= found.likeliest).numpy().tolist() == [[True, True, True, False, False]] * B
    assert np.array_equal(found.other, found.likeliest)
