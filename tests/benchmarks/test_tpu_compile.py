"""The program for one of several TPU cores. (The TPU's compiler needs its own environment.)"""

import pytest

from benchmarks.stablehlo_step.export import build_step
from electra_tf.data.batch import batch_specs
from electra_tf.train.static_step import unfit_operations

pytestmark = pytest.mark.slow


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
