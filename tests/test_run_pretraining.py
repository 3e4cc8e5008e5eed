"""The script's flags: what it refuses in one line, and what a dry run prints."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import run_pretraining
from electra_tf.config.loader import config_to_yaml

PROJECT = Path(__file__).resolve().parents[1]


@pytest.fixture
def config_file(tmp_path, tiny_config) -> Path:
    (tmp_path / "tiny.yaml").write_text(config_to_yaml(tiny_config()), encoding="utf-8")
    return tmp_path / "tiny.yaml"


@pytest.fixture
def refused(config_file, tmp_path, capsys):
    """`refused("--flag=value", ...)`: the one line that the script prints when it exits with status 2."""

    def run(*flags: str) -> str:
        status = run_pretraining.main([f"--config={config_file}", f"--model_dir={tmp_path / 'run'}", *flags])
        captured = capsys.readouterr()
        assert (status, captured.out) == (2, "")
        (line,) = captured.err.splitlines()
        assert line.startswith("error: ")
        assert not (tmp_path / "run" / "checkpoints").exists()
        return line

    return run


def test_training_without_a_data_directory_is_refused(refused):
    assert "--data_dir is missing" in refused()


def test_a_data_directory_that_is_not_there_is_refused(refused, tmp_path):
    assert "is no directory" in refused(f"--data_dir={tmp_path / 'nothing'}")


def test_an_unknown_setting_is_refused(refused):
    message = refused("--dry_run", "--set", "train.batchsize=3")
    assert "train.batchsize is not a setting; did you mean batch_size?" in message


def test_a_vocabulary_without_mask_is_refused(refused, tmp_path, write_data):
    data_dir = write_data(tmp_path / "set")
    text = (data_dir / "vocab.txt").read_text().replace("[MASK]", "word")
    (data_dir / "vocab.txt").write_text(text)
    assert "lacks [MASK]" in refused(f"--data_dir={data_dir}")


def test_a_batch_that_does_not_divide_among_the_replicas_is_refused(refused, tmp_path, write_data):
    data_dir = write_data(tmp_path / "set")
    message = refused(f"--data_dir={data_dir}", "--strategy=mirrored", "--set", "train.batch_size=5")
    assert "train.batch_size is 5, which does not divide among 2 replicas" in message


def test_a_foreign_directory_is_refused(refused, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("mine")
    assert "is not empty and holds no run" in refused("--dry_run")


@pytest.mark.parametrize("flag", ["--stop_at_step=0", "--logical_cpu_devices=0"])
def test_a_count_of_nothing_is_refused(refused, flag):
    assert f"{flag}: expected 1 or more" in refused("--dry_run", flag)


def test_a_way_of_evaluating_without_an_evaluation_is_refused(refused, tmp_path):
    assert "--as_masked_lm says what --evaluate measures" in refused(f"--data_dir={tmp_path}", "--as_masked_lm")


def test_splitting_the_cpu_too_late_is_refused(refused):
    import tensorflow as tf

    tf.config.list_logical_devices()
    assert "--logical_cpu_devices=3" in refused("--dry_run", "--logical_cpu_devices=3")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "TF_CONFIG"),
        ("{", "is not the JSON"),
        ("[]", "is not the JSON"),
        ('{"cluster": {"worker": []}}', "no worker"),
    ],
)
def test_several_workers_without_a_cluster_are_refused(refused, monkeypatch, value, said):
    if value is None:
        monkeypatch.delenv("TF_CONFIG", raising=False)
    else:
        monkeypatch.setenv("TF_CONFIG", value)
    assert said in refused("--dry_run", "--strategy=multi_worker_mirrored")


def test_a_dry_run_prints_the_size_of_the_run_and_writes_its_configuration(config_file, tmp_path, capsys):
    flags = [f"--config={config_file}", f"--model_dir={tmp_path / 'run'}", "--dry_run", "--set", "train.batch_size=6"]
    assert run_pretraining.main(flags) == 0
    described = json.loads(capsys.readouterr().out)
    assert set(described) == {
        "trainable_parameters",
        "global_batch_size",
        "replicas",
        "tokens_per_step",
        "config",
    }
    assert (described["global_batch_size"], described["replicas"], described["tokens_per_step"]) == (6, 1, 60)
    # Embeddings (47 + 13 + 2 + 2) * 12; both networks by hand from E 12, H 16, F 20 and G 6, F 14; the two heads.
    embeddings = 64 * 12
    discriminator = 12 * 16 + 16 + 4 * (16 * 16 + 16) + (16 * 20 + 20) + (20 * 16 + 16) + 4 * 16
    generator = 12 * 6 + 6 + 4 * (6 * 6 + 6) + (6 * 14 + 14) + (14 * 6 + 6) + 4 * 6
    heads = (6 * 12 + 12 + 2 * 12 + 47) + (16 * 16 + 16 + 16 + 1)
    assert described["trainable_parameters"] == embeddings + discriminator + generator + heads
    written = yaml.safe_load(Path(described["config"]).read_text(encoding="utf-8"))
    assert written["train"]["batch_size"] == 6


@pytest.mark.parametrize("tpu", ["local", "grpc://localhost:1"])
def test_asking_for_a_tpu_where_there_is_none_is_refused_soon_and_in_one_line(config_file, tmp_path, tpu):
    command = [
        sys.executable,
        PROJECT / "run_pretraining.py",
        f"--config={config_file}",
        f"--model_dir={tmp_path / 'run'}",
    ]
    # The tests' own setting of TensorFlow's log level would win over the script's.
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    answer = subprocess.run(
        [*command, "--dry_run", "--strategy=tpu", f"--tpu={tpu}"],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert (answer.returncode, answer.stdout) == (2, "")
    assert [line[:21] for line in answer.stderr.splitlines()] == ["error: --strategy=tpu"]
