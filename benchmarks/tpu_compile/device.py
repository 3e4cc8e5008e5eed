"""Second stage of `benchmarks.tpu_compile`: StableHLO through the TPU's own compiler, with no TPU present.

    JAX_PYTHON benchmarks/tpu_compile/device.py STEP TOPOLOGY --replicas=N --memory_gb=G

Runs in an environment of benchmarks/requirements-tpu-compile.txt and imports nothing of the project. Writes
STEP/step.hlo.gz, the program optimised for the chip, and prints one JSON object. The requirements pin versions, because
this uses private parts of JAX.
"""

import argparse
import gzip
import json
import os
import re
import resource
import sys
import time

# These keep libtpu from waiting for a metadata server, searching for a chip, and taking a lock.
_WITHOUT_A_CHIP = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "JAX_PLATFORMS": "cpu",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", help="directory that stablehlo_step export wrote")
    parser.add_argument("topology", help="such as v5e:2x2")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--memory_gb", type=int, default=16, help="limit of the compiler's address space")
    arguments = parser.parse_args()
    # The compiler fails instead of exhausting the machine's memory.
    resource.setrlimit(resource.RLIMIT_AS, (arguments.memory_gb << 30,) * 2)
    os.environ.update(_WITHOUT_A_CHIP)
    with open(os.path.join(arguments.step, "step.stablehlo"), "rb") as file:
        program = file.read()
    report, text = compile_for(arguments.topology, program, arguments.replicas)
    if text:
        with gzip.open(os.path.join(arguments.step, "step.hlo.gz"), "wt") as file:
            file.write(text)
    print(json.dumps(report))
    return 0


def compile_for(topology: str, program: bytes, replicas: int) -> tuple[dict, str]:
    """Compiles a program for `replicas` cores of a topology.

    Returns: the compiler's figures, or its message as "error"; and the text of the optimised program.
    """
    import jax
    from jax.experimental import topologies

    cores = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    chip = {"device": cores[0].device_kind, "cores_per_chip": len(cores) // len({tuple(core.coords) for core in cores})}
    try:
        executable, timing = compile_program(cores[:replicas], program)
    except jax.errors.JaxRuntimeError as error:
        return {**chip, "error": str(error)}, ""
    (text,) = (part.to_string() for part in executable.hlo_modules())
    all_reduces = len(re.findall(r" all-reduce(?:-start)?\(", text))
    return {**chip, **_figures(executable), **timing, "all_reduces": all_reduces}, text


def compile_program(devices: list, program: bytes):
    """Compiles a portable artifact of StableHLO for one replica on each device of a topology.

    Returns: the executable, and the elapsed seconds `compile_s` and processor seconds `compile_cpu_s` of compiling.
    """
    import numpy as np
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jaxlib.mlir.dialects import stablehlo

    assignment = np.array([[device.id] for device in devices])
    options = compiler.get_compile_options(len(devices), 1, device_assignment=assignment)
    started, cpu_started = time.monotonic(), time.process_time()
    with mlir.make_ir_context() as context:
        module = stablehlo.deserialize_portable_artifact(context, program)
        executable = devices[0].client.compile(module, xla_client.DeviceList(tuple(devices)), options)
    return executable, {"compile_s": time.monotonic() - started, "compile_cpu_s": time.process_time() - cpu_started}


def _figures(executable) -> dict:
    """FLOPs, bytes accessed and memory of one step on one core."""
    costs = executable.cost_analysis()
    costs = costs[0] if isinstance(costs, list) else costs
    memory = executable.get_compiled_memory_stats()
    parts = {
        part: getattr(memory, f"{part}_size_in_bytes")
        for part in ("argument", "output", "alias", "temp", "generated_code")
    }
    return {
        "flops": costs["flops"],
        "bytes_accessed": costs["bytes accessed"],
        "hbm_peak_bytes": getattr(memory, "peak_memory_in_bytes", None),
        "hbm_parts": parts,
    }


if __name__ == "__main__":
    sys.exit(main())
