"""The program for one of several TPU cores, and the command, which needs the TPU's compiler."""

import json
import os

import pytest

from benchmarks.stablehlo_step.export import build_step
from benchmarks.stablehlo_step.static_step import unfit_operations
from benchmarks.tpu_compile import __main__ as tpu_compile
from electra_tf.config.loader import config_to_yaml
from electra_tf.data.batch import batch_specs

pytestmark = pytest.mark.slow
PYTHON = os.environ.get("ELECTRA_TF_TPU_COMPILE_PYTHON")  # of benchmarks/requirements-tpu-compile.txt


@pytest.mark.skipif(not PYTHON, reason="ELECTRA_TF_TPU_COMPILE_PYTHON is not set: no step is compiled for a TPU")
def test_every_case_is_compiled(tiny_config, tmp_path):
    config, output = tmp_path / "tiny.yaml", tmp_path / "tpu.json"
    config.write_text(config_to_yaml(tiny_config()), encoding="utf-8")
    flags = [f"--jax_python={PYTHON}", f"--config={config}", "--batch_size=8", f"--output={output}"]
    assert tpu_compile.main(flags) == 0
    cases = [(case["precision"], case["replicas"]) for case in json.loads(output.read_text())["results"]]
    assert cases == [("bfloat16", 1), ("bfloat16", 4), ("float32", 1), ("float32", 4)]


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
