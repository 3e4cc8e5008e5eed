import gzip

import pytest

from benchmarks import tpu_compile, tpu_compile_traffic
from benchmarks.tpu_compile_program import read_program, read_shapes
from benchmarks.tpu_compile_replicas import CompiledReplicas
from electra_tf.data.batch import batch_specs
from electra_tf.tasks.pretrain import build_objective
from electra_tf.train.static_step import unfit_operations
from electra_tf.train.step import compile_task

# What `to_string` prints, cut down: a fusion that reads two arrays of HBM and a slice of a table, an asynchronous copy
# to VMEM and its reader, a loop of three rounds, a sum over cores.
PROGRAM = """\
HloModule step, is_scheduled=true

%fused_sum (param_0.1: f32[8,128], param_1.1: f32[8,128], param_2.1: f32[1000,128]) -> f32[8,128] {
  %param_0.1 = f32[8,128]{1,0:T(8,128)} parameter(0)
  %param_1.1 = f32[8,128]{1,0:T(8,128)} parameter(1)
  %param_2.1 = f32[1000,128]{1,0:T(8,128)} parameter(2)
  %slice.1 = f32[8,128]{1,0:T(8,128)} slice(%param_2.1), slice={[0:8], [0:128]}
  %add.1 = f32[8,128]{1,0:T(8,128)} add(%param_0.1, %param_1.1)
  ROOT %add.2 = f32[8,128]{1,0:T(8,128)} add(%add.1, %slice.1), metadata={op_name="layer_7/add"}
}

%body (state: (f32[16,128])) -> (f32[16,128]) {
  %state = (f32[16,128]{1,0:T(8,128)}) parameter(0)
  %element = f32[16,128]{1,0:T(8,128)} get-tuple-element(%state), index=0
  %negative = f32[16,128]{1,0:T(8,128)} negate(%element), metadata={op_name="loop/Neg"}
  ROOT %tuple.1 = (f32[16,128]{1,0:T(8,128)}) tuple(%negative)
}

%condition (state.1: (f32[16,128])) -> pred[] {
  %state.1 = (f32[16,128]{1,0:T(8,128)}) parameter(0)
  ROOT %always = pred[]{:T(512)} constant(true)
}

ENTRY %main (a: f32[8,128], b: f32[8,128], table: f32[1000,128], c: f32[16,128]) -> f32[16,128] {
  %a = f32[8,128]{1,0:T(8,128)} parameter(0)
  %b = f32[8,128]{1,0:T(8,128)} parameter(1)
  %table = f32[1000,128]{1,0:T(8,128)} parameter(2)
  %c = f32[16,128]{1,0:T(8,128)} parameter(3)
  %fusion = f32[8,128]{1,0:T(8,128)} fusion(%a, %b, %table), kind=kLoop, calls=%fused_sum, \
metadata={op_name="layer_7/add"}, backend_config={"estimated_cycles":"50"}
  %copy-start = (f32[8,128]{1,0:T(8,128)S(1)}, f32[8,128]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%fusion)
  %copy-done = f32[8,128]{1,0:T(8,128)S(1)} copy-done(%copy-start)
  %double = f32[8,128]{1,0:T(8,128)S(1)} multiply(%copy-done, %copy-done), metadata={op_name="layer_11/mul"}
  %sum = f32[8,128]{1,0:T(8,128)S(1)} all-reduce(%double), replica_groups={{0,1,2,3}}, to_apply=%fused_sum
  %start = (f32[16,128]{1,0:T(8,128)}) tuple(%c)
  %loop = (f32[16,128]{1,0:T(8,128)}) while(%start), condition=%condition, body=%body, \
backend_config={"known_trip_count":{"n":"3"}}
  ROOT %result = f32[16,128]{1,0:T(8,128)} get-tuple-element(%loop), index=0
}
"""
TILE = 8 * 128 * 4


@pytest.fixture
def program():
    return read_program(PROGRAM.splitlines())


def traffic(program, name: str) -> tuple[int, int, int]:
    moved = tpu_compile_traffic.traffic_of(program, program.find(name))
    return moved.read // TILE, moved.written // TILE, moved.accessed // TILE


@pytest.mark.parametrize(
    ("text", "size", "in_hbm"),
    [
        ("f32[8,128]{1,0:T(8,128)}", 4096, True),
        ("f32[8,128]{1,0:T(8,128)S(1)}", 4096, False),
        ("u32[1000,4]{1,0:T(8,128)}", 1000 * 128 * 4, True),
        ("u32[4,1000]{0,1:T(8,128)}", 1000 * 128 * 4, True),
        ("bf16[3,5,128]{2,1,0:T(8,128)(2,1)}", 3 * 8 * 128 * 2, True),
        ("pred[7]{0:T(512)}", 512, True),
        ("f32[]", 4, True),
    ],
)
def test_an_array_takes_what_its_tiles_do_in_the_memory_it_is_laid_out_for(text, size, in_hbm):
    ((shape),) = read_shapes(text)
    assert (shape.bytes, shape.in_hbm) == (size, in_hbm)


