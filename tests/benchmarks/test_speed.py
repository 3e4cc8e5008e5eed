"""The speed benchmarks at toy size: every row that they promise, and a verdict for each limit.

Of so little work start-ups and noise decide, so the exit status has to agree with the verdicts, whatever they are.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import builder, builder_peer, input_pipeline
from benchmarks.contenders import FINETUNING, SERVING, TRAIN_STEP
from benchmarks.finetuning import __main__ as finetuning
from benchmarks.harness import baseline_of, run
from benchmarks.serving import __main__ as serving
from benchmarks.train_step import __main__ as train_step
from benchmarks.train_step.batches import BatchShape, synthetic_batch
from electra_tf.config.loader import config_to_yaml
from electra_tf.data.batch import PRETRAINING_BATCH
from tests.markdown import cells
from tests.peers import PEERS_PYTHON

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).resolve().parents[2]
SAMPLE = PROJECT / "sample"
VOCAB_FILE = SAMPLE / "vocab.txt"
TURNS = ["--threads=1", "--rounds=2", "--patience=0", f"--baseline={PROJECT}"]


@pytest.fixture
def measured(tmp_path, capfd):
    """`measured(main, contenders, *flags)`: the names of the verdicts, the report, and the rows that it must have.

    Without the peers' environment these are ours, without XLA.
    """

    def measure(main, contenders, *flags: str) -> tuple[list[str], dict, set[str]]:
        ours = [name for name in contenders if baseline_of(name) and "_xla" not in name]
        rows = list(contenders) if PEERS_PYTHON else ours
        report = tmp_path / "report.json"
        peers = [f"--peers_python={PEERS_PYTHON}"] if PEERS_PYTHON else []
        status = main([*flags, *TURNS, *peers, f"--contenders={','.join(rows)}", f"--json={report}"])
        printed = capfd.readouterr().out
        verdicts = re.findall(r"^(PASS|FAIL)  (.+): .+, at (?:least|most) ", printed, re.MULTILINE)
        assert status == int("FAIL" in dict(verdicts)) and printed.startswith("Processor: ")
        expected = {*rows, *filter(None, map(baseline_of, rows))}
        return [name for _, name in verdicts], json.loads(report.read_text(encoding="utf-8")), expected

    return measure


def of_baselines(verdicts: list[str]) -> list[str]:
    return [name for name in verdicts if "over baseline" in name]


@pytest.fixture
def config_file(tmp_path, tiny_config) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(config_to_yaml(tiny_config()), encoding="utf-8")
    return path


def test_the_training_step(measured, config_file):
    flags = [f"--config={config_file}", "--batch_size=4", "--steps_per_round=3"]
    verdicts, report, rows = measured(train_step.main, TRAIN_STEP, *flags)
    assert report["contenders"].keys() == rows
    assert len(of_baselines(verdicts)) == (4 if PEERS_PYTHON else 2)
    assert len([name for name in verdicts if " over pytorch_" in name]) == (4 if PEERS_PYTHON else 0)
    assert len([name for name in verdicts if "start over PyTorch's" in name]) == (2 if PEERS_PYTHON else 0)
    for name, row in report["contenders"].items():
        assert [len(turn["seconds"]) for turn in row["turns"]] == [3, 3] and len(row["starts"]) == 1, name
        assert row["turns"][-1]["peak_bytes"] > 2**26
        losses = row["first_losses"]
        assert losses["masked_lm"] == pytest.approx(np.log(47), abs=0.5)  # of random weights
        assert losses["loss"] == pytest.approx(losses["masked_lm"] + 50.0 * losses["replaced_token"], rel=1e-3)
        if baseline_of(name):
            assert report["contenders"][baseline_of(name)]["first_losses"] == losses


def test_a_batch_is_a_function_of_its_seed_and_masks_15_percent_of_each_row():
    shape = BatchShape(num_examples=200, max_seq_length=40, num_slots=6, vocab_size=97)
    batch, again = synthetic_batch(shape, seed=3), synthetic_batch(shape, seed=3)
    assert all((batch[name] == again[name]).all() for name in batch)
    lengths, used = batch["input_mask"].sum(axis=1), batch["masked_lm_weights"] > 0
    assert 0.7 < (lengths == 40).mean() < 0.93  # 0.82 + 0.18 / 36 expected, standard deviation 0.027
    assert (used.sum(axis=1) == np.clip(np.rint(lengths * 0.15), 1, 6)).all()
    assert batch.keys() == PRETRAINING_BATCH.tensors.keys()
    shown = np.take_along_axis(batch["masked_input_ids"], batch["masked_lm_positions"], axis=1)
    assert (batch["mask_token_weights"] == (used & (shown == 3))).all()


def test_fine_tuning(measured, tmp_path):
    cola, words = tmp_path / "CoLA", ["the", "little", "house", "stands", "near", "a", "wide", "river"]
    cola.mkdir()
    for split, size in (("train", 40), ("dev", 12)):
        lines = [f"x\t{row % 2}\t\t{' '.join(words[row % 5 :])}\n" for row in range(size)]
        (cola / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")
    tiny = {"hidden_size": 8, "num_heads": 2, "num_layers": 1, "embedding_size": 4, "intermediate_size": 8}
    flags = [f"--data_dir={tmp_path}", f"--vocab_file={VOCAB_FILE}", "--tasks=cola", "--batch_size=4"]
    flags += ["--steps_per_round=2", *(f"--set=encoder.{name}={value}" for name, value in tiny.items())]
    verdicts, report, rows = measured(finetuning.main, FINETUNING, *flags)
    assert report["cola"].keys() == rows
    for name, row in report["cola"].items():
        assert (len(row["training"]), len(row["evaluation"])) == (0 if "_sorted" in name else 2, 2), name
    assert of_baselines(verdicts) == [f"cola, {part}: ours over baseline" for part in ("training", "evaluation")]
    assert len(verdicts) == (7 if PEERS_PYTHON else 2)
    assert report["cola"]["ours"]["lengths"]["num_lengths"] == 2  # 8, and 12 for rows of 8 words with [CLS] and [SEP]


def test_serving(measured, config_file):
    flags = [f"--config={config_file}", f"--vocab_file={VOCAB_FILE}", "--tokens=4,9", "--batch_size=3"]
    verdicts, report, rows = measured(serving.main, SERVING, *flags, "--calls=2", "--batches=1")
    assert len(of_baselines(verdicts)) == 4 * 2  # each of ours
    assert len(verdicts) == 4 * (4 if PEERS_PYTHON else 2)
    for texts, calls in ((1, 2), (3, 1)):
        for tokens in (4, 9):
            seconds = report["seconds"][f"{texts} x {tokens}"]
            assert {name: list(map(len, rounds)) for name, rounds in seconds.items()} == dict.fromkeys(
                rows, 2 * [calls]
            )


def test_one_text_and_a_batch_have_their_own_limits():
    results = {(1, 40): {"ours": [[4.0]], "eager": [[5.0]]}, (4, 8): {"ours": [[1.0]], "eager": [[1.25]]}}
    assert [str(verdict) for verdict in serving.judge_calls(results)] == [
        "PASS  1 x 40 tokens: ours over eager: 1.25, at least 1.2",
        "PASS  4 x 8 tokens: ours over eager: 1.25, at least 1.05",
    ]


@pytest.mark.parametrize(("floor", "status"), [("0", 0), ("1e12", 1)])
def test_the_input_pipeline(write_data, tmp_path, capsys, floor, status):
    flags = [f"--data_dir={write_data(tmp_path / 'set')}", "--batch_size=5", "--rounds=3", "--seconds=0.05"]
    assert input_pipeline.main([*flags, f"--at_least={floor}"]) == status
    printed = capsys.readouterr().out
    assert "12 examples of length 10\n" in printed
    assert [row[0] for row in cells(printed)[1:]] == ["ours", "plain_records"]
    assert ("FAIL  ours" in printed) == bool(status)


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    """The sample's novel, cut into documents of seven lines."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    lines = []
    for chapter in sorted((SAMPLE / "novel").glob("*.txt")):
        lines += [line for line in chapter.read_text(encoding="utf-8").splitlines() if line.strip()]
    documents = ["\n".join(lines[start : start + 7]) for start in range(0, len(lines), 7)]
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


