"""Losses, samples and metrics from logits over the vocabulary: of a network, and of counts for all positions."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.context_free_logits import ContextFreeLogits
from electra_tf.models.layers import ForwardContext
from electra_tf.models.vocabulary_logits import VocabularyLogits, most_likely
from electra_tf.ops.fused import FusedOps
from electra_tf.ops.random import RandomStream
from electra_tf.ops.reference import NEG_INF, REFERENCE
from electra_tf.tasks.pretrain import build_objective
from tests.toy import follows, log_softmax, logits_of

LOGITS = np.array([2.0, -1.0, 0.0, 0.5, -4.0, 1.5, 0.0], np.float32)
SAMPLES = (2000, 100)  # B and M: 200,000 draws


def of_network(logits, shape=SAMPLES) -> VocabularyLogits:
    return logits_of(np.broadcast_to(logits, [*shape, len(logits)]))


def of_counts(logits, shape=SAMPLES) -> ContextFreeLogits:
    return ContextFreeLogits(tf.exp(tf.constant(logits, tf.float32)), tf.zeros(shape, tf.int32))


KINDS = pytest.mark.parametrize("distribution", [of_network, of_counts])


def softmax(logits) -> np.ndarray:
    return np.exp(log_softmax(logits))


def context(step: int = 0, first_example: int = 0) -> ForwardContext:
    return ForwardContext(random=RandomStream(1, step, first_example))


# --- samples


@KINDS
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_samples_follow_the_softmax_at_the_temperature_and_not_at_1_02_times_it(distribution, temperature):
    drawn = distribution(LOGITS).sample(context(), temperature=temperature).numpy()
    assert drawn.dtype == np.int32 and drawn.shape == SAMPLES
    assert follows(drawn, softmax(LOGITS / temperature)) and not follows(drawn, softmax(LOGITS / temperature / 1.02))


@KINDS
def test_samples_are_a_function_of_the_step_and_the_example(distribution):
    whole = distribution(LOGITS, (7, 50)).sample(context()).numpy()
    assert np.array_equal(whole[3:], distribution(LOGITS, (4, 50)).sample(context(first_example=3)))
    assert not np.array_equal(whole, distribution(LOGITS, (7, 50)).sample(context(step=1)))


@KINDS
def test_without_its_forbidden_token_a_position_keeps_the_proportions_of_the_others(distribution):
    forbidden_ids = np.broadcast_to([5, 4], [2000, 50, 2]).reshape(SAMPLES)
    drawn = distribution(LOGITS).sample(context(), forbidden_ids=tf.constant(forbidden_ids, tf.int32)).numpy()
    for forbidden_id in (5, 4):
        allowed = np.where(np.arange(7) == forbidden_id, 0.0, softmax(LOGITS))
        assert follows(drawn[forbidden_ids == forbidden_id], allowed)


@KINDS
def test_a_vocabulary_of_more_than_128_tokens_is_sampled_in_proportion(distribution):
    """261 entries are three rows of 128 columns, the last almost empty; one token is in each corner."""
    logits = np.full(261, -60.0, np.float32)
    likely = {0: 1.0, 127: 0.0, 128: 2.0, 255: -1.0, 256: 1.5, 260: 0.5}
    logits[list(likely)] = list(likely.values())
    drawn = distribution(logits, (500, 40)).sample(context()).numpy()
    assert set(np.unique(drawn)) == set(likely)
    assert follows(np.searchsorted(list(likely), drawn), softmax(list(likely.values())))


def test_a_forbidden_token_with_nearly_all_the_counts_is_never_drawn():
    """130 and 2 are in one of the 128 columns, and 130 is 10^9 times as likely."""
    counts = np.zeros(140, np.float32)
    counts[[2, 130, 139]] = 1.0, 1e9, 1.0
    distribution = ContextFreeLogits(tf.constant(counts), tf.zeros(SAMPLES, tf.int32))
    drawn = distribution.sample(context(), forbidden_ids=tf.fill(SAMPLES, 130)).numpy()
    assert set(np.unique(drawn)) == {2, 139}
    assert abs(np.mean(drawn == 2) - 0.5) < 5 * 0.5 / math.sqrt(drawn.size)


def test_the_rarest_tokens_of_a_large_vocabulary_are_drawn():
    """A single running sum in float32 would stop growing at 2^24."""
    counts = np.ones(30_000, np.float32)
    counts[77] = 1e8
    drawn = ContextFreeLogits(tf.constant(counts), tf.zeros([20_000, 10], tf.int32)).sample(context()).numpy()
    expected = drawn.size * 29_999 / (1e8 + 29_999)
    assert abs(np.count_nonzero(drawn != 77) - expected) < 5 * math.sqrt(expected)


def test_distinct_samples_are_drawn_one_after_the_other_from_those_that_are_left():
    """Of 261 entries in 128 columns 0, 128 and 256 share one; without the forbidden 256, 128 has most of the mass."""
    logits, likely = np.full(261, -90.0, np.float32), np.array([0, 127, 128, 260, 256])
    logits[likely] = 1.0, 0.0, 4.0, 1.5, 7.0
    shape, temperature = (400, 100), 0.5
    forbidden_ids = tf.fill(shape, 256)
    drawn = of_network(logits, shape).sample_distinct(context(), 3, forbidden_ids, temperature).numpy()
    assert drawn.shape == (*shape, 3) and drawn.dtype == np.int32
    probs = dict(zip(likely[:4].tolist(), softmax(logits[likely[:4]] / temperature), strict=True))
    orders = list(itertools.permutations(probs, 3))
    first, second, third = np.array([[probs[token] for token in order] for order in orders]).T
    masses = first * second / (1.0 - first) * third / (1.0 - first - second)
    index = {order: number for number, order in enumerate(orders)}
    assert follows(np.array([index[tuple(row)] for row in drawn.reshape(-1, 3).tolist()]), masses)
    part = of_network(logits, (7, 100)).sample_distinct(context(first_example=393), 3, forbidden_ids[:7], temperature)
    assert np.array_equal(part, drawn[393:])


@pytest.mark.parametrize("ops", [REFERENCE, FusedOps("cpu", whole_step=False)], ids=["reference", "fused"])
@pytest.mark.parametrize(("num_tokens", "num_rows"), [(7, 8), (127, 129), (5, 300)])
def test_entries_without_a_token_have_probability_0_and_no_gradient(ops, num_tokens, num_rows):
    """As `MaskedLmHead` gives them."""
    draw = np.random.default_rng(5)
    vectors = tf.constant(draw.normal(size=[2, 3, 4]), tf.float32)
    table, bias = (tf.Variable(draw.normal(size=[num_rows, *shape]), dtype=tf.float32) for shape in ([4], []))
    ids = tf.constant(draw.integers(0, num_tokens, [2, 3]), tf.int32)
    with tf.GradientTape() as tape:
        masked = tf.pad(bias[:num_tokens], [[0, num_rows - num_tokens]], constant_values=NEG_INF)
        padded = VocabularyLogits(vectors, tf.convert_to_tensor(table), masked, ops)
        losses = padded.losses(ids), padded.token_losses(ids, ids)[0]
    plain = VocabularyLogits(vectors, table[:num_tokens], bias[:num_tokens], ops)
    for loss in losses:
        np.testing.assert_allclose(loss, plain.losses(ids), rtol=1e-5)
    for gradient in tape.gradient(losses, [table, bias]):
        gradient = tf.convert_to_tensor(gradient).numpy()
        assert gradient[:num_tokens].all() and not gradient[num_tokens:].any()
    np.testing.assert_allclose(padded.entropies(), plain.entropies(), rtol=1e-5)
    np.testing.assert_array_equal(padded.is_top1(ids), plain.is_top1(ids))
    np.testing.assert_allclose(padded.logits[..., :num_tokens], plain.logits, rtol=1e-5)
    assert (padded.logits[..., num_tokens:].numpy() == -np.inf).all()
    for sampled in (padded.sample(context(), temperature=1e6), most_likely(padded.logits)):
        assert (sampled.numpy() < num_tokens).all()


@pytest.mark.parametrize("value", [-np.inf, -3e38, -2e9, np.inf, np.nan])
def test_samples_are_in_the_vocabulary_also_for_logits_that_are_not_finite(value):
    """The entries that fill up the 128 columns are never drawn."""
    distribution = VocabularyLogits(tf.zeros([20, 30, 3]), tf.zeros([4, 3]), tf.constant([value] * 4))
    assert set(np.unique(distribution.sample(context()))) <= {0, 1, 2, 3}
    losses = distribution.losses(tf.ones([20, 30], tf.int32)).numpy()
    assert np.isfinite(losses).all() == np.isfinite(value)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"temperature": 1e-3}, 5),
        ({"sampling": "greedy"}, 5),
        ({"sampling": "categorical", "disallow_correct": True, "temperature": 1e-3}, 0),
        ({"sampling": "greedy", "disallow_correct": True}, 0),
    ],
)
def test_an_objective_samples_as_its_settings_require(tiny_config, settings, expected):
    """Token 5 is the original at every position and the most likely token, then token 0."""
    objective = build_objective(tiny_config(objective=settings))
    originals = tf.fill([20, 10], 5)
    batch = {
        "input_ids": originals,
        "masked_lm_positions": tf.tile(tf.range(10)[tf.newaxis], [20, 1]),
        "masked_lm_ids": originals,
        "masked_lm_weights": tf.ones([20, 10]),
    }
    logits = np.where(np.arange(7) == 5, 2000.0, LOGITS).astype(np.float32)
    assert (objective.corrupt(batch, of_network(logits, (20, 10)), context()).sampled_ids.numpy() == expected).all()


# --- losses and metrics


def test_losses_and_their_gradients_are_those_of_the_softmax():
    logits = tf.constant([[[1.0, 2.0, 0.0, -1.0], [0.5, 0.5, 3.0, 0.0], [40.0, -40.0, 0.0, 9.0]]])
    ids, upstream = [1, 3, 1], np.array([1.0, 0.5, 0.0])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        losses = logits_of(logits).losses(tf.constant([ids]))
    gradient = tape.gradient(losses, logits, tf.constant([upstream], tf.float32)).numpy()[0]
    probs = softmax(logits)[0]
    assert losses.numpy()[0] == pytest.approx(-np.log(probs[[0, 1, 2], ids]), rel=1e-6)
    assert gradient == pytest.approx((probs - np.eye(4)[ids]) * upstream[:, None], abs=2e-7)


COUNTS = [0, 3, 8, 0, 1, 4]


def test_metrics_from_counts_are_those_of_the_frequencies():
    distribution = ContextFreeLogits(tf.constant(COUNTS, tf.float32), tf.zeros([2, 3], tf.int32))
    shares = np.array(COUNTS) / 16
    assert tf.nn.softmax(distribution.logits).numpy() == pytest.approx(np.broadcast_to(shares, (2, 3, 6)), abs=1e-7)
    assert distribution.entropies().numpy() == pytest.approx(-sum(p * math.log(p) for p in shares if p), rel=1e-6)
    ids = tf.constant([[1, 2, 4], [2, 5, 0]])
    assert distribution.is_top1(ids).numpy().tolist() == [[0, 1, 0], [1, 0, 0]]
    ties = ContextFreeLogits(tf.ones([6]), tf.zeros([2, 3], tf.int32))  # of a uniform generator: the first counts
    assert ties.is_top1(ids - 1).numpy().tolist() == [[1, 0, 0], [0, 0, 0]]
    # A token without a count has the loss of a count of 1.
    assert distribution.losses(ids).numpy() == pytest.approx(
        -np.log([[3 / 16, 8 / 16, 1 / 16], [8 / 16, 4 / 16, 1 / 16]])
    )


REPORTED = np.array(
    [
        [[0.0, math.log(3.0), -2.0], [2.0, 2.0, 2.0], [30.0, 0.0, -30.0]],
        [[1.0, 0.0, -1.0], [0.0, 0.0, 0.0], [-5.0, 700.0, 700.0]],
    ],
    np.float32,
)


def test_entropies_and_top1_are_those_of_the_softmax_without_a_gradient():
    probs, vectors = softmax(REPORTED), tf.Variable(REPORTED)
    with tf.GradientTape() as tape:
        logits = VocabularyLogits(vectors + 0.0, tf.eye(3), tf.zeros([3]))
        entropies, top1 = logits.entropies(), logits.is_top1(tf.constant([[1, 2, 0], [1, 0, 2]]))
        total = tf.reduce_sum(entropies) + tf.reduce_sum(top1)
    assert tape.gradient(total, vectors) is None
    expected = -np.sum(probs * np.log(np.maximum(probs, 1e-300)), axis=-1)
    assert entropies.numpy() == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert entropies.numpy()[[0, 1], [1, 2]] == pytest.approx([math.log(3), math.log(2)], rel=1e-6)
    assert top1.numpy().tolist() == [[1, 1, 1], [0, 1, 1]]  # also of two that are equally likely
    assert logits.is_top1(tf.constant([[0, 0, 1], [0, 1, 0]])).numpy().tolist() == [[0, 1, 0], [1, 1, 0]]


def test_training_with_counts_never_computes_all_logits():
    """B * M * V would be 6 * 5 * 30,000 numbers; the largest tensor is the counts themselves."""
    counts = tf.ones([30_000])

    def losses_and_samples(ids, step):
        distribution = ContextFreeLogits(counts, ids)
        random = ForwardContext(training=True, random=RandomStream(0, step, 0))
        return distribution.losses(ids), distribution.sample(random, temperature=1.5, forbidden_ids=ids)

    specs = tf.TensorSpec([6, 5], tf.int32), tf.TensorSpec([], tf.int64)
    graph = tf.function(losses_and_samples).get_concrete_function(*specs).graph
    sizes = [output.shape.num_elements() or 0 for op in graph.get_operations() for output in op.outputs]
    assert max(sizes) < 31_000