def test_a_fusion_reads_its_operands_and_of_a_table_only_the_slice(program):
    assert traffic(program, "fusion") == (3, 1, 4)


def test_a_copy_to_the_cores_own_memory_is_read_once_from_hbm(program):
    assert traffic(program, "copy-start") == (1, 0, 2)
    assert traffic(program, "copy-done") == (0, 0, 0)
    assert traffic(program, "double") == (0, 0, 3)


def test_a_loops_body_counts_as_often_as_it_runs(program):
    assert [
        times for instruction, times in tpu_compile_traffic.executed(program) if instruction.name == "negative"
    ] == [3]
    # Reads of the fusion and the copy, writes of the fusion, and twice 2 tiles in each of three rounds.
    assert tpu_compile_traffic.total(program).hbm == (3 + 1 + 1 + 3 * 4) * TILE


def test_sums_over_cores_are_counted_in_the_program_that_runs(program):
    assert tpu_compile_traffic.count(program, "all-reduce") == 1


def test_the_report_takes_layers_together_and_begins_with_what_moves_most(tmp_path):
    with gzip.open(tmp_path / "step.hlo.gz", "wt") as file:
        file.write(PROGRAM)
    lines = tpu_compile_traffic.report(tmp_path / "step.hlo.gz", rows=2).splitlines()
    assert lines[0] == "one step moves 0.00 GB between HBM and core (0.00 GB with VMEM)"
    assert lines[2].endswith("loop/Neg [negate] f32[16,128]")
    assert lines[3].endswith("layer_*/add [fusion] f32[8,128]")


@pytest.mark.parametrize(
    ("opcode", "inside", "kind"),
    [
        ("copy-start", None, "fetched to VMEM ahead of its use, or put away"),
        ("all-reduce", None, "sum over cores"),
        ("transpose", None, "copy into another layout, cut or joined"),
        ("fusion", "transpose", "copy into another layout, cut or joined"),
        ("fusion", "convolution", "product, with what is computed from its output"),
        ("fusion", "exponential", "loop: sums, exponentials, random bits, updates"),
        ("negate", None, "loop: sums, exponentials, random bits, updates"),
    ],
)
def test_what_an_operation_is_for_is_told_by_what_is_inside(opcode, inside, kind):
    text = f"""
%inner (p: f32[8,128]) -> f32[8,128] {{
  %p = f32[8,128]{{1,0}} parameter(0)
  ROOT %inside = f32[8,128]{{1,0}} {inside or "negate"}(%p)
}}
ENTRY %main (a: f32[8,128]) -> f32[8,128] {{
  %a = f32[8,128]{{1,0}} parameter(0)
  ROOT %it = f32[8,128]{{1,0}} {opcode}(%a), calls=%inner
}}
"""
    program = read_program(text.splitlines())
    assert tpu_compile_traffic.kind(program, program.find("it")) == kind


@pytest.mark.parametrize("name", ["electra", "bert_mlm"])
def test_the_program_of_one_of_several_cores_sums_over_them_by_itself(tiny_config, name):
    config = tiny_config(objective={"name": name})
    specs = list(batch_specs(config, 2).values())
    strategy = CompiledReplicas(2)
    with strategy.scope():
        objective = compile_task(build_objective(config))
    step = strategy.training_step_function(objective)
    assert unfit_operations(step.get_concrete_function(*specs)) == []
    program = step.experimental_get_compiler_ir(*specs)(stage="stablehlo")
    # Each weight's gradient, the loss terms and their weights are summed; the compiler makes few sums of them.
    assert program.count("stablehlo.all_reduce") >= len(objective.trainable_variables)
    assert "stablehlo.replica_id" in program


def test_the_roofline_is_the_longer_of_arithmetic_and_memory_of_one_core():
    chip = tpu_compile.Chip(flops=100.0, bandwidth=10.0, memory=1.0)
    assert tpu_compile.roofline(chip, 1, flops=200.0, hbm_bytes=10.0) == {
        "arithmetic_s": 2.0,
        "memory_s": 1.0,
        "roofline_s": 2.0,
    }
    assert tpu_compile.roofline(chip, 2, flops=200.0, hbm_bytes=30.0)["roofline_s"] == 6.0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--jax_python=/nothing"], "--jax_python=/nothing has no TPU compiler"),
        (["--jax_python=python", "--topology", "v9:2x2"], "--topology=v9:2x2: expected VERSION:SHAPE such as v5e:2x2"),
        (["--jax_python=python", "--topology", "v5e"], "--topology=v5e: expected VERSION:SHAPE"),
    ],
)
def test_what_it_cannot_do_is_one_line(flags, said, capsys):
    assert tpu_compile.main(flags) == 2
    assert said in capsys.readouterr().err
