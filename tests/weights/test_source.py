"""Paths with weights: which checkpoint of which run, or which other format."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from electra_tf.train.checkpoints import find_checkpoint
from electra_tf.weights.source import load_trained
from electra_tf.weights.stored_model import SourceOverrides
from tests.toy import VOCABULARY
from tests.weights import conftest
from tests.weights.conftest import write_tf1_checkpoint


def write_checkpoint(prefix: Path) -> str:
    return write_tf1_checkpoint(prefix, {"x": np.ones([2], np.float32)})


@pytest.fixture
def run(tmp_path) -> Path:
    """A run with checkpoints 3 and 7, a milestone 7 and a best one 5."""
    for name in ("checkpoints/step-3", "checkpoints/step-7", "milestones/step-7", "best/step-5"):
        write_checkpoint(tmp_path / "run" / name)
    (tmp_path / "run/config.yaml").write_text("train: {}\n")
    return tmp_path / "run"


def refusal(path) -> str:
    return conftest.refusal(load_trained, path)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("", "checkpoints/step-7"),
        ("/checkpoints", "checkpoints/step-7"),
        ("/best", "best/step-5"),
        ("/checkpoints/step-3.index", "checkpoints/step-3"),
        ("/milestones/step-7.data-00000-of-00001", "milestones/step-7"),
    ],
)
def test_a_path_in_a_run_names_a_checkpoint(run, path, name):
    checkpoint = find_checkpoint(f"{run}{path}", "--from")
    assert (checkpoint.prefix, checkpoint.run.path) == (f"{run}/{name}", str(run))


def test_a_relative_path_and_one_behind_a_link_belong_to_the_run_around_them(run, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(run / "checkpoints")
    assert find_checkpoint(f"{tmp_path}/link/step-3.index", "--from").run.path == str(run)
    monkeypatch.chdir(run / "milestones")
    checkpoint = find_checkpoint("step-7", "--from")
    assert (checkpoint.prefix, checkpoint.run.path) == (f"{run}/milestones/step-7", str(run))


def test_the_best_checkpoint_of_a_fine_tuned_seed_is_taken(run):
    (run / "config.yaml").write_text("task: {}\n")
    assert find_checkpoint(run, "--from").prefix == f"{run}/best/step-5"


def test_damaged_newer_checkpoints_of_a_run_are_passed_over(run):
    (run / "checkpoints/step-7.data-00000-of-00001").write_bytes(b"")
    assert find_checkpoint(run, "--from").prefix == f"{run}/checkpoints/step-3"


@pytest.mark.parametrize("name", ["model.ckpt-9", ".", "model.ckpt-9.meta"])
def test_a_checkpoint_outside_of_a_run_is_read_as_tensorflow_1(tmp_path, name):
    prefix = write_checkpoint(tmp_path / "model.ckpt-9")
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-9"\n')
    assert find_checkpoint(tmp_path / name, "--from") is None
    assert refusal(tmp_path / name).startswith(f"{prefix} holds no matrix electra/embeddings/word_embeddings")


def test_the_file_checkpoint_names_a_model_of_its_own_directory_by_any_path(tmp_path):
    write_checkpoint(tmp_path / "here/model.ckpt-9")
    (tmp_path / "link").symlink_to("here")
    (tmp_path / "copied").mkdir()
    for place in ("here", "copied"):
        (tmp_path / place / "checkpoint").write_text(f'model_checkpoint_path: "{tmp_path}/link/model.ckpt-9"\n')
    assert "holds no matrix" in refusal(tmp_path / "here")
    assert refusal(tmp_path / "copied").startswith(f"{tmp_path}/copied/model.ckpt-9 is damaged: ")


@pytest.mark.parametrize("name", ["nothing/at/all", ""])
def test_a_path_without_weights_is_refused(tmp_path, name):
    assert refusal(tmp_path / name).startswith(f"from={tmp_path / name}")


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("modules.json", '[{"path": "", ', "JSONDecodeError: "),
        ("modules.json", '{"path": ""}', "TypeError: "),
        ("config.json", '{"architectures": 5}', "TypeError: 'int' object"),  # beside the other entries
        ("config.json", '{"electra_tf": 5}', "AttributeError: 'int' object"),
        ("config.json", '{"electra_tf": {"step": "x"}}', "ValueError: invalid literal"),
        ("config.json", '{"electra_tf": {"step": 1e99}}', "OverflowError: Python int too large"),
        ("config.json", '{"electra_tf": {"data": 5}}', "TypeError: 'int' object"),
        ("config.json", '{"electra_tf": {"max_seq_length": [5]}}', "TypeError: int() argument"),
        ("tokenizer.json", '{"model": "x"}', "AttributeError: 'str' object"),
        ("special_tokens_map.json", '{"additional_special_tokens": 5}', "TypeError: 'int' object"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"x": {"content": "a"}}}', "ValueError: invalid literal"),
        ("tokenizer.json", '{"model": {"vocab": {"a": 2147483647}}}', "ValueError: a token has the id 2147483647"),
    ],
)
def test_a_folder_with_wrong_contents_is_refused_in_one_line_that_names_it(folder, file, content, problem):
    place = folder("discriminator", json.loads(content) if file == "config.json" else None)
    if file != "config.json":
        (place / file).write_text(content)
    message = refusal(place)
    assert message.startswith(f"{place} cannot be read: {problem}") and "\n" not in message


def test_a_vocabulary_that_the_librarys_tokenizer_cannot_read_is_named(folder):
    place = folder("discriminator")
    (place / "vocab.txt").write_bytes(VOCABULARY.replace(b"w7\n", b"w\x007\n"))
    message = conftest.refusal(getattr, load_trained(place), "tokenizer")
    assert message.startswith(f"vocabulary of {place} cannot be read: RuntimeError: ")


def test_a_file_checkpoint_with_wrong_contents_is_refused(tmp_path):
    (tmp_path / "checkpoint").write_bytes(b"\xff")
    assert refusal(tmp_path).startswith(f"{tmp_path} cannot be read: UnicodeDecodeError: ")


def test_a_bug_in_the_reading_of_our_own_runs_is_no_refusal(run, monkeypatch):
    monkeypatch.setattr("electra_tf.weights.source.read_checkpoint", lambda checkpoint: checkpoint["typo"])
    with pytest.raises(TypeError):
        load_trained(run)


def test_a_directory_of_several_seeds_is_refused_naming_one(run, tmp_path):
    (tmp_path / "out").mkdir()
    run.rename(tmp_path / "out/seed_3")
    assert refusal(tmp_path / "out").endswith(f"{tmp_path}/out/seed_3")


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("checkpoints/step-3.data-00000-of-00001", "checkpoints/step-3"),
        ("vocab.txt", "vocab.txt is missing"),
    ],
)
def test_a_run_with_a_damaged_checkpoint_or_another_vocabulary_is_refused(tiny_pretrained, tmp_path, file, problem):
    shutil.copytree(tiny_pretrained, tmp_path / "run")
    (tmp_path / "run" / file).write_bytes(b"[PAD]\n")
    assert f"{tmp_path}/run/{problem}" in refusal(tmp_path / "run/checkpoints/step-3")


def test_overrides_of_a_runs_own_settings_are_refused(tiny_pretrained):
    message = conftest.refusal(load_trained, tiny_pretrained, SourceOverrides(generator_num_heads=3))
    assert f"from={tiny_pretrained} is a run" in message and "vocab_file, cased, num_heads" in message
