"""The training step as a program of its own, which JAX runs on any device of XLA: see docs/notes/accelerators.md.

    python -m benchmarks.stablehlo_step export STEP --config=configs/pretrain/small.yaml --data_dir=DATA --steps=1000
    python -m benchmarks.stablehlo_step compile STEP
    python -m benchmarks.stablehlo_step run STEP
    python -m benchmarks.stablehlo_step train STEP --output_dir=OUT
    python -m benchmarks.stablehlo_step import OUT/step-1000.npz --step_dir=STEP --data_dir=DATA --model_dir=RUN

`export` and `import` need this project's environment; `run` and `train` need JAX and NumPy alone, `compile`
those with CUDA.
"""

import argparse
import importlib
import sys
from pathlib import Path

from benchmarks.stablehlo_step.files import BadInput
from benchmarks.stablehlo_step.measurement import add_timing_flags


def main(argv: list[str] | None = None) -> int:
    arguments = _flags().parse_args(argv)
    try:
        # Imported now: of the two environments each has only what its own commands need.
        return importlib.import_module(f"benchmarks.stablehlo_step.{arguments.module}").main(arguments)
    except BadInput as error:
        reason = str(error)
    except ModuleNotFoundError as error:
        reason = f"no {error.name} in this Python; docs/notes/accelerators.md says which environment a command needs"
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}"
    print(f"error: {reason}", file=sys.stderr)
    return 2


def _flags() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(command: str, module: str, description: str, **positional: str) -> argparse.ArgumentParser:
        added = commands.add_parser(
            command,
            help=description,
            description=description,
            allow_abbrev=False,
        )
        added.set_defaults(module=module)
        for name, text in positional.items():
            added.add_argument(name, metavar=name.upper(), help=text)
        return added

    _add_export_flags(add("export", "export", "write the step of a configuration", step="directory, empty or new"))
    for command, description in (("run", "time steps on this device"), ("train", "train on this device")):
        added = add(command, command, description, step="directory that export wrote")
        added.add_argument("--state", metavar="FILE", help=".npz to start from; else STEP/state.npz or random weights")
        added.add_argument("--seed", type=int, default=0, help="of random weights (0)")
        (_add_run_flags if command == "run" else _add_train_flags)(added)
    compile_step = add("compile", "compile", "compile for a GPU without one", step="directory that export wrote")
    target = Path(__file__).with_name("h100.txtpb")
    compile_step.add_argument(
        "--target", default=target, metavar="FILE", help="GpuTargetConfigProto of XLA as text; else an H100's (SXM)"
    )
    compile_step.add_argument("--keep", metavar="FILE", help="file for the optimised program")
    restore = add("import", "restore", "make a checkpoint of a run of what train wrote", checkpoint=".npz of train")
    restore.add_argument("--step_dir", required=True, metavar="STEP", help="directory that export wrote")
    restore.add_argument("--data_dir", required=True, metavar="DATA", help="the data set of the run")
    restore.add_argument("--model_dir", required=True, metavar="RUN", help="the run: new, or the one of the export")
    return parser


def _add_export_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", required=True, metavar="FILE", help="YAML file of a run")
    parser.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="A.B=VALUE", help="changes one setting"
    )
    parser.add_argument("--data_dir", metavar="DIR", help="data set of the batches; else their tokens are random")
    parser.add_argument("--steps", type=int, default=0, metavar="N", help="of --data_dir, to train for")
    parser.add_argument("--model_dir", metavar="RUN", help="start from the newest checkpoint of this run")
    parser.add_argument("--state", action="store_true", help="write state.npz too: 12 bytes a parameter with moments")
    parser.add_argument("--replicas", type=int, default=1, metavar="N", help="devices that share the global batch (1)")


def _add_run_flags(parser: argparse.ArgumentParser) -> None:
    add_timing_flags(parser)
    parser.add_argument("--final_state", metavar="FILE", help=".npz for the state after the last step")


def _add_train_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output_dir", required=True, metavar="OUT", help="for step-N.npz and metrics.jsonl")
    parser.add_argument("--steps", type=int, metavar="N", help="at most so many; None: all that were exported")
    parser.add_argument("--log_every", type=int, default=100, metavar="N", help="steps between reports (100)")
    parser.add_argument("--save_every", type=int, default=1000, metavar="N", help="steps between checkpoints (1000)")
    parser.add_argument("--weights_only", action="store_true", help="leave moments out of the last checkpoint")


if __name__ == "__main__":
    sys.exit(main())
