"""The exported step: its programs and files here; that JAX computes TensorFlow's numbers, where there is a JAX."""

import ast
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.stablehlo_step.__main__ import main
from benchmarks.stablehlo_step.export import build_step, state_variables
from benchmarks.stablehlo_step.files import BadInput, StepFiles, state_from, write_arrays
from benchmarks.stablehlo_step.lowering import in_stablehlo_alone
from benchmarks.stablehlo_step.measurement import published_peak, result, timed_rounds
from electra_tf.cli import run_pretraining
from electra_tf.config.loader import config_to_yaml
from electra_tf.data.batch import PRETRAINING_BATCH
from electra_tf.tasks.pretrain.config import load_config

PROJECT = Path(__file__).resolve().parents[2]
JAX_PYTHON = os.environ.get("ELECTRA_TF_JAX_PYTHON")  # of an environment with JAX: docs/notes/accelerators.md
PEERS_PYTHON = os.environ.get("ELECTRA_TF_PEERS_PYTHON")  # of an environment of benchmarks/requirements-peers.txt
needs_jax = pytest.mark.skipif(not JAX_PYTHON, reason="ELECTRA_TF_JAX_PYTHON is not set")
NUM_STEPS = 5


# --- without JAX


@pytest.fixture(scope="module")
def config_file(tiny_config, tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "tiny.yaml"
    path.write_text(config_to_yaml(tiny_config()), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def data_dir(write_data, tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data") / "set")  # 12 examples: three batches


@pytest.fixture(scope="module")
def exported(config_file, data_dir, tmp_path_factory):
    """A tiny step of electra, with the examples of the first five batches, of two epochs."""
    step = tmp_path_factory.mktemp("export") / "step"
    assert main(["export", str(step), f"--config={config_file}", f"--data_dir={data_dir}", "--steps=5"]) == 0
    return StepFiles(step)


def test_the_manifest_lists_the_arguments_in_order_and_what_replaces_them(exported, tiny_config):
    manifest = exported.manifest
    objective, _ = build_step(tiny_config(), replicas=1)
    assert [each["name"] for each in manifest["batch"]] == list(PRETRAINING_BATCH.tensors)
    assert manifest["batch"][4] == {"name": "masked_lm_positions", "shape": [4, 3], "dtype": "int32"}
    # The step's number, weights, and two moments of each; each is replaced by a result of its own after the metrics.
    shapes = {each["name"]: each["shape"] for each in manifest["state"]}
    assert shapes == {name: list(variable.shape) for name, variable in state_variables(objective).items()}
    outputs = sorted(each["output"] for each in manifest["state"])
    assert outputs == list(range(len(manifest["metrics"]), len(manifest["metrics"]) + len(shapes)))
    assert len(shapes) == 1 + 3 * len(objective.trainable_variables)
    assert manifest["metrics"] == sorted(manifest["metrics"]) and "loss" in manifest["metrics"]


@pytest.mark.slow
def test_the_constants_of_lamb_are_read_and_not_replaced(config_file, tmp_path):
    step = tmp_path / "step"
    assert main(["export", str(step), f"--config={config_file}", "--set=optimizer.name=lamb"]) == 0
    read = {each["name"]: each["initial"] for each in StepFiles(step).manifest["state"] if each["output"] is None}
    assert read["optimizer/beta_1"] == {"constant": pytest.approx(0.9)}


def test_the_manifest_tells_how_the_state_begins(exported):
    initial = {each["name"]: each["initial"] for each in exported.manifest["state"]}
    assert initial[exported.manifest["step_variable"]] == {"constant": 0}
    assert initial["electra/layer_0/intermediate/bias"] == {"constant": 0.0}
    assert initial["electra/layer_0/output/LayerNorm/gamma"] == {"constant": 1.0}
    # 0.02, cut off at two deviations: 0.0176, and with 564 numbers 6 % of that are two deviations of the estimate.
    assert initial["generator_network/generator/embeddings/word_embeddings"]["deviation"] == pytest.approx(
        0.0176, rel=0.1
    )
    # The step's number, and two moments of each of 50 weights.
    assert [each for name, each in initial.items() if name.startswith("optimizer/")] == [{"constant": 0.0}] * 101


def test_the_examples_are_those_of_the_pipeline_in_its_order_each_once(exported):
    with np.load(exported.directory / "examples.npz") as stored:
        examples = dict(stored)
    assert examples["input_ids"].shape == (12, 10) and examples["input_ids"].dtype == np.uint16
    rows = examples["order"].reshape(5, 4)
    with np.load(exported.directory / "batches.npz") as stored:
        np.testing.assert_array_equal(examples["input_ids"][rows[:4]], stored["input_ids"])
        np.testing.assert_array_equal(examples["segment_lengths"][rows[:4]].sum(-1), stored["input_mask"].sum(-1))
        np.testing.assert_array_equal(examples["segment_lengths"][rows[:4]][..., 1], stored["segment_ids"].sum(-1))


def test_what_is_no_stablehlo_is_written_as_stablehlo():
    copy, erf = "%3 = mhlo.copy %2 : tensor<4x2xf32> loc(#a)", "%5 = mhlo.erf %4 : tensor<bf16>"
    assert in_stablehlo_alone(copy) == "%3 = stablehlo.reshape %2 : (tensor<4x2xf32>) -> tensor<4x2xf32> loc(#a)"
    assert in_stablehlo_alone(erf).startswith("%5 = stablehlo.custom_call @mhlo.erf(%4) {")
    with pytest.raises(AssertionError, match="StableHLO has no mhlo.minimum_broadcast"):
        in_stablehlo_alone("%1 = mhlo.minimum_broadcast %0 : tensor<f32>")


STATE = {
    "step_variable": "optimizer/0",
    "state": [
        {"name": "kernel", "shape": [2, 3], "dtype": "float32", "initial": {"deviation": 0.5}},
        {"name": "optimizer/0", "shape": [], "dtype": "int64", "initial": {"constant": 0}},
        {"name": "optimizer/1", "shape": [2, 3], "dtype": "float32", "initial": {"constant": 0.0}},
    ],
}


def test_moments_that_a_state_leaves_out_are_those_of_a_beginning(tmp_path):
    kernel = np.full([2, 3], 0.25, np.float32)
    write_arrays(tmp_path / "weights.npz", {"kernel": kernel, "optimizer/0": np.int64(7)})
    state = state_from(tmp_path / "weights.npz", STATE)
    assert state["kernel"].tolist() == kernel.tolist() and state["optimizer/0"] == 7
    assert state["optimizer/1"].tolist() == [[0.0] * 3] * 2 and state["optimizer/1"].dtype == np.float32


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"kernel": np.zeros([2, 3], np.float32)}, "optimizer/0 should be int64 [], found nothing"),
        ({"kernel": np.zeros([3, 2], np.float32)}, "kernel should be float32 [2, 3], found float32 [3, 2]"),
        ({"kernel": np.zeros([2, 3])}, "kernel should be float32 [2, 3], found float64 [2, 3]"),
    ],
)
def test_a_state_of_another_step_is_refused(arrays, message, tmp_path):
    write_arrays(tmp_path / "state.npz", arrays)
    with pytest.raises(BadInput) as refused:
        state_from(tmp_path / "state.npz", STATE)
    assert message in str(refused.value)


