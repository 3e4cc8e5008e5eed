"""Candidates for attention on GPUs, without one: the Triton kernels in Pallas's interpreter equal the reference."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.gpu_attention import candidates, jobs, layout
from benchmarks.gpu_attention.__main__ import build_parser
from benchmarks.gpu_attention.block import run_wave
from benchmarks.gpu_attention.candidates import flash_attention, install
from electra_tf.ops import random
from electra_tf.ops.fused import FusedOps
from electra_tf.ops.random import RandomStream
from electra_tf.ops.reference import REFERENCE, AttentionOptions
from electra_tf.tasks.pretrain.config import load_config

JAX_PYTHON = os.environ.get("ELECTRA_TF_TPU_COMPILE_PYTHON")  # of benchmarks/requirements-tpu-compile.txt: it has JAX
SHAPE = [2, 3, 64, 16]  # examples, heads, tokens, numbers of a head
KEY = RandomStream(7, step=5, first_example=4).dropout_key(0.25)


def inputs() -> list[tf.Tensor]:
    """Query, key, value, and the gradient of the output."""
    numbers = np.random.default_rng(3)
    return [tf.constant(numbers.normal(size=SHAPE), tf.float32) for _ in range(4)]


def key_mask() -> tf.Tensor:
    """50 and 9 tokens. (Among padding alone, scores are rounded to 0.001, so that nothing is equal to 1e-5.)"""
    return tf.constant([50 * [1] + 14 * [0], 9 * [1] + 55 * [0]], tf.int32)


@pytest.mark.slow
@pytest.mark.skipif(not JAX_PYTHON, reason="ELECTRA_TF_TPU_COMPILE_PYTHON is not set")
@pytest.mark.parametrize("dropout_key", [None, KEY], ids=["no dropout", "dropout"])
def test_the_kernels_and_their_gradients_equal_the_reference(dropout_key, tmp_path, monkeypatch):
    def interpreted(target, operands, results, backend_config):
        assert target == "__gpu$xla.gpu.triton"
        np.savez(tmp_path / "inputs.npz", *(each.numpy() for each in operands))
        rate, blocks = (str(dropout_key.rate) if dropout_key else "0"), "16,32"
        command = [JAX_PYTHON, "-m", "tests.benchmarks.interpreted_kernels", backend_config, rate, blocks]
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        subprocess.run([*command, "inputs.npz", "outputs.npz"], cwd=tmp_path, env=environment, check=True)
        outputs = [tf.constant(each) for each in np.load(tmp_path / "outputs.npz").values()]
        assert [(each.shape, each.dtype) for each in outputs] == [(each.shape, each.dtype) for each in results]
        return outputs

    monkeypatch.setattr(candidates.xla, "custom_call_v2", interpreted)
    monkeypatch.setenv("PYTHONPATH", str(Path(candidates.__file__).parents[2]))
    options, (*tensors, upstream) = AttentionOptions(dropout_key), inputs()
    kernels = {name: name for name in ("forward", "keys", "queries")}

    def computed(attention):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            output = attention(*tensors, key_mask(), options)
        return [output, *tape.gradient(output, tensors, upstream)]

    ours = computed(lambda *arguments: flash_attention(*arguments, kernels))
    for found, expected in zip(ours, computed(REFERENCE.attention), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_the_kernels_have_the_hash_of_dropout():
    assert layout.FACTORS == random._FACTORS


@pytest.mark.parametrize(
    ("candidate", "rate", "traced", "calls"),
    [
        ("flash", 0.25, {"flash": 1}, ["__gpu$xla.gpu.triton"] * 3),
        ("flash", 0.5, {"standing": 1}, []),  # there is no such kernel
        ("cudnn", 0.0, {"cudnn": 1}, ["__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward"]),
        ("cudnn", 0.25, {"standing": 1}, []),
    ],
)
def test_a_candidate_computes_what_it_has_kernels_for(candidate, rate, traced, calls, tmp_path, monkeypatch):
    monkeypatch.setattr(FusedOps, "attention", FusedOps.attention)  # is put back
    kernels = tmp_path / "kernels.json"
    kernels.write_text(json.dumps({"2,3,64,16 rate 0.25": {name: "{}" for name in ("forward", "keys", "queries")}}))
    counts = install(candidate, kernels)
    options = AttentionOptions(KEY._replace(rate=rate) if rate else None)

    @tf.function(jit_compile=True, autograph=False)
    def gradients(mask, upstream, *tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            output = FusedOps("gpu", whole_step=True).attention(*tensors, mask, options)
        return tape.gradient(output, tensors, upstream)

    heads = tf.TensorSpec(SHAPE, tf.bfloat16)
    specs = [tf.TensorSpec([2, 64], tf.int32), *[heads] * 4]
    text = gradients.experimental_get_compiler_ir(*specs)(stage="stablehlo")
    assert re.findall(r"custom_call @(__\S+?)\(", text) == calls
    assert counts == traced


@pytest.mark.parametrize("waves", [jobs.attention, jobs.flags], ids=["attention", "flags"])
def test_jobs_have_flags_and_settings_that_exist(waves):
    commands = [shlex.split(job["command"]) for wave in waves(Path("folder")) for job in wave]
    ours = [words[words.index("benchmarks.gpu_attention") + 1 :] for words in commands if "--config=base" in words]
    assert len(ours) == {jobs.attention: 14, jobs.flags: 18}[waves]
    for words in ours:
        flags = build_parser().parse_args(words)
        assert flags.wait and load_config(flags.config, flags.overrides).train.precision == "bfloat16"


@pytest.mark.slow
def test_a_job_is_timed_alone_and_faults_of_others_do_not_end_it(tmp_path):
    """One fails, one never ends its timing, one writes no JSON, one leaves a program that holds its pipe."""
    compiled, waits, timed = """echo '{"first_step_s": 1}'""", "read line", """echo '{"ms": 5}'"""
    times = {name: tmp_path / f"{name}.times" for name in ("first", "second")}
    commands = {
        "broken": ["exit 3"],
        "endless": [compiled, waits, "sleep 60"],
        "unreadable": [compiled, "echo '{not JSON'", r"printf '{\xff}\n'", waits, timed],
        "parent": [compiled, waits, "sleep 60 & exit 4"],
    }
    for name, delay in (("first", 0.1), ("second", 0.2)):
        count = f"for i in 1 2 3 4 5 6; do date +%s%N >> {times[name]}; sleep 0.05; done"
        commands[name] = [f"sleep {delay}", compiled, waits, count, timed]
    wave, ended = [{"name": name, "command": "; ".join(command)} for name, command in commands.items()], []
    run_wave(wave, seconds=50.0, turn=1.5, logs=tmp_path, report=ended.append)
    finished = {"first_step_s": 1, "ms": 5}
    assert {each.name: (each.process.returncode, each.answers) for each in ended} == {
        "broken": (3, {}),
        "endless": (-9, {"first_step_s": 1, "ms": None}),
        "unreadable": (0, finished),
        "parent": (4, {"first_step_s": 1}),
        "first": (0, finished),
        "second": (0, finished),
    }
    first, second = ([int(line) for line in times[name].read_text().split()] for name in ("first", "second"))
    assert max(first) < min(second) or max(second) < min(first)


@pytest.mark.slow
def test_a_terminated_block_leaves_no_job_and_keeps_what_has_ended(tmp_path):
    until = f"until [ -s {tmp_path}/pid ]; do sleep 0.02; done"
    row = """{"first_step_s": 2, "ms": 7}"""
    (tmp_path / "jobs.json").write_text(
        json.dumps(
            [
                [
                    {"name": "ended", "command": f"{until}; echo '{row}'"},
                    {"name": "left", "command": f"echo $$ > {tmp_path}/pid; exec sleep 60"},
                ]
            ]
        )
    )
    command = [sys.executable, "-m", "benchmarks.gpu_attention.block", tmp_path / "jobs.json", tmp_path / "rows.jsonl"]
    block = subprocess.Popen([*command, "--budget=50"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    row = json.loads(block.stdout.readline())
    assert row == {"wave": 0, "name": "ended", "status": 0, "first_step_s": 2, "ms": 7}
    block.terminate()
    assert block.wait(timeout=20) == 143
    assert json.loads((tmp_path / "rows.jsonl").read_text()) == row
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
