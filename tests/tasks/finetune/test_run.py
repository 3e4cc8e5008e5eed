"""Runs of several seeds on replicas, in a remote directory, after a kill, and for all of GLUE."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tensorflow as tf

import run_finetuning
from electra_tf.finetuning.seeds import run_seeds
from electra_tf.tasks.finetune.benchmarks import GLUE_TASKS, PAPER_TASKS
from tests.markdown import cells

PROJECT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("parts", [1, 2])
def test_two_replicas_give_the_results_of_one_device(job_in, three_seeds, record_of, tmp_path, two_replicas, parts):
    run_seeds(job_in(tmp_path, strategy=two_replicas, train={"gradient_accumulation_steps": parts}), (1,))
    ours, theirs = record_of(tmp_path / "seed_1"), record_of(three_seeds[0] / "seed_1")
    for one, other in zip(ours["metrics"], theirs["metrics"], strict=True):
        assert one.pop("split") == other.pop("split")
        assert one == pytest.approx(other, rel=2e-4, abs=1e-6)


def test_the_output_directory_may_be_a_store_that_cannot_append(job_in, three_seeds, record_of, tmp_path):
    run_seeds(job_in("ram://finetuned"), (2,))
    for name in ("result.json", "metrics.jsonl", "predictions_validation.tsv"):
        (tmp_path / name).write_bytes(tf.io.gfile.GFile(f"ram://finetuned/seed_2/{name}", "rb").read())
    assert record_of(tmp_path) == record_of(three_seeds[0] / "seed_2")


def test_a_run_killed_in_its_second_seed_and_resumed_has_the_same_summary(own_files, tiny_pretrained, tmp_path):
    settings = ["data.max_seq_length=12", "train.num_epochs=20", "train.batch_size=4", "train.fused_ops=false"]

    def start(name: str) -> subprocess.Popen:
        command = [sys.executable, str(PROJECT / "run_finetuning.py"), "--task=classification"]
        command += [f"--train_file={own_files['train_file']}", f"--validation_file={own_files['validation_file']}"]
        command += [f"--init_from={tiny_pretrained}", f"--output_dir={tmp_path / name}", "--seeds", "0", "1", "2"]
        command += [part for setting in settings for part in ("--set", setting)]
        with open(tmp_path / f"{name}.log", "a") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=PROJECT)

    assert start("whole").wait(300) == 0
    process = start("killed")
    metrics, end = tmp_path / "killed/seed_1/metrics.jsonl", time.monotonic() + 300
    while not (metrics.exists() and metrics.read_text().count("held_out") >= 3):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed/seed_1/result.json").exists()
    assert start("killed").wait(300) == 0
    assert "continuing at step " in (tmp_path / "killed.log").read_text()
    first, second = ((tmp_path / name / "summary.json").read_bytes() for name in ("whole", "killed"))
    assert first == second


def glue_folder(directory: Path) -> Path:
    """Writes six examples for each split of each task, in the official layout."""
    for task in GLUE_TASKS.values():
        for file, *_ in task.files.values():
            labels = task.labels or ("0.5", "4.5", "3")
            columns = [*task.text_columns, task.label_column]
            rows = [[f"w{5 + n} w{7 + n} w9"] * len(task.text_columns) + [labels[n % len(labels)]] for n in range(6)]
            if task.name == "cola":
                columns, rows = None, [["x", row[1], "", row[0]] for row in rows]
            (directory / task.folders[0]).mkdir(parents=True, exist_ok=True)
            lines = ["\t".join(row) for row in ([columns] if columns else []) + rows]
            (directory / task.folders[0] / file).write_text("\n".join(lines) + "\n")
    return directory


def test_the_task_glue_prints_one_table(tiny_pretrained, tmp_path, capsys):
    settings = ["data.max_seq_length=12", "train.num_steps=1", "train.batch_size=4", "train.fused_ops=false"]
    flags = [f"--data_dir={glue_folder(tmp_path / 'glue')}", f"--init_from={tiny_pretrained}", "--task=glue"]
    flags += [f"--output_dir={tmp_path / 'out'}", "--keep=best"]
    assert run_finetuning.main([*flags, *(part for setting in settings for part in ("--set", setting))]) == 0
    captured = capsys.readouterr()
    assert [task for task, metric, *_ in cells(captured.out) if metric.endswith(" *")] == list(PAPER_TASKS)
    assert "retracing" not in captured.err
    together = json.loads((tmp_path / "out/summary.json").read_text())
    assert set(together["medians"]) == set(PAPER_TASKS) and len(together["tasks"]) == 8
