"""Writes the first training step of a configuration as StableHLO, with batches of random tokens."""

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras
from tensorflow.compiler.mlir.stablehlo import stablehlo

from benchmarks.stablehlo_step.exported import BATCHES, MANIFEST, STATE, STEP
from benchmarks.stablehlo_step.replicas import CompiledReplicas
from benchmarks.stablehlo_step.static_step import training_step_function, unfit_operations
from benchmarks.train_step.batches import NUM_BATCHES, synthetic_batch
from benchmarks.train_step.ours import batch_shape, network_sizes
from electra_tf import __version__
from electra_tf.cli.process import run_command
from electra_tf.config.errors import UserError
from electra_tf.data.batch import batch_specs
from electra_tf.flops.devices import GPU_PEAKS, published_tpu_peak
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config
from electra_tf.tasks.pretrain.objective import Objective
from electra_tf.tasks.pretrain.stages import plan_stages
from electra_tf.train.step import compile_task

# TensorFlow writes these two in MHLO. In StableHLO the mark of a returned variable is an identity, which compilers
# remove, and the error function is a custom call that XLA recognizes.
_TENSORS = r"tensor<[^>]*>"
_COPY = (rf"mhlo\.copy (%\w+) : ({_TENSORS})", r"stablehlo.reshape \1 : (\2) -> \2")
_ERF = (
    rf"mhlo\.erf (%\w+) : ({_TENSORS})",
    r"stablehlo.custom_call @mhlo.erf(\1) {mhlo.attributes = {}, mhlo.version = 1 : i64} : (\2) -> \2",
)
_ALIAS = re.compile(r"parameter_number = (\d+) : i64\}, output_index = array<i64: (\d+)>")


def main(arguments: argparse.Namespace) -> int:
    tf.config.set_visible_devices([], "GPU")  # the program of the CPU fits every device
    return run_command(lambda: export(arguments))


def export(arguments: argparse.Namespace) -> None:
    """Writes the files of one replica's step.

    Raises: UserError: if the directory is not empty or XLA cannot compile the step.
    """
    directory, replicas = Path(arguments.step), arguments.replicas
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise UserError(f"{directory} is not empty; give a new directory")
    config = load_config(arguments.config, arguments.overrides)
    stage = plan_stages(config)[0]
    stage.require_divisible(replicas)
    objective, step = build_step(config, replicas)
    specs = batch_specs(stage.config, stage.batch_size // replicas)
    traced = step.get_concrete_function(*specs.values())
    if faults := unfit_operations(traced):
        raise UserError(f"the training step of {arguments.config} cannot be compiled: {'; '.join(faults[:5])}")
    program, outputs = lower(step, list(specs.values()))
    variables = state_variables(objective)
    names = {id(variable.handle): name for name, variable in variables.items()}
    state = [names[id(handle)] for handle in traced.captured_inputs]  # arguments of the program after the batch
    manifest = {
        **_described(stage.config, objective, replicas),
        "batch": [_signature(name, spec) for name, spec in specs.items()],
        "metrics": sorted(traced.structured_outputs),  # as `tf.nest.flatten` orders them
        "state": [
            {**_signature(name, variables[name]), "output": outputs.get(index)}
            for index, name in enumerate(state, start=len(specs))
        ],
    }
    (directory / STEP).write_bytes(program)
    if arguments.state:
        np.savez(directory / STATE, **{name: variables[name].numpy() for name in state})
    if replicas == 1:
        batches = [synthetic_batch(batch_shape(stage.config), seed) for seed in range(NUM_BATCHES)]
        columns = {name: np.stack([batch[name] for batch in batches]) for name in specs}
        np.savez_compressed(directory / BATCHES, **columns)
    (directory / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    size = sum(path.stat().st_size for path in directory.iterdir())
    print(f"wrote {directory}: {size / 2**20:.1f} MiB")


def build_step(config: PretrainingConfig, replicas: int) -> tuple[Objective, Callable]:
    """An objective with its initial weights, and the `tf.function` of its first step on one replica.

    With several replicas the function can be compiled but not run.
    """
    tf_keras.utils.set_random_seed(config.train.seed)  # as a run does
    strategy = CompiledReplicas(replicas) if replicas > 1 else tf.distribute.get_strategy()
    with strategy.scope():
        objective = compile_task(build_objective(config))
    task = objective.phases[0]
    task.begin()
    return objective, strategy.training_step_function(task) if replicas > 1 else training_step_function(task)


def lower(function: Callable, specs: list[tf.TensorSpec]) -> tuple[bytes, dict[int, int]]:
    """Lowers a `tf.function` of tensors and variables that compiles under XLA.

    Returns: a portable artifact of StableHLO, which later versions of XLA read too, and a dictionary: from the index of
        an argument, if it is a variable that changes, to the index of the result with its new value. The function's own
        results are the first ones.
    """
    text = function.experimental_get_compiler_ir(*specs)(stage="stablehlo")
    artifact = stablehlo.serialize_portable_artifact_str(in_stablehlo_alone(text), stablehlo.get_current_version())
    return artifact, {int(argument): int(output) for argument, output in _ALIAS.findall(text)}


def in_stablehlo_alone(text: str) -> str:
    """The text of an exported program with its MHLO operations translated to StableHLO."""
    for pattern, replacement in (_COPY, _ERF):
        text = re.sub(pattern, replacement, text)
    left = sorted(set(re.findall(r"= \"?(mhlo\.\w+|chlo\.\w+)", text)))
    assert not left, f"StableHLO has no {', '.join(left)}"
    return text


def state_variables(objective: Objective) -> dict[str, tf.Variable]:
    """All variables of a compiled objective and its optimizer, by unique names."""
    state = {variable.name.partition(":")[0]: variable for variable in objective.variables}
    assert len(state) == len(objective.variables), "two variables of one name"
    # Every moment is called `m` or `v`. The legacy optimizers have their constants in variables too.
    optimizer = objective.optimizer
    state |= {f"optimizer/{index}": variable for index, variable in enumerate(optimizer.variables())}
    constants = getattr(optimizer, "_hyper", {}).items()
    return state | {f"optimizer/{name}": value for name, value in constants if isinstance(value, tf.Variable)}


def _described(config: PretrainingConfig, objective: Objective, replicas: int) -> dict:
    precision, cost = config.train.precision, objective.cost
    spent = cost.of_step(1) if cost else None
    return {
        "objective": config.objective.name,
        "precision": precision,
        "replicas": replicas,
        "examples_per_replica": config.train.batch_size // replicas,
        "batch_size": config.train.batch_size,
        "max_seq_length": config.data.max_seq_length,
        "accumulation": config.train.gradient_accumulation_steps,
        "trainable_parameters": sum(variable.shape.num_elements() for variable in objective.trainable_variables),
        "networks": network_sizes(config) if config.objective.name == "electra" else None,  # of PyTorch's peer
        # Of one step, by the paper's count, by the hardware's, and the matrix products of the latter.
        "flops": spent
        and {"paper": float(spent.paper), "hardware": spent.hardware.total, "products": spent.hardware.products},
        "tpu_peak_flops": {chip: published_tpu_peak(chip) for chip in ("v4", "v5e", "v5p", "v6e")},
        "peak_flops": {pattern: 1e12 * peaks[precision] for pattern, peaks in GPU_PEAKS},  # by names of devices
        "versions": {"electra_tf": __version__, "tensorflow": tf.__version__},
    }


def _signature(name: str, spec: tf.TensorSpec | tf.Variable) -> dict:
    return {"name": name, "shape": spec.shape.as_list(), "dtype": spec.dtype.name}
