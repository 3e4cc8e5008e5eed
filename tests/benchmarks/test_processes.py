"""Processes beside each other: what they print, where they run, and how they end."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import processes

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
