"""The exported step: its program and files, and that JAX, if it is installed, computes TensorFlow's numbers."""

import ast
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.stablehlo_step.__main__ import main
from benchmarks.stablehlo_step.compile import kernels_of
from benchmarks.stablehlo_step.export import build_step, in_stablehlo_alone, state_variables
from benchmarks.stablehlo_step.exported import StepFiles
from benchmarks.stablehlo_step.static_step import unfit_operations
from electra_tf.config.loader import config_to_yaml
from electra_tf.data.batch import PRETRAINING_BATCH, batch_specs
from electra_tf.tasks.pretrain.config import load_config
from tests.peers import PEERS_PYTHON, needs_peers

PROJECT = Path(__file__).resolve().parents[2]
JAX_PYTHON = os.environ.get("ELECTRA_TF_JAX_PYTHON")  # of an environment with JAX: docs/notes/accelerators.md
TPU_PYTHON = os.environ.get("ELECTRA_TF_TPU_COMPILE_PYTHON")  # of benchmarks/requirements-tpu-compile.txt
needs_jax = pytest.mark.skipif(not JAX_PYTHON, reason="ELECTRA_TF_JAX_PYTHON is not set")
NUM_STEPS = 5
PROGRAM = """HloModule step, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  ROOT %sum = f32[] add(%a, %a)
}

%micro_batch (state: (s32[], f32[6])) -> (s32[], f32[6]) {
  %state = (s32[], f32[6]{0}) parameter(0)
  %sums.1 = f32[6]{0} get-tuple-element(%state), index=1
  %sums.2 = f32[6]{0} fusion(%sums.1), kind=kInput, calls=%row
  ROOT %next = (s32[], f32[6]{0}) tuple(%index, %sums.2)
}

ENTRY %main (values.1: f32[6,5], ids.2: s32[3]) -> (f32[6], bf16[6,5]) {
  %values.1 = f32[6,5]{1,0} parameter(0), metadata={op_name="values"}
  %ids.2 = s32[3]{0} parameter(1)
  %loop.3 = bf16[6,5]{1,0} fusion(%values.1), kind=kLoop, calls=%cast
  %rows.4 = (f32[6]{0}, bf16[6,5]{1,0}) fusion(%loop.3, %values.1), kind=kCustom, calls=%rows, \
backend_config={"fusion_backend_config":{"kind":"__triton"}}
  %sum.5 = f32[6]{0} get-tuple-element(%rows.4), index=0
  %next.6 = f32[6]{0} fusion(%sum.5), kind=kLoop, calls=%next
  %product.7 = (f32[6,6]{1,0}, s8[1024]{0}) custom-call(%values.1, %values.1), custom_call_target="__cublas$lt$matmul"
  %copy.8 = s32[3]{0} copy(%ids.2)
  %while.9 = (s32[], f32[6]{0}) while(%state.0), condition=%until, body=%micro_batch, \
backend_config={"known_trip_count":{"n":"3"}}
  ROOT %tuple.10 = (f32[6]{0}, bf16[6,5]{1,0}) tuple(%next.6, %loop.3)
}
"""


# --- without JAX


