"""The fine-tuning benchmark: our contender in its process, and its command at toy size."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.contenders import FINETUNING
from benchmarks.finetuning import __main__ as benchmark
from benchmarks.finetuning.examples import Examples, load, save
from benchmarks.harness import Process
from tests.peers import PEERS_PYTHON, needs_peers

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).resolve().parents[2]
VOCAB_FILE = PROJECT / "sample" / "vocab.txt"


def examples(lengths: list[int]) -> Examples:
    splits = np.cumsum([0, *lengths])
    tokens = np.random.default_rng(7).integers(5, 17, splits[-1]).astype(np.int32)
    return Examples(tokens, np.zeros_like(tokens), splits, np.arange(len(lengths), dtype=np.int32) % 2)


def test_our_contender_trains_and_evaluates_on_command(tmp_path, tiny_config):
    splits = {"train": examples([3, 9, 12, 14, 7, 4, 15]), "validation": examples([5, 11, 13])}
    file = tmp_path / "examples.npz"
    save(str(file), splits)
    assert (load(str(file))["validation"].row_splits == [0, 5, 16, 29]).all()
    encoder = tiny_config(encoder={"max_position_embeddings": 16}).encoder
    options = {"encoder": encoder.model_dump(), "num_threads": 1, "vocab_file": str(VOCAB_FILE)}
    options |= {"batch_size": 2, "max_seq_length": 16}
    options |= {"kind": "ours", "config": str(file)}
    with Process("ours", "benchmarks.finetuning.worker", options) as process:
        # Padded to 8, and to 12 or 16 where a batch needs it.
        assert process.ask("warm_up")["num_lengths"] in (2, 3)
        assert 0.0 <= process.ask("train 5")["padding"] < 0.5
        evaluated = process.ask("evaluate")
    assert evaluated["padding"] == pytest.approx(1 - 29 / (2 * 13 + 2 * 5))
    assert 0.3 < evaluated["loss"] < 1.5 and evaluated["accuracy"] * 3 in (0, 1, 2, 3)


@pytest.fixture
def toy(tmp_path) -> list[str]:
    """Flags for a tiny model and CoLA of made-up sentences."""
    cola, words = tmp_path / "CoLA", ["the", "little", "house", "stands", "near", "a", "wide", "river"]
    cola.mkdir()
    for split, size in (("train", 40), ("dev", 12)):
        lines = [f"x\t{row % 2}\t\t{' '.join(words[row % 5 :])}\n" for row in range(size)]
        (cola / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")
    tiny = {"hidden_size": 8, "num_heads": 2, "num_layers": 1, "embedding_size": 4, "intermediate_size": 8}
    flags = [f"--data_dir={tmp_path}", f"--vocab_file={VOCAB_FILE}", "--tasks=cola"]
    flags += ["--batch_size=4", "--threads=1", "--rounds=2", "--steps_per_round=2", "--patience=0"]
    return [*flags, *(f"--set=encoder.{name}={value}" for name, value in tiny.items())]


def test_ours_is_compared_with_a_baseline(toy, tmp_path, capsys):
    flags = [*toy, "--contenders=ours", f"--baseline={PROJECT}", f"--json={tmp_path / 'report.json'}"]
    status = benchmark.main(flags)
    printed = capsys.readouterr().out
    assert status == int("FAIL" in printed) and printed.startswith("Processor: ")
    assert "cola, evaluation: ours over baseline: " in printed
    results = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["cola"]
    assert {name: len(each["training"]) for name, each in results.items()} == {"ours": 2, "baseline": 2}


@needs_peers
def test_all_rows_are_measured(toy, tmp_path, capsys):
    """The command of README and docs/notes/performance.md, with its peers."""
    report = tmp_path / "report.json"
    flags = [*toy, f"--peers_python={PEERS_PYTHON}", f"--json={report}"]
    status = benchmark.main(flags)
    printed = capsys.readouterr().out
    assert status == int("FAIL" in printed)
    report = json.loads(report.read_text(encoding="utf-8"))
    assert report["cola"].keys() == FINETUNING.keys()
    for name, each in report["cola"].items():
        num_trained = 0 if "_sorted" in name else 2
        assert (len(each["training"]), len(each["evaluation"])) == (num_trained, 2), name
