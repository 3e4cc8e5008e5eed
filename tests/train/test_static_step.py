"""The training step of every objective is one that a TPU compiles, and a step that is not is told apart."""

import math

import pytest
import tensorflow as tf

from electra_tf.data.batch import batch_specs
from electra_tf.tasks.pretrain import OBJECTIVES, build_objective
from electra_tf.train.static_step import training_step_function, unfit_operations
from electra_tf.train.step import compile_task

# An objective, and which of its phases.
STEPS = [(name, phase) for name in OBJECTIVES for phase in range(2 if name == "two_stage" else 1)]
SPEC = tf.TensorSpec([3, 5], tf.float32)


def faults(function, *specs: tf.TensorSpec) -> list[str]:
    return unfit_operations(tf.function(function).get_concrete_function(*specs or [SPEC]))


@pytest.fixture(scope="module")
def step_of(tiny_config):
    """`step_of(name, phase, **train)`: configuration, and compiled training step, of a phase of an objective."""

    def build(name: str, phase: int = 0, **train):
        # Two stages need a generator of the discriminator's size.
        sizes = {"size_fraction": 1.0, "num_heads": None, "intermediate_size": None}
        settings = {"generator": sizes} if name == "two_stage" else {}
        config = tiny_config(objective={"name": name, **settings}, train=train)
        return config, training_step_function(compile_task(build_objective(config)).phases[phase])

    return build


@pytest.mark.parametrize(("name", "phase"), STEPS)
def test_nothing_in_the_training_step_of_any_objective_is_unfit_for_a_tpu(step_of, name, phase):
    config, step = step_of(name, phase, precision="bfloat16", gradient_accumulation_steps=2)
    assert unfit_operations(step.get_concrete_function(*batch_specs(config, 4).values())) == []


@pytest.mark.parametrize(("rematerialize", "on_nonfinite"), [(True, "stop"), (False, "skip")])
def test_nor_is_there_under_the_options_that_change_the_step(step_of, rematerialize, on_nonfinite):
    config, step = step_of("electra", rematerialize=rematerialize, on_nonfinite=on_nonfinite, xla=True)
    assert unfit_operations(step.get_concrete_function(*batch_specs(config, 4).values())) == []


@pytest.mark.parametrize(("name", "phase"), STEPS)
def test_the_whole_training_step_is_fit_for_a_tpu_in_float32_and_runs_as_one_compiled_program(
    step_of, tiny_batch, name, phase
):
    """One test, not two, as tracing is what takes the time."""
    config, step = step_of(name, phase)
    assert unfit_operations(step.get_concrete_function(*batch_specs(config, 4).values())) == []
    batch = tiny_batch(config, [10, 7, 5, 8])
    metrics = step(*(batch[key] for key in batch_specs(config, 4)))
    assert math.isfinite(float(metrics["loss"])) and float(metrics["loss"]) > 0


def test_the_specifications_are_those_of_a_masked_batch(tiny_config, tiny_batch):
    config = tiny_config()
    batch = tiny_batch(config, [10, 7, 5, 8])
    specs = batch_specs(config, 4)
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in batch.items()} == {
        name: (spec.shape, spec.dtype) for name, spec in specs.items()
    }


def test_an_open_batch_is_found(tiny_config):
    config = tiny_config()
    step = training_step_function(compile_task(build_objective(config)))
    found = unfit_operations(
        step.get_concrete_function(
            *(tf.TensorSpec([None, *spec.shape[1:]], spec.dtype) for spec in batch_specs(config, 4).values())
        )
    )
    assert any("(Placeholder): its output has the open shape (None, 10)" in fault for fault in found)


def print_and_return(values):
    tf.print(values)
    return values


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (
            lambda values: tf.boolean_mask(values, values[:, 0] > 0),
            "(Where): the size of its output depends on the data",
        ),
        (lambda values: tf.unique(tf.reshape(values, [-1]))[0], "(Unique): the size of its output depends on the data"),
        (lambda values: tf.dynamic_partition(values, [0, 1, 0], 2)[0], "(DynamicPartition): the size of its output"),
        (lambda values: tf.py_function(tf.square, [values], tf.float32), "(EagerPyFunc): asks the host"),
        (lambda values: tf.numpy_function(abs, [values], tf.float32), "(PyFunc): asks the host"),
        (print_and_return, "(PrintV2): asks the host"),
        (lambda values: tf.strings.length(tf.strings.as_string(values)), "(AsString): text: a TPU has none"),
        (lambda values: tf.cast(tf.cast(values, tf.float64), tf.float32), "(Cast): float64"),
    ],
)
def test_what_no_tpu_takes_is_found(function, fault):
    assert any(fault in found for found in faults(function))


def test_a_size_that_depends_on_the_data_is_found_where_its_shape_was_set_by_hand():
    found = faults(lambda values: tf.ensure_shape(tf.where(values > 0), [15, 2]))
    assert [fault.split(": ")[1] for fault in found] == [
        "the size of its output depends on the data",
        "its output has the open shape (None, 2)",
    ]


def test_what_no_tpu_takes_is_found_inside_functions_and_loops():
    @tf.function
    def inner(values):
        return values + tf.cast(tf.reduce_sum(tf.unique(tf.reshape(values, [-1]))[0]), tf.float32)

    def outer(values):
        for _ in tf.range(3):
            values = inner(values)
        return values

    assert any("(Unique)" in found for found in faults(outer))


def test_a_graph_without_a_fault_has_none():
    assert faults(lambda values: tf.reduce_sum(tf.nn.softmax(values) * 2.0)) == []
    assert faults(lambda ids: tf.one_hot(ids, 7), tf.TensorSpec([4], tf.int32)) == []


def test_a_function_that_the_graph_does_not_reach_counts_for_nothing():
    @tf.function(input_signature=[SPEC])
    def never_called(values):
        return tf.unique(tf.reshape(values, [-1]))[0]

    def outer(values):
        never_called.get_concrete_function().add_to_graph(tf.compat.v1.get_default_graph())
        return values + 1.0

    assert faults(outer) == []
