"""The serving benchmark: verdicts, the comparison of answers, and its command at toy size."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.contenders import SERVING
from benchmarks.serving import __main__ as benchmark
from benchmarks.serving.clients import difference
from electra_tf.config.loader import config_to_yaml
from tests.peers import PEERS_PYTHON, needs_peers

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).resolve().parents[2]
VOCAB_FILE = PROJECT / "sample" / "vocab.txt"


def test_one_text_and_a_batch_have_their_own_limits():
    results = {(1, 40): {"ours": [[4.0]], "eager": [[5.0]]}, (4, 8): {"ours": [[1.0]], "eager": [[1.25]]}}
    verdicts = benchmark.judge_calls(results)
    assert [str(verdict) for verdict in verdicts] == [
        "PASS  1 x 40 tokens: ours over eager: 1.25, at least 1",
        "PASS  4 x 8 tokens: ours over eager: 1.25, at least 1.05",
    ]


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
    assert "1 x 9 tokens: ours over baseline: " in printed
    assert "PASS  5 clients, requests without an answer: 0, at most 0" in printed


@needs_peers
def test_all_rows_are_measured(toy, tmp_path, capfd):
    """The command of docs/notes/performance.md, with its peers."""
    report = tmp_path / "report.json"
    status = benchmark.main([*toy, f"--peers_python={PEERS_PYTHON}", f"--json={report}"])
    assert status == int("FAIL" in capfd.readouterr().out)
    report = json.loads(report.read_text(encoding="utf-8"))
    for case in ("1 x 4", "1 x 9", "3 x 4", "3 x 9"):
        assert {name: len(rounds) for name, rounds in report["seconds"][case].items()} == dict.fromkeys(SERVING, 2)
    assert [run["num_clients"] for run in report["clients"]] == [1, 5]
