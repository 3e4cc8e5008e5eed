"""What users get wrong: each gives one line that names it, exit status 2, and leaves what was there as it was."""

import bz2
import gzip
import json
import lzma
import random
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

import build_pretraining_dataset
from electra_tf.cli.flags import run_command

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


def test_a_missing_file(run, tmp_path):
    assert_one_line(run(f"text:{tmp_path}/none.txt"), f"no file matches {tmp_path}/none.txt")


def test_an_empty_file(run, tmp_path):
    assert_one_line(run(f"text:{written(tmp_path / 'a.txt', b'')}"), "empty")


def test_a_directory(run, tmp_path):
    assert_one_line(run(f"text:{tmp_path}"), f"{tmp_path} is a directory", "DIR/*.txt")


def test_a_binary_file(run, tmp_path):
    path = written(tmp_path / "a.txt", b"\x7fELF\x02\x01\x01\0\0\0\0")
    assert_one_line(run(f"text:{path}"), path, "7")


@pytest.mark.parametrize("num_processes", [1, 2])
def test_invalid_utf_8_in_the_middle(run, tmp_path, num_processes):
    path = written(tmp_path / "a.txt", b"A fine line.\n\nna\xefve\n\nMore.\n")
    result = run(f"text:{path}", f"--num_processes={num_processes}")
    assert_one_line(result, f"{path} is not UTF-8: byte 0xef at offset 16", "iconv")


@pytest.mark.parametrize(
    "packed", [bz2.compress, gzip.compress, lzma.compress, zstandard.compress], ids=["bz2", "gz", "xz", "zst"]
)
def test_a_truncated_compressed_file_is_read_as_far_as_it_goes(run, tmp_path, caplog, packed):
    words = random.Random(0)
    text = "\n\n".join(f"the document {words.random()} says so" for _ in range(60_000))  # bzip2 packs 900 kB at once
    content = packed(text.encode())
    path = written(tmp_path / "a", content[: len(content) * 9 // 10])
    assert_one_line(run(f"text:{path}"), "1 of 1 input files are cut off", "--allow_truncated")
    assert f"warning: {path} is cut off at byte" in caplog.text
    num_documents = json.loads((tmp_path / "data" / "manifest.json").read_text())["counts"]["num_documents"]
    assert 20_000 < num_documents < 60_000
    assert run(f"text:{path}", "--allow_truncated")[0] == 0


def test_a_json_line_without_the_field(run, tmp_path):
    path = written(tmp_path / "a.jsonl", b'{"text": "So."}\n{"title": "T", "body": "B"}\n')
    assert_one_line(run(f"jsonl:{path}"), path, "16", "title", "body", "text")


def test_a_broken_json_line(run, tmp_path):
    path = written(tmp_path / "a.jsonl", b'{"text": "So."}\n{"text": "So.\n{"text": "So."}\n')
    assert_one_line(run(f"jsonl:{path}"), path, "16", "JSON")


def test_a_parquet_file_without_the_column(run, tmp_path):
    path = str(tmp_path / "a.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"title": ["T"], "body": ["B"]}), path)
    assert_one_line(run(f"parquet:{path}"), path, "title", "body", "text")


@pytest.mark.parametrize(
    ("tokens", "complaint"),
    [
        ([*SPECIAL_TOKENS, "the", "so", "the"], "has the token 'the' on lines 6 and 8"),
        ([token for token in SPECIAL_TOKENS if token != "[CLS]"] + ["the"], "lacks [CLS]"),
        ([], "vocab.txt is empty"),
    ],
    ids=["duplicated entries", "without [CLS]", "empty"],
)
def test_a_bad_vocabulary(run, tmp_path, vocab_file, tokens, complaint):
    vocab_file.write_text("".join(f"{token}\n" for token in tokens))
    assert_one_line(run(f"text:{written(tmp_path / 'a.txt', TEXT.encode())}"), complaint)


def test_an_output_directory_that_is_not_empty(run, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.txt").write_text("keep")
    assert_one_line(run(f"text:{written(tmp_path / 'a.txt', TEXT.encode())}"), "is not empty", "--overwrite")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["mine.txt"]


def test_an_output_directory_that_cannot_be_made(run, tmp_path):
    path = written(tmp_path / "a.txt", TEXT.encode())
    assert_one_line(run(f"text:{path}", f"--output_dir={path}/data"), "is no usable directory: Not a directory")


@pytest.mark.parametrize(
    ("flag", "complaint"),
    [
        ("--max_seq_length=4", "--max_seq_length=4; expected at least 8"),
        ("--held_out_fraction=1.0", "--held_out_fraction=1.0; expected a fraction in [0, 1)"),
        ("--min_document_characters=1000", "400 shorter than --min_document_characters=1000"),
        ("--language=German", "--language=German; expected a language code"),
        ("--num_processes=0", "--num_processes=0; expected at least 1"),
        ("--output_dir=/proc/self/data", "is no usable directory"),
    ],
)
def test_a_setting_with_which_nothing_can_be_built(run, tmp_path, flag, complaint):
    assert_one_line(run(f"text:{written(tmp_path / 'a.txt', TEXT.encode())}", flag), complaint)
    assert not (tmp_path / "data").exists() or not any((tmp_path / "data").iterdir())


@pytest.mark.parametrize(
    "content",
    [TEXT.replace("\n", "\r\n"), TEXT.replace("\n", "\r"), "\ufeff" + TEXT],
    ids=["CRLF", "CR", "byte order mark"],
)
def test_line_ends_and_a_byte_order_mark_make_no_difference(run, tmp_path, content):
    plain, other = written(tmp_path / "a.txt", TEXT.encode()), written(tmp_path / "b.txt", content.encode())
    assert run(f"text:{plain}", f"--output_dir={tmp_path}/plain")[0] == 0
    assert run(f"text:{other}", f"--output_dir={tmp_path}/other")[0] == 0
    for shard in (tmp_path / "plain").glob("*.tfrecord"):
        assert (tmp_path / "other" / shard.name).read_bytes() == shard.read_bytes()


@pytest.mark.slow
def test_a_line_of_50_mb(run, tmp_path):
    path = written(tmp_path / "a.txt", b"the document says so " * 2_500_000)
    assert run(f"text:{path}")[0] == 0
    manifest = json.loads((tmp_path / "data" / "manifest.json").read_text())
    assert manifest["counts"]["num_tokens_read"] == 10_000_000
