"""How a step on a GPU is timed, of ours and of PyTorch's; imports neither."""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable


def add_timing_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that `print_timing` reads."""
    for name, default in (("warm_up", 3), ("steps", 10), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"(default: {default})")
    parser.add_argument("--wait", action="store_true", help="wait for a line of standard input after the first step")


def print_timing(
    flags: argparse.Namespace, run: Callable[[int], dict[str, float]], peak_bytes: Callable[[], int | None], **described
) -> None:
    """Prints two lines of JSON: the first step, which compiles; then milliseconds a step, and the memory.

    Args: run: runs N steps and waits for the last; returns its losses.        described: entries of the first line.
    """
    started = time.perf_counter()
    losses = run(1)
    first = {"first_step_s": time.perf_counter() - started, "losses": losses, **described}
    print(json.dumps(first), flush=True)
    if flags.wait:
        sys.stdin.readline()
    for _ in range(flags.warm_up):
        run(1)
    rounds = []
    for _ in range(flags.rounds):
        started = time.perf_counter()
        losses = run(flags.steps)
        rounds.append(1e3 * (time.perf_counter() - started) / flags.steps)
    timing = {"ms": statistics.median(rounds), "rounds_ms": rounds, "peak_bytes": peak_bytes(), "last_losses": losses}
    print(json.dumps(timing), flush=True)
