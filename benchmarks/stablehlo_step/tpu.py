"""Compiles an exported step with the TPU's own compiler, without a TPU, and prints the cost of a step on one core.

Needs an environment of benchmarks/requirements-tpu-compile.txt, which pins versions, because this uses private parts of
JAX. The figures are properties of the compiled program, not measurements on a TPU.
"""

import argparse
import json
import os
import re
import resource
from pathlib import Path

from benchmarks.stablehlo_step.compile import compile_program
from benchmarks.stablehlo_step.exported import MANIFEST, STEP, write_row

# These keep libtpu from waiting for a metadata server, searching for a chip, and taking a lock.
_WITHOUT_A_CHIP = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "JAX_PLATFORMS": "cpu",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


def main(arguments: argparse.Namespace) -> int:
    # The compiler fails instead of exhausting the machine's memory.
    resource.setrlimit(resource.RLIMIT_AS, (arguments.memory_gb << 30,) * 2)
    os.environ.update(_WITHOUT_A_CHIP)
    import jax
    from jax.experimental import topologies

    directory, topology = Path(arguments.step), arguments.topology
    manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    cores = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    cores_per_chip = len(cores) // len({tuple(core.coords) for core in cores})
    try:
        executable, timing = compile_program(cores[: manifest["replicas"]], (directory / STEP).read_bytes())
    except jax.errors.JaxRuntimeError as error:
        print(f"rejected: {' '.join(str(error).split())[:400]}")
        return 1
    (text,) = (part.to_string() for part in executable.hlo_modules())
    if arguments.keep is not None:
        Path(arguments.keep).write_text(text, encoding="utf-8")
    row = {
        "device": cores[0].device_kind,
        **{name: manifest[name] for name in ("objective", "precision", "replicas", "max_seq_length")},
        "topology": topology,
        "examples": manifest["examples_per_replica"],
        **figures(executable),
        **timing,
        "all_reduces": len(re.findall(r" all-reduce(?:-start)?\(", text)),
    }
    row["flops_an_example"] = row["flops"] / row["examples"]
    # A lower limit of the step's time: its FLOPs on one core at the chip's published peak.
    row["arithmetic_s"] = row["flops"] * cores_per_chip / manifest["tpu_peak_flops"][topology.split(":")[0]]
    write_row(row, arguments.output)
    return 0


def figures(executable) -> dict:
    """FLOPs, bytes accessed and memory of one step on one core."""
    costs, memory = executable.cost_analysis(), executable.get_compiled_memory_stats()
    costs = costs[0] if isinstance(costs, list) else costs
    sizes = {"peak_bytes": memory.peak_memory_in_bytes, "code_bytes": memory.generated_code_size_in_bytes}
    return {"flops": costs["flops"], "bytes_accessed": costs["bytes accessed"], **sizes}
