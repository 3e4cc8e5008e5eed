"""One contender of `benchmarks.train_step` in its own process, which runs steps on command.

    python -m benchmarks.train_step.worker '{"kind": "ours", "num_threads": 2, ...}'

Reads one command a line from standard input and answers each with one line of JSON on standard output: `step` (also the
first step, so that start-up can be timed) and `steps K`. It ends at the end of its input. What libraries print
goes to standard error. Another checkout of this project may run the worker (`--baseline`), so the options and commands
must not change their meaning.
"""

import ctypes
import json
import os
import resource
import sys
import time
from typing import Protocol

# Imports of a contender count as its start: import no library before its turn.
from benchmarks.train_step.batches import NUM_BATCHES, BatchShape, synthetic_batch


class Step(Protocol):
    """A training step that can be repeated; `run` returns the losses of its batch when the update is done."""

    def run(self) -> dict[str, float]: ...


def start_ours(options: dict) -> Step:
    from electra_tf.cli.process import import_tensorflow

    import_tensorflow()
    from benchmarks.train_step.ours import OurStep, limit_threads

    limit_threads(options["num_threads"])
    return OurStep(options["config"], [*options["overrides"], *options["settings"]])


def start_pytorch(options: dict) -> Step:
    import torch

    from benchmarks.train_step.pytorch import PyTorchStep

    torch.set_num_threads(options["num_threads"])
    batches = [synthetic_batch(BatchShape(**options["shape"]), seed) for seed in range(NUM_BATCHES)]
    return PyTorchStep(batches, **options["networks"], **options["settings"])


KINDS = {"ours": start_ours, "pytorch": start_pytorch}


def answer(command: str, step: Step) -> dict:
    """The answer to a command. Raises: ValueError: if there is no such command."""
    name, _, argument = command.partition(" ")
    if name == "step":
        return {"losses": step.run()}
    if name == "steps":
        return {"seconds": timed_steps(step, int(argument)), "peak_bytes": peak_bytes()}
    raise ValueError(f"unknown command {command!r}")


def timed_steps(step: Step, num_steps: int) -> list[float]:
    """Seconds of each step, after an untimed one that refills the caches and takes freed memory back."""
    step.run()
    seconds = []
    for _ in range(num_steps):
        start = time.perf_counter()
        step.run()
        seconds.append(time.perf_counter() - start)
    release_memory()
    return seconds


def release_memory() -> None:
    """Returns freed memory to the system, as all contenders are alive at once."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def peak_bytes() -> int:
    """The highest resident set size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    options = json.loads(sys.argv[1])
    cores = sorted(os.sched_getaffinity(0))[: options["num_threads"]]
    # Libraries size their thread pools by the cores they see, whatever they are told later.
    os.sched_setaffinity(0, cores)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    step = KINDS[options["kind"]](options)
    for line in sys.stdin:
        print(json.dumps(answer(line.strip(), step)), file=answers, flush=True)


if __name__ == "__main__":
    main()
