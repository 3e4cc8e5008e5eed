"""A contender's side of `benchmarks.harness`.

The first argument holds options as JSON. Each line of standard input, `NAME NUMBER...`, is a command, and its answer is
one line of JSON on standard output. Other output goes to standard error. The first command is `step`, which is timed as
the start. Options and commands must not change, because --baseline runs the workers of other checkouts.
"""

import ctypes
import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator

# Imports count as a contender's start, so this file imports no library.


class Commands:
    """The commands of standard input, and a method that answers them."""

    def __init__(self):
        self._answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def __iter__(self) -> Iterator[tuple]:
        """Yields: the name and the numbers of each command."""
        for line in sys.stdin:
            name, *numbers = line.split()
            self._start = time.perf_counter()
            yield name, *map(int, numbers)

    def answer_all(self, **measurements: Callable[..., dict]) -> None:
        """Answers each command with the measurement of its name, which gets the command's numbers."""
        for name, *numbers in self:
            self.answer(**measurements[name](*numbers))

    def answer(self, **values) -> None:
        """Answers the last command. Unless `values` has `seconds`, they are the time since the command."""
        values.setdefault("seconds", time.perf_counter() - self._start)
        release_memory()
        print(json.dumps(values), file=self._answers, flush=True)


def run_worker(package: str) -> None:
    """Binds this process to its cores and runs `answer_all(options, commands)` of the contender's module.

    The module is PACKAGE.KIND, with the kind of the options: `ours` or `pytorch`.
    """
    options = json.loads(sys.argv[1])
    # Before any import: libraries size their thread pools by the cores of the process.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options["num_threads"]])
    if options["kind"] == "ours":
        from electra_tf.cli.process import import_tensorflow

        import_tensorflow()
    importlib.import_module(f"{package}.{options['kind']}").answer_all(options, Commands())


def timed(call: Callable[[], object], num_calls: int) -> list[float]:
    """Seconds of each call, after an untimed call that refills caches and memory pools."""
    call()
    seconds = []
    for _ in range(num_calls):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds


def release_memory() -> None:
    """Returns freed memory to the system, because all contenders are alive at the same time."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def peak_bytes() -> int:
    """The highest resident set size of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
