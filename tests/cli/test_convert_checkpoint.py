"""electra-tf convert: its flags, its output and its errors."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

import run_pretraining
from electra_tf.cli import convert_checkpoint
from electra_tf.config.loader import config_to_yaml
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


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--from={run} --to=tf1 --output_dir={formats}", "{formats} is not empty"),
        ("--from={formats}/tf1 --to=hugging_face --output_dir={here}/out --num_heads=5", "num_heads 5"),
        ("--from={formats}/tf1 --to=tf1 --output_dir={here}/out --vocab_file={here}/none.txt", "{here}/none.txt"),
    ],
)
def test_a_conversion_with_wrong_flags_is_an_error_of_one_line(
    formats, tiny_pretrained, tmp_path, capsys, flags, message
):
    places = {"run": tiny_pretrained, "formats": formats, "here": tmp_path}
    assert convert_checkpoint.main(flags.format(**places).split()) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert message.format(**places) in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("to", ["tf1", "hugging_face"])
@pytest.mark.parametrize("is_new", [True, False], ids=["new", "empty"])
def test_a_full_disk_leaves_nothing_and_the_same_command_works(formats, tmp_path, capsys, monkeypatch, to, is_new):
    out = tmp_path / "out"
    if not is_new:
        out.mkdir()
    flags = [f"--from={formats}/tf1", "--num_heads=2", "--generator_num_heads=3", f"--to={to}", f"--output_dir={out}"]
    last = {"tf1": "vocab.txt", "hugging_face": "model.safetensors"}[to]
    replace = os.replace

    def replace_until_full(source, target):
        if os.path.basename(target) == last:
            raise OSError(errno.ENOSPC, "No space left on device", target)
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr("os.replace", replace_until_full)
        assert convert_checkpoint.main(flags) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ([] if is_new else ["out"]) and (is_new or os.listdir(out) == [])
    assert convert_checkpoint.main(flags) == 0
    printed = capsys.readouterr().out
    assert str(out) in printed and "unfinished" not in printed
    assert os.listdir(tmp_path) == ["out"] and len(load_trained(out).finished().weights) >= 50
    contents = [path.read_bytes() for path in out.rglob("*") if path.is_file()]
    assert not any(b"unfinished" in content for content in contents)


def test_an_authors_checkpoint_without_a_vocabulary_requires_vocab_file(formats, tiny_pretrained, tmp_path, capsys):
    shutil.copytree(formats / "tf1", tmp_path / "tf1")
    (tmp_path / "tf1/vocab.txt").unlink()
    flags = [f"--from={tmp_path}/tf1", "--to=hugging_face", f"--output_dir={tmp_path}/out"]
    assert convert_checkpoint.main(flags) == 2
    assert "vocab_file" in capsys.readouterr().err
    flags += [f"--vocab_file={tiny_pretrained}/vocab.txt", "--cased", "--num_heads=2", "--generator_num_heads=3"]
    assert convert_checkpoint.main(flags) == 0
    assert not load_trained(tmp_path / "out").finished().stored_tokenizer.settings.lower_case


@pytest.mark.slow
def test_a_discriminator_alone_starts_a_training_with_fresh_generator(
    formats, write_data, tiny_config, tmp_path, capsys
):
    data = write_data(tmp_path / "data")
    (tmp_path / "tiny.yaml").write_text(config_to_yaml(tiny_config(train={"num_steps": 1})))
    flags = [f"--config={tmp_path}/tiny.yaml", f"--data_dir={data}", f"--model_dir={tmp_path}/run"]
    flags += [f"--init_from={formats}/hugging_face/discriminator"]
    assert run_pretraining.main(flags) == 2
    assert "fresh_generator" in capsys.readouterr().err
    assert run_pretraining.main([*flags, "--fresh_generator"]) == 0
    report = json.loads((tmp_path / "run/warm_start.json").read_text())["report"]
    assert report[1] == "electra/embeddings/position_embeddings: the first 13 of 20 positions"
    assert report[2].startswith("a fresh generator: 23 variables stay random")
    started = load_trained(tmp_path / "run/checkpoints/step-0").finished().weights
    source = load_trained(formats / "hugging_face").finished().weights
    name = "electra/embeddings/word_embeddings"
    assert started[name].tobytes() == source[name].tobytes()
    assert run_pretraining.main([*flags[:3], "--fresh_generator"]) == 2
    assert "fresh_generator requires init_from" in capsys.readouterr().err