def test_a_damaged_state_is_refused(tmp_path):
    path = tmp_path / "state.npz"
    write_arrays(path, {"kernel": np.zeros([2, 3], np.float32)})
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(BadInput, match="state.npz cannot be read as .npz"):
        state_from(path, STATE)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["export", "FULL", "--config=small.yaml"], "FULL is not empty; give a new directory"),
        (["export", "NEW", "--config=small.yaml", "--steps=3"], "--steps=3 are of a data set; give --data_dir too"),
        (["export", "NEW", "--config=small.yaml", "--replicas=0"], "--replicas=0: expected 0 or more, and 1 or more"),
        (["export", "NEW", "--config=small.yaml", "--replicas=2", "--state"], "--replicas is for compiling alone"),
        (["run", "NEW"], "manifest.json cannot be read (No such file or directory); export the step again"),
        (["run", "FULL", "--rounds=0"], "--rounds=0: expected 1 or more"),
        (["run", "FULL", "--peak_flops=-5"], "--peak_flops=-5.0: expected a positive number"),
        (["run", "FULL", "--peak_flops=nan"], "--peak_flops=nan: expected a positive number"),
        (["train", "FULL", "--output_dir=OUT", "--log_every=0"], "--log_every=0: expected 1 or more"),
        (["run", "FULL"], "manifest.json is damaged: no object of JSON"),
    ],
)
def test_a_wrong_flag_is_one_line(flags, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("FULL").mkdir()
    Path("FULL", "manifest.json").write_text("{")
    assert main(flags) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_final_state_overwrites_nothing(exported, tmp_path, capsys):
    (tmp_path / "kept.npz").touch()
    assert main(["run", str(exported.directory), f"--final_state={tmp_path / 'kept.npz'}"]) == 2
    assert capsys.readouterr().err == f"error: --final_state={tmp_path / 'kept.npz'} exists; give a new file\n"


def test_a_file_as_the_directory_of_a_training_is_one_line(exported, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["train", str(exported.directory), f"--output_dir={tmp_path / 'file'}"]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'file'}: Not a directory\n"


def test_a_module_of_another_environment_is_one_line(exported, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jax", None)
    assert main(["run", str(exported.directory)]) == 2
    assert capsys.readouterr().err.startswith("error: no jax in this Python; docs/notes/accelerators.md")


def test_the_seconds_a_step_are_of_whole_rounds():
    calls = []
    seconds = timed_rounds(lambda: calls.append("step"), lambda: calls.append("wait"), rounds=2, steps=3)
    assert calls == ["wait", "step", "step", "step", "wait"] * 2
    assert len(seconds) == 2 and min(seconds) >= 0.0


def test_a_row_has_the_median_and_its_share_of_the_peak():
    manifest = {
        "objective": "electra",
        "trainable_parameters": 7,
        "batch_size": 8,
        "max_seq_length": 10,
        "flops": {"products": 3e12},
        "peak_flops": {r"\bH200\b": 24e12, r"\bH\d00\b": 12e12},
    }
    peak = published_peak(manifest, "NVIDIA H200")
    row = result(manifest, [0.25, 9.0, 0.2], peak, contender="a test")
    assert (row["seconds_a_step"], row["examples_per_second"], row["utilization"]) == (0.25, 32.0, 0.5)
    assert published_peak(manifest, "cpu") is None
    assert result(manifest, [0.25], None)["utilization"] is None


def test_what_runs_on_another_machine_needs_no_tensorflow_and_nothing_of_electra_tf():
    folder, known = PROJECT / "benchmarks", {"jax", "jaxlib", "numpy", "torch", "transformers"}
    names = ("__main__", "compile", "files", "measurement", "program", "run", "train")
    files = [*(f"stablehlo_step/{name}.py" for name in names), "tpu_compile/device.py"]
    files += ["gpu_peers.py", "train_step/pytorch.py"]
    modules = {f"benchmarks.{name[:-3].replace('/', '.')}" for name in files}
    for file in files:
        for node in ast.walk(ast.parse((folder / file).read_text(encoding="utf-8"))):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            allowed = modules | {name for name in names if name.partition(".")[0] in known | sys.stdlib_module_names}
            assert set(names) <= allowed, file


# --- under JAX


def run_python(python: str, *arguments: str) -> str:
    # Quickly compiled.
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_backend_optimization_level=0"}
    finished = subprocess.run([python, "-m", *arguments], cwd=PROJECT, capture_output=True, text=True, env=environment)
    assert finished.returncode == 0, finished.stderr[-2000:]
    return finished.stdout


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
def test_a_damaged_program_is_one_line_under_jax(exported, tmp_path):
    step = shutil.copytree(exported.directory, tmp_path / "step")
    (step / "step.stablehlo").write_bytes(b"no program")
    command = [JAX_PYTHON, "-m", "benchmarks.stablehlo_step", "run", str(step)]
    finished = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert finished.returncode == 2
    assert "step.stablehlo was not compiled" in finished.stderr and "Traceback" not in finished.stderr


@needs_jax
@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("size", "objective"),
    [("small", "electra"), ("base", "electra"), ("small", "bert_mlm"), ("small", "adversarial"), ("small", "electric")],
)
def test_five_steps_under_jax_are_those_of_tensorflow(size, objective, precision, tmp_path):
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
    found, after = json.loads(rows.read_text())["losses"], dict(np.load(final))
    losses, weights = steps_of_tensorflow(load_config(config_file, [*overrides, f"train.precision={precision}"]), step)
    assert abs(losses[0] - losses[-1]) > 0.1  # it learns
    if precision == "float32":
        np.testing.assert_allclose(found, losses, rtol=1e-5)
        for name, value in weights.items():
            np.testing.assert_allclose(after[name], value, rtol=0, atol=1e-5, err_msg=name)
        return
    # Two roundings of one computation are, as independent errors add up, sqrt(2) times as far from each other as
    # either is from the computation itself. (Either may also sample another token here and there.)
    exact_losses, exact = steps_of_tensorflow(load_config(config_file, overrides), step)
    assert math.dist(found, losses) <= math.sqrt(2.0) * math.dist(losses, exact_losses)
    assert distance(after, weights) <= math.sqrt(2.0) * distance(weights, exact)


@needs_jax
@pytest.mark.slow
def test_a_run_goes_on_from_what_jax_has_trained(config_file, data_dir, tmp_path):
    step, output, run, whole = (tmp_path / name for name in ("step", "output", "run", "whole"))
    flags = [f"--config={config_file}", f"--data_dir={data_dir}"]
    assert main(["export", str(step), *flags, "--steps=5", "--state"]) == 0
    train = ["train", str(step), f"--output_dir={output}", "--log_every=2", "--save_every=2"]
    printed = run_python(JAX_PYTHON, "benchmarks.stablehlo_step", *train)
    assert "the first batches equal the input pipeline's" in printed
    assert sorted(path.name for path in output.iterdir()) == ["metrics.jsonl", "step-5.npz"]
    restore = ["import", str(output / "step-5.npz"), f"--step_dir={step}", f"--data_dir={data_dir}"]
    assert main([*restore, f"--model_dir={run}"]) == 0
    for model_dir in (run, whole):
        assert run_pretraining.main([*flags, f"--model_dir={model_dir}"]) == 0
    reports, expected = (reports_of(path / "metrics.jsonl") for path in (run, whole))
    # The first report of a run that continues is of its own steps alone; evaluations are of the weights.
    for name in ("masked_lm_loss", "replaced_token_loss"):
        assert reports[8, "held_out"][name] == pytest.approx(expected[8, "held_out"][name], rel=1e-5)
    of_jax = reports_of(output / "metrics.jsonl")
    assert of_jax[1, "train"]["loss"] == pytest.approx(expected[1, "train"]["loss"], rel=1e-5)


def reports_of(path: Path) -> dict[tuple[int, str], dict]:
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {(line["step"], line["split"]): line for line in lines}


@pytest.mark.slow
@pytest.mark.skipif(not PEERS_PYTHON, reason="ELECTRA_TF_PEERS_PYTHON is not set")
def test_the_peer_reports_the_same_figures_on_the_same_batches(exported, tmp_path):
    rows = tmp_path / "rows.jsonl"
    flags = ["--device=cpu", "--modes", "eager", "--rounds=1", "--steps=1", "--warmup=1", f"--output={rows}"]
    run_python(PEERS_PYTHON, "benchmarks.gpu_peers", str(exported.directory), *flags)
    row = json.loads(rows.read_text())
    assert row["first_loss"] == pytest.approx(math.log(47) + 50 * math.log(2), rel=0.1)  # of untrained networks
    assert row["contender"] == "pytorch eager" and row["batch_size"] == 4 and row["flops_per_second"] > 0
