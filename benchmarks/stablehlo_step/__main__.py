"""Exports the training step as a program that JAX runs on any device of XLA: see docs/notes/accelerators.md.

    python -m benchmarks.stablehlo_step export STEP --config=small --state
    python -m benchmarks.stablehlo_step compile STEP
    python -m benchmarks.stablehlo_step tpu STEP --topology=v5e:2x2
    python -m benchmarks.stablehlo_step run STEP
    python -m benchmarks.stablehlo_step pytorch STEP

`export` runs in this project's environment, `run` needs only JAX and NumPy, `compile` also JAX's CUDA packages, `tpu`
those of benchmarks/requirements-tpu-compile.txt, and `pytorch` the peers' packages.
"""

import argparse
import importlib
import sys
from pathlib import Path

from benchmarks.stablehlo_step.exported import add_timing_flags


def main(argv: list[str] | None = None) -> int:
    arguments = _flags().parse_args(argv)
    # Imported now: TensorFlow and JAX are in different environments.
    return importlib.import_module(f"benchmarks.stablehlo_step.{arguments.command}").main(arguments)


def _flags() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command", metavar="COMMAND")

    def add(command: str, description: str, step: str):
        added = commands.add_parser(command, help=description, description=description, allow_abbrev=False)
        added.add_argument("step", metavar="STEP", help=step)
        return added.add_argument

    flag = add("export", "write the step of a configuration", "directory, empty or new")
    flag("--config", required=True, metavar="FILE", help="YAML file of a run")
    flag("--set", action="append", default=[], dest="overrides", metavar="A.B=VALUE", help="changes one setting")
    flag("--state", action="store_true", help="also write weights and moments, which run needs: 12 bytes a parameter")
    flag("--replicas", type=int, default=1, metavar="N", help="devices that share the global batch (default: 1)")

    flag = add("run", "time steps on this device", "directory that export --state wrote")
    flag("--final_state", metavar="FILE", help=".npz for the state after the last step")
    add_timing_flags(flag)

    flag = add("pytorch", "time PyTorch's step of the same sizes", "directory that export wrote")
    flag("--compiled", action="store_true", help="use torch.compile")
    add_timing_flags(flag)

    flag = add("compile", "compile for a GPU without one", "directory that export wrote")
    target = Path(__file__).with_name("h100.txtpb")
    flag("--target", default=target, metavar="FILE", help="GpuTargetConfigProto of XLA as text (default: H100 SXM)")
    flag("--keep", metavar="FILE", help="file for the optimised program")

    flag = add("tpu", "compile for a TPU without one; takes minutes and 10 GB", "directory that export wrote")
    flag("--topology", default="v5e:2x2", metavar="NAME", help="such as v4:2x2x1 (default: v5e:2x2)")
    flag("--memory_gb", type=int, default=16, metavar="N", help="limit of the compiler's address space (default: 16)")
    flag("--keep", metavar="FILE", help="file for the optimised program")
    flag("--output", metavar="FILE", help="file to which a line of JSON is added")
    return parser


if __name__ == "__main__":
    sys.exit(main())
