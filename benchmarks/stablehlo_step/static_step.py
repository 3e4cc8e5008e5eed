"""The training step as one program for a TPU, and a search of its graph for operations that a TPU cannot run.

A TPU runs one compiled program with static shapes and without calls of the host. XLA refuses some operations that
break this, but compiles `tf.boolean_mask`, `tf.unique` and float64, which are slow on a TPU or fail at run time. So
the traced graph is searched as well.
"""

from collections.abc import Callable, Iterator

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from electra_tf.data.batch import batch_specs
from electra_tf.ops.fused import FusedOps
from electra_tf.tasks.base import Task
from electra_tf.train.step import training_step

_DATA_DEPENDENT = ("Where", "Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2", "DynamicPartition")
_ON_THE_HOST = ("PyFunc", "PyFuncStateless", "EagerPyFunc", "Print", "PrintV2", "NumpyFunction", "XlaHostCompute")
_REFUSED_TYPES = {
    tf.string.as_datatype_enum: "text: a TPU has no strings",
    tf.float64.as_datatype_enum: "float64: a TPU emulates it slowly; use float32",
}
# Handles to variables and lists, which are scalars in the graph.
_HANDLES = (tf.resource.as_datatype_enum, tf.variant.as_datatype_enum)


def training_step_function(task: Task) -> Callable:
    """The task's training step as one program for XLA: a `tf.function` of the tensors of `batch_specs`, in order.

    Its arguments are plain tensors because TensorFlow shows the compiled form only of such functions.
    """
    names = list(batch_specs(task.config, batch_size=1))
    ops = FusedOps("tpu", whole_step=True)

    def step(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = dict(zip(names, tensors, strict=True))
        return training_step(task, batch, ops=ops)

    return tf.function(step, jit_compile=True)


def unfit_operations(traced: tf.types.experimental.ConcreteFunction) -> list[str]:
    """The operations of a traced function that a TPU cannot run, one line each.

    These are operations with an unknown output shape or an output size that depends on the data, calls of the host,
    text and float64; also inside the loops and functions that the graph calls.
    """
    graph = traced.graph.as_graph_def(add_shapes=True)
    return [f"{node.name} ({node.op}): {fault}" for node in nodes_that_run(graph) for fault in _faults(node)]


def nodes_that_run(
    graph: tf.compat.v1.GraphDef, are_left_out: Callable[[tf.compat.v1.NodeDef], bool] = lambda node: False
) -> Iterator[tf.compat.v1.NodeDef]:
    """The nodes of a graph and of every function that it calls. Other functions of its library never run.

    Args:
        are_left_out: tells the nodes that are left out, with the functions that they call.
    """
    library = {function.signature.name: function.node_def for function in graph.library.function}
    waiting, seen = [graph.node], set()
    while waiting:
        for node in waiting.pop():
            if are_left_out(node):
                continue
            yield node
            for name in _called(node):
                if name in library and name not in seen:
                    seen.add(name)
                    waiting.append(library[name])


def _called(node: tf.compat.v1.NodeDef) -> Iterator[str]:
    for key, value in node.attr.items():
        # These attributes name derivatives that were traced and do not run.
        if key not in ("forward_function_name", "backward_function_name"):
            yield from (function.name for function in (value.func, *value.list.func) if function.name)


def _faults(node: tf.compat.v1.NodeDef) -> Iterator[str]:
    if node.op in _ON_THE_HOST:
        yield "calls the host"
    if node.op in _DATA_DEPENDENT:
        yield "the size of its output depends on the data"
    types = _types(node)
    yield from (reason for kind, reason in _REFUSED_TYPES.items() if kind in types)
    if not types & set(_HANDLES):
        shapes = node.attr["_output_shapes"].list.shape
        for shape in map(tf.TensorShape, shapes):
            if not shape.is_fully_defined():
                yield f"its output has the unknown shape {shape}"


def _types(node: tf.compat.v1.NodeDef) -> set[int]:
    """The types of an operation's attributes, and the fixed types of its inputs and outputs."""
    given = {kind for value in node.attr.values() for kind in (value.type, *value.list.type)}
    definition = op_def_registry.get(node.op)
    fixed = {argument.type for argument in (*definition.input_arg, *definition.output_arg)} if definition else set()
    return given | fixed
