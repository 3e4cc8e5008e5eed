"""Matrix products in all parts of a traced function are counted as often as they run."""

import pytest
import tensorflow as tf

from tests.flops.traced import traced_products

SPEC = tf.TensorSpec([3, 5], tf.float32)
SQUARE = tf.ones([5, 5])
ONE = 2 * 3 * 5 * 5  # FLOPs of a product of [3, 5] and [5, 5]


def flops(function, *specs: tf.TensorSpec) -> int:
    traced = tf.function(function).get_concrete_function(*specs or [SPEC])
    return sum(product.flops for product in traced_products(traced))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda values: tf.matmul(values, tf.ones([5, 7])), 2 * 3 * 5 * 7),
        (lambda values: tf.matmul(values, tf.ones([3, 7]), transpose_a=True), 2 * 5 * 3 * 7),
        (lambda values: tf.matmul(values, tf.ones([7, 5]), transpose_b=True), 2 * 3 * 5 * 7),
        (lambda values: tf.matmul(tf.ones([2, 7, 3]), tf.stack([values, values])), 2 * 2 * 7 * 3 * 5),
        (lambda values: tf.linalg.matmul(tf.ones([2, 3, 7]), tf.ones([2, 3, 5]), transpose_a=True), 2 * 2 * 7 * 3 * 5),
        (lambda values: tf.einsum("ab,cb->ac", values, tf.ones([7, 5])), 2 * 3 * 5 * 7),
        (lambda values: values * 2.0, 0),
    ],
)
def test_every_kind_of_product_counts_two_for_each_multiplication(function, expected):
    assert flops(function) == expected


def test_the_gradient_of_a_product_is_two_backward_products():
    def step(values):
        with tf.GradientTape() as tape:
            weights = tf.identity(SQUARE)
            tape.watch([values, weights])
            loss = tf.reduce_sum(tf.square(tf.matmul(values, weights)))
        return tape.gradient(loss, [values, weights])

    products = traced_products(tf.function(step).get_concrete_function(SPEC))
    assert [product.flops for product in products] == [ONE] * 3
    assert sorted(product.is_backward for product in products) == [False, True, True]


def test_a_product_counts_for_each_iteration_of_loops_and_functions_around_it():
    @tf.function
    def inner(values):
        return tf.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, tf.matmul(v, SQUARE)), (0, values))[1]

    def outer(values):
        initial = (0, values)
        return tf.while_loop(lambda i, _: i < 2, lambda i, v: (i + 1, inner(v)), initial, maximum_iterations=5)[1]

    assert flops(inner.python_function) == 3 * ONE
    assert flops(outer) == 2 * 3 * ONE


def test_the_most_expensive_of_two_branches_counts():
    def branch(values):
        product = tf.matmul(values, SQUARE)
        return tf.cond(tf.reduce_sum(values) > 0, lambda: tf.matmul(product, SQUARE), lambda: values)

    assert flops(branch) == 2 * ONE
