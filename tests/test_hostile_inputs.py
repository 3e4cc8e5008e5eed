"""Attacked inputs of every kind that comes from elsewhere: each is read or refused, and does no harm.

HOSTILE_INPUTS=2000 HOSTILE_SEED=1 pytest -s tests/test_hostile_inputs.py      prints what came of them
"""

import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import tensorflow as tf

from electra_tf.cli.process import _file_errors
from electra_tf.config.errors import UserError
from tests.attacks import write_input
from tests.foreign_inputs import KINDS, read_input, write_good_inputs

NUMBER, SEED = (int(os.environ.get(name, value)) for name, value in (("HOSTILE_INPUTS", 200), ("HOSTILE_SEED", 0)))
CPU_SECONDS, SECONDS = 60, 600
MEMORY, TIMES_INPUT = 2**29, 50  # the bytes that reading may take: so many, and so many times the input's size

FORBIDDEN = ("subprocess", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "pickle.", "socket.")
CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.chmod", "os.truncate")
NO_MEMORY = (MemoryError, tf.errors.ResourceExhaustedError)


class Harm(BaseException):
    """What an input must not cause; no `except Exception` hides it."""


def watched(place: Path):
    """Returns a function that reads an input of `place`/inputs, stops what it must not do, and says what came of it."""
    harms, state = [], {"kind": ""}

    def is_in(path, *folders: str) -> bool:
        real = f"{os.path.realpath(os.fsdecode(path))}/"
        return any(real.startswith(f"{place / folder}/") for folder in folders)

    def is_harm(event: str, arguments: tuple) -> bool:
        if event == "open" and not isinstance(arguments[0], int):
            if (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return not is_in(arguments[0], "out", "tmp", "/dev/null")
            is_read = is_in(arguments[0], "inputs", "good", "out", "tmp") or state["kind"] == "config"  # base: any file
            return not is_read and is_in(arguments[0], "", "/etc/passwd")
        if event in CHANGES and arguments[-1] in (-1, None):  # else the path is relative to an open folder
            return not is_in(arguments[0], "out", "tmp")
        if event == "exec":
            file = arguments[0].co_filename  # "<string>" for the code of a named tuple
            return os.path.exists(file) and is_in(file, "inputs") or "touch ran" in arguments[0].co_consts
        if event == "compile":
            return "touch ran" in str(arguments[0]) and arguments[1] != "<unknown>"  # as which it is only parsed
        return event.startswith(FORBIDDEN)

    def hook(event: str, arguments: tuple) -> None:
        if state["kind"] and is_harm(event, arguments):
            harms.append(f"HARM {event} {arguments!r:.200}")
            raise Harm(event)

    def read(kind: str, folder: Path, file: str) -> str:
        try:
            state["kind"] = kind
            read_input(kind, folder, file, place)
            outcome = "read"
        except NO_MEMORY as error:
            outcome = f"HARM {type(error).__name__}: {error!s:.100}"
        except (UserError, OSError, *_file_errors()):  # one line of a command, see `errors_reported`
            outcome = "refused"
        except BaseException as error:
            outcome = f"{type(error).__name__}: {error!s:.100}"
        state["kind"] = ""
        return harms.pop() if harms else outcome

    sys.addaudithook(hook)
    return read


def memory(name: str) -> int:
    return 1024 * int(re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def main(place: Path, first: int, last: int, seed: int) -> None:
    """Reads the inputs from `first` to `last`. Prints a line of JSON for each one."""
    for kind in KINDS:  # imports what readers import when they are first used
        file = next((path.name for path in (place / "good" / kind).iterdir() if path.is_file()), "")
        read_input(kind, place / "good" / kind, file, place)
        shutil.rmtree(place / "out", ignore_errors=True)
    read = watched(place)
    for number in range(first, last):
        kind = KINDS[number % len(KINDS)]
        folder = place / "inputs" / kind
        attack, file = write_input(kind, place / "good" / kind, folder, random.Random(f"{seed} {number}"))
        os.chdir(folder)
        room = MEMORY + TIMES_INPUT * sum(path.stat().st_size for path in folder.rglob("*"))
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before, began = memory("VmRSS"), time.process_time()
        resource.setrlimit(resource.RLIMIT_AS, (memory("VmSize") + 2 * room, resource.RLIM_INFINITY))
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)  # SIGPROF and SIGALRM end the process
        signal.alarm(SECONDS)
        outcome = read(kind, folder, file)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
        taken, seconds = memory("VmHWM") - before, round(time.process_time() - began, 1)
        outcome = f"HARM {taken} bytes of memory" if taken > room else outcome
        print(json.dumps([number, kind, attack, file, outcome, taken, seconds]), flush=True)
        shutil.rmtree(place / "out", ignore_errors=True)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux tells the peak of a process's memory")
def test_hostile_inputs_are_read_or_refused_and_do_no_harm(tmp_path, tiny_pretrained, tiny_config, write_data):
    write_good_inputs(tmp_path / "good", tiny_pretrained, tiny_config, write_data)
    (tmp_path / "tmp").mkdir()
    settings = {"TMPDIR": str(tmp_path / "tmp"), "PYTHONDONTWRITEBYTECODE": "1", "MALLOC_ARENA_MAX": "2"}
    results, log = [], tmp_path / "log"
    while len(results) < NUMBER:
        command = [sys.executable, "-m", "tests.test_hostile_inputs", *map(str, (tmp_path, len(results), NUMBER, SEED))]
        with log.open("w") as messages:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=messages, text=True, env=os.environ | settings
            )
        lines = list(map(json.loads, done.stdout.splitlines()))
        assert done.returncode <= 0, log.read_text()[-3000:]  # else our own mistake
        results += lines
        if done.returncode:  # of the next input
            end = f"HARM the process ended with {done.returncode}: {log.read_text()[-300:]}"
            results.append([len(results), KINDS[len(results) % len(KINDS)], "", "", end, 0, 0.0])
    for (kind, outcome), count in sorted(Counter((each[1], each[4].partition(":")[0]) for each in results).items()):
        print(f"{kind:25}{outcome:30.30}{count:5}")
    print("most memory:", max(results, key=lambda each: each[5]), "most time:", max(results, key=lambda each: each[6]))
    assert [each for each in results if each[4] not in ("read", "refused")] == []


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
