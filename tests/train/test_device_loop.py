"""The loop on the device: evaluations, stop requests, input of one replica; a GPU's step, traced without one."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels, op_def_registry

from benchmarks.stablehlo_step.static_step import nodes_that_run
from electra_tf.data.batch import INPUT_IDS, POSITION_IDS, batch_specs
from electra_tf.tasks.base import Evaluated
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.terms import Ratio, Sum
from electra_tf.train import step as training
from electra_tf.train.device_loop import DeviceLoop
from electra_tf.train.step import compile_task, compiles_steps
from tests.toy import MODERN, ToyStage, built, toy_config, toy_run

ONE_CPU = tf.distribute.OneDeviceStrategy("CPU:0")


class Sums(Evaluated):
    """The sum of each example's numbers, and their mean with noise from the step's random stream."""

    def __init__(self, xla=None):
        self.config = SimpleNamespace(train=SimpleNamespace(seed=3, xla=xla))

    def evaluation_terms(self, batch, context):
        noise = context.random.fold_in("noise").uniform(tf.shape(batch["x"])[0], (1,))
        return {"mean": Ratio(tf.reduce_sum(batch["x"] + noise), tf.constant(7.0))}

    def example_outputs(self, batch, context):
        return {"sum": tf.reduce_sum(batch["x"], axis=1)}


class Batches(ToyStage):
    """Seven batches of two examples, of one to seven numbers."""

    def evaluation_batches(self, context):
        numbers = tf.data.Dataset.range(1, 8)
        return numbers.map(lambda n: {"x": tf.fill([2, n], tf.cast(n, tf.float32))})


def stage_of(num_batches: int, sources=()) -> Batches:
    kind = type("Mixture", (Batches,), {"sources": sources}) if sources else Batches
    return kind(toy_config(), num_batches)


def test_batches_that_are_computed_at_once_give_the_results_of_one_after_the_other():
    one = DeviceLoop(Sums(), ONE_CPU).evaluate(stage_of(7))
    mirrored = tf.distribute.MirroredStrategy(["CPU:0"])
    other = DeviceLoop(Sums(), mirrored).evaluate(stage_of(7))
    assert one.metrics == other.metrics
    sums = [[1, 1], [4, 4], [9, 9], [16, 16], [25, 25], [36, 36], [49, 49]]
    assert np.array(one.outputs["sum"]).tolist() == np.array(other.outputs["sum"]).tolist() == sums


def test_each_source_of_a_mixture_has_its_means_and_counts_by_its_share_in_those_of_all():
    class Means(Sums):
        def evaluation_terms(self, batch, context):
            rows, columns = tf.unstack(tf.cast(tf.shape(batch["x"]), tf.float32))
            return {"mean": Ratio(tf.reduce_sum(batch["x"]), rows * columns), "rows": Sum(rows)}

    first = {"num_evaluation_batches": 3, "source_name": "a", "share": 0.75, "num_evaluation_examples": 5}
    second = {"num_evaluation_batches": 4, "source_name": "b", "share": 0.25, "num_evaluation_examples": 8}
    sources = [ToyStage(toy_config(), **each) for each in (first, second)]
    metrics = DeviceLoop(Means(), ONE_CPU).evaluate(stage_of(7, sources)).metrics
    # Sums of 2 rows of n numbers n: 2 * (1 + 4 + 9) = 28 of 2 * (1 + 2 + 3) = 12, and 252 of 44.
    mean = (0.75 / 5 * 28 + 0.25 / 8 * 252) / (0.75 / 5 * 12 + 0.25 / 8 * 44)
    of_sources = {"a/mean": 28 / 12, "a/rows": 6, "b/mean": 252 / 44, "b/rows": 8}
    assert metrics == pytest.approx({"mean": mean, "rows": 14, **of_sources})


def test_an_evaluation_as_one_program_gives_the_same():
    plain, compiled = (DeviceLoop(Sums(xla), ONE_CPU).evaluate(stage_of(2)) for xla in (None, True))
    assert compiled.metrics == pytest.approx(plain.metrics, rel=1e-6)
    assert np.array(compiled.outputs["sum"]).tolist() == np.array(plain.outputs["sum"]).tolist()


def test_two_batches_are_computed_at_once(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    both = threading.Barrier(2, timeout=20)  # each waits for another one

    def evaluate(batch, number):
        both.wait()
        return {}, {"number": number}

    loop = DeviceLoop(Sums(), ONE_CPU)
    monkeypatch.setattr(loop, "_function", lambda *_: SimpleNamespace(get_concrete_function=lambda *specs: evaluate))
    assert loop.evaluate(stage_of(6)).outputs["number"] == [0, 1, 2, 3, 4, 5]


def test_a_stop_request_ends_an_evaluation():
    loop = DeviceLoop(Sums(), ONE_CPU)
    loop.request_stop()
    assert loop.evaluate(stage_of(7)) is None


def test_an_error_in_a_batch_is_raised():
    class Failing(Sums):
        def example_outputs(self, batch, context):
            return {"checked": tf.debugging.check_numerics(tf.math.log(batch["x"] - 5.0), "no such batch")}

    with pytest.raises(tf.errors.InvalidArgumentError, match="no such batch"):
        DeviceLoop(Failing(), ONE_CPU).evaluate(stage_of(7))


def test_the_batches_of_one_replica_have_no_buffer_of_tf_distribute():
    # Its iterator would end up to a minute after the run.
    for strategy in (tf.distribute.OneDeviceStrategy("CPU:0"), tf.distribute.MirroredStrategy(["CPU:0"])):
        batches = DeviceLoop(Sums(), strategy).read(lambda context: tf.data.Dataset.range(3, 8))
        assert isinstance(batches, tf.data.Iterator) and next(batches) == 3


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
