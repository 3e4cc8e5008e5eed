"""The text of a run, written for a training of the same recipe in PyTorch."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from experiments.replication import text_for_peers
from tests.peers import PEERS_PYTHON, needs_peers

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def written(tiny_pretrained, write_data, tmp_path_factory):
    """The text of a run that is its own judge."""
    directory = tmp_path_factory.mktemp("peers")
    data = write_data(directory / "data")
    flags = [f"--model_dir={tiny_pretrained}", f"--judge={tiny_pretrained}", f"--data_dir={data}"]
    assert text_for_peers.main([*flags, f"--output_dir={directory / 'text'}"]) == 0
    return directory / "text"


def test_there_is_a_batch_and_a_rate_for_each_step(written, tiny_config):
    config, settings = tiny_config(), json.loads((written / "settings.json").read_text())
    num_steps, size = config.train.num_steps, config.train.batch_size
    with np.load(written / "train-0.npz") as batches:
        assert batches["input_ids"].shape == (num_steps, size, config.data.max_seq_length)
        assert batches["masked_lm_weights"].shape == (num_steps, size, config.max_predictions)
        assert batches["masked_lm_weights"].dtype == np.float32
    assert (settings["seed"], settings["num_stages"], len(settings["learning_rates"])) == (0, 1, num_steps)
    assert settings["evaluated_steps"][-1] == num_steps
    assert settings["networks"]["generator"]["hidden_size"] < settings["networks"]["discriminator"]["hidden_size"]


def test_the_judge_changes_masked_tokens_only(written):
    with np.load(written / "held_out-0.npz") as held_out, np.load(written / "judged.npz") as judged:
        changed = judged["input_ids"] != held_out["input_ids"]
        assert (changed == (judged["replaced"] > 0)).all() and changed.any()
        masked = np.zeros_like(changed)
        np.put_along_axis(
            masked, held_out["masked_lm_positions"].astype(int), held_out["masked_lm_weights"] > 0, axis=-1
        )
        assert not (changed & ~masked).any()


@needs_peers
def test_pytorch_trains_on_the_text(written, tmp_path):
    """The command of docs/notes/modern.md."""
    command = [
        PEERS_PYTHON,
        "-m",
        "benchmarks.train_step.pytorch_run",
        f"--text={written}",
        f"--json={tmp_path}/run.json",
    ]
    done = subprocess.run(command, cwd=Path(__file__).resolve().parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    settings, run = (json.loads(file.read_text()) for file in (written / "settings.json", tmp_path / "run.json"))
    assert run["num_steps"] == len(settings["learning_rates"])
    assert [int(step) for step in run["evaluations"]] == settings["evaluated_steps"]
    assert run["evaluations"][str(run["num_steps"])].keys() == {"own", "judged"}
