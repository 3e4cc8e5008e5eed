"""XLA's rules of counting, on small programs."""

import pytest
import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2

from tests.flops.xla import KINDS, count_program


def compiled(function) -> bytes:
    program = tf.function(function, jit_compile=True)
    return program.experimental_get_compiler_ir(tf.ones([3, 5]))(stage="hlo_serialized")


def count(function) -> dict[str, int]:
    """Operations on a [3, 5] matrix by kind, idle conversions left out."""
    counts = count_program(compiled(function))
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
        # The conversion to integers, what is done to them, and the conversion back.
        (
            lambda x: tf.cast(tf.bitwise.bitwise_xor(tf.cast(x, tf.int32), 3), tf.float32),
            {"integer": 2 * 15, "elementwise": 15},
        ),
        # Each number that is added to the table.
        (lambda x: tf.math.unsorted_segment_sum(x, tf.constant([6, 0, 6]), 7), {"elementwise": 15}),
        # The conversion, 15 numbers into the table, and four additions for each of its rows.
        (
            lambda x: tf.reduce_sum(tf.math.unsorted_segment_sum(tf.cast(x, tf.int32), [6, 0, 6], 7), axis=1),
            {"integer": 15 + 15 + 7 * 4},
        ),
        # As XLA's own analysis counts it: a window of 5 for each element.
        (lambda x: tf.cumsum(x, axis=1), {"running_sums": 15 * 4}),
    ],
)
def test_operations_are_counted_by_kind(function, expected):
    assert count(function) == expected


def test_a_loop_counts_once():
    def loop(x):
        return tf.while_loop(lambda i, _: i < 4, lambda i, y: (i + 1, tf.tanh(y)), (0, x))[1]

    assert count(loop)["transcendental"] == 15


def program(*instructions: str) -> bytes:
    """A program of instructions in the text format of protocol buffers, with ids from 1 on."""
    from google.protobuf import text_format

    body = "".join(f"instructions {{ id: {index} {text} }}" for index, text in enumerate(instructions, start=1))
    module = text_format.Parse(f"entry_computation_id: 9 computations {{ id: 9 {body} }}", hlo_pb2.HloModuleProto())
    return module.SerializeToString()


F32_2_10 = "element_type: F32 dimensions: 2 dimensions: 10"
PARAMETER = f'opcode: "parameter" shape {{ {F32_2_10} }}'


# XLA's own analysis of such instructions, by `hlo_module_cost_analysis` of jaxlib 0.10.2, has these numbers.
@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        (
            f'opcode: "sort" shape {{ element_type: TUPLE tuple_shapes {{ {F32_2_10} }} '
            "tuple_shapes { element_type: S32 dimensions: 2 dimensions: 10 } }",
            {"elementwise": 20 * 5},
        ),
        # The generator's state, and the random bits.
        (
            'opcode: "rng-bit-generator" shape { element_type: TUPLE tuple_shapes { element_type: U64 dimensions: 3 } '
            "tuple_shapes { element_type: U32 dimensions: 32 dimensions: 40 } }",
            {"transcendental": 3 + 32 * 40},
        ),
        ('opcode: "bitcast-convert" shape { element_type: U64 dimensions: 2 }', {"integer": 2}),
        (f'opcode: "convert" shape {{ {F32_2_10} }}', {"idle_conversions": 20}),
        # No rule: the opcode itself.
        (f'opcode: "fft" shape {{ {F32_2_10} }}', {"fft": 20}),
    ],
)
def test_an_instruction_counts_as_xla_counts_it(instruction, expected):
    assert count_program(program(PARAMETER, f"{instruction} operand_ids: 1")) == expected


def test_every_count_is_of_a_kind_that_is_explained():
    assert count_program(compiled(lambda x: tf.nn.softmax(tf.matmul(x, x, transpose_b=True)))).keys() <= KINDS.keys()


def test_other_data_is_refused():
    with pytest.raises(ValueError, match="not a serialized HloModuleProto"):
        count_program(b"HloModule main")
