"""The fine-tuning benchmark: ratios of rounds, our contender in its process, the questions of SQuAD."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.finetuning import __main__ as benchmark
from benchmarks.finetuning import squad
from benchmarks.finetuning.__main__ import CONTENDERS, OURS, PEER, Measured
from benchmarks.finetuning.examples import Examples, load, save
from benchmarks.train_step.contenders import Process

pytestmark = pytest.mark.slow
VOCAB_FILE = Path(__file__).resolve().parents[2] / "sample" / "vocab.txt"


def measured(training: list[float], evaluation: list[float]) -> Measured:
    return Measured(start=9.0, lengths=5.0, num_lengths=3, training=training, evaluation=evaluation)


def examples(lengths: list[int]) -> Examples:
    splits = np.cumsum([0, *lengths])
    tokens = np.random.default_rng(7).integers(5, 17, splits[-1]).astype(np.int32)
    return Examples(tokens, np.zeros_like(tokens), splits, np.arange(len(lengths), dtype=np.int32) % 2)


def test_a_limit_is_of_the_median_ratio_within_rounds():
    # The second round was disturbed for the peer, the third for ours.
    results = {OURS: measured([90, 90, 30], [70, 70, 20]), PEER: measured([60, 10, 60], [35, 5, 40])}
    training, evaluation = benchmark.judge("cola", results)
    assert (training.value, training.holds) == (1.5, True)
    assert (evaluation.value, evaluation.holds) == (2.0, True)


def test_our_contender_trains_and_evaluates_on_command(tmp_path, tiny_config):
    splits = {"train": examples([3, 9, 12, 14, 7, 4, 15]), "validation": examples([5, 11, 13])}
    file = tmp_path / "examples.npz"
    save(str(file), splits)
    assert (load(str(file))["validation"].row_splits == [0, 5, 16, 29]).all()
    encoder = tiny_config(encoder={"max_position_embeddings": 16}).encoder
    options = {"encoder": encoder.model_dump(), "num_threads": 1, "vocab_file": str(VOCAB_FILE)}
    options |= {"batch_size": 2, "max_seq_length": 16}
    with Process(OURS, CONTENDERS[OURS], "", file, options) as process:
        # 8, and those of 12 and 16 that some batch of two needs.
        assert process.ask("warm_up")["num_lengths"] in (2, 3)
        assert 0.0 <= process.ask("train 5")["padding"] < 0.5
        evaluated = process.ask("evaluate")
    assert evaluated["padding"] == pytest.approx(1 - 29 / (2 * 13 + 2 * 5))
    assert 0.3 < evaluated["loss"] < 1.5 and evaluated["accuracy"] * 3 in (0, 1, 2, 3)


def test_both_ways_to_squad_features_make_as_many_windows(tmp_path):
    question = {"id": "a", "question": "who?", "answers": [], "is_impossible": True}
    paragraph = {"context": "a long time ago " * 200, "qas": [question, {**question, "id": "b"}]}
    file = tmp_path / "squad.json"
    content = {"version": "v2.0", "data": [{"title": "x", "paragraphs": [paragraph]}]}
    file.write_text(json.dumps(content), encoding="utf-8")
    found = squad.ours(str(file), str(VOCAB_FILE))()
    assert found == squad.authors(str(file), str(VOCAB_FILE))()
    assert found[0] == 2 and found[1] > 4
