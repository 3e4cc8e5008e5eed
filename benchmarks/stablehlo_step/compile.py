"""Compiles an exported step for a GPU that is not there, and counts its kernels. Needs JAX with CUDA, and no GPU."""

import argparse
import collections
import os
import re
from pathlib import Path

from benchmarks.stablehlo_step.files import STEP, BadInput, StepFiles
from benchmarks.stablehlo_step.measurement import published_peak
from benchmarks.tpu_compile.device import compile_program

_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "f32": 4, "s32": 4, "u32": 4}
_BYTES |= {"f64": 8, "s64": 8, "u64": 8}
_INSTRUCTION = re.compile(r"\s+(?:ROOT )?%?([\w.-]+) = (\(.*?\)|\S+) ([\w-]+)\((.*)")
# What names memory and moves nothing.
_FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "partition-id", "replica-id")


def main(arguments: argparse.Namespace) -> int:
    files = StepFiles(arguments.step)
    if arguments.keep and (Path(arguments.keep).exists() or not Path(arguments.keep).parent.is_dir()):
        raise BadInput(f"--keep={arguments.keep}: expected a new file in a directory that exists")
    target = _read(arguments.target)
    device = _field(target, r'device_description_str: "(.*)"', arguments.target)
    bandwidth = float(_field(target, r"memory_bandwidth: (\d+)", arguments.target))
    os.environ["JAX_PLATFORMS"] = "cpu"  # else JAX looks for a GPU
    executable, seconds = _compiled(target, files.read(STEP), arguments.target)
    (text,) = (module.to_string() for module in executable.hlo_modules())
    if arguments.keep:
        Path(arguments.keep).write_text(text, encoding="utf-8")
    print(f"{device}: compiled in {seconds:.0f} s; kernels, and the bytes that they read and write, by kind")
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
    return 0


def kernels_of(text: str) -> dict[str, tuple[int, int]]:
    """How many kernels of each kind an optimised program starts, and the bytes of their arguments and results.

    A value that the device's cache still holds is counted all the same. Of a loop, the body is left out.

    Args:
        text: the program as XLA prints it.
    Returns: by kind: a fusion's, with what generates it where that is not XLA itself; a custom call's target; else the
        operation.
    """
    entry = re.search(r"^ENTRY [^\n]*\{\n(.*?)^\}", text, re.DOTALL | re.MULTILINE)[1]
    sizes: dict[str, int] = {}
    counts, totals = collections.Counter(), collections.Counter()
    for line in entry.splitlines():
        if not (instruction := _INSTRUCTION.match(line)):
            continue
        name, result, operation, rest = instruction.groups()
        sizes[name] = _size(result)
        if operation in _FREE:
            continue
        kind = _kind(operation, line)
        counts[kind] += 1
        arguments = re.findall(r"%([\w.-]+)", rest.split(")", 1)[0])
        totals[kind] += sizes[name] + sum(sizes.get(argument, 0) for argument in arguments)
    return {kind: (count, totals[kind]) for kind, count in counts.items()}


def _kind(operation: str, line: str) -> str:
    if operation == "custom-call":
        return re.search(r'custom_call_target="([^"]+)"', line)[1]
    if operation != "fusion":
        return operation
    generator = re.search(r'"kind":"(__\w+)"', line)
    return " ".join(["fusion", re.search(r"kind=(k\w+)", line)[1], *(generator.groups() if generator else ())])


def _size(shapes: str) -> int:
    """Bytes of an array, or of all arrays of a tuple: "(f32[8]{0}, bf16[4,2]{1,0})" has 48."""
    total = 0
    for dtype, dimensions in re.findall(r"\b([a-z]+\d*)\[([\d,]*)\]", shapes):
        size = _BYTES[dtype]
        for dimension in filter(None, dimensions.split(",")):
            size *= int(dimension)
        total += size
    return total


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--target={path} cannot be read ({error.strerror})") from None


def _field(target: str, pattern: str, path: str) -> str:
    if found := re.search(pattern, target):
        return found[1]
    raise BadInput(f"--target={path} has no {pattern.partition(':')[0]}; expected a GpuTargetConfigProto as text")


def _compiled(target: str, program: bytes, path: str):
    """The executable, and the seconds that it took. Raises: BadInput: if the compiler is not there or gives up."""
    try:
        from jax.experimental import topologies

        (device,) = topologies.get_topology_desc(platform="cuda", topology="1x1x1", target_config=target).devices
    except (ImportError, RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise BadInput(f"no compiler for {path} ({reason}); install 'jax[cuda13]', which needs no GPU") from None
    try:
        return compile_program([device], program)
    except RuntimeError as error:
        raise BadInput(f"the step was not compiled: {str(error).partition(chr(10))[0]}") from None
