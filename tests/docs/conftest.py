"""The files that pages name, at toy size, with the words of `tiny_pretrained`."""

import bz2
import csv
import shutil
import socket
from pathlib import Path

import pytest

import run_finetuning
from tests.docs.commands import PROJECT

# For tasks on `inputs`.
STEPS = "--set train.num_steps=2 --set train.batch_size=4 --set data.max_seq_length=16"


def write_glue(directory: Path, a: str, b: str) -> None:
    """The official files of the paper's eight tasks, with four rows each of these two texts."""
    stsb = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
    mnli = "index\tpromptID\tpairID\tgenre\tb1\tb2\tp1\tp2\tsentence1\tsentence2\tlabel1\tgold_label"
    entailment = [f"0\t{a}\t{b}\t{x}entailment" for x in ("", "not_")]
    files = {
        "CoLA": (None, [f"g\t{label}\t\t{a}" for label in (0, 1)]),
        "SST-2": ("sentence\tlabel", [f"{a}\t{label}" for label in (0, 1)]),
        "MRPC": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", [f"{label}\t1\t2\t{a}\t{b}" for label in (0, 1)]),
        "STS-B": (stsb, [f"0\tg\tf\t2012\t1\tn\tn\t{a}\t{b}\t{score}" for score in (1.0, 4.5)]),
        "QQP": ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", [f"0\t1\t2\t{a}\t{b}\t{i}" for i in (0, 1)]),
        "MNLI": (mnli, [f"0\t1\t1\tg\tb\tb\tp\tp\t{a}\t{b}\tn\t{label}" for label in ("neutral", "entailment")]),
        "QNLI": ("index\tquestion\tsentence\tlabel", entailment),
        "RTE": ("index\tsentence1\tsentence2\tlabel", entailment),
    }
    for task, (header, rows) in files.items():
        (directory / task).mkdir(parents=True)
        for split in ("train", "dev_matched", "dev_mismatched") if task == "MNLI" else ("train", "dev"):
            lines = [header] * (header is not None) + rows * 2
            (directory / task / f"{split}.tsv").write_text("\n".join([*lines, ""]), encoding="utf-8")


@pytest.fixture
def inputs(tmp_path, tiny_pretrained) -> Path:
    """A directory with RUN, tasks of GLUE, files of labelled texts, pairs and ranked pairs."""
    (tmp_path / "RUN").symlink_to(tiny_pretrained)
    write_glue(tmp_path / "GLUE", "w5 w6", "w7 w8")
    topics = ["title,body,topic", *(f"w{5 + n},w6 w{7 + n},{('art', 'sport')[n % 2]}" for n in range(6))]
    pairs = ["question,answer", *(f"w{5 + n},w{6 + n}" for n in range(6))]
    ranked = ["query,passage,relevant", *(f"w{5 + n},w{6 + n},{n % 2}" for n in range(6))]
    contents = {"new.jsonl": ['{"body": "w6 w7"}', '{"body": "w9"}']}
    contents |= {"train.csv": topics, "dev.csv": topics, "test.csv": topics, "pairs.csv": pairs, "pairs_dev.csv": pairs}
    contents |= {"ranked.csv": ranked, "ranked_dev.csv": ranked}
    for name, lines in contents.items():
        (tmp_path / name).write_text("\n".join([*lines, ""]), encoding="utf-8")
    return tmp_path


@pytest.fixture
def finetuned_inputs(inputs, monkeypatch) -> Path:
    """The same with a fine-tuned classifier of texts, ft/topics/seed_0."""
    monkeypatch.chdir(inputs)
    data = "--train_file=train.csv --validation_file=dev.csv --text_columns body --label_column=topic"
    flags = f"--task=classification {data} --init_from=RUN --output_dir=ft/topics {STEPS}"
    assert run_finetuning.main(flags.split()) == 0
    return inputs


@pytest.fixture
def corpus(tmp_path) -> Path:
    """A directory with a part of Wikipedia, novels, and texts of two topics."""
    (tmp_path / "dumps").mkdir()
    dump = (PROJECT / "tests/fixtures/wikipedia_excerpt.xml").read_bytes()
    (tmp_path / "dumps/excerpt.xml.bz2").write_bytes(bz2.compress(dump))
    shutil.copytree(PROJECT / "sample/novel", tmp_path / "novels")
    for name in ("train.csv", "dev.csv"):
        with open(tmp_path / name, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "label"), *(("A match.", "football"), ("A song.", "music")) * 10])
    return tmp_path


def on_free_ports() -> dict[str, str]:
    """What makes the programs of examples/serving use two free ports."""
    with socket.socket() as rest, socket.socket() as grpc:
        rest.bind(("127.0.0.1", 0))
        grpc.bind(("127.0.0.1", 0))
        http, rpc = rest.getsockname()[1], grpc.getsockname()[1]
    return {
        "serve_locally.py": f"serve_locally.py --port={rpc} --rest_api_port={http}",
        "rest_client.py --": f"rest_client.py --server=http://127.0.0.1:{http} --",
        "grpc_client.py --": f"grpc_client.py --server=127.0.0.1:{rpc} --",
    }
