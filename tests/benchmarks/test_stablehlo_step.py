"""The exported step: its program, and that the TPU's compiler, if it is installed, accepts it."""

import os
import subprocess
from pathlib import Path

import pytest

from benchmarks.stablehlo_step.export import in_stablehlo_alone, main
from electra_tf.config.loader import config_to_yaml

PROJECT = Path(__file__).resolve().parents[2]
TPU_PYTHON = os.environ.get("ELECTRA_TF_TPU_COMPILE_PYTHON")  # of benchmarks/requirements-tpu-compile.txt


def test_operations_of_mhlo_are_translated_to_stablehlo():
    copy, erf = "%3 = mhlo.copy %2 : tensor<4x2xf32> loc(#a)", "%5 = mhlo.erf %4 : tensor<bf16>"
    assert in_stablehlo_alone(copy) == "%3 = stablehlo.reshape %2 : (tensor<4x2xf32>) -> tensor<4x2xf32> loc(#a)"
    assert in_stablehlo_alone(erf).startswith("%5 = stablehlo.custom_call @mhlo.erf(%4) {")
    with pytest.raises(AssertionError, match="StableHLO has no mhlo.minimum_broadcast"):
        in_stablehlo_alone("%1 = mhlo.minimum_broadcast %0 : tensor<f32>")


@pytest.mark.slow
@pytest.mark.skipif(not TPU_PYTHON, reason="ELECTRA_TF_TPU_COMPILE_PYTHON is not set: no step is compiled for a TPU")
def test_an_exported_step_is_compiled_for_a_tpu(tiny_config, tmp_path):
    config_file, step = tmp_path / "tiny.yaml", tmp_path / "step"
    config_file.write_text(config_to_yaml(tiny_config()), encoding="utf-8")
    assert main([str(step), f"--config={config_file}", "--set=train.batch_size=8"]) == 0
    command = [TPU_PYTHON, "-m", "benchmarks.stablehlo_step.tpu", str(step)]
    finished = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr[-2000:]
    row = dict(line.split(": ") for line in finished.stdout.splitlines())
    assert (row["examples"], row["objective"]) == ("8", "electra")
    assert float(row["flops_an_example"].replace(",", "")) > 0
