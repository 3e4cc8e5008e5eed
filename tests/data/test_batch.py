import numpy as np
import tensorflow as tf

from electra_tf.data.batch import PRETRAINING_BATCH, word_tokens


def test_an_empty_batch_fits_its_specs_and_is_all_zeros():
    batch = PRETRAINING_BATCH.empty(2, S=9, M=3)
    specs = PRETRAINING_BATCH.specs(2, S=9, M=3)
    assert list(batch) == list(specs)
    assert all(spec.is_compatible_with(batch[name]) for name, spec in specs.items())
    assert not any(np.any(values) for values in batch.values())


def test_word_tokens_exclude_special_tokens_and_padding():
    batch = {
        "input_mask": tf.constant([[1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 0, 0, 0], [1] * 7, [0] * 7]),
        "segment_ids": tf.constant([[0, 0, 0, 1, 1, 1, 0], [0] * 7, [0, 0, 0, 0, 0, 1, 1], [0] * 7]),
    }
    expected = [[0, 1, 0, 1, 1, 0, 0], [0, 1, 1, 0, 0, 0, 0], [0, 1, 1, 1, 0, 1, 0], [0] * 7]
    assert word_tokens(batch).numpy().astype(int).tolist() == expected


def test_word_tokens_of_packed_examples_exclude_the_special_tokens_of_each_sequence():
    batch = {
        "input_mask": tf.constant([[1] * 9 + [0] * 2]),
        "segment_ids": tf.constant([[0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0]]),
        "position_ids": tf.constant([[0, 1, 2, 0, 1, 2, 3, 4, 5, 0, 0]]),
    }
    assert word_tokens(batch).numpy().astype(int).tolist() == [[0, 1, 0, 0, 1, 1, 0, 1, 0, 0, 0]]
