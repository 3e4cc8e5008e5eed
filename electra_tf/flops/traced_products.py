"""The matrix products of a traced function, counted one by one, also in the functions and loops that it calls."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import tensorflow as tf

_LOOPS = ("While", "StatelessWhile")
_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
# Attributes that name functions which do not run with the operation: derivatives, traced in case somebody asks.
_NOT_CALLED = ("forward_function_name", "backward_function_name")


class Product(NamedTuple):
    """A product of matrices.

    Attributes:
        name: of the operation, with those of the layers above it.
        flops: twice its multiplications, times how often it runs.
    """

    name: str
    flops: int

    @property
    def is_backward(self) -> bool:
        """Whether it belongs to the gradient."""
        return "gradient_tape" in self.name or "gradients/" in self.name


def traced_products(traced: tf.types.experimental.ConcreteFunction) -> list[Product]:
    """Every matrix product that a traced function computes when it runs once.

    Of branches that depend on data the dearer one counts. What no output depends on is left out, as it does not run.

    Raises: ValueError: if a shape is open, or a loop's number of rounds is not known.
    """
    return list(_products(traced.graph, {}))


def by_part(products: Iterable[Product]) -> Counter:
    """FLOPs by (part of the network, whether of the gradient); the parts are those of the formulas.

    Parts are told by the names of the layers. What belongs to none of them stands under `heads`: those on top of the
    networks, whatever their kind.
    """
    found: Counter = Counter()
    for product in products:
        part = next((part for part, pattern in _PARTS.items() if pattern.search(product.name)), "heads")
        found[part, product.is_backward] += product.flops
    return found


_PARTS = {
    "segments": re.compile(r"embeddings/Tensordot"),
    "projection": re.compile(r"embeddings_project/"),
    "attention": re.compile(r"layer_\d+/attention_(self|output)/"),
    "feed_forward": re.compile(r"layer_\d+/(output/)?MatMul"),
}


def _products(graph: tf.Graph, given: dict[int, object]) -> Iterator[Product]:
    """Products of a graph. `given`: the values of its inputs that are known, by the identity of the tensor."""
    for operation in _that_run(graph):
        flops = _flops(operation)
        if flops:
            yield Product(operation.name, flops)
        for times, body in _called(operation, given):
            for product in _products(body, _known_inputs(operation, body, given)):
                yield Product(f"{operation.name}/{product.name}", times * product.flops)


def _that_run(graph: tf.Graph) -> list[tf.Operation]:
    """The operations that the outputs of a function depend on, and those that have effects of their own."""
    waiting = [tensor.op for tensor in graph.outputs] + list(getattr(graph, "control_outputs", ()))
    waiting += [operation for operation in graph.get_operations() if operation.op_def.is_stateful]
    found: dict[str, tf.Operation] = {}
    while waiting:
        operation = waiting.pop()
        if operation.name not in found:
            found[operation.name] = operation
            waiting += [tensor.op for tensor in operation.inputs] + list(operation.control_inputs)
    return list(found.values())


def _flops(operation: tf.Operation) -> int:
    kind = operation.type
    if kind == "MatMul":
        inner = _sizes(operation.inputs[0])[0 if operation.get_attr("transpose_a") else 1]
    elif kind in ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"):
        inner = _sizes(operation.inputs[0])[-2 if operation.get_attr("adj_x") else -1]
    elif kind == "Einsum" and len(operation.inputs) == 2:
        return 2 * math.prod(_einsum_sizes(operation).values())
    else:
        return 0
    return 2 * inner * math.prod(_sizes(operation.outputs[0]))


def _sizes(tensor: tf.Tensor) -> list[int]:
    if not tensor.shape.is_fully_defined():
        raise ValueError(f"{tensor.name} has the open shape {tensor.shape}; trace for batches of a static shape")
    return tensor.shape.as_list()


def _einsum_sizes(operation: tf.Operation) -> dict[str, int]:
    """The size of each label of an equation without ellipses."""
    terms = operation.get_attr("equation").decode().split("->")[0].split(",")
    if any("." in term for term in terms):
        raise ValueError(f"{operation.name}: einsum with an ellipsis is not counted")
    pairs = zip(terms, operation.inputs, strict=True)
    return {label: size for term, tensor in pairs for label, size in zip(term, _sizes(tensor), strict=True)}


def _called(operation: tf.Operation, given: dict[int, object]) -> Iterator[tuple[int, tf.Graph]]:
    """The functions that an operation calls, as graphs, each with how often it runs."""
    if operation.type in _LOOPS:
        rounds = _rounds(operation, given)
        yield rounds, _graph_of(operation, operation.get_attr("body").name)
    elif operation.type in _BRANCHES:
        graphs = [_graph_of(operation, name) for name in _function_names(operation)]
        yield 1, max(graphs, key=lambda graph: sum(product.flops for product in _products(graph, {})))
    else:
        for name in _function_names(operation):
            yield 1, _graph_of(operation, name)


def _function_names(operation: tf.Operation) -> Iterator[str]:
    for key, value in operation.node_def.attr.items():
        if key not in _NOT_CALLED:
            yield from (function.name for function in (value.func, *value.list.func) if function.name)


def _graph_of(operation: tf.Operation, name: str) -> tf.Graph:
    """A function that an operation calls, as the graph that it was traced to, shapes included."""
    graph = operation.graph
    while graph is not None:
        function = graph._get_function(name)  # there is no public way from a name to its function
        if function is not None:
            return function.graph
        graph = getattr(graph, "outer_graph", None)
    raise ValueError(f"{operation.name} calls {name}, which is not in its graph")


def _known_inputs(operation: tf.Operation, body: tf.Graph, given: dict[int, object]) -> dict[int, object]:
    """Which inputs of a called function are constants, so that a loop in it can be counted."""
    if operation.type in _LOOPS:
        return {}
    outer = list(operation.inputs)[-len(body.inputs) :] if body.inputs else []
    values = {id(inner): _value(tensor, given) for tensor, inner in zip(outer, body.inputs, strict=True)}
    return {key: value for key, value in values.items() if value is not None}


def _value(tensor: tf.Tensor, given: dict[int, object]):
    found = given.get(id(tensor))
    return tf.get_static_value(tensor) if found is None else found


def _rounds(loop: tf.Operation, given: dict[int, object]) -> int:
    """How often a loop runs that counts up to a constant by ones, as `tf.while_loop` with a number of rounds does."""
    condition = _graph_of(loop, loop.get_attr("cond").name)
    start = dict(zip(map(id, condition.inputs), (_value(tensor, given) for tensor in loop.inputs), strict=True))
    rounds = []
    for operation in condition.get_operations():
        if operation.type in ("Less", "LessEqual"):
            first, last = (_value(tensor, start) for tensor in operation.inputs)
            if first is not None and last is not None:
                rounds.append(int(last) - int(first) + (operation.type == "LessEqual"))
    if not rounds:
        raise ValueError(f"how often the loop {loop.name} runs is not known from the graph")
    return max(0, min(rounds))
