"""Compiling for a GPU: the kernels of a program, of whose text a piece is written by hand; what is refused."""

import json

import pytest

from benchmarks.stablehlo_step.__main__ import main
from benchmarks.stablehlo_step.compile import kernels_of

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


@pytest.fixture
def step(tmp_path):
    """A directory with the manifest of a step, and no program."""
    _write_manifest(tmp_path, replicas=1)
    return tmp_path


def _write_manifest(directory, replicas):
    names = ["objective", "precision", "batch_size", "max_seq_length", "trainable_parameters", "flops", "versions"]
    names += ["first_step", "batch", "metrics", "state", "step_variable"]
    manifest = {**dict.fromkeys(names), "peak_flops": {}, "replicas": replicas}
    (directory / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def test_kernels_are_counted_by_kind_with_the_bytes_that_they_read_and_write():
    assert kernels_of(PROGRAM) == {
        "fusion kLoop": (2, (60 + 120) + (24 + 24)),
        "fusion kCustom __triton": (1, (24 + 60) + (60 + 120)),
        "__cublas$lt$matmul": (1, (144 + 1024) + (120 + 120)),
        "copy": (1, 12 + 12),
        "fusion kInput": (3, 3 * (24 + 24)),  # in a loop of three micro-batches
    }


def test_a_target_that_is_no_text_is_one_line(step, capsys):
    (step / "a100").write_bytes(b"\xff\xfe")
    assert main(["compile", str(step), f"--target={step / 'a100'}"]) == 2
    assert "a100 cannot be read ('utf-8' codec" in capsys.readouterr().err


def test_a_target_that_is_not_there_is_one_line(step, capsys):
    assert main(["compile", str(step), f"--target={step / 'a100'}"]) == 2
    assert capsys.readouterr().err == f"error: --target={step / 'a100'} cannot be read (No such file or directory)\n"


@pytest.mark.parametrize("missing", ["memory_bandwidth", "device_description_str"])
def test_a_target_that_lacks_what_is_printed_is_one_line(missing, step, capsys):
    fields = {"memory_bandwidth": "  memory_bandwidth: 5", "device_description_str": "device_description_str: 'A100'"}
    fields[missing] = f"# {fields[missing]}"
    (step / "a100").write_text("\n".join(fields.values()), encoding="utf-8")
    assert main(["compile", str(step), f"--target={step / 'a100'}"]) == 2
    assert f"a100 has no {missing}" in capsys.readouterr().err


@pytest.mark.parametrize("keep", ["manifest.json", "missing/step.hlo"])
def test_nothing_is_overwritten_and_no_directory_made(keep, step, capsys):
    assert main(["compile", str(step), f"--keep={step / keep}"]) == 2
    assert "expected a new file in a directory that exists" in capsys.readouterr().err


def test_a_manifest_without_what_every_command_needs_is_one_line(tmp_path, capsys):
    (tmp_path / "manifest.json").write_text("{}", encoding="utf-8")
    assert main(["compile", str(tmp_path)]) == 2
    assert "manifest.json is damaged: no objective" in capsys.readouterr().err


def test_a_manifest_that_is_no_object_is_one_line(tmp_path, capsys):
    (tmp_path / "manifest.json").write_text('["objective", "batch"]', encoding="utf-8")
    assert main(["compile", str(tmp_path)]) == 2
    assert "manifest.json is damaged: no object of JSON" in capsys.readouterr().err


def test_the_step_of_one_of_several_replicas_is_refused(tmp_path, capsys):
    _write_manifest(tmp_path, replicas=4)
    assert main(["compile", str(tmp_path)]) == 2
    assert "is the step of one of 4 replicas; export one's" in capsys.readouterr().err
