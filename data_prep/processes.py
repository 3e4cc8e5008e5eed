"""Runs a function on many tasks in local processes."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")
RunAll = Callable[[Callable[[Task], Result], Iterable[Task]], Iterator[Result]]

# Tasks that wait, for each process: a task may carry megabytes of text.
_TASKS_WAITING_PER_PROCESS = 2

# Imported once by the fork server: this takes seconds and hundreds of megabytes, which the processes then share.
_PRELOADED = ["data_prep.tensorflow_setup", "data_prep.pipeline"]


def preload(num_processes: int) -> None:
    """Starts the fork server, if other processes will be needed, so that its imports run in the background."""
    if num_processes > 1:
        multiprocessing.get_context("forkserver").set_forkserver_preload(_PRELOADED)
        with _forkserver_environment():
            forkserver.ensure_running()


@contextlib.contextmanager
def _forkserver_environment() -> Iterator[None]:
    """The environment that the fork server inherits.

    It finds this package from any working directory. It ignores keyboard interrupts: it ends with this process, and an
    interrupt during its imports would print long stack traces.
    """
    changes = {"PYTHONPATH": str(Path(__file__).resolve().parents[1]), "PYTHONSAFEPATH": "1"}
    before = {name: os.environ.get(name) for name in changes}
    if before["PYTHONPATH"]:
        changes["PYTHONPATH"] += os.pathsep + before["PYTHONPATH"]
    is_main_thread = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if is_main_thread else None
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        if is_main_thread:
            signal.signal(signal.SIGINT, handler)


@contextlib.contextmanager
def started(num_processes: int, set_up: Callable[..., None], *arguments: Any) -> Iterator[RunAll]:
    """Starts processes; yields a function that runs tasks on them and yields the results in any order.

    It takes the tasks one by one, no faster than they are done.

    Args:
        num_processes: 1 is this process itself.
        set_up: called in each process with `arguments`, before the first task.
    """
    if num_processes == 1:
        set_up(*arguments)
        yield map
        return
    preload(num_processes)
    executor = ProcessPoolExecutor(
        num_processes,
        mp_context=multiprocessing.get_context("forkserver"),
        initializer=_start_process,
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
    finally:
        executor.shutdown(cancel_futures=True)


def _start_process(set_up: Callable[..., None], *arguments: Any) -> None:
    """Sets up a process of the pool. It ends silently at an interrupt, and when its parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    set_up(*arguments)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
