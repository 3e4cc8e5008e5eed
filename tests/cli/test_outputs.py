"""What electra-tf convert, flops and score-minimal-pairs print and write."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from electra_tf.cli import convert_checkpoint, profile_flops, score_minimal_pairs
from electra_tf.weights.source import load_trained
from tests.markdown import cells


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


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ("--config=small --json", '"run": {"paper_flops": 1.293743798272e+18, '),
        ("--paper_flops", '"electra_small": 1.293743798272e+18'),
        ("--config=small", "the run: 1,000,000 steps, 128,000,000 examples 1.294e+18"),
        ("--config=small --budget=1e18", "pay for 772,950 steps"),
        ("--config=small --budget=1e18 --convention=hardware", "pay for 856,813 steps"),
        ("--config=base_two_phases --budget=1e19", "pay for 510,067 steps of this configuration"),
        # 766,000 steps of 256 x 3.422e11 FLOPs over 4 x 275e12 FLOP/s
        ("--config=base --hours --device=v4-8 --set=train.precision=bfloat16", "0.4 42.4 1.77"),
    ],
)
def test_each_mode_of_flops_prints_its_figures(capsys, flags, line):
    assert profile_flops.main(flags.split()) == 0
    assert line in " ".join(capsys.readouterr().out.replace("|", " ").split())


@pytest.fixture
def pairs(tmp_path) -> str:
    rows = [("w5 w6 w7", "w7 w6 w5", "u"), ("w8 w9", "w9", "v"), ("w11", "w11", "v")]
    lines = [json.dumps({"sentence_good": good, "sentence_bad": bad, "UID": uid}) for good, bad, uid in rows]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    return str(tmp_path / "pairs.jsonl")


def test_the_table_the_accuracies_and_the_scores_are_those_of_the_model(tiny_pretrained, pairs, tmp_path, capsys):
    files = {flag: tmp_path / f"{flag}.json" for flag in ("output", "pair_scores")}
    flags = [f"--from={tiny_pretrained}", "--pairs", pairs, *(f"--{flag}={file}" for flag, file in files.items())]
    assert score_minimal_pairs.main(flags) == 0
    results = json.loads(files["output"].read_text())
    assert results["model"] == f"step 3 of {tiny_pretrained}" and "logits" in results["score"]
    assert (results["all"]["pairs"], results["all"]["ties"]) == (3, 1)
    lines = [json.loads(line) for line in files["pair_scores"].read_text().splitlines()]
    right = [each["score_good"] > each["score_bad"] for each in lines]
    assert results["UID"]["v"]["accuracy"] == (0.5 + right[1]) / 2
    row = ["UID", "v", "2", f"{results['UID']['v']['accuracy']:.3f}"]
    assert row in [each[:4] for each in cells(capsys.readouterr().out)]
    by_generator = [*flags[:3], "--generator", f"--pair_scores={tmp_path}/generator.jsonl"]
    assert score_minimal_pairs.main(by_generator) == 0
    assert (tmp_path / "generator.jsonl").read_text() != files["pair_scores"].read_text()
    assert score_minimal_pairs.main(flags) == 2
    assert f"--output={files['output']} exists" in capsys.readouterr().err
