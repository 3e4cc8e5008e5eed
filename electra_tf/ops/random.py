"""Counter-based random numbers, the same for any number of replicas.

A counter-based generator computes random bits from a key and a counter, without state. Here the key is a hash of
(seed, name), and the counter holds the step and the index of the example in the global batch. So a replica that holds
examples 8 to 15 draws exactly what a single replica would draw for them: dropout, masking and sampling depend neither
on how a batch is divided nor on earlier draws.

There are two generators:

- Philox, one TensorFlow operation, for the few numbers of masking and sampling. It fills an array of four words per
  count, which a TPU pads to 128: as dropout's generator it made 88 of the 102 GB that a step moved (docs/notes/tpu.md).
- For dropout masks a hash of each element's index, with a key of two words for each example, which Threefry computes
  from the step and the example. XLA fuses its three multiplications into the loop that uses the bits, which never reach
  memory. As single operations they are slow. Threefry itself for each element takes five times as many operations.

Sources: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"; for the hash, triple32, Wellons 2018,
"Prospecting for hash functions".
"""

import copy
import hashlib
import math
from typing import NamedTuple

import tensorflow as tf

_PHILOX = 1  # the algorithm's number in tf.random.Algorithm; the one that gives the same bits on CPU, GPU and TPU
_DRAWS_PER_COUNT = 4  # 32-bit numbers from one value of Philox's counter

_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_PARITY = 0x1BD11BDA
# The fewest rounds that pass every battery of tests in table 2 of the paper (the authors recommend 20).
_ROUNDS = 13

# Of triple32.
_FACTORS = (0xED5AD4BB, 0xAC4C1B51, 0x31848BAB)


class DropoutKey(NamedTuple):
    """A dropout mask that is not drawn yet: the argument of a function that many layers share."""

    # [3] uint32: two words of the key, a hash of (seed, name) xor the step; and the index of row 0 in the global batch.
    # Or [B, 2] uint32, `words_of_examples` of these.
    words: tf.Tensor
    rate: float  # the share that is dropped, in [0, 1)

    def bits(self, num_examples: tf.Tensor | int, shape: tuple[tf.Tensor | int, ...]) -> tf.Tensor:
        """[B, *shape] uint32, uniform, independent between examples, elements, steps and names."""
        words = self.words
        if len(words.shape) == 1:
            words = words_of_examples(words[tf.newaxis], num_examples)[0]
        keys = (tf.reshape(key, [num_examples, *[1] * len(shape)]) for key in tf.unstack(words, axis=1))
        return hashed(_indices(shape), *keys)

    def keep_mask(self, num_examples: tf.Tensor | int, shape: tuple[tf.Tensor | int, ...]) -> tf.Tensor:
        """[B, *shape] bool, true with probability 1 - rate (to 2^-32)."""
        return self.bits(num_examples, shape) >= tf.constant(round(self.rate * 2**32), tf.uint32)


class RandomStream:
    """An immutable source of random numbers for a run of consecutive examples.

    Args:
        seed: the run's seed.
        step: scalar int64, the number of the global batch.
        first_example: scalar int64, the index of row 0 of this replica's batch in the global batch.
        name: the use in the model; two names give independent numbers.
    """

    def __init__(self, seed: int, step: tf.Tensor | int, first_example: tf.Tensor | int, name: str = ""):
        self._seed = seed
        self._name = name
        self._step = tf.cast(step, tf.uint64)
        self._first_example = tf.cast(first_example, tf.uint64)
        upper = tf.bitwise.right_shift(self._step, tf.constant(32, tf.uint64))
        self._words = tf.cast(tf.stack([self._step, upper, self._first_example]), tf.uint32)

    @property
    def step(self) -> tf.Tensor:
        """Scalar int64, the number of the global batch."""
        return tf.cast(self._step, tf.int64)

    def fold_in(self, name: str) -> "RandomStream":
        """The stream of a named part, independent of the streams of its parent and its siblings."""
        part = copy.copy(self)
        part._name = f"{self._name}/{name}"
        return part

    def of_rows(self, num_rows: tf.Tensor | int) -> "RandomStream":
        """The stream for rows in place of examples, where each example has `num_rows` rows, one after another."""
        first_row = self._first_example * tf.cast(num_rows, tf.uint64)
        return RandomStream(self._seed, self._step, first_row, self._name)

    def uniform(self, num_examples: tf.Tensor | int, shape: tuple[int, ...]) -> tf.Tensor:
        """[B, *shape] float32 in [0, 1), by Philox. Each use needs its own `fold_in`, or it gets the same numbers."""
        size = math.prod(shape)
        counts = -(-size // _DRAWS_PER_COUNT)
        start = self._first_example * tf.constant(counts, tf.uint64)
        bits = tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=[num_examples, counts * _DRAWS_PER_COUNT],
            key=tf.constant([self._key()], tf.uint64),
            counter=tf.stack([start, self._step]),
            alg=_PHILOX,
            dtype=tf.uint32,
        )
        return tf.reshape(_to_unit_interval(bits)[:, :size], [num_examples, *shape])

    def dropout_key(self, rate: float) -> DropoutKey:
        """A dropout mask that drops a share `rate`."""
        upper, lower = divmod(self._key(), 2**32)
        key = tf.constant([lower, upper, 0], tf.uint32)
        return DropoutKey(tf.bitwise.bitwise_xor(key, self._words), rate)

    def _key(self) -> int:
        """64 bits, a hash of (seed, name)."""
        digest = hashlib.blake2b(f"{self._seed}:{self._name}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little")


