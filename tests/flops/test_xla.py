"""`count_program`, on small programs."""

import pytest
import tensorflow as tf

from tests.flops.xla import count_program


def count(function) -> dict[str, int]:
    """Operations on a [3, 5] matrix by kind, without conversions of a type to itself."""
    program = tf.function(function, jit_compile=True)
    counts = count_program(program.experimental_get_compiler_ir(tf.ones([3, 5]))(stage="hlo_serialized"))
    return {kind: number for kind, number in counts.items() if number and kind != "idle_conversions"}


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: tf.matmul(x, tf.ones([5, 7])), {"products": 2 * 3 * 5 * 7}),
        (lambda x: tf.matmul(tf.ones([2, 7, 3]), tf.stack([x, x])), {"products": 2 * 2 * 7 * 3 * 5}),
        (
            lambda x: tf.reduce_sum(tf.exp(x * x), axis=1),
            {"elementwise": 15, "transcendental": 15, "reductions": 3 * 4},
        ),
        # The comparison, and the choice among integers.
        (lambda x: tf.where(x > 2.0, 3, tf.fill([3, 5], 4)), {"elementwise": 15, "integer": 15}),
        # Each number that is added to the table.
        (lambda x: tf.math.unsorted_segment_sum(x, tf.constant([6, 0, 6]), 7), {"elementwise": 15}),
        # As XLA's own analysis counts it: a window of 5 for each element.
        (lambda x: tf.cumsum(x, axis=1), {"running_sums": 15 * 4}),
        # A loop counts once.
        (lambda x: tf.while_loop(lambda i, _: i < 4, lambda i, y: (i + 1, tf.tanh(y)), (0, x))[1], None),
    ],
)
def test_operations_are_counted_by_kind(function, expected):
    assert count(function) == expected if expected else count(function)["transcendental"] == 15
