"""The builder's benchmark: time and memory of programs, the peer's output, and the report."""

import json
import re
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from benchmarks.builder import __main__ as builder
from benchmarks.builder import peer
from benchmarks.programs import peak_memory_of, run

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).resolve().parents[2]
SAMPLE = PROJECT / "sample"
VOCAB_FILE = SAMPLE / "vocab.txt"
DUMP = PROJECT / "tests" / "fixtures" / "wikipedia_excerpt.xml"
MIB = 2**20


def python(*lines: str) -> list[str]:
    return [sys.executable, "-c", "\n".join(lines)]


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


def records_of(directory: Path) -> dict[str, list[bytes]]:
    """The records of each split, shard after shard."""
    shards = {split: sorted(map(str, directory.glob(f"{split}-*.tfrecord"))) for split in ("train", "held_out")}
    return {split: list(tf.data.TFRecordDataset(files).as_numpy_iterator()) for split, files in shards.items()}


def test_a_program_is_timed_to_its_own_end_and_not_its_helpers():
    helper = "import time; time.sleep(5)"
    start = f"subprocess.Popen([sys.executable, '-c', {helper!r}])"
    seconds, output = run(python("import subprocess, sys, time", start, "time.sleep(0.3)", "print('done')"))
    assert output == "done\n" and 0.3 <= seconds < 3


def test_memory_counts_a_process_and_its_descendants():
    child = "import time; held = b'x' * (70 * 2**20); time.sleep(0.6)"
    start = f"subprocess.run([sys.executable, '-c', {child!r}])"
    peak = peak_memory_of(python("import subprocess, sys", "held = b'x' * (50 * 2**20)", start))
    assert 120 * MIB <= peak <= 170 * MIB  # two interpreters hold about 10 MiB each


def test_the_peer_writes_our_examples_in_our_order(text, tmp_path, capsys):
    flags = [f"--input=text:{text}", f"--vocab_file={VOCAB_FILE}", f"--output_dir={tmp_path / 'ours'}", "--seed=0"]
    flags += ["--held_out_fraction=0.005", "--min_document_characters=0"]
    run([sys.executable, str(PROJECT / "build_pretraining_dataset.py"), *flags])
    ours = records_of(tmp_path / "ours")
    assert len(ours["train"]) > 50
    for num_processes in (1, 2):
        directory = tmp_path / str(num_processes)
        flags = [f"--input={text}", f"--vocab_file={VOCAB_FILE}", f"--output_dir={directory}"]
        assert peer.main([*flags, f"--num_processes={num_processes}"]) == 0
        assert json.loads(capsys.readouterr().out)["num_examples"] == sum(map(len, ours.values()))
        assert records_of(directory) == ours


def test_the_report_has_all_verdicts(text, tmp_path, capsys):
    flags = [f"--input=text:{text}", f"--vocab_file={VOCAB_FILE}", f"--work_dir={tmp_path / 'work'}", "--rounds=1"]
    flags += ["--memory_megabytes=0.2", f"--baseline={PROJECT}", f"--wikipedia={DUMP}"]
    status = builder.main(flags)
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
    assert "Raw dumps" in printed and "\n2 processes over 1: " in printed
    # With so little text start-ups dominate, so only the exit status is checked.
    assert status == int(any(word == "FAIL" for word, _ in verdicts))
    assert list((tmp_path / "work").iterdir()) == []
