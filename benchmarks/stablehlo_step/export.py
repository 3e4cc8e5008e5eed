"""Writes the first training step of a configuration as StableHLO, for `benchmarks.stablehlo_step.tpu`.

    python -m benchmarks.stablehlo_step.export STEP --config=small --set train.precision=bfloat16

STEP gets step.stablehlo, a program (batch, state) -> (metrics, state), and step.json with its settings.
"""

import json
import re
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf
from tensorflow.compiler.mlir.stablehlo import stablehlo

from benchmarks.harness import config_file
from benchmarks.stablehlo_step.static_step import training_step_function, unfit_operations
from electra_tf.cli.flags import add_set_flag, flag_parser
from electra_tf.cli.process import run_command
from electra_tf.config.errors import UserError
from electra_tf.data.batch import batch_specs
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.config import load_config
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


def export(flags: Namespace) -> None:
    """Writes the files of a step. Raises: UserError: if XLA cannot compile the step."""
    tf.config.set_visible_devices([], "GPU")  # the program of the CPU fits every device
    config = plan_stages(load_config(flags.config, flags.overrides))[0].config
    step = training_step_function(compile_task(build_objective(config)).phases()[0])
    specs = batch_specs(config, config.train.batch_size).values()
    if faults := unfit_operations(step.get_concrete_function(*specs)):
        raise UserError(f"the training step of {flags.config} cannot be compiled: {'; '.join(faults[:5])}")
    settings = {
        "objective": config.objective.name,
        "precision": config.train.precision,
        "examples": config.train.batch_size,
        "max_seq_length": config.data.max_seq_length,
    }
    flags.step.mkdir(parents=True, exist_ok=True)
    (flags.step / "step.stablehlo").write_bytes(lower(step, *specs))
    (flags.step / "step.json").write_text(json.dumps(settings), encoding="utf-8")


def lower(function: Callable, *specs: tf.TensorSpec) -> bytes:
    """A `tf.function` that XLA compiles, as a portable artifact of StableHLO, which later versions of XLA read too."""
    text = in_stablehlo_alone(function.experimental_get_compiler_ir(*specs)(stage="stablehlo"))
    return stablehlo.serialize_portable_artifact_str(text, stablehlo.get_current_version())


def in_stablehlo_alone(text: str) -> str:
    """The text of an exported program with its MHLO operations translated to StableHLO."""
    for pattern, replacement in (_COPY, _ERF):
        text = re.sub(pattern, replacement, text)
    left = sorted(set(re.findall(r"= \"?(mhlo\.\w+|chlo\.\w+)", text)))
    assert not left, f"StableHLO has no {', '.join(left)}"
    return text


def main(arguments: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("step", type=Path, metavar="STEP", help="directory for the step")
    parser.add_argument("--config", type=config_file, required=True, metavar="FILE", help="YAML file or preset")
    add_set_flag(parser)
    flags = parser.parse_args(arguments)
    return run_command(lambda: export(flags))


if __name__ == "__main__":
    sys.exit(main())
