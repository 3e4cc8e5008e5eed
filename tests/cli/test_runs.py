"""What commands print and write: pretrain --dry_run, finetune, convert, flops and score-minimal-pairs."""

import contextlib
import errno
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import run_finetuning
import run_pretraining
from electra_tf.cli import convert_checkpoint, profile_flops, score_minimal_pairs
from electra_tf.config.loader import config_to_yaml
from electra_tf.data.manifest import MANIFEST_FILE, Manifest
from electra_tf.weights.source import load_trained
from tests.markdown import cells
from tests.toy import VOCABULARY

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def flags(tmp_path, tiny_config) -> list[str]:
    (tmp_path / "tiny.yaml").write_text(config_to_yaml(tiny_config()), encoding="utf-8")
    return [f"--config={tmp_path / 'tiny.yaml'}", f"--model_dir={tmp_path / 'run'}"]


@pytest.fixture
def refused(flags, capsys):
    """`refused("--flag=value", ...)`: the error of the command. (test_flags.py: that it is one line.)"""

    def run(*more: str) -> str:
        assert run_pretraining.main([*flags, *more]) == 2
        return capsys.readouterr().err

    return run


def test_data_of_another_vocabulary_size_or_without_mask_is_refused(refused, tmp_path, write_data):
    data_dir = write_data(tmp_path / "set")
    assert "46" in refused(f"--data_dir={data_dir}", "--set", "encoder.vocab_size=46")
    text = (data_dir / "vocab.txt").read_text().replace("[MASK]", "word")
    (data_dir / "vocab.txt").write_text(text)
    assert "lacks [MASK]" in refused(f"--data_dir={data_dir}")


def change_manifest(data_dir: Path, **changes) -> None:
    path = data_dir / MANIFEST_FILE
    manifest = Manifest.from_bytes(path.read_bytes(), str(path)).model_copy(update=changes)
    path.write_text(manifest.to_json(), encoding="utf-8")


def test_a_dry_run_compares_the_vocabulary_of_a_frozen_generator(refused, tmp_path, write_data, tiny_pretrained):
    data_dir, renamed = write_data(tmp_path / "set"), VOCABULARY.replace(b"w46", b"other")
    (data_dir / "vocab.txt").write_bytes(renamed)
    change_manifest(data_dir, vocab_sha256=hashlib.sha256(renamed).hexdigest())
    frozen = f"{{name: fast_electra, auxiliary: {tiny_pretrained}, tying: none, masked_lm_loss_weight: 0}}"
    line = refused("--dry_run", f"--data_dir={data_dir}", "--set", f"objective={frozen}")
    assert f"objective.auxiliary={tiny_pretrained} has another vocabulary than the data" in line


def test_a_dry_run_prints_the_sizes_of_the_data_and_names_data_without_held_out_text(
    flags, tmp_path, write_data, capsys, caplog
):
    data_dirs = [write_data(tmp_path / "one"), write_data(tmp_path / "two", held_out=())]
    for data_dir, num_held_out in zip(data_dirs, (7, 0), strict=True):
        assert run_pretraining.main([*flags, "--dry_run", f"--data_dir={data_dir}"]) == 0
        (sizes,) = json.loads(capsys.readouterr().out)["data"]
        assert (sizes["source"], sizes["shards"], sizes["examples"]) == (str(data_dir), 3, 12)
        assert sizes["tokens"] > 24 and sizes["held_out_examples"] == num_held_out
        assert (f"{data_dir} has no held-out text" in caplog.text) == (num_held_out == 0)


def test_a_dry_run_prints_the_size_and_the_settings_of_the_run_and_writes_nothing(flags, tmp_path, capsys):
    assert run_pretraining.main([*flags, "--dry_run", "--set", "train.batch_size=6"]) == 0
    assert os.listdir(tmp_path) == ["tiny.yaml"]
    described = json.loads(capsys.readouterr().out)
    assert (described["global_batch_size"], described["replicas"], described["tokens_per_step"]) == (6, 1, 60)
    # Embeddings (47 + 13 + 2 + 2) * 12; both networks by hand from E 12, H 16, F 20 and G 6, F 14; the two heads.
    embeddings = 64 * 12
    discriminator = 12 * 16 + 16 + 4 * (16 * 16 + 16) + (16 * 20 + 20) + (20 * 16 + 16) + 4 * 16
    generator = 12 * 6 + 6 + 4 * (6 * 6 + 6) + (6 * 14 + 14) + (14 * 6 + 6) + 4 * 6
    heads = (6 * 12 + 12 + 2 * 12 + 47) + (16 * 16 + 16 + 16 + 1)
    assert described["trainable_parameters"] == embeddings + discriminator + generator + heads
    assert described["config"]["train"]["batch_size"] == 6
    # It is a configuration that gives the same one.
    (tmp_path / "printed.yaml").write_text(json.dumps(described["config"]), encoding="utf-8")
    assert run_pretraining.main([f"--config={tmp_path}/printed.yaml", flags[1], "--dry_run"]) == 0
    assert json.loads(capsys.readouterr().out) == described