@pytest.fixture(scope="module")
def config_file(tiny_config, tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "tiny.yaml"
    path.write_text(config_to_yaml(tiny_config()), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def exported_step(config_file, tmp_path_factory):
    """A tiny step of electra."""
    step = tmp_path_factory.mktemp("export") / "step"
    assert main(["export", str(step), f"--config={config_file}", "--state"]) == 0
    return step


@pytest.fixture(scope="module")
def exported(exported_step):
    return StepFiles(exported_step)


@pytest.mark.slow
def test_the_manifest_lists_the_arguments_with_their_initial_values_and_their_results(exported, tiny_config):
    manifest = exported.manifest
    objective, _ = build_step(tiny_config(), replicas=1)
    variables = state_variables(objective)
    for each, values in zip(manifest["state"], exported.state(), strict=True):
        assert (values == variables[each["name"]].numpy()).all()
    assert [each["name"] for each in manifest["batch"]] == list(PRETRAINING_BATCH.tensors)
    assert manifest["batch"][4] == {"name": "masked_lm_positions", "shape": [4, 3], "dtype": "int32"}
    # The step's number, the weights, and two moments of each weight: all have a new value among the results.
    shapes = {each["name"]: each["shape"] for each in manifest["state"]}
    assert shapes == {name: list(variable.shape) for name, variable in variables.items()}
    outputs = sorted(each["output"] for each in manifest["state"])
    assert outputs == list(range(len(manifest["metrics"]), len(manifest["metrics"]) + len(shapes)))
    assert len(shapes) == 1 + 3 * len(objective.trainable_variables)
    assert manifest["metrics"] == sorted(manifest["metrics"]) and "loss" in manifest["metrics"]


def test_operations_of_mhlo_are_translated_to_stablehlo():
    copy, erf = "%3 = mhlo.copy %2 : tensor<4x2xf32> loc(#a)", "%5 = mhlo.erf %4 : tensor<bf16>"
    assert in_stablehlo_alone(copy) == "%3 = stablehlo.reshape %2 : (tensor<4x2xf32>) -> tensor<4x2xf32> loc(#a)"
    assert in_stablehlo_alone(erf).startswith("%5 = stablehlo.custom_call @mhlo.erf(%4) {")
    with pytest.raises(AssertionError, match="StableHLO has no mhlo.minimum_broadcast"):
        in_stablehlo_alone("%1 = mhlo.minimum_broadcast %0 : tensor<f32>")


def test_kernels_are_counted_by_kind_with_their_bytes():
    assert kernels_of(PROGRAM) == {
        "fusion kLoop": (2, (60 + 120) + (24 + 24)),
        "fusion kCustom __triton": (1, (24 + 60) + (60 + 120)),
        "__cublas$lt$matmul": (1, (144 + 1024) + (120 + 120)),
        "copy": (1, 12 + 12),
        "fusion kInput": (3, 3 * (24 + 24)),  # in a loop of three micro-batches
    }


def test_files_for_other_machines_import_neither_tensorflow_nor_electra_tf():
    folder, known = PROJECT / "benchmarks", {"jax", "jaxlib", "numpy", "torch", "transformers"}
    names = ("__main__", "compile", "exported", "pytorch", "run", "tpu")
    files = [*(f"stablehlo_step/{name}.py" for name in names), "train_step/pytorch.py"]
    modules = {f"benchmarks.{name[:-3].replace('/', '.')}" for name in files}
    for file in files:
        for node in ast.walk(ast.parse((folder / file).read_text(encoding="utf-8"))):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            allowed = modules | {name for name in names if name.partition(".")[0] in known | sys.stdlib_module_names}
            assert set(names) <= allowed, file


@pytest.mark.slow
@pytest.mark.parametrize("name", ["electra", "bert_mlm"])
def test_the_program_of_one_core_sums_over_all_cores(tiny_config, name):
    config = tiny_config(objective={"name": name})
    specs = list(batch_specs(config, 2).values())
    objective, step = build_step(config, replicas=2)
    assert unfit_operations(step.get_concrete_function(*specs)) == []
    program = step.experimental_get_compiler_ir(*specs)(stage="stablehlo")
    # Sums of each gradient, the losses and their denominators, which the compiler merges later.
    assert program.count("stablehlo.all_reduce") >= len(objective.trainable_variables)
    assert "stablehlo.replica_id" in program


# --- under JAX


def run_python(python: str, *arguments: str) -> str:
    # This compiles quickly.
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_backend_optimization_level=0"}
    finished = subprocess.run([python, "-m", *arguments], cwd=PROJECT, capture_output=True, text=True, env=environment)
    assert finished.returncode == 0, finished.stderr[-2000:]
    return finished.stdout


@needs_peers
@pytest.mark.slow
@pytest.mark.parametrize("compiled", [[], ["--compiled"]], ids=["eager", "compiled"])
def test_pytorch_is_timed_on_the_exported_sizes(exported_step, tmp_path, compiled):
    rows = tmp_path / "rows.jsonl"
    flags = ["--warmup=1", "--rounds=2", "--steps=1", f"--output={rows}", *compiled]
    run_python(PEERS_PYTHON, "benchmarks.stablehlo_step", "pytorch", str(exported_step), *flags)
    row = json.loads(rows.read_text())
    assert row["compiled"] is bool(compiled) and row["seconds_a_step"] > 0
    assert row["first_loss"] == pytest.approx(math.log(47) + 50 * math.log(2), rel=0.3)  # of random weights


def steps_of_tensorflow(config, step: Path) -> tuple[list[float], dict[str, np.ndarray]]:
    """The loss of each step on the exported batches, and the weights after the last."""
    objective, _ = build_step(config, replicas=1)
    train, batches = tf.function(objective.train_step, autograph=False), StepFiles(step).batches()
    losses = []
    for index in range(NUM_STEPS):
        batch = dict(zip(PRETRAINING_BATCH.tensors, map(tf.constant, batches[index % len(batches)]), strict=True))
        losses.append(float(train(batch)["loss"]))
    return losses, {variable.name.partition(":")[0]: variable.numpy() for variable in objective.variables}


def distance(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    return math.sqrt(sum(np.square(one[name].astype("float64") - other[name]).sum() for name in other))


@needs_jax
@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("size", "objective"),
    [("small", "electra"), ("base", "electra"), ("small", "bert_mlm"), ("small", "adversarial"), ("small", "electric")],
)
def test_five_steps_under_jax_equal_tensorflows(size, objective, precision, tmp_path):
    config_file, step = PROJECT / "configs" / "pretrain" / f"{size}.yaml", tmp_path / "step"
    overrides = [
        "encoder.num_layers=1",
        "encoder.vocab_size=997",
        "data.max_seq_length=24",
        "train.batch_size=6",
        "train.gradient_accumulation_steps=2",
        "train.fused_ops=false",  # TensorFlow's side in single operations
        "optimizer.warmup_steps=0",
        "optimizer.learning_rate=1e-4",
        f"objective.name={objective}",
    ]
    flags = [f"--set={setting}" for setting in (*overrides, f"train.precision={precision}")]
    assert main(["export", str(step), f"--config={config_file}", *flags, "--state"]) == 0
    rows, final = tmp_path / "rows.jsonl", tmp_path / "final.npz"
    run = ["run", str(step), "--warmup=0", "--rounds=1", f"--steps={NUM_STEPS}"]
    run_python(JAX_PYTHON, "benchmarks.stablehlo_step", *run, f"--output={rows}", f"--final_state={final}")
    losses_of_jax, after = json.loads(rows.read_text())["losses"], dict(np.load(final))
    losses, weights = steps_of_tensorflow(load_config(config_file, [*overrides, f"train.precision={precision}"]), step)
    assert abs(losses[0] - losses[-1]) > 0.1  # the weights change
    if precision == "float32":
        np.testing.assert_allclose(losses_of_jax, losses, rtol=1e-5)
        for name, value in weights.items():
            np.testing.assert_allclose(after[name], value, rtol=0, atol=1e-5, err_msg=name)
        return
    # The errors of two roundings are independent, so the roundings are sqrt(2) times as far from each other as each is
    # from the exact value. (Each may also sample some other tokens.)
    exact_losses, exact = steps_of_tensorflow(load_config(config_file, overrides), step)
    assert math.dist(losses_of_jax, losses) <= math.sqrt(2.0) * math.dist(losses, exact_losses)
    assert distance(after, weights) <= math.sqrt(2.0) * distance(weights, exact)


@pytest.mark.slow
@pytest.mark.skipif(not TPU_PYTHON, reason="ELECTRA_TF_TPU_COMPILE_PYTHON is not set: no step is compiled for a TPU")
@pytest.mark.parametrize("replicas", [1, 4])
def test_a_step_is_compiled_for_a_tpu(config_file, tmp_path, replicas):
    step, rows = tmp_path / "step", tmp_path / "rows.jsonl"
    flags = [f"--config={config_file}", "--set=train.batch_size=8", f"--replicas={replicas}"]
    assert main(["export", str(step), *flags]) == 0
    run_python(TPU_PYTHON, "benchmarks.stablehlo_step", "tpu", str(step), f"--output={rows}")
    row = json.loads(rows.read_text())
    assert (row["examples"], row["all_reduces"] > 0) == (8 // replicas, replicas > 1)
    assert row["flops"] > 0 and row["arithmetic_s"] > 0
