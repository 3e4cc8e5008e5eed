"""Counts the matrix products of a traced function, including those in the functions and loops that it calls."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import tensorflow as tf

_LOOPS = ("While", "StatelessWhile")
# Attributes with functions that do not run with the operation: its derivatives.
_NOT_CALLED = ("forward_function_name", "backward_function_name")
# Parts of a network, by the names of its layers. All other products are in heads.
_PARTS = {
    "segments": re.compile(r"embeddings(_\d+)?/(.*/)?MatMul"),
    "projection": re.compile(r"embeddings_project(_\d+)?/"),
    "attention": re.compile(r"layer_\d+(_\d+)?/(.*/)?attention(_self|_output)?(_\d+)?/"),
    "feed_forward": re.compile(r"layer_\d+(_\d+)?/(.*/)?(intermediate|output|mlp)(_\d+)?/MatMul"),
}


class Product(NamedTuple):
    """A matrix product."""

    name: str  # of the operation; it begins with the names of its layers
    flops: int  # two for each multiplication, in all iterations of loops around it

    @property
    def is_backward(self) -> bool:
        return "gradient_tape" in self.name or "gradients/" in self.name


def traced_products(traced: tf.types.experimental.ConcreteFunction) -> list[Product]:
    """The matrix products on which an output depends; all shapes and loops of the function must be static."""
    return list(_products(traced.graph, {}))


def by_part(products: Iterable[Product]) -> Counter:
    """FLOPs by (part of the network, True for the backward pass); all heads are the part `heads`."""
    flops: Counter = Counter()
    for product in products:
        part = next((part for part, pattern in _PARTS.items() if pattern.search(product.name)), "heads")
        flops[part, product.is_backward] += product.flops
    return flops


def _products(graph: tf.Graph, known: dict[int, object]) -> Iterator[Product]:
    """The products of a graph. `known`: the values of its constant inputs, by the tensor's id."""
    for operation in _operations_that_run(graph):
        flops = _flops(operation)
        if flops:
            yield Product(operation.name, flops)
        for times, body in _called_graphs(operation, known):
            for product in _products(body, _known_inputs(operation, body, known)):
                yield Product(f"{operation.name}/{product.name}", times * product.flops)


def _operations_that_run(graph: tf.Graph) -> list[tf.Operation]:
    """The operations with side effects, and those on which an output depends."""
    waiting = [tensor.op for tensor in graph.outputs] + list(getattr(graph, "control_outputs", ()))
    waiting += [operation for operation in graph.get_operations() if operation.op_def.is_stateful]
    reached: dict[str, tf.Operation] = {}
    while waiting:
        operation = waiting.pop()
        if operation.name not in reached:
            reached[operation.name] = operation
            waiting += [tensor.op for tensor in operation.inputs] + list(operation.control_inputs)
    return list(reached.values())


def _flops(operation: tf.Operation) -> int:
    kind = operation.type
    if kind == "MatMul":
        inner = _sizes(operation.inputs[0])[0 if operation.get_attr("transpose_a") else 1]
    elif kind in ("BatchMatMulV2", "BatchMatMulV3"):  # V3: bfloat16 with sums in float32
        inner = _sizes(operation.inputs[0])[-2 if operation.get_attr("adj_x") else -1]
    else:
        return 0
    return 2 * inner * math.prod(_sizes(operation.outputs[0]))


def _sizes(tensor: tf.Tensor) -> list[int]:
    if not tensor.shape.is_fully_defined():
        raise ValueError(f"{tensor.name} has the shape {tensor.shape}; trace it with static batch shapes")
    return tensor.shape.as_list()


def _called_graphs(operation: tf.Operation, known: dict[int, object]) -> Iterator[tuple[int, tf.Graph]]:
    """The functions that an operation calls, each as (number of executions, graph)."""
    if operation.type in _LOOPS:
        yield _iterations(operation, known), _graph_of(operation, operation.get_attr("body").name)
        return
    attributes = (value for key, value in operation.node_def.attr.items() if key not in _NOT_CALLED)
    functions = (function for value in attributes for function in (value.func, *value.list.func) if function.name)
    yield from ((1, _graph_of(operation, function.name)) for function in functions)


def _graph_of(operation: tf.Operation, name: str) -> tf.Graph:
    """The graph, with shapes, of a function that an operation calls."""
    graph = operation.graph
    while (function := graph._get_function(name)) is None:  # TensorFlow has no public call for it
        graph = graph.outer_graph
    return function.graph


def _known_inputs(operation: tf.Operation, body: tf.Graph, known: dict[int, object]) -> dict[int, object]:
    """The values of a called function's constant inputs, which may determine the length of a loop in it."""
    if operation.type in _LOOPS or not body.inputs:
        return {}
    outer = list(operation.inputs)[-len(body.inputs) :]
    values = {id(inner): _value(tensor, known) for tensor, inner in zip(outer, body.inputs, strict=True)}
    return {key: value for key, value in values.items() if value is not None}


def _value(tensor: tf.Tensor, known: dict[int, object]):
    value = known.get(id(tensor))
    return tf.get_static_value(tensor) if value is None else value


def _iterations(loop: tf.Operation, known: dict[int, object]) -> int:
    """The number of iterations of a loop that counts up to a constant in steps of one."""
    condition = _graph_of(loop, loop.get_attr("cond").name)
    start = dict(zip(map(id, condition.inputs), (_value(tensor, known) for tensor in loop.inputs), strict=True))
    iterations = []
    for operation in condition.get_operations():
        if operation.type == "Less":
            first, last = (_value(tensor, start) for tensor in operation.inputs)
            if first is not None and last is not None:
                iterations.append(int(last) - int(first))
    return min(iterations)  # an error if none is static
