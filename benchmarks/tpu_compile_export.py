"""First stage of `benchmarks.tpu_compile`: our training step as StableHLO, in the project's own environment.

    python -m benchmarks.tpu_compile_export STEP --config=FILE [--replicas=N] [--set A.B=VALUE ...]

STEP receives MLIR bytecode, STEP.json what it is of.
"""

import json
import sys
from pathlib import Path

from electra_tf.cli.flags import add_set_flag, flag_parser, run_command
from electra_tf.config.errors import UserError
from electra_tf.tasks.pretrain.config import load_config


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("output", metavar="STEP", help="file to write")
    parser.add_argument("--config", required=True, metavar="FILE", help="YAML file of the run")
    parser.add_argument("--replicas", type=int, default=1, metavar="N", help="cores that share the global batch")
    add_set_flag(parser)
    arguments = parser.parse_args(argv)
    return run_command(lambda: export(arguments))


def export(arguments) -> None:
    """Writes the program of one replica's step, and what is known of it.

    Raises: UserError: if the batch does not divide among the replicas, or the step is none for a TPU.
    """
    config = load_config(arguments.config, arguments.overrides)
    batch_size, replicas = config.train.batch_size, arguments.replicas
    if batch_size % replicas:
        raise UserError(f"train.batch_size {batch_size} does not divide among {replicas} replicas")
    share = batch_size // replicas

    from benchmarks.tpu_compile_replicas import CompiledReplicas
    from electra_tf.data.batch import batch_specs
    from electra_tf.tasks.pretrain import build_objective
    from electra_tf.train.static_step import training_step_function, unfit_operations
    from electra_tf.train.step import compile_objective

    if replicas == 1:
        objective = compile_objective(build_objective(config))
        step = training_step_function(objective)
    else:
        strategy = CompiledReplicas(replicas)
        with strategy.scope():
            objective = compile_objective(build_objective(config))
        step = strategy.training_step_function(objective)
    specs = list(batch_specs(config, share).values())
    faults = unfit_operations(step.get_concrete_function(*specs))
    if faults:
        raise UserError(f"the training step of {arguments.config} is none for a TPU: {'; '.join(faults[:5])}")
    program = step.experimental_get_compiler_ir(*specs)(stage="stablehlo_serialized")
    Path(arguments.output).write_bytes(program)
    described = _describe(config, objective, share, replicas)
    Path(f"{arguments.output}.json").write_text(json.dumps(described), encoding="utf-8")


def _describe(config, objective, examples: int, replicas: int) -> dict:
    sizes = [variable.shape.num_elements() for variable in objective.trainable_variables]
    return {
        "objective": config.objective.name,
        "precision": config.train.precision,
        "replicas": replicas,
        "examples_per_replica": examples,
        "max_seq_length": config.data.max_seq_length,
        "accumulation": config.train.gradient_accumulation_steps,
        "trainable_parameters": sum(sizes),
    }


if __name__ == "__main__":
    sys.exit(main())
