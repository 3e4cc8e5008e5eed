"""Batches of similar length: every row once an epoch, padded to few lengths, the same for any division of a batch."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.data.bucketing import (
    batches,
    bucket_lengths,
    evaluation_order,
    padding_share,
    training_order,
)
from electra_tf.data.features import Features, features_of_rows

LENGTHS = (3, 17, 5, 40, 9, 16, 30, 4, 6, 25, 8)


@pytest.fixture
def features() -> Features:
    """Row i holds `LENGTHS[i]` times the id 100 + i."""
    return features_of_rows(
        input_ids=[[100 + row] * length for row, length in enumerate(LENGTHS)],
        segment_ids=[[0] * (length - 2) + [1, 1] for length in LENGTHS],
        row_targets={"label_ids": np.arange(11, dtype=np.int32) * 7},
        token_targets={"label_weights": [np.ones(length, np.float32) for length in LENGTHS]},
    )


def read(features, order, lengths=(16, 24, 40), context=None) -> list[dict[str, np.ndarray]]:
    return [
        {name: values.numpy() for name, values in batch.items()} for batch in batches(features, order, lengths, context)
    ]


def test_lengths_are_few_and_end_with_the_longest():
    assert bucket_lengths(128) == (8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128)
    assert bucket_lengths(100) == (8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 100)
    assert bucket_lengths(12) == (8, 12)
    assert bucket_lengths(6) == (6,)


def test_an_epoch_has_each_row_once_and_fills_its_last_batch(features):
    order = training_order(features, batch_size=4, seed=5, num_steps=6)
    assert order.shape == (6, 4)
    for epoch in (order[:3], order[3:]):
        rows = epoch.ravel()
        assert sorted(rows[rows >= 0]) == list(range(11)) and (rows == -1).sum() == 1


def test_epochs_and_seeds_have_orders_of_their_own(features):
    order = training_order(features, batch_size=4, seed=5, num_steps=6)
    other = training_order(features, batch_size=4, seed=6, num_steps=6)
    assert order.tolist() != other.tolist() and order[:3].tolist() != order[3:].tolist()
    assert order[:4].tolist() == training_order(features, batch_size=4, seed=5, num_steps=4).tolist()


def test_an_evaluation_takes_the_longest_rows_first(features):
    assert evaluation_order(features, 4).tolist() == [[3, 6, 9, 1], [5, 4, 10, 8], [2, 7, 0, -1]]


def test_a_batch_is_padded_to_the_first_length_that_is_enough(features):
    first, second = read(features, np.array([[2, 5], [1, -1]]))
    assert first["input_ids"].tolist() == [[102] * 5 + [0] * 11, [105] * 16]
    assert first["input_mask"].sum(axis=1).tolist() == [5, 16]
    assert second["input_ids"].shape == (2, 24)


def test_a_row_that_fills_a_batch_is_all_zeros(features):
    (batch,) = read(features, np.array([[1, -1]]))
    assert batch["row_weights"].tolist() == [1.0, 0.0] and batch["row_index"].tolist() == [1, -1]
    assert batch["label_ids"].tolist() == [7, 0]
    for name in ("input_ids", "input_mask", "segment_ids", "label_weights"):
        assert not batch[name][1].any()


def test_replicas_and_workers_divide_a_batch_in_its_order(features):
    order = np.array([[0, 1, 2, 3], [4, 5, 6, 7]])
    of_replicas = read(features, order, context=tf.distribute.InputContext(1, 0, 2))
    assert [batch["row_index"].tolist() for batch in of_replicas] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert [batch["input_ids"].shape[1] for batch in of_replicas] == [40, 40, 40, 40]  # all replicas have one length
    of_worker = read(features, order, context=tf.distribute.InputContext(2, 1, 2))
    assert [batch["row_index"].tolist() for batch in of_worker] == [[2, 3], [6, 7]]


def test_one_length_makes_static_shapes(features):
    assert batches(features, np.array([[0, 1]]), (40,)).element_spec["input_ids"].shape == [2, 40]
    assert batches(features, np.array([[0, 1]]), (16, 40)).element_spec["input_ids"].shape.as_list() == [2, None]


def test_batches_are_not_tuned_as_a_tuned_iterator_ends_late(features):
    assert batches(features, np.array([[0, 1]]), (40,)).options().autotune.enabled is False


def test_the_share_of_padding(features):
    # 5 + 16 tokens in 2 x 16 places, 17 in 2 x 24
    assert padding_share(features, np.array([[2, 5], [1, -1]]), (16, 24)) == pytest.approx(1 - 38 / 80)
