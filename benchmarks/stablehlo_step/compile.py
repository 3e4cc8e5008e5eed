"""Compiles an exported step for a GPU and counts its kernels. Needs JAX's CUDA packages, but no GPU."""

import argparse
import collections
import math
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.stablehlo_step.exported import StepFiles, published_peak

_INSTRUCTION = re.compile(r"\s+(?:ROOT )?%?([\w.-]+) = (\(.*?\)|\S+) ([\w-]+)\((.*)")
# Operations that name memory and move nothing.
_FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "partition-id", "replica-id")


def main(arguments: argparse.Namespace) -> int:
    files = StepFiles(arguments.step)
    target = Path(arguments.target).read_text(encoding="utf-8")
    device = re.search(r"""^\s*device_description_str:\s*["'](.*)["']""", target, re.MULTILINE)[1]
    bandwidth = float(re.search(r"^\s*memory_bandwidth:\s*(\d+)", target, re.MULTILINE)[1])
    os.environ["JAX_PLATFORMS"] = "cpu"  # else JAX looks for a GPU
    from jax.experimental import topologies

    (gpu,) = topologies.get_topology_desc(platform="cuda", topology="1x1x1", target_config=target).devices
    executable, timing = compile_program([gpu], files.program)
    (text,) = (module.to_string() for module in executable.hlo_modules())
    print(f"{device}: compiled in {timing['compile_s']:.0f} s; kernels by kind, and the bytes that they read and write")
    kernels = kernels_of(text)
    for kind, (count, size) in sorted(kernels.items(), key=lambda entry: -entry[1][1]):
        print(f"{count:6d} {size / 1e9:8.2f} GB  {kind}")
    count, size = (sum(column) for column in zip(*kernels.values(), strict=True))
    print(f"{count:6d} {size / 1e9:8.2f} GB  together: {1e3 * size / bandwidth:.1f} ms at {bandwidth / 1e9:.0f} GB/s")
    products, peak = (files.manifest["flops"] or {}).get("products"), published_peak(files.manifest, device)
    if products and peak:
        print(f"products: {products / 1e9:.0f} GFLOP, {1e3 * products / peak:.1f} ms at {peak / 1e12:.4g} TFLOP/s")
    memory = executable.get_compiled_memory_stats().peak_memory_in_bytes
    print(f"memory: {memory / 1e9:.2f} GB at most")
    if arguments.keep is not None:
        Path(arguments.keep).write_text(text, encoding="utf-8")
    return 0


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


def kernels_of(text: str) -> dict[str, tuple[int, int]]:
    """The number of kernel starts of an optimised program, and the bytes of their arguments and results, by kind.

    Values that are still in the device's cache count too, and a gather counts its whole table.

    Args:
        text: the program as XLA prints it.
    Returns: the keys are a fusion's kind with its generator, if that is not XLA; a custom call's target; else the
        operation.
    """
    blocks = re.findall(r"^(ENTRY )?%?([\w.-]+) [^\n]*\{\n(.*?)^\}", text, re.DOTALL | re.MULTILINE)
    bodies = {name: body.splitlines() for _, name, body in blocks}
    (entry,) = (name for is_entry, name, _ in blocks if is_entry)
    counts, totals = collections.Counter(), collections.Counter()
    for kind, times, size in _kernels(entry, bodies):
        counts[kind] += times
        totals[kind] += times * size
    return {kind: (count, totals[kind]) for kind, count in counts.items()}


def _kernels(computation: str, bodies: dict[str, list[str]]) -> Iterator[tuple[str, int, float]]:
    """Yields: the kind, the number of starts and the bytes of a start of each kernel, also of those in loops."""
    sizes: dict[str, float] = {}
    for line in bodies[computation]:
        if not (instruction := _INSTRUCTION.match(line)):
            continue
        name, result, operation, rest = instruction.groups()
        sizes[name] = _size(result)
        if operation == "while":
            trips = re.search(r'"known_trip_count":\{"n":"(\d+)"', line)  # 1 if unknown
            body = re.search(r"body=%?([\w.-]+)", line)[1]
            for kind, times, size in _kernels(body, bodies):
                yield kind, times * int(trips[1] if trips else 1), size
        elif operation not in _FREE:
            arguments = re.findall(r"%([\w.-]+)", rest.split(")", 1)[0])
            yield _kind(operation, line), 1, sizes[name] + sum(sizes.get(argument, 0) for argument in arguments)


def _kind(operation: str, line: str) -> str:
    if operation == "custom-call":
        return re.search(r'custom_call_target="([^"]+)"', line)[1]
    if operation != "fusion":
        return operation
    generator = re.search(r'"kind":"(__\w+)"', line)
    return " ".join(["fusion", re.search(r"kind=(k\w+)", line)[1], *(generator.groups() if generator else ())])


def _size(shapes: str) -> float:
    """The bytes of all arrays in a type: 48 for "(f32[8]{0}, bf16[4,2]{1,0})"."""
    total = 0.0
    for dtype, dimensions in re.findall(r"\b(pred|[a-z]+\d\w*)\[([\d,]*)\]", shapes):
        bits = 8 if dtype == "pred" else int(re.search(r"\d+", dtype)[0])
        total += bits / 8 * math.prod(int(dimension) for dimension in dimensions.split(",") if dimension)
    return total
