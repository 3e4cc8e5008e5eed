"""Operations with a gradient of their own, which is freed with the graph that it is traced into.

TensorFlow 2.20 keeps gradients of `tf.custom_gradient`, which `tf.recompute_grad` and sums over replicas use too, in a
global registry, and with them their graphs and variables: each training in a process would keep its weights for ever.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops

# The outputs of an operation, and the function that computes the gradients of its inputs from those of the outputs.
WithGradient = tuple[Any, Callable[..., Any]]


def custom_gradient(function: Callable[..., WithGradient]) -> Callable[..., Any]:
    """As `tf.custom_gradient`, for a function of tensors."""
    return lambda *inputs: freed_with_graph(tf.custom_gradient(function)(*inputs))


def freed_with_graph(outputs: Any) -> Any:
    """The outputs of one operation with a custom gradient, which moves from the registry to the operation.

    A sum over the replicas of a TPU is an operation with a gradient of its own, and stays as it is.
    """
    operation = None if tf.executing_eagerly() else tf.nest.flatten(outputs)[0].op
    if operation is not None and "_gradient_op_type" in operation.node_def.attr:
        entries, name = ops.gradient_registry._registry, operation.get_attr("_gradient_op_type").decode()
        gradient = operation._gradient_function = entries[name]["type"]  # where TensorFlow looks first
        known: Callable[[], Any] = weakref.ref(gradient, lambda _: entries.pop(name))
        entries[name]["type"] = lambda *inputs: known()(*inputs)  # a SavedModel needs it by name
    return outputs


def recomputed(function: Callable[[tf.Tensor], tf.Tensor]) -> Callable[[tf.Tensor], tf.Tensor]:
    """As `tf.recompute_grad`, for a function of one tensor."""

    @custom_gradient
    def operation(values: tf.Tensor) -> WithGradient:
        def backward(upstream: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> tuple[tf.Tensor, list[tf.Tensor]]:
            # The second computation must come later, so it depends on `upstream`: else XLA would merge both.
            first = tf.reshape(upstream, [-1])[0]
            inputs = [values + tf.cast(tf.where(tf.math.is_nan(first), first, 0), values.dtype), *variables]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(inputs)
                outputs = function(inputs[0])
            of_values, *of_variables = tape.gradient(outputs, inputs, upstream, tf.UnconnectedGradients.ZERO)
            return of_values, of_variables

        return function(values), backward

    return operation
