"""Writes a run's training step, its initial state and a few batches: see `benchmarks.stablehlo_step.files`."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras

from benchmarks.stablehlo_step import files
from benchmarks.stablehlo_step.lowering import Lowered, lower
from benchmarks.stablehlo_step.replicas import CompiledReplicas
from benchmarks.train_step.batches import NUM_BATCHES, synthetic_batch
from benchmarks.train_step.ours import batch_shape, network_sizes
from electra_tf import __version__
from electra_tf.cli.process import run_command
from electra_tf.config.errors import UserError
from electra_tf.data.batch import batch_specs
from electra_tf.flops.devices import GPU_PEAKS
from electra_tf.runs.checkpoints import newest_whole, restore_strictly, step_of
from electra_tf.runs.directory import run_in
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config
from electra_tf.tasks.pretrain.input import PretrainingStage, StagePlan, open_stages, plan_stages
from electra_tf.tasks.pretrain.objective import Objective
from electra_tf.train.static_step import training_step_function, unfit_operations
from electra_tf.train.step import compile_task
from electra_tf.train.timeline import phases_of, span_after


def main(arguments: argparse.Namespace) -> int:
    tf.config.set_visible_devices([], "GPU")  # lower for the CPU, and so for no device in particular
    return run_command(lambda: export(arguments))


def export(arguments: argparse.Namespace) -> None:
    """Writes the files of one replica's step.

    Raises: UserError: if the directory is not empty or the configuration cannot be exported.
    """
    directory, replicas = Path(arguments.step), arguments.replicas
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise UserError(f"{directory} is not empty; give a new directory")
    config = load_config(arguments.config, arguments.overrides)
    checkpoint = _newest_checkpoint(config, arguments.model_dir)
    first_step = step_of(checkpoint) if checkpoint else 0
    stage = _stage(config, arguments.data_dir, first_step)
    plan = stage.plan if isinstance(stage, PretrainingStage) else stage
    plan.require_divisible(replicas)
    objective, step = build_step(config, replicas, first_step)
    if isinstance(stage, PretrainingStage):
        objective.adopt_data(stage.data)
    if checkpoint:
        restore_strictly(tf.train.Checkpoint(task=objective, optimizer=objective.optimizer), checkpoint)
    phase = span_after(phases_of(objective), first_step)
    phase.task.begin()
    specs = batch_specs(plan.config, plan.batch_size // replicas)
    traced = step.get_concrete_function(*specs.values())
    if faults := unfit_operations(traced):
        raise UserError(f"the training step of {arguments.config} cannot be compiled: {'; '.join(faults[:5])}")
    state = state_variables(objective)
    lowered = lower(step, list(specs.values()), list(state.values()))
    manifest = {
        **_described(plan.config, objective, replicas),
        "config": config.model_dump(mode="json"),
        "first_step": first_step,
        "last_step": min(phase.last_step, plan.last_step),
        "batch": [_signature(name, spec) for name, spec in specs.items()],
        "metrics": sorted(traced.structured_outputs),  # as `tf.nest.flatten` orders them
        "state": _state(state, objective.trainable_variables, lowered),
        "step_variable": _name_of(state, objective.optimizer.iterations),
    }
    (directory / files.STEP).write_bytes(lowered.program)
    if arguments.state:
        np.savez(directory / files.STATE, **{each["name"]: state[each["name"]].numpy() for each in manifest["state"]})
    if replicas == 1:
        np.savez_compressed(directory / files.BATCHES, **_batches(stage, plan, first_step))
    (directory / files.MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    size = sum(path.stat().st_size for path in directory.iterdir())
    print(f"wrote {directory}: {size / 2**20:.1f} MiB, step {first_step + 1} and after")


def build_step(config: PretrainingConfig, replicas: int, first_step: int = 0) -> tuple[Objective, Callable]:
    """An objective with its initial weights, and the `tf.function` of the step after `first_step` on one replica.

    With several replicas the function can be compiled but not run.
    """
    tf_keras.utils.set_random_seed(config.train.seed)  # as a run does
    strategy = CompiledReplicas(replicas) if replicas > 1 else tf.distribute.get_strategy()
    with strategy.scope():
        objective = compile_task(build_objective(config))
    task = span_after(phases_of(objective), first_step).task
    if replicas > 1:
        return objective, strategy.training_step_function(task)
    return objective, training_step_function(task)


def state_variables(objective: Objective) -> dict[str, tf.Variable]:
    """All variables of a compiled objective and its optimizer, each by a name of its own, in a fixed order."""
    state = {variable.name.partition(":")[0]: variable for variable in objective.variables}
    assert len(state) == len(objective.variables), "two variables of one name"
    # Every moment is called `m` or `v`. The legacy optimizers have their constants in variables too.
    optimizer = objective.optimizer
    state |= {f"optimizer/{index}": variable for index, variable in enumerate(optimizer.variables())}
    constants = getattr(optimizer, "_hyper", {}).items()
    return state | {f"optimizer/{name}": value for name, value in constants if isinstance(value, tf.Variable)}


def _newest_checkpoint(config: PretrainingConfig, model_dir: str | None) -> str | None:
    if model_dir is None:
        return None
    run = run_in(model_dir)
    run.require_same_run(config)
    prefix = newest_whole(run.checkpoints)
    if prefix is None:
        raise UserError(f"{run.checkpoints} holds no checkpoint; leave out --model_dir to start at step 0")
    return prefix


def _stage(config: PretrainingConfig, data_dir: str | None, step: int) -> PretrainingStage | StagePlan:
    """The input stage of the step that follows `step`: with its data set, or as the configuration describes it."""
    if data_dir is None:
        return span_after(plan_stages(config), step)
    return span_after(open_stages(config, [data_dir]), step)


def _described(config: PretrainingConfig, objective: Objective, replicas: int) -> dict:
    precision, cost = config.train.precision, objective.cost
    spent = cost.of_step(objective.optimizer.iterations.numpy() + 1) if cost else None
    return {
        "objective": config.objective.name,
        "precision": precision,
        "replicas": replicas,
        "examples_per_replica": config.train.batch_size // replicas,
        "batch_size": config.train.batch_size,
        "max_seq_length": config.data.max_seq_length,
        "accumulation": config.train.gradient_accumulation_steps,
        "trainable_parameters": sum(variable.shape.num_elements() for variable in objective.trainable_variables),
        # Of a step: by the paper's convention, by the hardware's, and of the latter the matrix products alone.
        "flops": spent
        and {"paper": float(spent.paper), "hardware": spent.hardware.total, "products": spent.hardware.products},
        "peak_flops": {pattern: 1e12 * peaks[precision] for pattern, peaks in GPU_PEAKS},  # by names of devices
        "networks": network_sizes(config) if config.objective.name == "electra" else None,
        "versions": {"electra_tf": __version__, "tensorflow": tf.__version__},
    }


def _signature(name: str, spec: tf.TensorSpec | tf.Variable) -> dict:
    return {"name": name, "shape": spec.shape.as_list(), "dtype": spec.dtype.name}


def _state(state: dict[str, tf.Variable], trainable: list[tf.Variable], lowered: Lowered) -> list[dict]:
    """Describes each argument after the batch: its signature, the result that replaces it, and its initial value."""
    trained = {variable.name.partition(":")[0] for variable in trainable}
    return [
        {
            **_signature(name := _name_of(state, variable), variable),
            "output": output,
            "initial": _initial(variable, is_random=name in trained),
        }
        for variable, output in zip(lowered.variables, lowered.outputs, strict=True)
    ]


def _name_of(state: dict[str, tf.Variable], variable: tf.Variable) -> str:
    return next(name for name, other in state.items() if other is variable)


def _initial(variable: tf.Variable, is_random: bool) -> dict[str, float] | None:
    """The value if it is constant, else the deviation of a normal distribution around 0; None: something else."""
    value = variable.numpy()
    first = value.flat[0].item()
    if (value == first).all():
        return {"constant": first}
    return {"deviation": float(np.sqrt(np.mean(np.square(value))))} if is_random else None


def _batches(stage: PretrainingStage | StagePlan, plan: StagePlan, first_step: int) -> dict[str, np.ndarray]:
    """[n, B, ...] by name: the first batches of a data set, or, without one, of random tokens."""
    if isinstance(stage, StagePlan):
        batches = [synthetic_batch(batch_shape(plan.config), seed) for seed in range(NUM_BATCHES)]
    else:
        dataset = stage.training_batches(first_step, tf.distribute.InputContext())
        batches = list(dataset.take(NUM_BATCHES).as_numpy_iterator())
    return {name: np.stack([batch[name] for batch in batches]) for name in batch_specs(plan.config, 1)}
