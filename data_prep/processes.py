"""Tasks on local processes: a function, many tasks, the results as they come."""

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
from typing import TypeVar

Settings = TypeVar("Settings")
Task = TypeVar("Task")
Result = TypeVar("Result")
RunAll = Callable[[Callable[[Task], Result], Iterable[Task]], Iterator[Result]]

# A task may carry megabytes of text, so only so many wait, for each process, to be taken up.
_TASKS_WAITING_PER_PROCESS = 2

# Imported once, before the processes part: it takes seconds and hundreds of megabytes, which they then share. Nothing
# runs in TensorFlow before that: its threads do not survive a fork.
_PRELOADED = ["data_prep.preloaded", "data_prep.worker"]


def preload(num_processes: int) -> None:
    """Begins to import what other processes, if there are to be any, will need; the caller has other things to do."""
    if num_processes > 1:
        multiprocessing.get_context("forkserver").set_forkserver_preload(_PRELOADED)
        with _forkserver_environment():
            forkserver.ensure_running()


@contextlib.contextmanager
def _forkserver_environment() -> Iterator[None]:
    """What the fork server is to inherit.

    It finds this package, whatever directory it is started in. And it does not hear of an interrupt by the keyboard:
    it ends with this process, and in the midst of its imports it would tell of them at length.
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
def started(num_processes: int, set_up: Callable[[Settings], None], settings: Settings) -> Iterator[RunAll]:
    """Gives a function that runs a task function on many tasks and yields the results as they come, in any order.

    It takes the tasks one by one, no faster than they are done.

    Args:
        num_processes: 1 is this process itself.
        set_up: called in each process with `settings`, before the first task.
    """
    if num_processes == 1:
        set_up(settings)
        yield map
        return
    preload(num_processes)
    executor = ProcessPoolExecutor(
        num_processes,
        mp_context=multiprocessing.get_context("forkserver"),
        initializer=_start_process,
        initargs=(set_up, settings),
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


def _start_process(set_up: Callable[[Settings], None], settings: Settings) -> None:
    """Sets up a process of the pool: it ends in silence at an interrupt, and when its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    set_up(settings)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
