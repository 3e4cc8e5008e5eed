"""The serving benchmark: verdicts, the comparison of answers, and its command at toy size."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.serving import __main__ as benchmark
from benchmarks.serving.__main__ import EAGER, OURS, percentile
from benchmarks.serving.clients import difference
from electra_tf.config.loader import config_to_yaml
from tests.peers import PEERS_PYTHON, needs_peers

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).resolve().parents[2]
VOCAB_FILE = PROJECT / "sample" / "vocab.txt"


def test_verdicts_use_the_median_ratio_within_rounds():
    # The second round disturbed the peer, the third ours.
    results = {
        (1, 32): {OURS: [[1, 2, 3], [2], [30]], EAGER: [[3, 3, 9], [90], [3]]},
        (4, 8): {OURS: [[1]], EAGER: [[1.25]]},
    }
    results[1, 32]["ours_1_thread"] = [[5], [5], [5]]
    latency, throughput = benchmark.judge(results, batch_size=4)
    assert (latency.value, latency.holds) == (1.5, True)
    assert (throughput.value, throughput.holds) == (1.25, False)


def test_ours_is_compared_with_the_fastest_eager_and_the_fastest_compiled_peer():
    seconds = {"eager": 9.0, "eager_1_thread": 6.0, "eager_avx512_1_thread": 5.0, "compile": 3.0, "compile_avx512": 4.0}
    results = {(1, 40): {OURS: [[4.0]], **{name: [[value]] for name, value in seconds.items()}}}
    eager, compiled = benchmark.judge(results, batch_size=4)
    assert "eager_avx512_1_thread's" in eager.name and (eager.value, eager.limit) == (1.25, 1.3)
    assert "compile's" in compiled.name and (compiled.value, compiled.limit) == (0.75, 1.0)


def test_a_text_has_the_limit_of_the_largest_listed_length_up_to_its_own():
    limits = [benchmark.latency_limit(EAGER, tokens) for tokens in (4, 8, 31, 32, 127, 128, 512)]
    assert limits == [2.0, 2.0, 2.0, 1.3, 1.3, 1.0, 1.0]


def test_rows_with_avx512_exist_where_mkl_avoids_it():
    further = benchmark.all_contenders(True).keys() - benchmark.all_contenders(False).keys()
    assert further == {"eager_avx512", "eager_avx512_1_thread", "compile_avx512"}


def test_percentiles_use_the_calls_of_all_rounds():
    rounds = [list(range(100, 150)), list(range(50, 100)), list(range(150, 250))]
    assert (percentile(rounds, 50), percentile(rounds, 99)) == (149, 247)


def answer(vectors: list[list[float]], tokens: list[bytes], num_tokens: int) -> dict[str, np.ndarray]:
    vectors = np.array([vectors], np.float32)
    return {
        "pooled_output": vectors[:, 0],
        "sequence_output": vectors,
        "tokens": np.array([tokens], object),
        "num_tokens": np.array([num_tokens], np.int32),
    }


def test_answers_are_compared_up_to_their_number_of_tokens():
    alone = answer([[1.0, 2.0], [3.0, 4.0]], [b"a", b"b"], 2)
    merged = answer([[1.0, 2.0], [3.0, 4.5], [9.0, 9.0]], [b"a", b"b", b""], 2)
    assert difference(merged, alone) == 0.5
    assert difference(answer([[1.0, 2.0], [3.0, 4.0]], [b"a", b"c"], 2), alone) == math.inf
    assert difference(answer([[1.0, 2.0], [3.0, 4.0]], [b"a", b""], 1), alone) == math.inf


@pytest.fixture
def toy(tmp_path, tiny_config) -> list[str]:
    config_file = tmp_path / "tiny.yaml"
    config_file.write_text(config_to_yaml(tiny_config()), encoding="utf-8")
    flags = [f"--config={config_file}", f"--vocab_file={VOCAB_FILE}", "--patience=0", "--rounds=2", "--clients=1,5"]
    return [*flags, "--tokens=4,9", "--batch_size=3", "--calls=2", "--batches=2", "--requests=12"]


def test_ours_is_compared_with_a_baseline(toy, capfd):
    status = benchmark.main([*toy, "--contenders=ours", f"--baseline={PROJECT}"])
    printed = capfd.readouterr().out
    assert status == int("FAIL" in printed)
    assert "latency of 1 text of 9 tokens, baseline" in printed
    assert "PASS  5 clients, requests without an answer: 0, at most 0" in printed


@needs_peers
def test_all_rows_are_measured(toy, tmp_path, capfd):
    """The command of docs/serving.md, with its peers."""
    report = tmp_path / "report.json"
    status = benchmark.main([*toy, f"--peers_python={PEERS_PYTHON}", f"--json={report}"])
    assert status == int("FAIL" in capfd.readouterr().out)
    report = json.loads(report.read_text(encoding="utf-8"))
    for case in ("1 x 4", "1 x 9", "3 x 4", "3 x 9"):
        assert {name: len(rounds) for name, rounds in report["seconds"][case].items()} == dict.fromkeys(
            benchmark.CONTENDERS, 2
        )
    assert [run["num_clients"] for run in report["clients"]] == [1, 5]


def test_a_missing_peer_ends_the_command(toy, capfd):
    assert benchmark.main([*toy, "--peers_python=/nowhere/python"]) == 2
    assert capfd.readouterr().err.splitlines()[-1] == "error: /nowhere/python: No such file or directory"
