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


@pytest.fixture
def inputs(tmp_path, tiny_pretrained) -> Path:
    """A directory with RUN, tasks of GLUE, files of labelled texts, and pairs."""
    (tmp_path / "RUN").symlink_to(tiny_pretrained)
    mrpc = [f"{n % 2}\t{n}\t{n + 50}\tw5 w{6 + n}\tw7 w{8 + n}" for n in range(6)]
    stsb = [f"{n}\tw5 w{6 + n}\tw7 w{8 + n}\t{n / 2}" for n in range(6)]
    topics = ["title,body,topic", *(f"w{5 + n},w6 w{7 + n},{('art', 'sport')[n % 2]}" for n in range(6))]
    pairs = ["question,answer", *(f"w{5 + n},w{6 + n}" for n in range(6))]
    contents = {"new.jsonl": ['{"body": "w6 w7"}', '{"body": "w9"}']}
    for split in ("train", "dev"):
        contents[f"GLUE/MRPC/{split}.tsv"] = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", *mrpc]
        contents[f"GLUE/STS-B/{split}.tsv"] = ["index\tsentence1\tsentence2\tscore", *stsb]
    contents |= {"train.csv": topics, "dev.csv": topics, "test.csv": topics, "pairs.csv": pairs, "pairs_dev.csv": pairs}
    for name, lines in contents.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")
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
