"""The processor, its rates of matrix products in TensorFlow and PyTorch, and AVX-512 for PyTorch on any maker's.

MKL, which computes PyTorch's float32 products, uses AVX-512 on Intel's processors only. On others with AVX-512 the
benchmarks also measure PyTorch with `mkl_with_avx512`, in rows of their own, and check limits against the faster row.
"""

import argparse
import contextlib
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.contenders import Contender, with_avx512
from benchmarks.harness import Process, ProcessDied, print_table, running, shown, take_turns

UNEQUAL = 1.1  # rates of products differ if one is more than this many times the other
TENSORFLOW, PYTORCH, PYTORCH_AVX512 = "TensorFlow", "PyTorch", "PyTorch, MKL with AVX-512"
SIZE = 2048
_ROUNDS, _PRODUCTS = 3, 5
_MKL_TAKES_IT_FOR_INTEL = "int mkl_serv_intel_cpu_true(void) { return 1; }\n"


def cpu_info() -> str:
    """Linux's description of the processor; empty on other systems."""
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8") if path.exists() else ""


def processor_name(info: str) -> str:
    """The name of a processor, with its family and model, because a virtual machine may tell no more than the maker.

    Args:
        info: of `cpu_info`.
    """
    fields = dict(re.findall(r"^(model name|cpu family|model)\s*: (.+)$", info, re.MULTILINE))
    if "model name" not in fields:
        return platform.processor() or platform.machine()
    return f"{fields['model name']} (family {fields.get('cpu family')}, model {fields.get('model')})"


def mkl_avoids_avx512(info: str) -> bool:
    """Whether a processor has AVX-512 instructions that MKL does not use, because it is not Intel's."""
    fields = dict(re.findall(r"^(vendor_id|flags)\s*: (.+)$", info, re.MULTILINE))
    return fields.get("vendor_id") != "GenuineIntel" and "avx512f" in fields.get("flags", "").split()


HAS_AVX512_ROWS = mkl_avoids_avx512(cpu_info())


def rows_here(contenders: Mapping[str, Contender], avx512: Sequence[str]) -> dict[str, Contender]:
    """The contenders of a benchmark on this machine.

    Args:
        avx512: those with a row with AVX-512 where MKL avoids it.
    """
    return with_avx512(contenders, avx512 if HAS_AVX512_ROWS else ())


@contextlib.contextmanager
def mkl_with_avx512() -> Iterator[dict[str, str]]:
    """The environment variable with which MKL takes every processor for one of Intel's.

    Raises: ProcessDied: if the C compiler is missing or fails.
    """
    with tempfile.TemporaryDirectory() as directory:
        library = f"{directory}/mkl_with_avx512.so"
        command = ["cc", "-shared", "-fPIC", "-x", "c", "-o", library, "-"]
        try:
            subprocess.run(command, input=_MKL_TAKES_IT_FOR_INTEL, text=True, capture_output=True, check=True)
        except OSError as error:
            raise ProcessDied(f"cc: {error.strerror}; MKL with AVX-512 needs a C compiler") from None
        except subprocess.CalledProcessError as error:
            raise ProcessDied(f"cc: {error.stderr.strip()}") from None
        yield {"LD_PRELOAD": f"{library} {os.environ.get('LD_PRELOAD', '')}".strip()}


def print_processor() -> dict:
    """Prints the processor's name and the number of its cores that this process may use, and returns them."""
    name, cores = processor_name(cpu_info()), len(os.sched_getaffinity(0))
    print(f"Processor: {name}, {cores} cores", flush=True)
    return {"name": name, "cores": cores}


def print_processor_and_products(flags: argparse.Namespace) -> dict:
    """Prints the processor and, if PyTorch is measured, the rates of products, and when these are unequal.

    Args:
        flags: of `benchmarks.harness.comparison_flags`.
    Returns: the processor's `name` and `cores`, and `products`: by contender the GFLOP/s of each round.
    """
    processor = print_processor()
    if all(contender.kind == "ours" for contender in flags.contenders.values()):
        return processor
    rates = measure_products(flags)
    title = f"Products of {SIZE:,} x {SIZE:,} matrices, float32, {flags.threads} threads"
    print_table(title, ["", "GFLOP/s"], [[name, shown(values)] for name, values in rates.items()])
    if sentence := inequality(rates):
        print(f"\n{sentence}", flush=True)
    return {**processor, "products": rates}


def measure_products(flags: argparse.Namespace) -> dict[str, list[float]]:
    """The rates of all contenders in GFLOP/s, measured in turns. Raises: ProcessDied: if one does not start."""
    worker, options = "benchmarks.products", {"num_threads": flags.threads, "size": SIZE}
    peer = {**options, "kind": "pytorch"}
    processes = {
        TENSORFLOW: Process(TENSORFLOW, worker, {**options, "kind": "tensorflow"}, sys.executable),
        PYTORCH: Process(PYTORCH, worker, peer, flags.peers_python),
    }
    if HAS_AVX512_ROWS:
        processes[PYTORCH_AVX512] = Process(
            PYTORCH_AVX512, worker, peer, flags.peers_python, environment=mkl_with_avx512
        )

    def rate(process: Process) -> float:
        return 2e-9 * SIZE**3 / statistics.median(process.ask(f"products {_PRODUCTS}")["seconds"])

    with running(processes, flags.patience) as alive:
        return take_turns({name: partial(rate, each) for name, each in alive.items()}, _ROUNDS, flags.patience)


def inequality(rates: Mapping[str, Sequence[float]]) -> str | None:
    """A sentence if the rates of TensorFlow and of PyTorch's faster row differ; None if they are about equal."""
    medians = {name: statistics.median(values) for name, values in rates.items()}
    peer = max((name for name in medians if name != TENSORFLOW), key=medians.get)
    slower, faster = sorted((TENSORFLOW, peer), key=medians.get)
    times = medians[faster] / medians[slower]
    if times <= UNEQUAL:
        return None
    return f"The products are unequal: {faster} computes them {times:.2f} times as fast as {slower}."