def test_a_dry_run_refuses_stages_of_which_one_holds_out_text_of_another(refused, tmp_path, write_data):
    sets = [write_data(tmp_path / name) for name in ("first", "second")]
    change_manifest(sets[1], held_out_fraction=0.5)
    sizes = "{num_steps: 4, max_seq_length: 10, batch_size: 4}"
    line = refused("--dry_run", *(f"--data_dir={each}" for each in sets), "--set", f"stages=[{sizes}, {sizes}]")
    assert "held_out_fraction 0.005 and 0.5" in line and line.count(str(tmp_path)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("tpu", ["local", "grpc://localhost:1"])
def test_a_missing_tpu_is_an_error_of_one_line_within_two_minutes(flags, tpu):
    # The tests' own setting of TensorFlow's log level would win over the command's.
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    command = [sys.executable, PROJECT / "run_pretraining.py", *flags, "--dry_run", "--strategy=tpu", f"--tpu={tpu}"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert [line[:19] for line in answer.stderr.splitlines()] == ["error: strategy=tpu"]


SETTINGS = ("data.max_seq_length=12", "train.num_steps=2", "train.batch_size=4", "train.fused_ops=false")


@pytest.fixture(scope="module")
def trained(tiny_pretrained, tmp_path_factory) -> tuple[Path, list[str], str]:
    """The directory of a fine-tuning with seed 3, its flags without the task, and what it prints."""
    place = tmp_path_factory.mktemp("finetuned")
    (place / "train.csv").write_text("text,label,score\nw5 w6,yes,1\nw7,no,2.5\nw8 w9 w5,yes,3\n")
    (place / "dev.csv").write_text("text,label,score\nw7 w9,no,2\nw5,yes,1\n")
    flags = [f"--train_file={place}/train.csv", f"--validation_file={place}/dev.csv", f"--init_from={tiny_pretrained}"]
    flags += [f"--output_dir={place}/out", *(f"--set={setting}" for setting in SETTINGS), "--seeds", "3"]
    added = ["--task=classification", "--class_weights", "yes=2", f"--test_file={place}/dev.csv"]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert run_finetuning.main([*flags, *added]) == 0
    return place / "out", flags, printed.getvalue()


def test_a_task_is_trained_and_its_directory_refuses_another_task(trained, tiny_pretrained, capsys):
    out, flags, printed = trained
    assert cells(printed)[1][:2] == ["classification", "accuracy *"]
    for split in ("validation", "test"):
        assert f"\n{split}, seed 3: 2 classes, the lowest F1 first\n" in printed
    summary = json.loads((out / "summary.json").read_text())
    assert summary["init_from"] == f"{tiny_pretrained}/checkpoints/step-3"
    assert [result["seed"] for result in summary["seeds"]] == [3] and summary["statistics"]["accuracy"]["n"] == 1
    assert run_finetuning.main(["--task=regression", "--label_column=score", *flags]) == 2
    assert "has the results of task=classification; give regression a new directory" in capsys.readouterr().err


def test_a_seed_predicts(trained, tmp_path):
    (tmp_path / "new.jsonl").write_text('{"text": "w5 w6", "id": "a"}\n{"text": "w9", "id": "b"}\n')
    predict = ["--predict", f"--model_dir={trained[0]}/seed_3", f"--input_file={tmp_path}/new.jsonl"]
    assert run_finetuning.main([*predict, f"--output_file={tmp_path}/new.tsv"]) == 0
    rows = [line.split("\t") for line in (tmp_path / "new.tsv").read_text().splitlines()]
    assert rows[0] == ["id", "prediction", "probability_no", "probability_yes"]
    assert [row[0] for row in rows[1:]] == ["a", "b"] and {row[1] for row in rows[1:]} <= {"no", "yes"}


@pytest.mark.slow
def test_the_configuration_of_a_seed_gives_its_results_again(trained, tmp_path):
    first, second = trained[0] / "seed_3", tmp_path / "again" / "seed_3"
    assert run_finetuning.main([f"--config={first}/config.yaml", f"--output_dir={second.parent}"]) == 0
    for name in ("config.yaml", "result.json"):
        assert (first / name).read_text() == (second / name).read_text()


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


def test_the_table_the_accuracies_and_the_scores_are_those_of_the_model(tiny_pretrained, tmp_path, capsys):
    rows = [("w5 w6 w7", "w7 w6 w5", "u"), ("w8 w9", "w9", "v"), ("w11", "w11", "v")]
    lines = [json.dumps({"sentence_good": good, "sentence_bad": bad, "UID": uid}) for good, bad, uid in rows]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    files = {flag: tmp_path / f"{flag}.json" for flag in ("output", "pair_scores")}
    flags = [f"--from={tiny_pretrained}", f"--pairs={tmp_path}/pairs.jsonl"]
    flags += [f"--{flag}={file}" for flag, file in files.items()]
    assert score_minimal_pairs.main(flags) == 0
    results = json.loads(files["output"].read_text())
    assert results["model"] == f"step 3 of {tiny_pretrained}" and "logits" in results["score"]
    assert (results["all"]["pairs"], results["all"]["ties"]) == (3, 1)
    lines = [json.loads(line) for line in files["pair_scores"].read_text().splitlines()]
    right = [each["score_good"] > each["score_bad"] for each in lines]
    assert results["UID"]["v"]["accuracy"] == (0.5 + right[1]) / 2
    row = ["UID", "v", "2", f"{results['UID']['v']['accuracy']:.3f}"]
    assert row in [each[:4] for each in cells(capsys.readouterr().out)]
    by_generator = [*flags[:2], "--generator", f"--pair_scores={tmp_path}/generator.jsonl"]
    assert score_minimal_pairs.main(by_generator) == 0
    assert (tmp_path / "generator.jsonl").read_text() != files["pair_scores"].read_text()
    assert score_minimal_pairs.main(flags) == 2
    assert f"--output={files['output']} exists" in capsys.readouterr().err
