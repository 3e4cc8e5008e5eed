"""electra-tf convert: its flags, its output and its errors."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from electra_tf.cli import convert_checkpoint
from electra_tf.weights.source import load_trained


@pytest.fixture(scope="module")
def formats(tiny_pretrained, tmp_path_factory) -> Path:
    """A directory with the tiny run as `tf1` and `hugging_face`."""
    directory = tmp_path_factory.mktemp("formats")
    for name in ("tf1", "hugging_face"):
        flags = [f"--from={tiny_pretrained}", f"--to={name}", f"--output_dir={directory / name}"]
        assert convert_checkpoint.main(flags) == 0
    return directory


def test_a_conversion_prints_the_source_and_the_result(formats, tmp_path, capsys):
    flags = [f"--from={formats}/hugging_face", "--to=tf1", f"--output_dir={tmp_path / 'tf1'}/"]
    assert convert_checkpoint.main(flags) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        f"read {formats}/hugging_face: 50 variables",
        f"wrote {tmp_path}/tf1/model.ckpt-3: 50 variables",
    ]


@pytest.mark.parametrize(("to", "last"), [("tf1", "vocab.txt"), ("hugging_face", "model.safetensors")])
def test_a_full_disk_leaves_nothing_and_the_same_command_works(formats, tmp_path, capsys, monkeypatch, to, last):
    out, replace = tmp_path / "out", os.replace
    flags = [f"--from={formats}/tf1", "--num_heads=2", "--generator_num_heads=3", f"--to={to}", f"--output_dir={out}"]

    def replace_until_full(source, target):
        if os.path.basename(target) == last:
            raise OSError(errno.ENOSPC, "No space left on device", target)
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr("os.replace", replace_until_full)
        assert convert_checkpoint.main(flags) == 2
    assert "No space left on device" in capsys.readouterr().err and os.listdir(tmp_path) == []
    assert convert_checkpoint.main(flags) == 0
    printed = capsys.readouterr().out
    assert str(out) in printed and "unfinished" not in printed
    assert os.listdir(tmp_path) == ["out"] and len(load_trained(out).finished().weights) >= 50
    assert not any(b"unfinished" in path.read_bytes() for path in out.rglob("*") if path.is_file())


def test_an_authors_checkpoint_without_a_vocabulary_requires_vocab_file(formats, tiny_pretrained, tmp_path, capsys):
    shutil.copytree(formats / "tf1", tmp_path / "tf1")
    (tmp_path / "tf1/vocab.txt").unlink()
    flags = [f"--from={tmp_path}/tf1", "--to=hugging_face", f"--output_dir={tmp_path}/out"]
    assert convert_checkpoint.main(flags) == 2
    assert "vocab_file" in capsys.readouterr().err
    flags += [f"--vocab_file={tiny_pretrained}/vocab.txt", "--cased", "--num_heads=2", "--generator_num_heads=3"]
    assert convert_checkpoint.main(flags) == 0
    assert not load_trained(tmp_path / "out").finished().stored_tokenizer.settings.lower_case
