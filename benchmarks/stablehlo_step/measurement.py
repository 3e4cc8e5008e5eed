"""Times and reports steps, ours and a peer's. Imports the standard library alone."""

import argparse
import json
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path


def add_timing_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="timed rounds; their median counts (5)")
    parser.add_argument("--steps", type=int, default=20, metavar="N", help="steps of a round (20)")
    parser.add_argument("--warmup", type=int, default=5, metavar="N", help="steps before them, not timed (5)")
    parser.add_argument("--peak_flops", type=float, metavar="FLOP/S", help="of the device; else as published, if known")
    parser.add_argument("--output", metavar="FILE", help="file to which lines of JSON are added")


def timed_rounds(run: Callable[[], object], wait: Callable[[], None], rounds: int, steps: int) -> list[float]:
    """Seconds a step in each round.

    Args:
        run: begins a step.        wait: returns when the device is done.
    """
    seconds = []
    for _ in range(rounds):
        wait()
        before = time.perf_counter()
        for _ in range(steps):
            run()
        wait()
        seconds.append((time.perf_counter() - before) / steps)
    return seconds


def published_peak(manifest: dict, device: str) -> float | None:
    """FLOP/s of a device by its driver's name, in the precision of the step; None if it is not known."""
    return next((peak for pattern, peak in manifest["peak_flops"].items() if re.search(pattern, device)), None)


def result(manifest: dict, seconds: list[float], peak: float | None, **facts) -> dict:
    """One row: `facts` and what follows from the seconds a step. The median of the rounds counts.

    Utilisation is of the matrix products of the model, which are the same for all contenders.
    """
    median, products = statistics.median(seconds), (manifest["flops"] or {}).get("products")
    rate = products / median if products else None
    return {
        **facts,
        "objective": manifest["objective"],
        "trainable_parameters": manifest["trainable_parameters"],
        "batch_size": manifest["batch_size"],
        "max_seq_length": manifest["max_seq_length"],
        "seconds_a_step": median,
        "seconds_of_rounds": seconds,
        "examples_per_second": manifest["batch_size"] / median,
        "flops_per_second": rate,
        "peak_flops": peak,
        "utilization": rate / peak if rate and peak else None,
    }


def report(row: dict, output: str | None) -> None:
    """Prints a row, and adds it to a file of JSON lines."""
    parts = [
        f"{row['contender']} {row['precision']}",
        f"{1e3 * row['seconds_a_step']:.2f} ms a step",
        f"{row['examples_per_second']:.1f} examples/s",
        f"{row['flops_per_second'] / 1e12:.3g} TFLOP/s" if row["flops_per_second"] else None,
        f"{row['utilization']:.1%} of {row['peak_flops'] / 1e12:.4g} TFLOP/s" if row["utilization"] else None,
        f"{row['peak_bytes'] / 1e9:.2f} GB at most" if row["peak_bytes"] else None,
        f"loss {row['first_loss']:.4f} to {row['last_loss']:.4f}",
        row["device"],
    ]
    print(" | ".join(part for part in parts if part), flush=True)
    if output:
        with Path(output).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
