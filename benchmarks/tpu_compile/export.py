"""First stage of `benchmarks.tpu_compile`: our training step as StableHLO, in the project's own environment.

    python -m benchmarks.tpu_compile.export STEP --config=FILE [--replicas=N] [--set A.B=VALUE ...]

Writes MLIR bytecode to STEP and its description to STEP.json. Everything that this benchmark uses of electra_tf's
models and training is imported here.

`tf.distribute.TPUStrategy` needs a TPU before it can trace anything. It makes the same program for every core, in which
the core's number and the sums over cores are XLA operations; `_CompiledReplicas` traces that program without a TPU.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.distribute.one_device_strategy import OneDeviceExtended

from electra_tf.cli.flags import add_set_flag, flag_parser, run_command
from electra_tf.config.errors import UserError
from electra_tf.data.batch import batch_specs
from electra_tf.ops.fused import FusedOps
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config
from electra_tf.tasks.pretrain.objective import Objective
from electra_tf.train.static_step import training_step_function, unfit_operations
from electra_tf.train.step import compile_task, training_step


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("output", metavar="STEP", help="file to write")
    parser.add_argument("--config", required=True, metavar="FILE", help="YAML file of the run")
    parser.add_argument("--replicas", type=int, default=1, metavar="N", help="cores that share the global batch")
    add_set_flag(parser)
    arguments = parser.parse_args(argv)
    return run_command(lambda: export(arguments))


def export(arguments) -> None:
    """Writes the program of one replica's step and its description.

    Raises: UserError: if the batch does not divide among the replicas, or a TPU cannot run the step.
    """
    config = load_config(arguments.config, arguments.overrides)
    batch_size, replicas = config.train.batch_size, arguments.replicas
    if batch_size % replicas:
        raise UserError(f"train.batch_size {batch_size} does not divide among {replicas} replicas")
    share = batch_size // replicas
    objective, step = build_step(config, replicas)
    specs = list(batch_specs(config, share).values())
    faults = unfit_operations(step.get_concrete_function(*specs))
    if faults:
        raise UserError(f"the training step of {arguments.config} cannot run on a TPU: {'; '.join(faults[:5])}")
    program = step.experimental_get_compiler_ir(*specs)(stage="stablehlo_serialized")
    Path(arguments.output).write_bytes(program)
    description = {
        "objective": config.objective.name,
        "precision": config.train.precision,
        "replicas": replicas,
        "examples_per_replica": share,
        "max_seq_length": config.data.max_seq_length,
        "accumulation": config.train.gradient_accumulation_steps,
        "trainable_parameters": sum(variable.shape.num_elements() for variable in objective.trainable_variables),
    }
    Path(f"{arguments.output}.json").write_text(json.dumps(description), encoding="utf-8")


def build_step(config: PretrainingConfig, replicas: int) -> tuple[Objective, Callable]:
    """An objective and the `tf.function` of its training step on one of so many replicas, which compiles under XLA.

    With several replicas the function can be compiled but not run.
    """
    if replicas == 1:
        objective = compile_task(build_objective(config))
        return objective, training_step_function(objective)
    strategy = _CompiledReplicas(replicas)
    with strategy.scope():
        objective = compile_task(build_objective(config))
    names = list(batch_specs(config, batch_size=1))

    def step(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        with _ReplicaContext(strategy, gen_xla_ops.xla_replica_id()):
            batch = dict(zip(names, tensors, strict=True))
            return training_step(objective, batch, ops=FusedOps("tpu", whole_step=True))

    return objective, tf.function(step, jit_compile=True)


class _CompiledReplicas(tf.distribute.Strategy):
    """A strategy of `num_replicas` cores, for tracing only."""

    def __init__(self, num_replicas: int):
        super().__init__(_Extended(self, num_replicas))


class _Extended(OneDeviceExtended):
    """Variables are each core's own, and updates happen where they are called."""

    def __init__(self, strategy: tf.distribute.Strategy, num_replicas: int):
        super().__init__(strategy, device="/device:CPU:0")
        self._num_replicas = num_replicas

    @property
    def _num_replicas_in_sync(self) -> int:
        return self._num_replicas

    def _use_merge_call(self) -> bool:
        return False

    def _replica_ctx_update(self, var, fn, args=(), kwargs=None, group=True):
        return fn(var, *args, **(kwargs or {}))


class _ReplicaContext(tf.distribute.ReplicaContext):
    def all_reduce(self, reduce_op, value, options=None):
        assert reduce_op == tf.distribute.ReduceOp.SUM, "the training step sums, and divides by itself"
        everyone = [list(range(self.num_replicas_in_sync))]
        return tf.nest.map_structure(
            lambda share: gen_xla_ops.xla_all_reduce(share, everyone, reduce_op="Add", mode="CrossReplica"), value
        )


if __name__ == "__main__":
    sys.exit(main())
