"""The settings, texts and packed files that several tests of the builder use."""

import bz2
import copy
import gzip
import io
import itertools
import json
import lzma
import os
import random
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from data_prep.counts import ReadCounts
from data_prep.documents import Origin
from data_prep.readers import FORMATS
from data_prep.settings import BuildSettings
from data_prep.sources import find_files
from data_prep.units import Unit, plan_units, read_unit
from electra_tf.data.manifest import DatasetSettings
from electra_tf.files import names_in, read_bytes
from tests.data_prep.reading import documents_of

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
NUM_WORDS = 40
READER_SETTINGS = DatasetSettings(lines_per_document=3)


@pytest.fixture(scope="session")
def vocab_file(tmp_path_factory) -> str:
    """A vocabulary of w0 to w39; word i has id 5 + i."""
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in (*SPECIAL_TOKENS, *(f"w{i}" for i in range(NUM_WORDS)))))
    return str(path)


@pytest.fixture(scope="session")
def build_settings(vocab_file) -> Callable[..., BuildSettings]:
    """`build_settings(inputs, output_dir, **changes)`: settings of a small build that drops and changes no document."""

    def make(inputs, output_dir, **changes) -> BuildSettings:
        defaults = {
            "inputs": tuple(inputs),
            "vocab_file": vocab_file,
            "output_dir": str(output_dir),
            "max_seq_length": 16,
            "seed": 1,
            "held_out_fraction": 0.25,
            "sentences": "line",
            "lines_per_document": 3,
            "min_document_characters": 0,
            "num_shards": 3,
        }
        return BuildSettings(**{**defaults, **changes})

    return make


@pytest.fixture(scope="session")
def build_command() -> Callable[[BuildSettings], list[str]]:
    """`build_command(settings)`: the command with these settings."""

    def command(settings: BuildSettings) -> list[str]:
        values = settings.model_dump(exclude_defaults=True)
        flags = [*(f"--input={text}" for text in values.pop("inputs")), *(f"--{n}={v}" for n, v in values.items())]
        return [sys.executable, str(Path(__file__).parents[2] / "build_pretraining_dataset.py"), *flags]

    return command


@pytest.fixture(scope="session")
def contents() -> Callable[[str | os.PathLike], dict[str, bytes]]:
    """`contents(directory)`: the content of each file in a directory, local or at a URL."""
    return lambda directory: {name: read_bytes(os.path.join(directory, name)) for name in names_in(directory)}


@pytest.fixture(scope="session")
def one_word_documents() -> Callable[[int], list[str]]:
    """`one_word_documents(3)`: three documents of several lines; document i consists of the word w<i>."""

    def documents(number: int) -> list[str]:
        lengths = random.Random(0)
        return [
            "\n".join(" ".join([f"w{i}"] * lengths.randint(1, 9)) for _ in range(lengths.randint(1, 12)))
            for i in range(number)
        ]

    return documents


@pytest.fixture(scope="session")
def plan() -> Callable[[str, int], list[Unit]]:
    """`plan("text:a/*", unit_bytes)`: the units of these files."""
    return lambda text, unit_bytes: list(plan_units(find_files([text]), unit_bytes, READER_SETTINGS))


@pytest.fixture(scope="session")
def read_units() -> Callable[..., list[list[str]]]:
    """`read_units(units, counts)`: the lines of their documents."""

    def lines_of_documents(units: list[Unit], counts: ReadCounts | None = None) -> list[list[str]]:
        units = copy.deepcopy(units)  # by the methods that also send them to another process
        items = (item for unit in units for item in read_unit(unit, READER_SETTINGS))
        return [document.lines for document in documents_of(items, counts)]

    return lines_of_documents


@pytest.fixture(scope="session")
def read() -> Callable[..., list[list[str]]]:
    """`read(format, content, counts)`: the lines of the documents in a file; three per document for `sentences`."""

    def lines_of_documents(
        format_name: str, content: str | bytes, counts: ReadCounts | None = None, offset: int = 0
    ) -> list[list[str]]:
        stream = io.BytesIO(content.encode() if isinstance(content, str) else content)
        origin = Origin("file.txt", offset)
        items = FORMATS[format_name].documents(stream, origin, READER_SETTINGS)
        return [document.lines for document in documents_of(items, counts)]

    return lines_of_documents


@pytest.fixture(scope="session")
def packers() -> dict[str, Callable[[bytes], bytes]]:
    """`packers["gzip"](content)`: the content in each compression; `plain` leaves it as it is.

    `bzip2 streams` is cut anywhere into streams of 37 bytes.
    """
    return {
        "plain": bytes,
        "gzip": gzip.compress,
        "bzip2": bz2.compress,
        "bzip2 streams": lambda content: b"".join(
            bz2.compress(content[i : i + 37]) for i in range(0, len(content), 37)
        ),
        "xz": lzma.compress,
        "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
    }


@pytest.fixture(scope="session")
def tar() -> Callable[[dict[str, bytes]], bytes]:
    """`tar({"a/": b"", "a/1": content})`: an archive of these directories and files."""

    def pack(files: dict[str, bytes]) -> bytes:
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as archive:
            for name, text in files.items():
                info = tarfile.TarInfo(name)
                info.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text))
        return content.getvalue()

    return pack


def _texts_of(name: str) -> list[list[str]]:
    """Different documents of one to four lines."""
    numbers = itertools.count()
    return [[f"{name} {next(numbers)} é" for _ in range(1 + i % 4)] for i in range(9)]


@pytest.fixture(scope="session")
def written_documents() -> Callable[[str], list[list[str]]]:
    """`written_documents("jsonl")`: the documents of the file `content_of("jsonl")`."""

    def documents_of(format_name: str) -> list[list[str]]:
        written = _texts_of(format_name)
        if format_name == "sentences":
            lines = [line for lines in written for line in lines]
            return [lines[i : i + 3] for i in range(0, len(lines), 3)]
        if format_name == "wikipedia":
            return [lines if len(lines) > 1 else [*lines, "Text."] for lines in written]
        return written

    return documents_of


@pytest.fixture(scope="session")
def content_of() -> Callable[..., bytes]:
    """`content_of("jsonl", documents)`: a file of these documents, or of nine different ones."""

    def build(format_name: str, documents: list[list[str]] | None = None) -> bytes:
        documents = documents or _texts_of(format_name)
        texts = ["\n".join(lines) for lines in documents]
        if format_name in ("parquet", "arrow"):
            return _table_of(format_name, texts)
        contents = {
            "text": "\n\n".join(texts) + "\n",
            "wikiextractor": "".join(f'<doc id="1">\n{text}\n</doc>\n' for text in texts),
            "wikipedia": f"<mediawiki>\n{''.join(map(_wikipedia_page, documents))}</mediawiki>\n",
            "jsonl": "".join(json.dumps({"text": text}) + "\n" for text in texts),
        }
        return contents.get(format_name, "".join(f"{text}\n" for text in texts)).encode()

    return build


def _wikipedia_page(lines: list[str]) -> str:
    text = "\n\n".join(lines[1:] or ["Text."])
    revision = f'<revision><text xml:space="preserve">{text}</text></revision>'
    return f"  <page>\n    <title>{lines[0]}</title>\n    <ns>0</ns>\n    {revision}\n  </page>\n"


def _table_of(format_name: str, texts: list[str]) -> bytes:
    table = pa.table({"text": texts})
    content = io.BytesIO()
    if format_name == "parquet":
        pq.write_table(table, content, row_group_size=2)
    else:
        with pa.ipc.new_stream(content, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    return content.getvalue()
