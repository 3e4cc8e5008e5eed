import numpy as np
import tensorflow as tf

from electra_tf.data.masking import maskable
from electra_tf.tasks.pretrain.layout import word_tokens


def test_the_words_are_what_lies_between_the_special_tokens():
    batch = {
        "input_mask": tf.constant([[1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1], [0] * 7]),
        "segment_ids": tf.constant([[0, 0, 0, 1, 1, 1, 0], [0] * 7, [0, 0, 0, 0, 0, 1, 1], [0] * 7]),
    }
    assert word_tokens(batch).numpy().astype(int).tolist() == [
        [0, 1, 0, 1, 1, 0, 0],
        [0, 1, 1, 0, 0, 0, 0],
        [0, 1, 1, 1, 0, 1, 0],
        [0] * 7,
    ]


def test_they_are_what_masking_selects_from(tiny_config, tiny_batch, special_ids):
    batch = tiny_batch(tiny_config(), [10, 7, 5, 8])
    assert np.array_equal(word_tokens(batch), maskable(batch, special_ids))
