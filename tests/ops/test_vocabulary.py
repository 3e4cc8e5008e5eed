"""Losses whose logits are computed in parts, because they would take too much memory at once."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.vocabulary_logits import VocabularyLogits
from electra_tf.ops import vocabulary
from electra_tf.ops.fused import FusedOps
from electra_tf.ops.reference import REFERENCE

B, S, E, V = 3, 5, 7, 300  # V' is 384
TOKENS = np.random.default_rng(1).integers(0, V, [B, S])
OTHERS = np.random.default_rng(2).integers(0, V, [B, S])
UPSTREAM = np.random.default_rng(3).normal(size=[B, S])


@pytest.fixture(scope="module")
def tensors() -> list[np.ndarray]:
    """Vectors, table and bias."""
    draws = np.random.default_rng(0)
    return [draws.normal(size=shape).astype(np.float32) for shape in ([B, S, E], [V, E], [V])]


def losses_and_gradients(tensors, ops=REFERENCE, **options):
    @tf.function(**options)
    def compute(vectors, table, bias):
        with tf.GradientTape() as tape:
            tape.watch([vectors, table, bias])
            logits = VocabularyLogits(vectors, table, bias, ops)
            losses = logits.token_losses(tf.constant(TOKENS, tf.int32), tf.constant(OTHERS, tf.int32))
            # The other two have no gradient.
            total = tf.reduce_sum(losses.token * UPSTREAM.astype(np.float32) + losses.other + losses.most_likely)
        return losses, tape.gradient(total, [vectors, table, bias])

    return tf.nest.flatten(compute(*(tf.constant(values) for values in tensors)))


@pytest.fixture(scope="module")
def expected(tensors) -> list[np.ndarray]:
    """Three losses and three gradients in float64."""
    vectors, table, bias = (values.astype(np.float64) for values in tensors)
    logits = vectors @ table.T + bias
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    def of(ids: np.ndarray) -> np.ndarray:
        return -np.take_along_axis(log_probs, ids[..., None], -1)[..., 0]

    of_logits = (np.exp(log_probs) - np.eye(V)[TOKENS]) * UPSTREAM[..., None]
    gradients = of_logits @ table, np.einsum("bsv,bse->ve", of_logits, vectors), of_logits.sum((0, 1))
    return [of(TOKENS), of(OTHERS), -log_probs.max(-1), *gradients]


# 15 vectors: in one part, in four of 4 with one position left over, and one by one: below one vector's logits.
@pytest.mark.parametrize(
    ("limit", "ops"),
    [
        *((limit, REFERENCE) for limit in (2**26, 4 * 384, 1)),
        *((4 * 384, FusedOps("cpu", whole_step)) for whole_step in (False, True)),
    ],
)
def test_losses_and_gradients_in_parts_of_any_size_are_those_of_the_softmax(tensors, expected, monkeypatch, limit, ops):
    monkeypatch.setattr(vocabulary, "_LOGITS_AT_ONCE", limit)
    options = {"jit_compile": ops is not REFERENCE and ops.whole_step}
    for actual, desired in zip(losses_and_gradients(tensors, ops, **options), expected, strict=True):
        assert actual.numpy() == pytest.approx(desired, rel=1e-5, abs=1e-5)


def largest_product(function, *inputs) -> int:
    """The most logits in the result of a product that a traced function reaches."""
    graph = function.get_concrete_function(*inputs).graph.as_graph_def(add_shapes=True)
    nodes = [*graph.node, *(node for called in graph.library.function for node in called.node_def)]
    shapes = [node.attr["_output_shapes"].list.shape[0] for node in nodes if node.op == "MatMul"]
    return max(int(np.prod([size.size for size in shape.dim])) for shape in shapes)


def test_there_are_never_more_logits_at_once_than_the_limit(tensors, monkeypatch):
    def compute(vectors, table, bias):
        logits = VocabularyLogits(vectors, table, bias)
        losses = logits.token_losses(tf.constant(TOKENS, tf.int32), tf.constant(OTHERS, tf.int32)).token
        return tf.gradients(losses, vectors)

    specs = [tf.TensorSpec(values.shape, tf.float32) for values in tensors]
    assert largest_product(tf.function(compute), *specs) == 15 * 384
    monkeypatch.setattr(vocabulary, "_LOGITS_AT_ONCE", 4 * 384)
    # The gradient of the table, of 384 x 7, is larger than four vectors' logits.
    assert largest_product(tf.function(compute), *specs) == max(4 * 384, 384 * E)


@pytest.mark.parametrize("limit", [2**26, 4 * 384])
def test_the_loss_of_the_most_likely_token_is_exactly_most_likely(tensors, monkeypatch, limit):
    monkeypatch.setattr(vocabulary, "_LOGITS_AT_ONCE", limit)
    vectors, table, bias = tensors
    best = np.argmax(vectors @ table.T + bias, axis=-1)
    ids = np.where(np.arange(S) < 3, best, (best + 1) % V)
    logits = VocabularyLogits(*map(tf.constant, tensors))
    losses = logits.token_losses(tf.constant(ids, tf.int32), tf.constant(best, tf.int32))
    assert (losses.token <= losses.most_likely).numpy().tolist() == [[True, True, True, False, False]] * B
    assert np.array_equal(losses.other, losses.most_likely)


def test_a_compiled_step_multiplies_bfloat16_and_sums_float32(tensors):
    vectors, table, _ = tensors
    vectors, upstream = np.tile(vectors.reshape(-1, E), [1, 60]), np.random.default_rng(4).normal(size=[B * S, V])
    table = np.tile(table, [1, 60])

    @tf.function(jit_compile=True)
    def compute(vectors, table, upstream):
        with tf.GradientTape() as tape:
            tape.watch([vectors, table])
            products = FusedOps("gpu", whole_step=True).vocabulary_product(vectors, table)
        return products, *tape.gradient(products, [vectors, table], upstream)

    arguments = tf.constant(vectors, tf.bfloat16), tf.constant(table), tf.constant(upstream, tf.float32)
    products, of_vectors, of_table = compute(*arguments)
    assert (products.dtype, of_vectors.dtype, of_table.dtype) == (tf.float32, tf.bfloat16, tf.float32)
    vectors, table, upstream = (tf.cast(tf.cast(each, tf.bfloat16), tf.float64).numpy() for each in arguments)
    # Sums of up to 420 exact products, each step rounded to 2^-24 of the sum of their sizes.
    bound = 420 * 2.0**-24
    assert np.abs(products - vectors @ table.T).max() <= bound * (np.abs(vectors) @ np.abs(table).T).max()
    assert np.abs(of_table - upstream.T @ vectors).max() <= bound * (np.abs(upstream).T @ np.abs(vectors)).max()
    exact = upstream @ table
    assert np.abs(tf.cast(of_vectors, tf.float64) - exact).max() <= 2.0**-8 * np.abs(exact).max()
