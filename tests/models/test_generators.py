"""Generators without a network: a distribution that is the same at every position, from one table of counts."""

import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.context_free_logits import ContextFreeLogits
from electra_tf.models.layers import ForwardContext
from electra_tf.models.vocabulary_logits import VocabularyLogits, sample_categorical
from electra_tf.ops.random import RandomStream

COUNTS = [0, 3, 8, 0, 1, 4]
SAMPLES = (2000, 60)  # B and M


def logits_of(counts, shape=SAMPLES) -> ContextFreeLogits:
    return ContextFreeLogits(tf.constant(counts, tf.float32), tf.zeros(shape, tf.int32))


def draw(counts, shape=SAMPLES, step: int = 0, first_example: int = 0, **options) -> np.ndarray:
    context = ForwardContext(random=RandomStream(1, step, first_example))
    return sample_categorical(logits_of(counts, shape), context, **options).numpy()


def test_it_has_the_interface_of_a_networks_logits():
    public = {name for name in dir(ContextFreeLogits) if not name.startswith("_")}
    assert public == {"logits", "losses", "is_top1", "entropies", "sample"}
    assert public <= set(dir(VocabularyLogits))


def test_losses_are_those_of_the_frequencies():
    losses = logits_of(COUNTS, (2, 2)).losses(tf.constant([[1, 2], [4, 5]])).numpy()
    assert losses == pytest.approx(-np.log([[3 / 16, 8 / 16], [1 / 16, 4 / 16]]), rel=1e-6)


def test_a_token_that_was_never_seen_has_the_loss_of_one_seen_once():
    losses = logits_of(COUNTS, (1, 2)).losses(tf.constant([[0, 3]])).numpy()
    assert losses == pytest.approx(math.log(16), rel=1e-6)


def test_logits_entropies_and_the_most_likely_token_are_those_of_the_frequencies():
    scores = logits_of(COUNTS, (2, 3))
    network = VocabularyLogits(scores.logits, tf.eye(6), tf.zeros([6]))
    probs = np.array(COUNTS) / 16
    assert tf.nn.softmax(scores.logits).numpy() == pytest.approx(np.broadcast_to(probs, (2, 3, 6)), abs=1e-7)
    assert scores.entropies().numpy() == pytest.approx(-sum(p * math.log(p) for p in probs if p), rel=1e-6)
    ids = tf.constant([[1, 2, 4], [2, 5, 0]])
    assert scores.is_top1(ids).numpy().tolist() == [[0, 1, 0], [1, 0, 0]]
    assert scores.losses(ids).shape == network.losses(ids).shape == (2, 3)


def test_draws_follow_the_counts(follows):
    drawn = draw(COUNTS)
    assert drawn.dtype == np.int32 and drawn.shape == SAMPLES
    assert follows(drawn, COUNTS)


@pytest.mark.parametrize("temperature", [0.5, 3.0])
def test_the_temperature_is_a_power_of_the_chances(follows, temperature):
    masses = np.array(COUNTS, np.float64) ** (1 / temperature)
    assert follows(draw(COUNTS, temperature=temperature), masses)


@pytest.mark.parametrize("forbidden_ids", [2, 3, 4])
def test_without_a_token_the_others_keep_their_proportions(follows, forbidden_ids):
    others = [0 if token == forbidden_ids else count for token, count in enumerate(COUNTS)]
    drawn = draw(COUNTS, forbidden_ids=tf.fill(SAMPLES, forbidden_ids))
    assert follows(drawn, others)


def test_each_position_has_its_own_token_that_is_not_drawn():
    forbidden_ids = np.tile([1, 2, 4, 5, 0, 3], (300, 10)).astype(np.int32)
    drawn = draw(COUNTS, forbidden_ids.shape, forbidden_ids=tf.constant(forbidden_ids))
    assert (drawn != forbidden_ids).all()


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_a_token_of_nearly_all_the_mass_is_not_drawn_where_it_is_forbidden(temperature):
    """130 and 2 are in one column of the table, where the first is 10^9 times as likely."""
    counts = np.zeros(140, np.float32)
    counts[[2, 130, 139]] = 1.0, 1e9, 1.0
    drawn = draw(counts, forbidden_ids=tf.fill(SAMPLES, 130), temperature=temperature)
    assert set(np.unique(drawn)) == {2, 139}
    assert abs(np.mean(drawn == 2) - 0.5) < 5 * 0.5 / math.sqrt(drawn.size)


def test_a_vocabulary_of_several_rows_of_columns_is_drawn_from_in_its_proportions(follows):
    counts = np.zeros(261, np.float32)
    counts[[0, 127, 128, 255, 256, 260]] = 3, 1, 7, 2, 4, 1
    assert follows(draw(counts), counts)


def test_the_rarest_tokens_of_a_large_vocabulary_are_drawn_too():
    """A single running sum in float32 would stop growing at 2^24."""
    counts = np.ones(30_000, np.float32)
    counts[77] = 1e8
    drawn = draw(counts, shape=(20_000, 10))
    expected = drawn.size * 29_999 / (1e8 + 29_999)
    assert abs(np.count_nonzero(drawn != 77) - expected) < 5 * math.sqrt(expected)


def test_the_share_of_a_replica_is_a_slice_of_the_whole():
    whole = draw(COUNTS, (7, 5), step=3)
    assert np.array_equal(draw(COUNTS, (4, 5), step=3, first_example=3), whole[3:])
    assert not np.array_equal(draw(COUNTS, (7, 5), step=4), whole)


def test_nothing_of_the_size_of_all_logits_is_made_in_training():
    """B * M * V would be 6 * 5 * 30,000 numbers; the largest tensor here is the table itself."""
    counts = tf.ones([30_000])

    def losses_and_samples(ids, step):
        scores = ContextFreeLogits(counts, ids)
        random = ForwardContext(training=True, random=RandomStream(0, step, 0))
        return scores.losses(ids), scores.sample(random, temperature=1.5, forbidden_ids=ids)

    traced = tf.function(losses_and_samples).get_concrete_function(
        tf.TensorSpec([6, 5], tf.int32), tf.TensorSpec([], tf.int64)
    )
    sizes = [output.shape.num_elements() or 0 for op in traced.graph.get_operations() for output in op.outputs]
    assert max(sizes) < 31_000
