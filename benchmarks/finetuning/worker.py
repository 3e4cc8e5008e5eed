"""One contender of `benchmarks.finetuning` in its own process, which trains and evaluates on command.

    python -m benchmarks.finetuning.worker '{"kind": "ours", "num_threads": 2, ...}'

Reads one command a line from standard input and answers each with one line of JSON on standard output:
`step` (the first one, so that start-up can be timed), `warm_up`, `train N` and `evaluate`. It ends at the end of its
input. What libraries print goes to standard error.
"""

import json
import os
import sys
import time
from collections.abc import Iterator

# Imports of a contender count as its start: import no library before its turn.
from benchmarks.train_step.worker import release_memory


class Commands:
    """The commands of standard input, and the way back for their answers."""

    def __init__(self):
        self._answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Each command and its number, 1 without one."""
        for line in sys.stdin:
            name, _, number = line.strip().partition(" ")
            self._start = time.perf_counter()
            yield name, int(number or 1)

    def answer(self, **values) -> None:
        """Answers the last command, with the seconds since it came."""
        values["seconds"] = time.perf_counter() - self._start
        release_memory()
        print(json.dumps(values), file=self._answers, flush=True)


def main() -> None:
    options = json.loads(sys.argv[1])
    # Libraries size their thread pools by the cores they see, whatever they are told later.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options["num_threads"]])
    commands = Commands()
    if options["kind"] == "ours":
        from electra_tf.cli.process import import_tensorflow

        import_tensorflow()
        from benchmarks.finetuning.ours import serve
    else:
        from benchmarks.finetuning.pytorch import serve
    serve(options, commands)


if __name__ == "__main__":
    main()
