"""README.md: its commands and its Python run as printed; only the words below are replaced by small ones."""

import bz2
import csv
import shutil
from pathlib import Path

import pytest

from tests.docs.commands import PROJECT, run_page

SMALL = {
    "--output=vocab.txt": "--output=vocab.txt --vocab_size=4000",
    "--num_processes=8": "--num_processes=2",
    "--config=small": "--config=tiny --set train.num_steps=2 --set optimizer.warmup_steps=1",
    "--seeds 0 1 2 3 4": "--seeds 0 --set train.num_epochs=1 --set data.max_seq_length=16",
}
PAIRS = ("Ein Hund bellt.", "Eine Katze schläft.")


def write_glue(directory: Path) -> None:
    """The official files of the paper's eight tasks, with four made-up rows each."""
    a, b = PAIRS
    stsb = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
    mnli = "index\tpromptID\tpairID\tgenre\tb1\tb2\tp1\tp2\tsentence1\tsentence2\tlabel1\tgold_label"
    files = {
        "CoLA": (None, [f"g\t{label}\t\t{a}" for label in (0, 1)]),
        "SST-2": ("sentence\tlabel", [f"{a}\t{label}" for label in (0, 1)]),
        "MRPC": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", [f"{label}\t1\t2\t{a}\t{b}" for label in (0, 1)]),
        "STS-B": (stsb, [f"0\tg\tf\t2012\t1\tn\tn\t{a}\t{b}\t{score}" for score in (1.0, 4.5)]),
        "QQP": ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", [f"0\t1\t2\t{a}\t{b}\t{i}" for i in (0, 1)]),
        "MNLI": (mnli, [f"0\t1\t1\tg\tb\tb\tp\tp\t{a}\t{b}\tn\t{label}" for label in ("neutral", "entailment")]),
        "QNLI": ("index\tquestion\tsentence\tlabel", [f"0\t{a}\t{b}\t{x}entailment" for x in ("", "not_")]),
        "RTE": ("index\tsentence1\tsentence2\tlabel", [f"0\t{a}\t{b}\t{x}entailment" for x in ("", "not_")]),
    }
    for task, (header, rows) in files.items():
        (directory / task).mkdir(parents=True)
        for split in ("train", "dev_matched", "dev_mismatched") if task == "MNLI" else ("train", "dev"):
            lines = [header] * (header is not None) + rows * 2
            (directory / task / f"{split}.tsv").write_text("\n".join([*lines, ""]), encoding="utf-8")


@pytest.mark.slow
def test_the_page_runs_from_text_to_a_prediction(tmp_path):
    (tmp_path / "dumps").mkdir()
    dump = (PROJECT / "tests/fixtures/wikipedia_excerpt.xml").read_bytes()
    (tmp_path / "dumps" / "excerpt.xml.bz2").write_bytes(bz2.compress(dump))
    shutil.copytree(PROJECT / "sample/novel", tmp_path / "novels")
    write_glue(tmp_path / "GLUE")
    for name in ("train.csv", "dev.csv"):
        with open(tmp_path / name, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "label"), *(("A match.", "football"), ("A song.", "music")) * 4])
    assert "'prediction': " in run_page("README", tmp_path, SMALL)
    assert (tmp_path / "ft/glue/summary.json").is_file()
    assert (tmp_path / "export/1/saved_model.pb").is_file()
