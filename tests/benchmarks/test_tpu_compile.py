"""The TPU's compiler has its own environment; here the exported program and the refusals are tested."""

import pytest

from benchmarks.stablehlo_step.export import build_step
from benchmarks.tpu_compile import __main__ as tpu_compile
from electra_tf.data.batch import batch_specs
from electra_tf.train.static_step import unfit_operations

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["electra", "bert_mlm"])
def test_the_program_of_one_of_several_cores_sums_over_them(tiny_config, name):
    config = tiny_config(objective={"name": name})
    specs = list(batch_specs(config, 2).values())
    objective, step = build_step(config, replicas=2)
    assert unfit_operations(step.get_concrete_function(*specs)) == []
    program = step.experimental_get_compiler_ir(*specs)(stage="stablehlo")
    # Each weight's gradient, the losses and their denominators are summed; the compiler merges these sums.
    assert program.count("stablehlo.all_reduce") >= len(objective.trainable_variables)
    assert "stablehlo.replica_id" in program


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--jax_python=/nothing"], "--jax_python=/nothing has no TPU compiler"),
        (["--jax_python=python", "--topology", "v9:2x2"], "--topology=v9:2x2: expected VERSION:SHAPE such as v5e:2x2"),
        (["--jax_python=python", "--topology", "v5e"], "--topology=v5e: expected VERSION:SHAPE"),
    ],
)
def test_a_wrong_flag_is_one_line(flags, message, capsys):
    assert tpu_compile.main(flags) == 2
    assert message in capsys.readouterr().err
