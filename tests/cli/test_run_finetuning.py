"""electra-tf finetune: training, predictions and scores. (tests/cli/test_mistakes.py: mistakes in its flags.)"""

import contextlib
import io
import json
from pathlib import Path

import pytest

import run_finetuning
from tests.markdown import cells

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
