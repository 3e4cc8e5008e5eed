"""convert_checkpoint.py: what a user sees of a conversion, and one line for what cannot be converted."""

import json
import shutil
from pathlib import Path

import pytest
import tensorflow as tf

import run_pretraining
from electra_tf.cli import convert_checkpoint
from electra_tf.config.loader import config_to_yaml
from electra_tf.weights.source import read_stored_model


@pytest.fixture(scope="module")
def formats(tiny_pretrained, tmp_path_factory) -> Path:
    """A directory with the tiny run as `tf1` and `hugging_face`."""
    directory = tmp_path_factory.mktemp("formats")
    for name in ("tf1", "hugging_face"):
        flags = [f"--from={tiny_pretrained}", f"--to={name}", f"--output_dir={directory / name}"]
        assert convert_checkpoint.main(flags) == 0
    return directory


@pytest.fixture
def refused(formats, tiny_pretrained, tmp_path, capsys):
    """`refused(flags)`: the one line that a command ends with; `{run}`, `{formats}` and `{here}` stand for places."""

    def run(flags: str) -> str:
        places = {"run": tiny_pretrained, "formats": formats, "here": tmp_path}
        capsys.readouterr()
        assert convert_checkpoint.main(flags.format(**places).split()) == 2
        captured = capsys.readouterr()
        (line,) = [line for line in captured.err.splitlines() if line.startswith("error: ")]
        assert "Traceback" not in captured.err and not captured.out.startswith("wrote")
        return line

    return run


def test_a_conversion_says_what_it_has_read_and_written(formats, tmp_path, capsys):
    flags = [f"--from={formats}/tf1", "--num_heads=2", "--generator_num_heads=3", "--to=run"]
    flags += [f"--output_dir={tmp_path / 'run'}", "--set", "train.batch_size=6"]
    assert convert_checkpoint.main(flags) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"read {formats}/tf1/model.ckpt-3: 50 variables",
        f"wrote {tmp_path}/run/checkpoints/step-3: 50 variables, no state of an optimizer",
    ]
    assert read_stored_model(tmp_path / "run").facts["configuration"]["train"]["batch_size"] == 6


def test_the_flags_that_read_an_authors_checkpoint_are_printed(tiny_pretrained, tmp_path, capsys):
    assert convert_checkpoint.main([f"--from={tiny_pretrained}", "--to=tf1", f"--output_dir={tmp_path / 'out'}"]) == 0
    note = capsys.readouterr().out.splitlines()[-1]
    assert note.endswith("reads it with --num_heads=2 --generator_num_heads=3")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            "--from={here}/none --to=run --output_dir={here}/out",
            "--from={here}/none: there is no run, no checkpoint",
        ),
        ("--from={run} --to=tf1 --output_dir={formats}", "is not empty; give a new directory"),
        (
            "--from={run} --to=tf1 --output_dir={here}/out --fresh_generator",
            "--fresh_generator and --set require --to=run",
        ),
        ("--from={run} --to=tf1 --output_dir={here}/out --num_heads=0", "--num_heads=0: expected 1 or more"),
        ("--from={formats}/tf1 --to=run --output_dir={here}/out --num_heads=5", "does not divide into num_heads 5"),
        (
            "--from={formats}/tf1 --to=run --output_dir={here}/out --vocab_file={here}/none.txt",
            "{here}/none.txt does not exist",
        ),
        (
            "--from={formats}/hugging_face/discriminator --to=run --output_dir={here}/out",
            "is a discriminator alone: ELECTRA's training goes on from a discriminator and its generator. Fine-tuning",
        ),
        (
            "--from={formats}/hugging_face/discriminator --to=tf1 --output_dir={here}/out --generator_num_heads=3",
            "--generator_num_heads=3: {formats}/hugging_face/discriminator has no generator beside a discriminator; ",
        ),
        (
            "--from={formats}/hugging_face --to=run --output_dir={here}/out --set train.batch_sise=3",
            "train.batch_sise is not a setting; did you mean batch_size?",
        ),
    ],
)
def test_what_cannot_be_converted_is_one_line(refused, formats, tmp_path, flags, message):
    assert message.format(formats=formats, here=tmp_path) in refused(flags)


