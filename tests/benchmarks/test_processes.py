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
    jobs = [job("a", "import sys; sys.exit('no data; give some')"), job("b", "")]
    assert list(processes.run_all(jobs, [None])) == [(jobs[0], "status 1, no data"), (jobs[1], None)]


def test_a_process_that_is_not_ready_lets_others_pass_and_may_never_run(job):
    jobs = [job("never", ""), job("second", ""), job("first", "")]
    ended = []

    def is_ready(each) -> bool:
        return each.name == "first" or (each.name == "second" and "first" in ended)

    for each, _ in processes.run_all(jobs, [None, None], is_ready):
        ended.append(each.name)
    assert ended == ["first", "second"]
