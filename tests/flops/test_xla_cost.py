"""XLA's own rules of counting, on the text of small programs."""

import pytest
import tensorflow as tf

from electra_tf.flops.xla_cost import XlaCount, count_program


def count(function) -> XlaCount:
    program = tf.function(function, jit_compile=True)
    return count_program(program.experimental_get_compiler_ir(tf.ones([3, 5]))(stage="hlo"))


def test_a_product_counts_two_for_each_multiplication():
    assert count(lambda values: tf.matmul(values, tf.ones([5, 7]))).products == 2 * 3 * 5 * 7


def test_a_product_of_many_matrices_counts_each():
    found = count(lambda values: tf.matmul(tf.ones([2, 7, 3]), tf.stack([values, values])))
    assert found.products == 2 * 2 * 7 * 3 * 5


def test_elements_transcendental_functions_sums_and_integers_are_kept_apart():
    found = count(lambda values: tf.reduce_sum(tf.exp(values * values), axis=1))
    assert found._replace(idle_conversions=0) == XlaCount(
        products=0, elementwise=15, reductions=12, transcendental=15, integer=0
    )
    found = count(lambda values: tf.cast(tf.bitwise.bitwise_xor(tf.cast(values, tf.int32), 3), tf.float32))
    assert found.integer == 2 * 15  # the conversion to integers, and what is done to them
    assert found.elementwise == 15


# As XLA writes it.
PROGRAM = """HloModule example

%body.1 (arg.1: (s32[], f32[4])) -> (s32[], f32[4]) {
  %arg.1 = (s32[], f32[4]{0}) parameter(0)
  %value.1 = f32[4]{0} get-tuple-element((s32[], f32[4]{0}) %arg.1), index=1
  %twice.1 = f32[4]{0} add(f32[4]{0} %value.1, f32[4]{0} %value.1)
}

%condition.1 (arg.2: (s32[], f32[4])) -> pred[] {
  ROOT %less.1 = pred[] compare(s32[] %number.1, s32[] %limit.1), direction=LT
}

%unused.1 (arg.3: f32[9]) -> f32[9] {
  ROOT %sum.1 = f32[9]{0} add(f32[9]{0} %arg.3, f32[9]{0} %arg.3)
}

ENTRY %main.1 (start.1: f32[4]) -> f32[4] {
  %loop.1 = (s32[], f32[4]{0}) while((s32[], f32[4]{0}) %tuple.1), condition=%condition.1, body=%body.1
  ROOT %result.1 = f32[4]{0} get-tuple-element((s32[], f32[4]{0}) %loop.1), index=1
}
"""


def test_a_loop_counts_once_and_what_is_never_called_not_at_all():
    assert count_program(PROGRAM) == XlaCount(products=0, elementwise=4, reductions=0, transcendental=0, integer=1)


def test_a_loop_over_a_tuple_so_long_that_xla_numbers_its_parts_is_read():
    numbered = "(s32[], f32[4]{0}, f32[4]{0}, f32[4]{0}, f32[4]{0}, /*index=5*/f32[4]{0})"
    program = PROGRAM.replace("(s32[], f32[4]{0})", numbered)
    assert numbered in program
    assert count_program(program) == count_program(PROGRAM)


def test_a_line_that_is_no_instruction_is_refused():
    with pytest.raises(ValueError, match="no HLO instruction: 'something else'"):
        count_program(PROGRAM.replace("  %twice.1", "  something else\n  %twice.1"))


def test_a_sum_into_a_table_counts_each_number_that_is_added():
    found = count(lambda values: tf.math.unsorted_segment_sum(values, tf.constant([6, 0, 6]), 7))
    assert (found.elementwise, found.integer, found.uncounted) == (15, 0, ())


def test_whole_numbers_that_are_summed_up_or_written_into_a_table_count_as_integers():
    def row_sums(values):
        return tf.reduce_sum(tf.math.unsorted_segment_sum(tf.cast(values, tf.int32), tf.constant([6, 0, 6]), 7), axis=1)

    found = count(row_sums)
    # The conversion, 15 numbers into the table, and four additions for each of its rows.
    assert (found.elementwise, found.reductions, found.integer) == (0, 0, 15 + 15 + 7 * 4)


def test_a_conversion_of_a_type_to_itself_is_kept_apart():
    line = "%twice.1 = f32[4]{0} convert(f32[4]{0} %value.1)"
    found = count_program(PROGRAM.replace("%twice.1 = f32[4]{0} add(f32[4]{0} %value.1, f32[4]{0} %value.1)", line))
    assert (found.elementwise, found.idle_conversions) == (0, 4)


# XLA's own analysis of such a program, by `hlo_module_cost_analysis` of jaxlib 0.10.2, has these numbers.
@pytest.mark.parametrize(
    ("line", "flops"),
    [
        (
            "%running.1 = f32[2,128]{1,0} reduce-window(f32[2,128]{1,0} %table.1, f32[] %zero.1), "
            "window={size=1x128 pad=0_0x127_0}, to_apply=%addition.1",
            2 * 128 * 127,
        ),
        (
            "%sorted.1 = (f32[2,10]{1,0}, s32[2,10]{1,0}) sort(f32[2,10]{1,0} %keys.1, s32[2,10]{1,0} %places.1), "
            "dimensions={1}, to_apply=%less.1",
            20 * 5,
        ),
        ("%reread.1 = u64[2]{0} bitcast-convert(s64[2]{0} %state.1)", 2),
    ],
)
def test_running_sums_and_sorting_and_what_is_read_as_another_type_count_as_xla_has_them(line, flops):
    found = count_program(PROGRAM.replace("%twice.1 = f32[4]{0} add(f32[4]{0} %value.1, f32[4]{0} %value.1)", line))
    assert found.flops == flops + 1  # the loop's condition


def test_what_xla_calls_flops_is_all_but_the_transcendental_functions():
    assert XlaCount(1, 20, 300, 4_000, 50_000, 600_000, 7_000_000).flops == 7_650_321


def test_random_bits_count_as_xla_has_them():
    # The state of the generator, and what it gave.
    line = "%bits.1 = (u64[3]{0}, u32[32,40]{1,0}) rng-bit-generator(u64[3]{0} %state.1), algorithm=rng_philox"
    found = count_program(PROGRAM.replace("%twice.1 = f32[4]{0} add(f32[4]{0} %value.1, f32[4]{0} %value.1)", line))
    assert (found.transcendental, found.uncounted) == (3 + 32 * 40, ())


def test_an_instruction_without_a_rule_is_named():
    program = PROGRAM.replace("add(f32[4]{0} %value.1, f32[4]{0} %value.1)", "fft(f32[4]{0} %value.1), fft_length={4}")
    found = count_program(program)
    assert (found.elementwise, found.uncounted) == (0, ("fft",))


def test_another_text_is_refused():
    with pytest.raises(ValueError, match="no HLO"):
        count_program("module @main {}")
