"""Mistakes of users: each gives one line that names it and exit status 2, and changes no file."""

from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from data_prep.cli import build_pretraining_dataset
from electra_tf.cli.process import run_command

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TEXT = "\n\n".join(f"The {i}th document says so.\nAnd a second line." for i in range(400))


@pytest.fixture
def vocab_file(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in (*SPECIAL_TOKENS, "the", "document", "says", "so", "line")))
    return path


@pytest.fixture
def run(tmp_path, vocab_file, capsys, monkeypatch):
    """Runs a build of an input and gives its exit status and what it wrote to stderr."""
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")

    def run_build(given: str, *flags: str) -> tuple[int, str]:
        defaults = [f"--vocab_file={vocab_file}", f"--output_dir={tmp_path / 'data'}", "--min_document_characters=0"]
        arguments = build_pretraining_dataset.parse_flags([f"--input={given}", *defaults, *flags])
        status = run_command(lambda: build_pretraining_dataset.build(arguments))
        return status, capsys.readouterr().err

    return run_build


def assert_one_line(result: tuple[int, str], *parts: str) -> None:
    status, stderr = result
    assert status == 2
    (line,) = [line for line in stderr.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in stderr
    for part in parts:
        assert part in line, (part, line)


def written(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def parquet_without_text(path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"title": ["T"], "body": ["B"]}), path)


@pytest.mark.parametrize(
    ("given", "content", "parts"),
    [
        ("text:{}/none.txt", b"a", ["no file matches", "none.txt"]),
        ("text:{}", b"a", ["is a directory", "DIR/*.txt"]),
        ("text:{}/a", b"", ["empty"]),
        ("text:{}/a", b"\x7fELF\x02\x01\x01\0\0\0\0", ["/a is not text", "7"]),
        ("text:{}/a", b"A fine line.\n\nna\xefve\n\nMore.\n", ["/a is not UTF-8: byte 0xef at offset 16", "iconv"]),
        ("jsonl:{}/a", b'{"text": "So."}\n{"title": "T", "body": "B"}\n', ["/a", "16", "title", "body", "text"]),
        ("jsonl:{}/a", b'{"text": "So."}\n{"text": "So.\n{"text": "So."}\n', ["/a", "16", "JSON"]),
        ("parquet:{}/a", parquet_without_text, ["/a", "title", "body", "text"]),
    ],
    ids=["missing", "directory", "empty", "binary", "not UTF-8", "no such field", "broken JSON", "no such column"],
)
def test_a_bad_file(run, tmp_path, given, content, parts):
    directory = tmp_path / "input"
    directory.mkdir()
    content(directory / "a") if callable(content) else (directory / "a").write_bytes(content)
    assert_one_line(run(given.format(directory)), *parts)


@pytest.mark.parametrize(
    ("flag", "complaint"),
    [
        ("--max_seq_length=4", "--max_seq_length=4; expected at least 8"),
        ("--held_out_fraction=1.0", "--held_out_fraction=1.0; expected a fraction in [0, 1)"),
        ("--min_document_characters=1000", "400 shorter than --min_document_characters=1000"),
        ("--language=German", "--language=German; expected a lower-case language code"),
        ("--num_processes=0", "--num_processes=0; expected at least 1"),
        ("--num_shards=-1", "--num_shards=-1; expected at least 0"),
        ("--work_dir=gs://bucket", "--work_dir=gs://bucket is a URL; expected a local directory"),
        ("--output_dir=/proc/self/data", "is no usable directory"),
    ],
)
def test_a_setting_with_which_nothing_can_be_built(run, tmp_path, flag, complaint):
    assert_one_line(run(f"text:{written(tmp_path / 'a.txt', TEXT.encode())}", flag), complaint)
    assert not (tmp_path / "data").exists() or not any((tmp_path / "data").iterdir())


@pytest.mark.parametrize(
    ("tokens", "complaint"),
    [
        ([*SPECIAL_TOKENS, "the", "so", "the"], "has the token 'the' on lines 6 and 8"),
        ([token for token in SPECIAL_TOKENS if token != "[CLS]"] + ["the"], "lacks [CLS]"),
        ([], "vocab.txt is empty"),
    ],
)
def test_a_bad_vocabulary(run, tmp_path, vocab_file, tokens, complaint):
    vocab_file.write_text("".join(f"{token}\n" for token in tokens))
    assert_one_line(run(f"text:{written(tmp_path / 'a.txt', TEXT.encode())}"), complaint)
