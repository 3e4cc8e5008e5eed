"""A contender's side of `benchmarks.harness`: options as JSON in the first argument, then one command a line.

Each line of standard input, `NAME NUMBER...`, gets one line of JSON on standard output. The first command is `step`, so
that a start can be timed. What libraries print goes to standard error. A worker of another checkout of this project
may answer too (--baseline), so options and commands keep their meaning.
"""

import ctypes
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping

# Imports of a contender count as its start: import no library here.


class Commands:
    """The commands of standard input, and the way back for their answers."""

    def __init__(self):
        self._answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def __iter__(self) -> Iterator[tuple]:
        """Each command as its name and its numbers."""
        for line in sys.stdin:
            name, *numbers = line.split()
            self._start = time.perf_counter()
            yield name, *map(int, numbers)

    def answer(self, **values) -> None:
        """Answers the last command, with the seconds since it came unless `values` has others."""
        values.setdefault("seconds", time.perf_counter() - self._start)
        release_memory()
        print(json.dumps(values), file=self._answers, flush=True)


def run_worker(kinds: Mapping[str, Callable[[dict, Commands], None]]) -> None:
    """Binds this process to its cores and lets the contender `options["kind"]` answer all commands."""
    options = json.loads(sys.argv[1])
    # Libraries size their thread pools by the cores they see, whatever they are told later.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options["num_threads"]])
    kinds[options["kind"]](options, Commands())


def timed(call: Callable[[], object], num_calls: int) -> list[float]:
    """Seconds of each call, after an untimed one that refills the caches and takes freed memory back."""
    call()
    seconds = []
    for _ in range(num_calls):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds


def release_memory() -> None:
    """Returns freed memory to the system, as all contenders are alive at once."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def peak_bytes() -> int:
    """The highest resident set size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
