"""The step for a TPU: what a TPU cannot run is found in its graph, and the TPU's compiler, if installed, accepts it.

In every objective: tests/test_every_objective.py.
"""

import math
import os
import subprocess
from pathlib import Path

import pytest
import tensorflow as tf

from benchmarks.stablehlo_step.export import in_stablehlo_alone, main
from benchmarks.stablehlo_step.static_step import training_step_function, unfit_operations
from electra_tf.config.loader import config_to_yaml
from electra_tf.data.batch import batch_specs
from electra_tf.tasks.pretrain import OBJECTIVES, build_objective
from electra_tf.train.step import compile_task

PROJECT = Path(__file__).resolve().parents[2]
TPU_PYTHON = os.environ.get("ELECTRA_TF_TPU_COMPILE_PYTHON")  # of benchmarks/requirements-tpu-compile.txt


def faults(function, *specs: tf.TensorSpec) -> list[str]:
    specs = specs or [tf.TensorSpec([3, 5], tf.float32)]
    return unfit_operations(tf.function(function).get_concrete_function(*specs))


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


@tf.function
def unique_inside(values):
    return values + tf.cast(tf.reduce_sum(tf.unique(tf.reshape(values, [-1]))[0]), tf.float32)


def unique_in_a_loop(values):
    for _ in tf.range(3):
        values = unique_inside(values)
    return values


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (lambda values: tf.unique(tf.reshape(values, [-1]))[0], "(Unique): the size of its output depends on the data"),
        (unique_in_a_loop, "(Unique): the size of its output depends on the data"),
        (lambda values: tf.py_function(tf.square, [values], tf.float32), "(EagerPyFunc): calls the host"),
        (lambda values: tf.strings.length(tf.strings.as_string(values)), "(AsString): text: a TPU has no strings"),
        (lambda values: tf.cast(tf.cast(values, tf.float64), tf.float32), "(Cast): float64"),
        (lambda values: tf.ensure_shape(tf.where(values > 0), [15, 2]), "its output has the unknown shape (None, 2)"),
    ],
)
def test_operation_that_a_tpu_cannot_run_is_reported(function, fault):
    assert any(fault in found for found in faults(function))


def test_unknown_batch_size_is_reported():
    found = faults(lambda values: values + 1.0, tf.TensorSpec([None, 10], tf.float32))
    assert any("(Placeholder): its output has the unknown shape (None, 10)" in fault for fault in found)


def test_operations_of_mhlo_are_translated_to_stablehlo():
    copy, erf = "%3 = mhlo.copy %2 : tensor<4x2xf32> loc(#a)", "%5 = mhlo.erf %4 : tensor<bf16>"
    assert in_stablehlo_alone(copy) == "%3 = stablehlo.reshape %2 : (tensor<4x2xf32>) -> tensor<4x2xf32> loc(#a)"
    assert in_stablehlo_alone(erf).startswith("%5 = stablehlo.custom_call @mhlo.erf(%4) {")
    with pytest.raises(AssertionError, match="StableHLO has no mhlo.minimum_broadcast"):
        in_stablehlo_alone("%1 = mhlo.minimum_broadcast %0 : tensor<f32>")


@pytest.mark.slow
def test_a_step_is_exported_and_compiled_for_a_tpu(tiny_config, tmp_path):
    config_file, step = tmp_path / "tiny.yaml", tmp_path / "step"
    config_file.write_text(config_to_yaml(tiny_config()), encoding="utf-8")
    assert main([str(step), f"--config={config_file}", "--set=train.batch_size=8"]) == 0
    assert {path.name for path in step.iterdir()} == {"step.json", "step.stablehlo"}
    if not TPU_PYTHON:
        pytest.skip("ELECTRA_TF_TPU_COMPILE_PYTHON is not set: no step is compiled for a TPU")
    command = [TPU_PYTHON, "-m", "benchmarks.stablehlo_step.tpu", str(step)]
    finished = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr[-2000:]
    row = dict(line.split(": ") for line in finished.stdout.splitlines())
    assert (row["examples"], row["objective"]) == ("8", "electra")
    assert float(row["flops_an_example"].replace(",", "")) > 0
