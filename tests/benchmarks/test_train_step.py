"""The training-step benchmark: batches, verdicts, and its commands at toy size."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.contenders import TRAIN_STEP
from benchmarks.train_step import __main__ as train_step
from benchmarks.train_step.batches import BatchShape, synthetic_batch
from electra_tf.config.loader import config_to_yaml
from electra_tf.data.batch import PRETRAINING_BATCH
from tests.peers import PEERS_PYTHON, needs_peers

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def config_file(tmp_path, tiny_config):
    path = tmp_path / "tiny.yaml"
    path.write_text(config_to_yaml(tiny_config()), encoding="utf-8")
    return path


def test_a_batch_is_a_function_of_its_seed_and_masks_15_percent_of_each_row():
    shape = BatchShape(num_examples=200, max_seq_length=40, num_slots=6, vocab_size=97)
    batch, again = synthetic_batch(shape, seed=3), synthetic_batch(shape, seed=3)
    assert all((batch[name] == again[name]).all() for name in batch)
    lengths, used = batch["input_mask"].sum(axis=1), batch["masked_lm_weights"] > 0
    assert 0.7 < (lengths == 40).mean() < 0.93  # 0.82 + 0.18 / 36 expected, standard deviation 0.027
    assert (used.sum(axis=1) == np.clip(np.rint(lengths * 0.15), 1, 6)).all()
    assert batch.keys() == PRETRAINING_BATCH.tensors.keys()
    shown = np.take_along_axis(batch["masked_input_ids"], batch["masked_lm_positions"], axis=1)
    assert (batch["mask_token_weights"] == (used & (shown == 3))).all()


TOY = ["--batch_size=4", "--threads=1", "--rounds=2", "--steps_per_round=3", "--patience=0"]


def test_ours_is_compared_with_a_baseline(config_file, tmp_path, capsys):
    report = tmp_path / "report.json"
    flags = [f"--config={config_file}", "--contenders=ours_float32", *TOY, "--starts=2", f"--json={report}"]
    status = train_step.main([*flags, f"--baseline={PROJECT}"])
    printed = capsys.readouterr().out
    assert status == int("FAIL" in printed)  # of so small a step start-ups and noise decide
    assert "ours_float32 over baseline_float32: " in printed
    contenders = json.loads(report.read_text(encoding="utf-8"))["contenders"]
    assert contenders.keys() == {"ours_float32", "baseline_float32"}
    ours = contenders["ours_float32"]
    assert [len(turn["seconds"]) for turn in ours["turns"]] == [3, 3]
    assert len(ours["starts"]) == 2
    assert ours["turns"][-1]["peak_bytes"] > 2**26
    losses = ours["first_losses"]
    assert losses["loss"] == pytest.approx(losses["masked_lm"] + 50.0 * losses["replaced_token"], rel=1e-5)
    assert contenders["baseline_float32"]["first_losses"] == losses


@needs_peers
def test_all_rows_are_measured(config_file, tmp_path, capsys):
    """The command of README and docs/notes/performance.md, with its peers."""
    report = tmp_path / "report.json"
    status = train_step.main([f"--config={config_file}", *TOY, f"--peers_python={PEERS_PYTHON}", f"--json={report}"])
    printed = capsys.readouterr().out
    assert status == int("FAIL" in printed) and printed.count(" over pytorch_") == 4
    report = json.loads(report.read_text(encoding="utf-8"))
    assert report["contenders"].keys() == TRAIN_STEP.keys()
    losses = [each["first_losses"]["masked_lm"] for each in report["contenders"].values()]
    assert losses == pytest.approx([math.log(47)] * len(losses), abs=0.5)  # of random weights
