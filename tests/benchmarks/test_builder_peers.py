import json
from pathlib import Path

import pytest
import tensorflow as tf

import build_pretraining_dataset
from benchmarks import builder_peers

SAMPLE = Path(__file__).resolve().parents[2] / "sample"
VOCAB_FILE = SAMPLE / "vocab.txt"


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    """The first four chapters of the sample's novel, cut into documents of seven lines."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    lines = []
    for chapter in sorted((SAMPLE / "novel").glob("*.txt"))[:4]:
        lines += [line for line in chapter.read_text(encoding="utf-8").splitlines() if line.strip()]
    documents = ["\n".join(lines[start : start + 7]) for start in range(0, len(lines), 7)]
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


def records_of(directory: Path) -> dict[str, list[bytes]]:
    """The records of each split, shard after shard."""
    return {
        split: list(
            tf.data.TFRecordDataset(sorted(map(str, directory.glob(f"{split}-*.tfrecord")))).as_numpy_iterator()
        )
        for split in ("train", "held_out")
    }


@pytest.fixture(scope="module")
def ours(text, tmp_path_factory) -> dict[str, list[bytes]]:
    directory = tmp_path_factory.mktemp("ours") / "data"
    flags = [f"--input=text:{text}", f"--vocab_file={VOCAB_FILE}", f"--output_dir={directory}", "--seed=6"]
    build_pretraining_dataset.build(
        build_pretraining_dataset.parse_flags([*flags, "--held_out_fraction=0.2", "--min_document_characters=0"])
    )
    return records_of(directory)


@pytest.mark.parametrize("tokenizer", ["hugging_face", "pure_python"])
def test_a_peer_writes_the_same_examples_in_the_same_order(text, ours, tmp_path, tokenizer):
    job = builder_peers.Job(tokenizer, str(VOCAB_FILE), seed=6, held_out_fraction=0.2)
    report = builder_peers.build(job, str(text), tmp_path / "peer", num_processes=1)
    assert len(ours["train"]) > 50 and len(ours["held_out"]) > 5
    assert report["num_examples"] == len(ours["train"]) + len(ours["held_out"])
    assert records_of(tmp_path / "peer") == ours


@pytest.mark.slow
def test_processes_write_what_threads_write(text, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    found = []
    for num_processes in (1, 2):
        directory = tmp_path / str(num_processes)
        flags = ["--tokenizer=hugging_face", f"--input={text}", f"--vocab_file={VOCAB_FILE}"]
        assert builder_peers.main([*flags, f"--output_dir={directory}", f"--num_processes={num_processes}"]) == 0
        report = json.loads(capsys.readouterr().out)
        found.append((report["num_tokens"], records_of(directory)))
    assert found[0] == found[1]


def test_blank_lines_end_documents(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n a b \nc\n\n \nd\n", encoding="utf-8")
    assert list(builder_peers.read_documents(str(path))) == [["a b", "c"], ["d"]]
