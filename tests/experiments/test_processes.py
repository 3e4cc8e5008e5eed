"""Processes beside each other: what they print, where they run, and how they end."""

import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from electra_tf.config.errors import UserError
from experiments import processes

PRINT = "import os, sys; print(len(os.sched_getaffinity(0))); print('noted', file=sys.stderr)"


@pytest.fixture
def job(tmp_path):
    """`job("a", "print(1)")`: a process of Python, with its log in `tmp_path`."""

    def build(name: str, code: str, output_file: Path | None = None) -> SimpleNamespace:
        command = (sys.executable, "-c", code)
        return SimpleNamespace(name=name, command=command, log_file=tmp_path / f"{name}.log", output_file=output_file)

    return build


def test_a_process_has_its_cores_and_its_log(job):
    started = job("a", PRINT)
    assert processes.start(started, sorted(os.sched_getaffinity(0))[:1]).wait() == 0
    assert sorted(started.log_file.read_text().splitlines()) == ["1", "noted"]


def test_what_is_printed_goes_to_the_file_that_is_asked_for(job, tmp_path):
    started = job("a", PRINT, tmp_path / "output")
    assert processes.start(started, sorted(os.sched_getaffinity(0))[:1]).wait() == 0
    assert (tmp_path / "output").read_text() == "1\n"
    assert started.log_file.read_text() == "noted\n"


def test_a_failure_is_its_status_and_what_happened_without_the_advice(job):
    jobs, succeeded = [job("a", "import sys; sys.exit('no data; give some')"), job("b", "")], []
    assert processes.run_all(jobs, [None], after=succeeded.append) == {"a": "status 1, no data"}
    assert succeeded == jobs[1:]


def test_a_line_says_how_each_process_ended(job, monkeypatch, capsys):
    monkeypatch.setattr(processes.time, "monotonic", lambda: 2.0)
    processes.run_all([job("a", ""), job("b", "import sys; sys.exit(3)")], [None])
    lines = ["2 processes to run", "1/2 after 0 s: a done", "2/2 after 0 s: b failed: status 3, no message"]
    assert capsys.readouterr().err.splitlines() == lines


def test_a_process_that_is_not_ready_lets_others_pass_and_may_never_run(job):
    jobs = [job("never", ""), job("second", ""), job("first", "")]
    ended = []

    def is_ready(each) -> bool:
        return each.name == "first" or (each.name == "second" and "first" in ended)

    assert processes.run_all(jobs, [None, None], is_ready, after=lambda each: ended.append(each.name)) == {}
    assert ended == ["first", "second"]


def test_a_log_that_cannot_be_written_is_named(job, tmp_path):
    (tmp_path / "file").touch()
    below_a_file = job("a", "")
    below_a_file.log_file = tmp_path / "file" / "x" / "a.log"
    with pytest.raises(UserError, match="file/x cannot be written: Not a directory; give another --output_dir"):
        processes.run_all([below_a_file], [None])


def test_sigterm_ends_the_processes_too(job, monkeypatch):
    own, start, started = signal.getsignal(signal.SIGTERM), processes.start, []

    def terminate(_) -> None:
        assert signal.getsignal(signal.SIGTERM) != own  # which would end the tests
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(processes, "start", lambda *of: started.append(start(*of)) or started[-1])
    monkeypatch.setattr(processes.time, "sleep", terminate)
    with pytest.raises(SystemExit, match="143"):
        processes.run_all([job("a", "import time; time.sleep(9)"), job("never", "")], [None])
    assert [process.returncode for process in started] == [-signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) == own
