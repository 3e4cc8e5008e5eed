"""The search for operations that a TPU cannot run (in every objective: tests/test_every_objective.py)."""

import math

import pytest
import tensorflow as tf

from benchmarks.stablehlo_step.static_step import training_step_function, unfit_operations
from electra_tf.data.batch import batch_specs
from electra_tf.tasks.pretrain import OBJECTIVES, build_objective
from electra_tf.train.step import compile_task

SPEC = tf.TensorSpec([3, 5], tf.float32)


def faults(function, *specs: tf.TensorSpec) -> list[str]:
    return unfit_operations(tf.function(function).get_concrete_function(*specs or [SPEC]))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "phase"), [*((name, 0) for name in OBJECTIVES), ("two_stage", 1)])
def test_whole_step_of_every_objective_runs_as_one_compiled_program(tiny_config, tiny_batch, name, phase):
    train = {"precision": "bfloat16", "gradient_accumulation_steps": 2, "rematerialize": True, "on_nonfinite": "skip"}
    config = tiny_config(objective={"name": name}, train=train)
    step = training_step_function(compile_task(build_objective(config)).phases()[phase])
    specs = batch_specs(config, 4)
    assert unfit_operations(step.get_concrete_function(*specs.values())) == []
    batch = tiny_batch(config, [10, 7, 5, 8])
    assert 0.0 < float(step(*(batch[key] for key in specs))["loss"]) < math.inf


def test_unknown_batch_size_is_reported():
    found = faults(lambda values: values + 1.0, tf.TensorSpec([None, 10], tf.float32))
    assert any("(Placeholder): its output has the unknown shape (None, 10)" in fault for fault in found)


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (lambda values: tf.unique(tf.reshape(values, [-1]))[0], "(Unique): the size of its output depends on the data"),
        (lambda values: tf.py_function(tf.square, [values], tf.float32), "(EagerPyFunc): calls the host"),
        (lambda values: tf.strings.length(tf.strings.as_string(values)), "(AsString): text: a TPU has no strings"),
        (lambda values: tf.cast(tf.cast(values, tf.float64), tf.float32), "(Cast): float64"),
    ],
)
def test_operation_that_a_tpu_cannot_run_is_reported(function, fault):
    assert any(fault in found for found in faults(function))


def test_size_that_depends_on_the_data_is_reported_though_ensure_shape_hides_it():
    found = faults(lambda values: tf.ensure_shape(tf.where(values > 0), [15, 2]))
    assert [fault.split(": ")[1] for fault in found] == [
        "the size of its output depends on the data",
        "its output has the unknown shape (None, 2)",
    ]


def test_operation_inside_a_function_in_a_loop_is_reported():
    @tf.function
    def inner(values):
        return values + tf.cast(tf.reduce_sum(tf.unique(tf.reshape(values, [-1]))[0]), tf.float32)

    def outer(values):
        for _ in tf.range(3):
            values = inner(values)
        return values

    assert any("(Unique)" in found for found in faults(outer))