def test_the_builder(text, tmp_path, capsys):
    dump = PROJECT / "tests" / "fixtures" / "wikipedia_excerpt.xml"
    flags = [f"--input=text:{text}", f"--vocab_file={VOCAB_FILE}", f"--work_dir={tmp_path / 'work'}", "--rounds=1"]
    status = builder.main([*flags, "--memory_megabytes=0.2", f"--baseline={PROJECT}", f"--wikipedia={dump}"])
    printed = capsys.readouterr().out
    verdicts = re.findall(r"^(PASS|FAIL)  (.+): .+, at (?:least|most) ", printed, re.MULTILINE)
    assert [name.partition(" over hugging_face")[0] for _, name in verdicts] == [
        "tokens/s of 1 process",
        "ours, 2 processes over ours, 1 process",
        "ours, 1 process",
        "ours, 2 processes",
        "ours, 1 process over baseline, 1 process",
        "ours, 2 processes over baseline, 2 processes",
        "peak memory, GiB",
        "peak memory, largest text over smallest",
    ]
    assert status == int("FAIL" in dict(verdicts))
    for row in (builder.RUST_THREADS, builder.RUST_PROCESSES):
        assert printed.count(f"| {row} ") == 1
    assert "Raw dumps" in printed and "\n2 processes over 1: " in printed
    assert list((tmp_path / "work").iterdir()) == []


def test_the_builders_peer_writes_our_examples_in_our_order(text, tmp_path, capsys):
    def records(directory: Path) -> list[bytes]:
        files = sorted(map(str, directory.glob("*.tfrecord")))
        return list(tf.data.TFRecordDataset(files).as_numpy_iterator())

    flags = [f"--input=text:{text}", f"--vocab_file={VOCAB_FILE}", f"--output_dir={tmp_path / 'ours'}", "--seed=0"]
    flags += ["--held_out_fraction=0", "--min_document_characters=0"]
    run([sys.executable, str(PROJECT / "build_pretraining_dataset.py"), *flags])
    ours = records(tmp_path / "ours")
    assert len(ours) > 50
    for num_processes in (1, 2):
        directory = tmp_path / str(num_processes)
        flags = [f"--input={text}", f"--vocab_file={VOCAB_FILE}", f"--output_dir={directory}"]
        assert builder_peer.main([*flags, f"--num_processes={num_processes}"]) == 0
        assert json.loads(capsys.readouterr().out)["num_examples"] == len(ours)
        assert records(directory) == ours


def test_memory_and_processor_time_count_a_process_and_its_descendants():
    child = "import time; held = b'x' * (70 * 2**20)\nwhile time.process_time() < 0.6: pass"
    lines = (
        "import subprocess, sys",
        "held = b'x' * (50 * 2**20)",
        f"subprocess.run([sys.executable, '-c', {child!r}])",
    )
    peak, first, others = builder.usage_of([sys.executable, "-c", "\n".join(lines)])
    assert 120 * 2**20 <= peak <= 170 * 2**20  # two interpreters hold about 10 MiB each
    assert first < 0.4 < others < 0.8
