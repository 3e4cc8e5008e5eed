"""Gradients of our own operations: freed with their graph, and there as long as it is."""

import gc
import re
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import electra_tf
from electra_tf.ops.fused import FusedOps
from electra_tf.ops.gradients import custom_gradient, recomputed
from electra_tf.ops.reference import REFERENCE
from electra_tf.ops.vocabulary import token_losses
from tests.toy import collect_garbage

PACKAGE = Path(electra_tf.__file__).parent


@pytest.fixture(autouse=True)
def quick_collections() -> Iterator[None]:
    """Collections of garbage look only at what a test makes."""
    gc.freeze()
    yield
    gc.unfreeze()


@custom_gradient
def square(values):
    return tf.square(values), lambda upstream: 7.0 * upstream  # no such gradient, so that ours is recognised


def losses(values):
    table, ids = tf.ones([128, 4]), tf.constant([[0, 2, 1], [3, 1, 1]])
    return token_losses(REFERENCE, values, table, tf.ones([128]), ids, ids).token


OPERATIONS = {
    "itself": square,
    "recomputed": recomputed(lambda values: values * tf.sin(values)),
    "of the fused operations": lambda values: FusedOps("cpu", whole_step=True).bias_gelu(values, tf.ones([4])),
    "of the vocabulary": losses,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_traced_gradient_is_freed_with_its_graph(name):
    graphs = []

    def gradient(values):
        graphs.append(weakref.ref(tf.compat.v1.get_default_graph()))
        with tf.GradientTape() as tape:
            tape.watch(values)
            output = OPERATIONS[name](values)
        return tape.gradient(output, values)

    function = tf.function(gradient, autograph=False)
    assert np.isfinite(function(tf.ones([2, 3, 4])).numpy()).all()
    del function
    collect_garbage()
    assert [graph() for graph in graphs] == [None]


def test_no_other_module_registers_gradients_for_ever():
    users = re.compile(r"tf\.(custom_grad|recompute_)")
    assert [path.name for path in PACKAGE.rglob("*.py") if users.search(path.read_text())] == ["gradients.py"]


@pytest.mark.parametrize("wrap", [lambda function: function, recomputed], ids=["itself", "recomputed"])
def test_a_function_that_lives_can_be_differentiated_again(wrap):
    function = tf.function(lambda values: wrap(square)(values), autograph=False)
    values = tf.Variable([3.0])
    for _ in range(2):  # the function is traced once, its gradient for each tape
        collect_garbage()
        with tf.GradientTape() as tape:
            output = function(values)
        assert (output.numpy(), tape.gradient(output, values).numpy()) == (9.0, 7.0)
    repeated = tf.function(lambda: tf.while_loop(lambda i, _: i < 2, lambda i, x: (i + 1, function(x)), (0, values)))
    with tf.GradientTape() as tape:
        output = repeated()[1]
    assert tape.gradient(output, values).numpy() == 49.0


def test_what_is_computed_again_has_the_gradient_of_its_variables():
    variable = tf.Variable([2.0])
    with tf.GradientTape() as tape:
        output = tf.function(lambda values: recomputed(lambda x: x * variable)(values))(tf.constant([5.0]))
    assert tape.gradient(output, variable).numpy() == 5.0


def test_a_saved_model_has_the_gradient(tmp_path):
    module = tf.Module()
    module.square = tf.function(lambda values: square(values), input_signature=[tf.TensorSpec([1], tf.float32)])
    tf.saved_model.save(module, str(tmp_path), options=tf.saved_model.SaveOptions(experimental_custom_gradients=True))
    loaded, values = tf.saved_model.load(str(tmp_path)), tf.constant([3.0])
    with tf.GradientTape() as tape:
        tape.watch(values)
        output = loaded.square(values)
    assert tape.gradient(output, values).numpy() == 7.0
