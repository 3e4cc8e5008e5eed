"""Random bits as arithmetic on an element's place: in a compiled program they are made where they are used.

Philox, as TensorFlow offers it, fills an array of random numbers that is then read again, larger than the activations
it is for. Threefry needs 32-bit additions, rotations and exclusive ors alone, so XLA fuses it into the loop that uses
its bits, and nothing of it ever reaches memory. As single operations it would be slow: draw in compiled programs only.

Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
"""

import math
from typing import NamedTuple

import tensorflow as tf

_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_PARITY = 0x1BD11BDA
# For the key of a step, once: the number that the paper recommends. For the bits themselves: the smallest number of
# rounds with which it passed every battery of tests in table 2 of the paper, and dropout needs no more.
_KEY_ROUNDS, _BIT_ROUNDS = 20, 13


def threefry(
    key: tuple[tf.Tensor, tf.Tensor], counter: tuple[tf.Tensor, tf.Tensor], rounds: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Threefry-2x32: two words of random bits for each pair of counter words; all uint32, any shapes that broadcast."""
    keys = (*key, tf.bitwise.bitwise_xor(tf.bitwise.bitwise_xor(*key), tf.constant(_PARITY, tf.uint32)))
    first, second = counter[0] + keys[0], counter[1] + keys[1]
    for index in range(rounds):
        first += second
        second = tf.bitwise.bitwise_xor(_rotate(second, _ROTATIONS[index % 8]), first)
        if index % 4 == 3:
            injection = index // 4 + 1
            first += keys[injection % 3]
            second += keys[(injection + 1) % 3] + tf.constant(injection, tf.uint32)
    return first, second


def _rotate(word: tf.Tensor, places: int) -> tf.Tensor:
    left = tf.bitwise.left_shift(word, tf.constant(places, tf.uint32))
    return tf.bitwise.bitwise_or(left, tf.bitwise.right_shift(word, tf.constant(32 - places, tf.uint32)))


def _places(shape: tuple[int, ...]) -> tf.Tensor:
    """[1, *shape] uint32: each element's index in row-major order, as a sum over the axes.

    The numbers of one axis, reshaped, would have to be moved on a TPU, whose arrays are not row-major.
    """
    places = tf.zeros([1] * (len(shape) + 1), tf.uint32)
    for axis, size in enumerate(shape):
        along = [1, *(size if other == axis else 1 for other in range(len(shape)))]
        stride = tf.constant(math.prod(shape[axis + 1 :]), tf.uint32)
        places += tf.reshape(tf.cast(tf.range(size), tf.uint32) * stride, along)
    return places


class Draw(NamedTuple):
    """One draw of a `RandomStream`, as tensors: an argument of a program that many layers share.

    Attributes:
        key: [2] uint32, a hash of (seed, name).
        step: scalar uint64, the number of the global batch.
        first_example: scalar uint32, the index of row 0 in the global batch.
    """

    key: tf.Tensor
    step: tf.Tensor
    first_example: tf.Tensor

    def bits(self, num_examples: tf.Tensor | int, shape: tuple[int, ...]) -> tf.Tensor:
        """[B, *shape] uint32, every value equally likely, independent between examples, elements, steps and keys."""
        low = tf.cast(tf.bitwise.bitwise_and(self.step, tf.constant(2**32 - 1, tf.uint64)), tf.uint32)
        high = tf.cast(tf.bitwise.right_shift(self.step, tf.constant(32, tf.uint64)), tf.uint32)
        key = threefry((self.key[0], self.key[1]), (low, high), _KEY_ROUNDS)
        inner = [1] * len(shape)
        example = tf.reshape(tf.cast(tf.range(num_examples), tf.uint32) + self.first_example, [num_examples, *inner])
        return threefry(key, (example, _places(shape)), _BIT_ROUNDS)[0]

    def keep_mask(self, rate: float, num_examples: tf.Tensor | int, shape: tuple[int, ...]) -> tf.Tensor:
        """[B, *shape] bool, true with probability 1 - rate (to 2^-32)."""
        return self.bits(num_examples, shape) >= tf.constant(round(rate * 2**32), tf.uint32)
