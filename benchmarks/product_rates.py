"""The processor's name and its rates of matrix products in TensorFlow and PyTorch, on which all ratios depend."""

import argparse
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks.harness import Process, print_table, running, shown, take_turns
from benchmarks.processor import HAS_AVX512_ROWS, cpu_info, processor_name

UNEQUAL = 1.1  # rates of products differ if one is more than this many times the other
TENSORFLOW, PYTORCH, PYTORCH_AVX512 = "TensorFlow", "PyTorch", "PyTorch, MKL with AVX-512"
SIZE = 2048
_ROUNDS, _PRODUCTS = 3, 5


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
    """The rates of all contenders in GFLOP/s, measured in turns. Raises: UserError: if one does not start."""
    worker, options = "benchmarks.products", {"num_threads": flags.threads, "size": SIZE}
    peer = {**options, "kind": "pytorch"}
    processes = {
        TENSORFLOW: Process(TENSORFLOW, worker, {**options, "kind": "tensorflow"}, sys.executable),
        PYTORCH: Process(PYTORCH, worker, peer, flags.peers_python),
    }
    if HAS_AVX512_ROWS:
        processes[PYTORCH_AVX512] = Process(PYTORCH_AVX512, worker, peer, flags.peers_python, avx512=True)

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