def words_of_examples(words: tf.Tensor, num_examples: tf.Tensor | int) -> tf.Tensor:
    """Two words for each example under each of K dropout keys: [K, 3] -> [K, B, 2], uint32."""
    lower, upper, first_example = tf.unstack(words[:, :, tf.newaxis], axis=1)  # [K, 1] each
    example = tf.cast(tf.range(num_examples), tf.uint32) + first_example  # [K, B]
    return tf.stack(threefry((lower, upper), (example, tf.zeros_like(example))), axis=2)


def threefry(
    key: tuple[tf.Tensor, tf.Tensor], counter: tuple[tf.Tensor, tf.Tensor], rounds: int = _ROUNDS
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


def hashed(index: tf.Tensor, first_key: tf.Tensor, second_key: tf.Tensor) -> tf.Tensor:
    """32 random bits for each index under a key of two words; all uint32, any shapes that broadcast.

    Both words matter: with the first alone, two examples could draw the same bits, shifted.
    """
    first, second, third = (tf.constant(factor, tf.uint32) for factor in _FACTORS)
    word = tf.bitwise.bitwise_xor(_xor_shift(index + first_key, 17) * first, second_key)
    word = _xor_shift(word, 11) * second
    return _xor_shift(_xor_shift(word, 15) * third, 14)


def _xor_shift(word: tf.Tensor, num_bits: int) -> tf.Tensor:
    return tf.bitwise.bitwise_xor(word, tf.bitwise.right_shift(word, tf.constant(num_bits, tf.uint32)))


def _rotate(word: tf.Tensor, num_bits: int) -> tf.Tensor:
    left = tf.bitwise.left_shift(word, tf.constant(num_bits, tf.uint32))
    return tf.bitwise.bitwise_or(left, tf.bitwise.right_shift(word, tf.constant(32 - num_bits, tf.uint32)))


def _indices(shape: tuple[tf.Tensor | int, ...]) -> tf.Tensor:
    """[1, *shape] uint32: each element's index in row-major order, as a sum over the axes.

    A TPU, whose arrays are not row-major, would have to copy a reshaped `tf.range`.
    """
    indices = tf.zeros([1] * (len(shape) + 1), tf.uint32)
    for axis, size in enumerate(shape):
        along = [1, *(size if other == axis else 1 for other in range(len(shape)))]
        stride = tf.cast(math.prod(shape[axis + 1 :]), tf.uint32)
        indices += tf.reshape(tf.cast(tf.range(size), tf.uint32) * stride, along)
    return indices


def _to_unit_interval(bits: tf.Tensor) -> tf.Tensor:
    """The upper 24 of 32 random bits as float32 in [0, 1), exactly.

    TensorFlow's own uniform operation would give other numbers under XLA: it takes the lower bits, XLA the upper ones.
    """
    upper = tf.bitwise.right_shift(bits, tf.constant(8, tf.uint32))
    return tf.cast(tf.bitcast(upper, tf.int32), tf.float32) * 2.0**-24
