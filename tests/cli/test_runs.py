"""electra-tf pretrain --dry_run, and electra-tf finetune: training, predictions and scores."""

import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import run_finetuning
import run_pretraining
from electra_tf.config.loader import config_to_yaml
from electra_tf.data.manifest import MANIFEST_FILE, Manifest
from electra_tf.files import names_in
from tests.markdown import cells
from tests.toy import VOCABULARY

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def flags(tmp_path, tiny_config) -> list[str]:
    (tmp_path / "tiny.yaml").write_text(config_to_yaml(tiny_config()), encoding="utf-8")
    return [f"--config={tmp_path / 'tiny.yaml'}", f"--model_dir={tmp_path / 'run'}"]


@pytest.fixture
def refused(flags, tmp_path, capsys):
    """`refused("--flag=value", ...)`: the one line that the command prints before it exits with status 2."""

    def run(*more: str) -> str:
        status = run_pretraining.main([*flags, *more])
        captured = capsys.readouterr()
        assert (status, captured.out) == (2, "")
        (line,) = captured.err.splitlines()
        assert line.startswith("error: ")
        assert set(names_in(str(tmp_path / "run"))) <= {".lock"}
        return line

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
