"""Compiles an exported step with the TPU's own compiler, without a TPU, and prints the cost of a step on one core.

    /tmp/tpu-compile/bin/python -m benchmarks.stablehlo_step.tpu STEP --topology=v5e:2x2

STEP is a directory of `benchmarks.stablehlo_step.export`. Needs an environment of
benchmarks/requirements-tpu-compile.txt, which pins versions, because this uses private parts of JAX, and takes minutes
and 10 GB. The figures are properties of the compiled program, not measurements on a TPU. Exits 1 if the compiler
rejects the step, for example because it does not fit the core's memory.
"""

import argparse
import json
import os
import resource
import sys
import time
from pathlib import Path

from electra_tf.flops.devices import published_tpu_peak

# These keep libtpu from waiting for a metadata server, searching for a chip, and taking a lock.
_WITHOUT_A_CHIP = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "JAX_PLATFORMS": "cpu",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


def compile_step(flags: argparse.Namespace) -> int:
    # The compiler fails instead of exhausting the machine's memory.
    resource.setrlimit(resource.RLIMIT_AS, (flags.memory_gb << 30,) * 2)
    os.environ.update(_WITHOUT_A_CHIP)
    import jax
    from jax.experimental import topologies

    settings = json.loads((flags.step / "step.json").read_text(encoding="utf-8"))
    cores = topologies.get_topology_desc(platform="tpu", topology_name=flags.topology).devices
    started = time.process_time()
    try:
        executable = compiled(cores[0], (flags.step / "step.stablehlo").read_bytes())
    except jax.errors.JaxRuntimeError as error:
        print(f"rejected: {' '.join(str(error).split())[:400]}")
        return 1
    if flags.keep:
        (text,) = (part.to_string() for part in executable.hlo_modules())
        flags.keep.write_text(text, encoding="utf-8")
    costs, memory = executable.cost_analysis(), executable.get_compiled_memory_stats()
    costs = costs[0] if isinstance(costs, list) else costs
    cores_per_chip = len(cores) // len({tuple(core.coords) for core in cores})
    peak = published_tpu_peak(flags.topology.split(":")[0]) / cores_per_chip
    row = {
        "device": cores[0].device_kind,
        **settings,
        "flops_an_example": costs["flops"] / settings["examples"],
        "bytes_accessed": costs["bytes accessed"],
        "peak_bytes": memory.peak_memory_in_bytes,
        "code_bytes": memory.generated_code_size_in_bytes,
        "arithmetic_s": costs["flops"] / peak,  # a lower limit of the step's time
        "compile_cpu_s": time.process_time() - started,
    }
    for name, value in row.items():
        print(f"{name}: {value:,.6g}" if isinstance(value, float) else f"{name}: {value}")
    return 0


def compiled(core, program: bytes):
    """The executable of a portable artifact of StableHLO for one core of a topology."""
    import numpy as np
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jaxlib.mlir.dialects import stablehlo

    options = compiler.get_compile_options(1, 1, device_assignment=np.array([[core.id]]))
    with mlir.make_ir_context() as context:
        module = stablehlo.deserialize_portable_artifact(context, program)
        return core.client.compile(module, xla_client.DeviceList((core,)), options)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flag = parser.add_argument
    flag("step", type=Path, metavar="STEP", help="directory that export wrote")
    flag("--topology", default="v5e:2x2", metavar="NAME", help="such as v4:2x2x1 (default: v5e:2x2)")
    flag("--memory_gb", type=int, default=16, metavar="N", help="limit of the compiler's address space (default: 16)")
    flag("--keep", type=Path, metavar="FILE", help="file for the optimised program")
    return compile_step(parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
