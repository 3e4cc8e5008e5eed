import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import contenders, harness, processor
from benchmarks.contenders import Contender, Limit
from benchmarks.harness import Process
from electra_tf.config.errors import UserError

PROJECT = Path(__file__).resolve().parents[2]
AMD = {"vendor_id": "AuthenticAMD", "flags": "fpu avx2 avx512f avx512dq"}
ROWS = {
    "ours": Contender("ours", "ours"),
    "ours_xla": Contender("ours", "ours"),
    "peer": Contender("pytorch", "eager"),
    "peer_compile": Contender("pytorch", "compile"),
}


def test_the_fastest_of_ours_is_compared_with_the_fastest_row_of_each_group_and_with_its_baseline(monkeypatch):
    monkeypatch.setattr(contenders, "read_processor", lambda: AMD)
    seconds = {"ours": [3.0], "ours_xla": [2.0], "peer": [3.75], "peer_avx512": [3.5], "peer_compile": [1.5]}
    seconds |= {"baseline": [2.85]}
    # The second of three rounds is disturbed, which does not change the median of the ratios within rounds.
    rounds = {name: [value, 9.0, value] for name, (value,) in seconds.items()}
    limits = [Limit("ours", "eager", 1.75), Limit("ours", "compile", 1.0), Limit("ours", "not measured", 1.0)]
    verdicts = harness.judge(rounds, contenders.with_avx512(ROWS, "peer"), limits, "steps: ")
    assert [(verdict.name, verdict.value, verdict.holds) for verdict in verdicts] == [
        ("steps: ours_xla over peer_avx512", 1.75, True),
        ("steps: ours_xla over peer_compile", 0.75, False),
        ("steps: ours over baseline", pytest.approx(0.95), True),
    ]


def test_a_baseline_follows_ours_and_runs_the_files_of_its_checkout(tmp_path):
    flags = harness.comparison_flags("d", ROWS, "b").parse_args(["--contenders=ours,peer", f"--baseline={tmp_path}"])
    processes = harness.processes_of(flags.contenders, "w", flags, {"num_threads": 1}, lambda path: {"at": str(path)})
    assert list(processes) == ["ours", "baseline", "peer"]
    inside, outside = PROJECT / "configs" / "a.yaml", Path("/elsewhere/b.yaml")
    assert harness.in_checkout(inside, tmp_path) == tmp_path / "configs" / "a.yaml"
    assert harness.in_checkout(outside, tmp_path) == outside


def test_a_process_runs_the_code_of_its_checkout(tmp_path):
    (tmp_path / "echo.py").write_text(
        "import json, os, sys\n"
        "for line in sys.stdin: print(json.dumps({'answer': line.strip() + os.environ['ADDED']}), flush=True)\n"
    )
    process = Process("echo", "echo", {"num_threads": 1}, sys.executable, tmp_path, {"ADDED": "!"})
    with harness.running({"echo": process}, 0.0, 2) as alive:
        assert alive == {"echo": process}
        assert process.first == {"answer": "step!"} and len(process.start_seconds) == 2
        answer = process.ask_watched("steps 3")
        assert answer["answer"] == "steps 3!" and answer["others"] >= 0.0


def test_a_contender_that_does_not_start_ends_the_comparison_and_the_others(tmp_path):
    (tmp_path / "echo.py").write_text("import sys\nfor line in sys.stdin: print(1, flush=True)\n")
    started = Process("echo", "echo", {"num_threads": 1}, sys.executable, tmp_path)
    lost = Process("peer", "nowhere", {"num_threads": 1}, sys.executable, tmp_path)
    with pytest.raises(UserError, match="^peer ended with status 1: .*nowhere"):
        harness.running({"echo": started, "peer": lost}, 0.0).__enter__()
    with pytest.raises(ValueError, match="closed"):
        started.ask("step")


@pytest.mark.slow
def test_a_program_is_timed_to_its_own_end_and_not_its_helpers():
    helper = f"subprocess.Popen([sys.executable, '-c', {'import time; time.sleep(5)'!r}])"
    lines = ("import subprocess, sys, time", helper, "time.sleep(0.3)", "print('done')")
    seconds, output = harness.run([sys.executable, "-c", "\n".join(lines)])
    assert output == "done\n" and 0.3 <= seconds < 3


@pytest.mark.parametrize(
    ("changes", "expected"), [({}, True), ({"flags": "fpu avx2"}, False), ({"vendor_id": "GenuineIntel"}, False)]
)
def test_mkl_avoids_avx512_on_processors_that_have_it_and_are_not_intels(changes, expected):
    assert processor.mkl_avoids_avx512({**AMD, **changes}) is expected


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_process_is_started_with_the_function_that_mkl_asks_for():
    asks = "import ctypes; print(ctypes.CDLL(None).mkl_serv_intel_cpu_true())"
    environment = {**os.environ, **processor.mkl_with_avx512()}
    done = subprocess.run([sys.executable, "-c", asks], env=environment, capture_output=True)
    assert done.stdout == b"1\n"
