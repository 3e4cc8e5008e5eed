"""Tasks on local processes: a function, many tasks, the results as they come."""

import contextlib
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from typing import TypeVar

from data_prep import worker
from data_prep.examples import ExampleSettings

Task = TypeVar("Task")
Result = TypeVar("Result")
RunAll = Callable[[Callable[[Task], Result], Iterable[Task]], Iterator[Result]]

# A task may carry megabytes of text, so only so many wait, for each process, to be taken up.
_TASKS_WAITING_PER_PROCESS = 2

# Imported once, before the processes part: it takes seconds and hundreds of megabytes, which they then share. Nothing
# runs in TensorFlow before that: its threads do not survive a fork.
_PRELOADED = ["tensorflow", "tensorflow_text", "data_prep.worker"]


@contextlib.contextmanager
def started(num_processes: int, settings: ExampleSettings) -> Iterator[RunAll]:
    """Gives a function that runs a task function on many tasks and yields the results as they come, in any order.

    It takes the tasks one by one, no faster than they are done.
    """
    if num_processes == 1:
        worker.start_in_this_process(settings)
        yield map
        return
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    executor = ProcessPoolExecutor(
        num_processes, mp_context=context, initializer=worker.start_process, initargs=(settings,)
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
