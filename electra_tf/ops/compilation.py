"""How formulas become compiled programs, each on its own or all of them as parts of one."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla

# What a formula that is being traced is part of: a program that is compiled as a whole, such a program for a TPU, a
# program of its own, or none of these.
_WHOLE, _TPU, _OWN = "whole", "tpu", "own"
_tracing: contextvars.ContextVar[str] = contextvars.ContextVar("tracing", default="")


@contextlib.contextmanager
def _traced_as(what: str) -> Iterator[None]:
    token = _tracing.set(what)
    try:
        yield
    finally:
        _tracing.reset(token)


def part_of_one_program():
    """A context for tracing a step that is compiled as a whole: the formulas in it are not programs of their own."""
    return _traced_as(_WHOLE)


def part_of_tpu_program():
    """As `part_of_one_program`, for a TPU's compiler, which is in no need of `stored`."""
    return _traced_as(_TPU)


def compiled(formula: Callable) -> Callable:
    """The formula as one XLA program for each signature it is called with; within a program, the formula itself."""

    def traced(*inputs):
        with _traced_as(_OWN):
            return formula(*inputs)

    program = tf.function(traced, jit_compile=True, autograph=False)
    return lambda *inputs: (formula if _tracing.get() else program)(*inputs)


def traced_for_tpu() -> bool:
    """Whether what is traced now is part of a program for a TPU."""
    return _tracing.get() == _TPU


def _sums_as_products() -> bool:
    """Whether sums are taken as products with ones: XLA's loops over an axis are not vectorised on a CPU, its products
    are. On accelerators it is the other way round, and a TPU would round the summands to bfloat16."""
    return _tracing.get() == _OWN and not tf.config.list_physical_devices("GPU")


def on_bare_cpu() -> bool:
    """Whether an operation that is traced now will be TensorFlow's own on a CPU, in no compiled program."""
    return not _tracing.get() and not tf.config.list_physical_devices("GPU")


def computed_once(values: tf.Tensor) -> tf.Tensor:
    """The values; in a step that is compiled as a whole, kept from being computed again wherever they are used.

    XLA takes random bits for cheap, and would draw them anew in every loop that their use is fused into.
    """
    return xla.optimization_barrier(values)[0] if _tracing.get() in (_WHOLE, _TPU) else values


def stored(values: tf.Tensor, beside: tf.Tensor) -> tf.Tensor:
    """The values; in a program for a CPU, written to memory once and read from there.

    XLA on CPUs takes sums and products for cheaper than memory and repeats what leads to a value in every loop that
    reads it: random bits in all three loops of a LayerNorm, and in a step that is compiled as a whole all layers below
    too, so that time and code grow with the square of the depth. There it ignores `optimization_barrier`. A division it
    does not repeat, and that this one is by 1 it cannot see.

    Args:
        values: float32.
        beside: a vector that is not constant, without NaN unless `values` has them too.
    """
    if _tracing.get() not in (_WHOLE, _OWN) or tf.config.list_physical_devices("GPU"):
        return values
    return values / tf.where(tf.math.is_nan(beside[0]), 2.0, 1.0)


def row_sums(rows: tf.Tensor) -> tf.Tensor:
    """[N, H] float32 -> [N, 1]."""
    if _sums_as_products():
        return tf.matmul(rows, tf.ones([rows.shape[-1], 1]))
    return tf.reduce_sum(rows, axis=-1, keepdims=True)


def column_sums(rows: tf.Tensor) -> tf.Tensor:
    """[N, H] float32 -> [H]."""
    if _sums_as_products():
        return tf.matmul(tf.ones_like(rows[:, :1]), rows, transpose_a=True)[0]
    return tf.reduce_sum(rows, axis=0)