def damage(folder: Path, what: str) -> None:
    """Spoils one file of a discriminator's folder."""
    if what == "tensors":
        file = folder / "model.safetensors"
        file.write_bytes(file.read_bytes()[:-9])
    elif what == "vocabulary":
        (folder / "vocab.txt").unlink()
        (folder / "tokenizer.json").unlink()
    elif what == "heads":
        file = folder / "config.json"
        file.write_text(file.read_text().replace('"num_attention_heads": 2', '"num_attention_heads": 3'))
    else:
        (folder / "config.json").write_text("{")


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("tensors", "model.safetensors ("),
        ("vocabulary", "has no vocabulary"),
        ("heads", "does not divide into num_heads 3"),
        ("configuration", "config.json is damaged: "),
    ],
)
def test_a_damaged_folder_is_one_line(refused, formats, tmp_path, what, message):
    shutil.copytree(formats / "hugging_face/discriminator", tmp_path / "folder")
    damage(tmp_path / "folder", what)
    assert message in refused("--from={here}/folder --to=tf1 --output_dir={here}/out")
    assert not (tmp_path / "out").exists()


def test_an_authors_checkpoint_without_a_vocabulary_is_refused_until_one_is_given(
    refused, formats, tiny_pretrained, tmp_path
):
    shutil.copytree(formats / "tf1", tmp_path / "tf1")
    (tmp_path / "tf1/vocab.txt").unlink()
    here = "--from={here}/tf1 --to=hugging_face --output_dir={here}/out"
    assert "model.ckpt-3 has no vocabulary; give the one it was trained with as --vocab_file" in refused(here)
    flags = [f"--vocab_file={tiny_pretrained}/vocab.txt", "--cased", "--num_heads=2", "--generator_num_heads=3"]
    assert convert_checkpoint.main([*here.format(here=tmp_path).split(), *flags]) == 0
    assert not read_stored_model(tmp_path / "out").lower_case


def test_a_checkpoint_of_another_model_is_one_line(refused, tmp_path):
    prefix = str(tmp_path / "bert.ckpt")
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=["bert/x"], shape_and_slices=[""], tensors=[tf.ones([2])])
    message = refused("--from={here}/bert.ckpt --to=run --output_dir={here}/out --vocab_file={run}/vocab.txt")
    assert "bert.ckpt holds no matrix electra/embeddings/word_embeddings, " in message


@pytest.mark.slow
def test_training_goes_on_from_a_discriminator_alone_with_a_fresh_generator(
    formats, write_data, tiny_config, tmp_path, capsys
):
    data = write_data(tmp_path / "data")
    (tmp_path / "tiny.yaml").write_text(config_to_yaml(tiny_config(train={"num_steps": 1})))
    flags = [f"--config={tmp_path}/tiny.yaml", f"--data_dir={data}", f"--model_dir={tmp_path}/run"]
    flags += [f"--init_from={formats}/hugging_face/discriminator"]
    assert run_pretraining.main(flags) == 2
    assert "or start a random generator with --fresh_generator" in capsys.readouterr().err
    assert run_pretraining.main([*flags, "--fresh_generator"]) == 0
    report = json.loads((tmp_path / "run/warm_start.json").read_text())["report"]
    assert report[1] == "electra/embeddings/position_embeddings: the first 13 of 20 positions"
    assert report[2].startswith("a fresh generator: 23 variables stay random")
    started, source = (
        read_stored_model(tmp_path / "run/checkpoints/step-0"),
        read_stored_model(formats / "hugging_face"),
    )
    name = "electra/embeddings/word_embeddings"
    assert started.weights[name].tobytes() == source.weights[name].tobytes()
    assert run_pretraining.main([*flags[:3], "--fresh_generator"]) == 2
    assert "--fresh_generator requires --init_from" in capsys.readouterr().err
