"""Runs a function on many tasks in local processes, and shows how far they are."""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

Task = TypeVar("Task")
Result = TypeVar("Result")
RunAll = Callable[[Callable[[Task], Result], Iterable[Task]], Iterator[Result]]

# Waiting tasks per process: a task may hold megabytes of text.
_TASKS_WAITING_PER_PROCESS = 2

# Imported once, by the fork server: the imports take seconds and hundreds of megabytes, which the processes share.
_PRELOADED = ["data_prep.tensorflow_setup", "data_prep.build"]

_SECONDS_BETWEEN_UPDATES = 5  # of the progress bar


def preload(num_processes: int) -> None:
    """Starts the fork server, whose imports then run in the background. Does nothing for one process."""
    if num_processes == 1:
        return
    multiprocessing.get_context("forkserver").set_forkserver_preload(_PRELOADED)
    make_importable()
    # The fork server ends with this process; an interrupt during its imports would print long stack traces.
    is_main_thread = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if is_main_thread else None
    forkserver.ensure_running()
    if is_main_thread:
        signal.signal(signal.SIGINT, handler)


def make_importable() -> None:
    """Makes this package importable in new processes, in any working directory."""
    root = str(Path(__file__).resolve().parents[1])
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if root not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *paths])


@contextlib.contextmanager
def start_workers(num_processes: int, set_up: Callable[..., None], *arguments: Any) -> Iterator[RunAll]:
    """Starts processes and yields `run_all(function, tasks)`, which yields the results in any order.

    `run_all` takes a task from the iterator only when a process will soon be free.

    Args:
        num_processes: with 1, this process does the work itself.
        set_up: called with `arguments` in each process before its first task.
    Raises: ReadError: a process was killed.
    """
    if num_processes == 1:
        set_up(*arguments)
        yield map
        return
    preload(num_processes)
    executor = ProcessPoolExecutor(
        num_processes,
        mp_context=multiprocessing.get_context("forkserver"),
        initializer=_prepare_process,
        initargs=(set_up, *arguments),
    )

    def run_all(function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        remaining = iter(tasks)
        running: set[Future[Result]] = set()
        num_at_once = (1 + _TASKS_WAITING_PER_PROCESS) * num_processes
        while True:
            running.update(executor.submit(function, task) for task in islice(remaining, num_at_once - len(running)))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)

    try:
        yield run_all
    except BrokenProcessPool:
        from data_prep.archives import ReadError

        raise ReadError(
            "a worker process was killed, most likely because memory ran out; lower num_processes"
        ) from None
    finally:
        executor.shutdown(cancel_futures=True)


def _prepare_process(set_up: Callable[..., None], *arguments: Any) -> None:
    """Sets up a process of the pool. The process ends silently at an interrupt and when its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # threads of the library tokenizers: the processes share the cores
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    set_up(*arguments)


@contextlib.contextmanager
def progress_bar(num_bytes: int) -> Iterator[tqdm]:
    """Shows a progress bar, in bytes of the input files, below the log.

    At the end, also by an error, a terminal's line is cleared, and in a file the bar ends its line.
    """
    seconds = _SECONDS_BETWEEN_UPDATES
    # No `delay`: a log line would draw a delayed bar, and tqdm would not end its line.
    options = {"unit": "B", "unit_scale": True, "mininterval": seconds, "leave": not sys.stderr.isatty()}
    with logging_redirect_tqdm(), tqdm(total=num_bytes, **options) as progress:
        yield progress


def speed(number: int, seconds: float, unit: str = "tokens") -> str:
    """Formats a speed: (1234567, 2) gives "617 k tokens/s"."""
    return f"{number / seconds / 1e3:,.0f} k {unit}/s"
