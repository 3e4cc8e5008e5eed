import os
import signal
import sys

import pytest

from experiments import processes

ALL_CORES = [sorted(os.sched_getaffinity(0))]
PRINT = "import os, sys; print(len(os.sched_getaffinity(0))); print('noted', file=sys.stderr)"


@pytest.fixture
def job(tmp_path):
    """`job("a", "print(1)")`: a process of Python, with its log in `tmp_path`."""

    def build(name: str, code: str, **further) -> processes.Process:
        command, log_file = (sys.executable, "-c", code), tmp_path / f"{name}.log"
        return processes.Process(name=name, command=command, log_file=log_file, **{"is_done": bool, **further})

    return build


def test_a_process_runs_on_its_cores_and_its_output_is_kept(job):
    started = job("a", PRINT)
    assert processes.start(started, sorted(os.sched_getaffinity(0))[:1]).wait() == 0
    assert sorted(started.log_file.read_text()) == sorted("noted\n1\n")


def test_a_done_process_is_not_started_and_one_that_is_not_ready_lets_others_pass(job):
    ended = []
    jobs = [
        job("done", "", is_done=lambda: True),
        job("never", "", is_ready=lambda: False),
        job("second", "", is_ready=lambda: "first" in ended),
        job("first", ""),
    ]
    assert processes.run_all(jobs, 2 * ALL_CORES, after=lambda each: ended.append(each.name)) == {}
    assert ended == ["first", "second"]


def test_simultaneous_processes_have_equal_shares_of_the_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {7, 1, 4, 6, 9})
    assert processes.core_shares(2) == [[1, 4], [6, 7]]


def test_sigterm_ends_the_processes_too(job, monkeypatch):
    own, start, started = signal.getsignal(signal.SIGTERM), processes.start, []

    def terminate(_) -> None:
        assert signal.getsignal(signal.SIGTERM) != own  # which would end the tests
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(processes, "start", lambda *of: started.append(start(*of)) or started[-1])
    monkeypatch.setattr(processes.time, "sleep", terminate)
    with pytest.raises(SystemExit, match="143"):
        processes.run_all([job("a", "import time; time.sleep(9)"), job("never", "")], ALL_CORES)
    assert [process.returncode for process in started] == [-signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) == own
