"""The serving benchmark: verdicts, and its command at toy size."""

import json
from pathlib import Path

import pytest

from benchmarks.contenders import SERVING
from benchmarks.serving import __main__ as benchmark
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


@pytest.fixture
def toy(tmp_path, tiny_config) -> list[str]:
    config_file = tmp_path / "tiny.yaml"
    config_file.write_text(config_to_yaml(tiny_config()), encoding="utf-8")
    flags = [f"--config={config_file}", f"--vocab_file={VOCAB_FILE}", "--patience=0", "--rounds=2"]
    return [*flags, "--tokens=4,9", "--batch_size=3", "--calls=2", "--batches=2"]


def test_ours_is_compared_with_a_baseline(toy, capfd):
    status = benchmark.main([*toy, "--contenders=ours", f"--baseline={PROJECT}"])
    printed = capfd.readouterr().out
    assert status == int("FAIL" in printed)
    assert "1 x 9 tokens: ours over baseline: " in printed


@needs_peers
def test_all_rows_are_measured(toy, tmp_path, capfd):
    """The command of docs/notes/performance.md, with its peers."""
    report = tmp_path / "report.json"
    status = benchmark.main([*toy, f"--peers_python={PEERS_PYTHON}", f"--json={report}"])
    assert status == int("FAIL" in capfd.readouterr().out)
    report = json.loads(report.read_text(encoding="utf-8"))
    for case in ("1 x 4", "1 x 9", "3 x 4", "3 x 9"):
        assert {name: len(rounds) for name, rounds in report["seconds"][case].items()} == dict.fromkeys(SERVING, 2)
