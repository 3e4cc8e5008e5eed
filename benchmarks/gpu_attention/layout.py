"""What the programs in JAX and in TensorFlow share."""

from collections.abc import Sequence

# Of `electra_tf.ops.random.hashed`, which a test compares.
FACTORS, SHIFTS = (0xED5AD4BB, 0xAC4C1B51, 0x31848BAB), (17, 11, 15, 14)


def entry_name(shape: Sequence[int], rate: float) -> str:
    """The name of the kernels for a shape [B, A, S, D] and a rate of dropout."""
    return f"{','.join(map(str, shape))} rate {rate:g}"
