import numpy as np
import pytest

from benchmarks.train_step_batches import BatchShape, synthetic_batch

SHAPE = BatchShape(num_examples=200, max_seq_length=40, num_slots=6, vocab_size=97)


@pytest.fixture(scope="module")
def batch() -> dict[str, np.ndarray]:
    return synthetic_batch(SHAPE, seed=3)


def test_a_batch_is_a_function_of_its_seed(batch):
    again, other = synthetic_batch(SHAPE, seed=3), synthetic_batch(SHAPE, seed=4)
    assert all((batch[name] == again[name]).all() for name in batch)
    assert (batch["input_ids"] != other["input_ids"]).any()


def test_most_rows_are_full_and_the_rest_end_in_padding(batch):
    lengths = batch["input_mask"].sum(axis=1)
    assert 0.7 < (lengths == 40).mean() < 0.93  # 0.82 + 0.18 / 36 expected, standard deviation 0.027
    assert lengths.min() >= 5
    assert (batch["input_ids"][batch["input_mask"] == 0] == 0).all()
    assert (batch["input_ids"][batch["input_mask"] == 1] > 0).all()


def test_fifteen_percent_of_the_real_tokens_of_a_row_are_masked_within_the_slots(batch):
    counts = batch["masked_lm_weights"].sum(axis=1)
    expected = np.clip(np.rint(batch["input_mask"].sum(axis=1) * 0.15), 1, 6)
    assert np.allclose(counts, expected)


def test_masked_positions_of_a_row_differ_and_hold_words(batch):
    for row in range(SHAPE.num_examples):
        used = batch["masked_lm_weights"][row] > 0
        positions = batch["masked_lm_positions"][row][used]
        assert len(set(positions)) == len(positions)
        assert (batch["input_ids"][row, positions] == batch["masked_lm_ids"][row][used]).all()
        assert (batch["masked_lm_ids"][row][used] >= 5).all()
        assert not batch["masked_lm_positions"][row][~used].any()


def test_the_shown_ids_differ_from_the_original_only_at_masked_positions(batch):
    for row in range(SHAPE.num_examples):
        changed = set(np.flatnonzero(batch["masked_input_ids"][row] != batch["input_ids"][row]))
        assert changed <= set(batch["masked_lm_positions"][row][batch["masked_lm_weights"][row] > 0])
