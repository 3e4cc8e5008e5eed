"""The benchmarks' harness: verdicts, rounds, and processes."""

import sys
from pathlib import Path

import pytest

from benchmarks import harness
from benchmarks.contenders import Contender, Limit, with_avx512
from benchmarks.harness import Process
from benchmarks.train_step.worker import answer_all
from electra_tf.config.errors import UserError

PROJECT = Path(__file__).resolve().parents[2]


def test_a_ratio_is_the_median_of_the_ratios_within_rounds():
    # The second round disturbed one contender, the third the other.
    assert harness.ratio([90, 90, 30], [60, 10, 60]) == 1.5


ROWS = {
    "ours": Contender("ours", "ours"),
    "ours_xla": Contender("ours", "ours"),
    "peer": Contender("pytorch", "eager"),
    "peer_compile": Contender("pytorch", "compile"),
}


def test_the_fastest_of_ours_is_compared_with_the_fastest_row_of_each_group_and_with_its_baseline():
    seconds = {"ours": [3.0], "ours_xla": [2.0], "peer": [3.75], "peer_avx512": [3.5], "peer_compile": [1.5]}
    seconds |= {"baseline": [2.85]}
    # The second of three rounds is disturbed, which does not change the median.
    rounds = {name: [value, 9.0, value] for name, (value,) in seconds.items()}
    limits = [Limit("ours", "eager", 1.75), Limit("ours", "compile", 1.0), Limit("ours", "not measured", 1.0)]
    verdicts = harness.judge(rounds, with_avx512(ROWS, ["peer"], has_rows=True), limits, "steps: ")
    assert [(verdict.name, verdict.value, verdict.holds) for verdict in verdicts] == [
        ("steps: ours_xla over peer_avx512", 1.75, True),
        ("steps: ours_xla over peer_compile", 0.75, False),
        ("steps: ours over baseline", pytest.approx(0.95), True),
    ]


def test_a_baseline_runs_the_code_and_options_of_its_checkout(tmp_path):
    flags = harness.comparison_flags("d", ROWS, "b").parse_args(["--contenders=ours,peer", f"--baseline={tmp_path}"])
    processes = harness.processes_of(flags.contenders, "w", flags, {"num_threads": 1}, lambda path: {"at": str(path)})
    assert list(processes) == ["ours", "baseline", "peer"]


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


def test_a_baseline_uses_the_configuration_of_its_own_checkout(tmp_path):
    inside, outside = PROJECT / "configs" / "a.yaml", Path("/elsewhere/b.yaml")
    assert harness.in_checkout(inside, tmp_path) == tmp_path / "configs" / "a.yaml"
    assert harness.in_checkout(outside, tmp_path) == outside


def test_a_turn_begins_with_an_untimed_step():
    steps, measurements = [], {}

    class Commands:
        def answer_all(self, **given) -> None:
            measurements.update(given)

    answer_all(Commands(), lambda: steps.append(1) or {"loss": 1.5})
    assert measurements["step"]() == {"losses": {"loss": 1.5}}
    assert len(measurements["steps"](4)["seconds"]) == 4 and len(steps) == 1 + 5
