"""The training step as a TPU takes it: traced for one batch of static shape, and searched for what no TPU runs.

A TPU runs one compiled program: every shape is known beforehand and nothing is asked of the host. XLA itself refuses
some of what breaks this, but `tf.boolean_mask`, `tf.unique` and float64 pass its compilers, and cost a TPU dearly or
fail there at run time. So the traced graph is read as well.
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
    tf.string.as_datatype_enum: "text: a TPU has none",
    tf.float64.as_datatype_enum: "float64: a TPU emulates it slowly; use float32",
}
# Handles to variables and lists: scalars to the graph, whatever they lead to.
_HANDLES = (tf.resource.as_datatype_enum, tf.variant.as_datatype_enum)


def training_step_function(task: Task) -> Callable:
    """The task's training step as one program for XLA: a `tf.function` of the tensors of `batch_specs`, in order.

    (Of functions of plain tensors only does TensorFlow give the compiled form.)
    """
    names = list(batch_specs(task.config, batch_size=1))

    def step(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = dict(zip(names, tensors, strict=True))
        return training_step(task, batch, ops=FusedOps("tpu", whole_step=True))

    return tf.function(step, jit_compile=True)


def unfit_operations(traced: tf.types.experimental.ConcreteFunction) -> list[str]:
    """What in a traced function no TPU takes, one line for each operation; empty where there is nothing.

    Found are outputs with an open dimension, operations whose output depends on the data in its size, calls back to
    the host, text and float64, also inside the loops and functions that the graph calls.
    """
    graph = traced.graph.as_graph_def(add_shapes=True)
    return [f"{node.name} ({node.op}): {fault}" for node in _nodes(graph) for fault in _faults(node)]


def _nodes(graph: tf.compat.v1.GraphDef) -> Iterator[tf.compat.v1.NodeDef]:
    """The nodes of a graph and of every function that it reaches. A library may hold others, which never run."""
    library = {function.signature.name: function.node_def for function in graph.library.function}
    waiting, seen = [graph.node], set()
    while waiting:
        for node in waiting.pop():
            yield node
            for name in _called(node):
                if name in library and name not in seen:
                    seen.add(name)
                    waiting.append(library[name])


def _called(node: tf.compat.v1.NodeDef) -> Iterator[str]:
    for key, value in node.attr.items():
        # Derivatives that were traced in case somebody asks for them stand in this attribute and do not run.
        if key not in ("forward_function_name", "backward_function_name"):
            yield from (function.name for function in (value.func, *value.list.func) if function.name)


def _faults(node: tf.compat.v1.NodeDef) -> Iterator[str]:
    if node.op in _ON_THE_HOST:
        yield "asks the host"
    if node.op in _DATA_DEPENDENT:
        yield "the size of its output depends on the data"
    types = _types(node)
    yield from (reason for kind, reason in _REFUSED_TYPES.items() if kind in types)
    if not types & set(_HANDLES):
        shapes = node.attr["_output_shapes"].list.shape
        for shape in map(tf.TensorShape, shapes):
            if not shape.is_fully_defined():
                yield f"its output has the open shape {shape}"


def _types(node: tf.compat.v1.NodeDef) -> set[int]:
    """The types that an operation was given, and those that it always takes or gives."""
    given = {kind for value in node.attr.values() for kind in (value.type, *value.list.type)}
    definition = op_def_registry.get(node.op)
    fixed = {argument.type for argument in (*definition.input_arg, *definition.output_arg)} if definition else set()
    return given | fixed
