"""The step that a GPU gets, traced without one: what TensorFlow's kernels would do on the CPU, and how a loop ends."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels, op_def_registry

from benchmarks.stablehlo_step.static_step import nodes_that_run
from electra_tf.data.batch import INPUT_IDS, POSITION_IDS, batch_specs
from electra_tf.tasks.pretrain import build_objective
from electra_tf.train import step as training
from electra_tf.train.device_loop import DeviceLoop
from electra_tf.train.step import compile_task, compiles_steps
from tests.toy import MODERN, ToyStage, built, toy_config, toy_run

GPU, CPU = ("/replica:0/task:0/device:GPU:0",), ("/replica:0/task:0/device:CPU:0",)
FEW_ELEMENTS = 128
# They pass on what they are given, or run their own functions.
NO_KERNELS = ("Placeholder", "_Arg", "_Retval", "Const", "NoOp", "PartitionedCall", "StatefulPartitionedCall")


@pytest.mark.parametrize(
    ("xla", "devices", "expected"),
    [(None, GPU, True), (None, CPU, False), (False, GPU, False), (True, CPU, True), (True, GPU, True)],
)
def test_steps_are_compiled_on_gpus_unless_a_setting_says_otherwise(xla, devices, expected):
    strategy = SimpleNamespace(extended=SimpleNamespace(worker_devices=devices))
    assert compiles_steps(xla, strategy) is expected


def host_results(node: tf.compat.v1.NodeDef) -> set[str]:
    """The results that the kernel of a GPU leaves in the memory of the host, by TensorFlow's registry of kernels."""

    def fits(kernel) -> bool:
        return all(node.attr[each.name].type in each.allowed_values.list.type for each in kernel.constraint)

    registered = kernels.get_registered_kernels_for_op(node.op).kernel
    found = [kernel for kind in ("GPU", "DEFAULT") for kernel in registered if kernel.device_type == kind]
    everything = {result.name for result in op_def_registry.get(node.op).output_arg}
    # An operation without a kernel for GPUs runs on the CPU.
    return next((set(kernel.host_memory_arg) for kernel in found if fits(kernel)), everything)


def sizes_on_host(task, packed: bool = False) -> dict[str, int]:
    """By operation: the elements of its largest result that a step on a GPU would compute on the host."""
    specs = batch_specs(task.config, task.config.train.batch_size)
    specs |= {POSITION_IDS: specs[INPUT_IDS]} if packed else {}
    step = tf.function(task.train_step, autograph=False).get_concrete_function(specs)
    sizes = {}
    graph = step.graph.as_graph_def(add_shapes=True)
    for node in nodes_that_run(graph, lambda node: node.attr["_XlaMustCompile"].b):  # an XLA program
        if node.op in NO_KERNELS:
            continue
        names = [result.name for result in op_def_registry.get(node.op).output_arg]
        shapes = node.attr["_output_shapes"].list.shape
        on_host = host_results(node)
        for name, shape in zip(names, map(tf.TensorShape, shapes), strict=False):
            if name in on_host:
                sizes[node.name] = max(sizes.get(node.name, 0), shape.num_elements() or 0)
    return sizes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("xla", "encoder", "packed"),
    [(None, {}, False), (None, MODERN, False), (False, {}, False), (False, {}, True), (False, MODERN, True)],
)
def test_a_step_computes_no_large_array_of_integers_on_the_host(tiny_config, monkeypatch, xla, encoder, packed):
    """One of single operations at most the ids of the batch, twice: both networks' gradients of one table."""
    monkeypatch.setattr(training, "device_kind", lambda strategy: "gpu")
    config = tiny_config(train={"batch_size": 24, "xla": xla}, encoder=encoder)
    sizes = sizes_on_host(compile_task(build_objective(config)), packed)
    limit = FEW_ELEMENTS if xla is None else 2 * 24 * config.data.max_seq_length
    assert {name: size for name, size in sizes.items() if size > limit} == {}
    assert xla is None or max(sizes.values()) > FEW_ELEMENTS  # so the search finds what there is


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "nan_steps", "steps"), [("stop", (2,), 2), ("skip", (1, 2), 3), ("skip", (1, 4), 5)]
)
def test_a_loop_on_a_gpu_changes_nothing_after_the_step_that_ends_the_run(policy, nan_steps, steps):
    """There it goes on to its last step, since the host does not read how each step went."""
    config = toy_config(train={"on_nonfinite": policy, "max_nonfinite_steps": 1})
    stage, results = ToyStage(config, nan_steps=nan_steps), []
    for is_on_cpu in (True, False):
        run = toy_run(config, "unused")
        task = built(run)
        for variable in task.trainable_variables:
            variable.assign(tf.ones_like(variable) * 0.1)
        loop = DeviceLoop(task, run.strategy)
        loop.reads_every_step = is_on_cpu
        batches = loop.read(lambda context: stage.training_batches(0, context))
        _, is_nonfinite, metrics = loop.train(task, batches, 7)
        assert is_nonfinite and task.completed_steps == steps
        assert batches.get_next() is not None
        values = [variable.numpy() for variable in (*task.variables, *task.optimizer.variables)]
        results.append((values, np.float32(metrics["gradient_norm"]), loop.metrics.close()))
    (first, norm, report), (second, other_norm, other_report) = results
    assert all(map(np.array_equal, first, second)) and report == other_report
    assert np.isnan(norm) and np.isnan(other_norm)
