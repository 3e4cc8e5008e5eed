import numpy as np
import pytest
import tensorflow as tf

from electra_tf.data.bucketing import (
    Features,
    bucket_lengths,
    evaluation_order,
    padded_batches,
    training_order,
)

LENGTHS = (3, 17, 5, 40, 9, 16, 30, 4, 6, 25, 8)


@pytest.fixture
def features() -> Features:
    """Row i holds the id 100 + i, `LENGTHS[i]` times."""
    rows = np.arange(11, dtype=np.int32)
    return Features(
        input_ids=np.repeat(100 + rows, LENGTHS),
        segment_ids=np.concatenate([[0] * (length - 2) + [1, 1] for length in LENGTHS], dtype=np.int32),
        row_splits=np.cumsum([0, *LENGTHS]),
        example_index=rows,
        row_targets={"label_ids": 7 * rows},
        token_targets={"label_weights": np.ones(sum(LENGTHS), np.float32)},
    )


def read(features, order, lengths=(16, 24, 40), context=None) -> list[dict[str, np.ndarray]]:
    return [
        {name: values.numpy() for name, values in batch.items()}
        for batch in padded_batches(features, order, lengths, context)
    ]


def test_bucket_lengths_end_with_the_maximum():
    assert bucket_lengths(100, whole_step=True) == (8, 16, 32, 64, 100)  # compiled for each length
    assert bucket_lengths(100) == (8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 100)
    assert bucket_lengths(6) == (6,)


def test_an_epoch_has_each_row_once_in_an_order_of_its_own_and_fills_its_last_batch(features):
    order = training_order(features, batch_size=4, seed=5, num_steps=6)
    assert order.shape == (6, 4)
    for epoch in (order[:3], order[3:]):
        rows = epoch.ravel()
        assert sorted(rows[rows >= 0]) == list(range(11)) and (rows == -1).sum() == 1
    assert order[:3].tolist() != order[3:].tolist()
    assert order[:4].tolist() == training_order(features, batch_size=4, seed=5, num_steps=4).tolist()
    assert order.tolist() != training_order(features, batch_size=4, seed=6, num_steps=6).tolist()


def test_evaluation_reads_the_longest_rows_first(features):
    assert evaluation_order(features, 4).tolist() == [[3, 6, 9, 1], [5, 4, 10, 8], [2, 7, 0, -1]]


def test_a_batch_is_padded_to_the_first_length_that_its_longest_row_fits_into_with_rows_of_zeros(features):
    first, second = read(features, np.array([[2, 5], [1, -1]]))
    assert first["input_ids"].tolist() == [[102] * 5 + [0] * 11, [105] * 16]
    assert first["input_mask"].sum(axis=1).tolist() == [5, 16]
    assert second["input_ids"].shape == (2, 24)
    assert second["row_weights"].tolist() == [1.0, 0.0] and second["row_index"].tolist() == [1, -1]
    assert second["label_ids"].tolist() == [7, 0]
    assert not any(second[name][1].any() for name in ("input_ids", "input_mask", "segment_ids", "label_weights"))


def test_replicas_and_workers_read_consecutive_parts_of_a_batch(features):
    order = np.array([[0, 1, 2, 3], [4, 5, 6, 7]])
    of_replicas = read(features, order, context=tf.distribute.InputContext(1, 0, 2))
    assert [batch["row_index"].tolist() for batch in of_replicas] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert [batch["input_ids"].shape[1] for batch in of_replicas] == [40, 40, 40, 40]  # the same for all replicas
    of_worker = read(features, order, context=tf.distribute.InputContext(2, 1, 2))
    assert [batch["row_index"].tolist() for batch in of_worker] == [[2, 3], [6, 7]]


@pytest.fixture
def choices() -> Features:
    """Rows of one, three and two sequences, whose tokens are the sequence's number, from 1."""
    lengths = [2, 3, 1, 4, 2, 2]
    return Features(
        input_ids=np.repeat(np.arange(1, 7, dtype=np.int32), lengths),
        segment_ids=np.zeros(14, np.int32),
        row_splits=np.array([0, 2, 10, 14]),
        example_index=np.arange(3, dtype=np.int32),
        row_targets={"label_ids": np.int32([0, 2, 1])},
        choice_splits=np.cumsum([0, *lengths]),
    )


def test_missing_choices_are_padding(choices):
    assert (choices.num_rows, choices.lengths.tolist(), choices.num_choices) == (3, [2, 4, 2], 3)
    (batch,) = read(choices, np.array([[1, 2, -1, 0]]), lengths=(5, 6))
    assert batch["input_ids"].tolist() == [
        [[2, 2, 2, 0, 0], [3, 0, 0, 0, 0], [4, 4, 4, 4, 0]],
        [[5, 5, 0, 0, 0], [6, 6, 0, 0, 0], [0, 0, 0, 0, 0]],
        [[0] * 5] * 3,
        [[1, 1, 0, 0, 0], [0] * 5, [0] * 5],
    ]
    assert batch["input_mask"].tolist() == (batch["input_ids"] > 0).tolist()
    assert batch["label_ids"].tolist() == [2, 1, 0, 0]
    shapes = {name: spec.shape for name, spec in padded_batches(choices, np.array([[1, 0]]), (5,)).element_spec.items()}
    assert shapes["segment_ids"] == [2, 3, 5]
