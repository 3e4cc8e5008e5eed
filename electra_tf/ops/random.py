"""Counter-based random numbers, the same for any number of replicas.

Philox turns a key and a counter into random bits, with no state in between. Here the key is a hash of (seed, name), the
counter's high word the step and its low word the place of the example in the global batch. So a replica that holds
examples 8 to 15 draws exactly what a single replica would have drawn for them: dropout, masking and sampling do not
depend on how a batch is divided, nor on what was drawn before.
"""

import hashlib
import math

import tensorflow as tf

from electra_tf.ops.threefry import Draw

_PHILOX = 1  # the algorithm's number in tf.random.Algorithm; the one that gives the same bits on CPU, GPU and TPU
_DRAWS_PER_COUNT = 4  # 32-bit numbers from one value of Philox's counter


class RandomStream:
    """An immutable source of random numbers for a run of consecutive examples.

    Args:
        seed: the run's seed.
        step: scalar int64, the number of the global batch.
        first_example: scalar int64, the index of row 0 of this replica's batch in the global batch.
        name: which use in the model; two names give independent numbers.
    """

    def __init__(self, seed: int, step: tf.Tensor | int, first_example: tf.Tensor | int, name: str = ""):
        self._seed = seed
        self._step = step
        self._first_example = first_example
        self._name = name

    def scope(self, name: str) -> "RandomStream":
        """The stream of a named part, independent of its parent's and its siblings'."""
        return RandomStream(self._seed, self._step, self._first_example, f"{self._name}/{name}")

    def uniform(self, num_examples: tf.Tensor | int, shape: tuple[int, ...]) -> tf.Tensor:
        """Uniform numbers.

        Args:
            num_examples: rows of this replica's batch, B.
            shape: static, of one example's draw. Two draws from one stream start with the same numbers: use `scope`.
        Returns: [B, *shape] float32 in [0, 1).
        """
        size = math.prod(shape)
        counts = -(-size // _DRAWS_PER_COUNT)
        start = tf.cast(self._first_example, tf.uint64) * tf.constant(counts, tf.uint64)
        bits = tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=[num_examples, counts * _DRAWS_PER_COUNT],
            key=tf.constant([int.from_bytes(self._digest(), "little")], tf.uint64),
            counter=tf.stack([start, tf.cast(self._step, tf.uint64)]),
            alg=_PHILOX,
            dtype=tf.uint32,
        )
        return tf.reshape(_to_unit_interval(bits)[:, :size], [num_examples, *shape])

    def draw(self) -> Draw:
        """What a compiled program needs to draw this stream's bits by itself."""
        digest = self._digest()
        key = tf.constant([int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")], tf.uint32)
        return Draw(key, tf.cast(self._step, tf.uint64), tf.cast(self._first_example, tf.uint32))

    def _digest(self) -> bytes:
        return hashlib.blake2b(f"{self._seed}:{self._name}".encode(), digest_size=8).digest()


def _to_unit_interval(bits: tf.Tensor) -> tf.Tensor:
    """The upper 24 of 32 random bits as float32 in [0, 1), exactly.

    TensorFlow's own uniform op takes the lower bits where XLA takes the upper ones: compiled, it gives other numbers.
    """
    upper = tf.bitwise.right_shift(bits, tf.constant(8, tf.uint32))
    return tf.cast(tf.bitcast(upper, tf.int32), tf.float32) * 2.0**-24
