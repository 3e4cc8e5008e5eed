"""What the tests of the builder read: documents, in every format and packing, and the source of most data sets."""

import bz2
import gzip
import io
import itertools
import json
import lzma
import os
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard


def one_word_documents(number: int) -> list[str]:
    """Documents of several lines; document i consists of the word w<i>."""
    lengths = random.Random(0)
    return [
        "\n".join(" ".join([f"w{i}"] * lengths.randint(1, 9)) for _ in range(lengths.randint(1, 12)))
        for i in range(number)
    ]


# Document 38 is cut into examples in two ways, by its lines and by its sentences.
DOCUMENTS = [*one_word_documents(38), "\n".join(["W38 w38. W38 w38."] * 5), "w39 w39\nw39"]
FAULTY = frozenset({3, 17, 29, 31})  # a page, a line, a file and an article can be broken


def inputs_of(source: os.PathLike | str) -> list[str]:
    formats = {"wikipedia": "xml", "text": "txt", "wikiextractor": "wiki"}
    names = (
        "wikipedia",
        "jsonl",
        "text",
        "wikiextractor",
        "book",
        "parquet",
        "arrow",
        "documents",
        "cirrus",
        "csv",
        "tsv",
    )
    return [f"{name}:{source}/*.{formats.get(name, name)}" for name in names]


def write_source(directory: Path, faulty: frozenset[int] = FAULTY, lacking: frozenset[int] = frozenset()) -> Path:
    """Writes `DOCUMENTS`, of which some are broken and some left out, in eleven formats.

    Of five, there are copies in compressed files: two in the same format, three with lines that are not split.
    """
    directory.mkdir(exist_ok=True)
    kept = [number for number in range(40) if number not in lacking]
    page = "<page><title>w{}</title><ns>0</ns><revision><text>{}</text></revision></page>"
    pages = [page.format(i, DOCUMENTS[i] + " & " * (i in faulty)) for i in kept if i < 9]
    lines = [json.dumps({"body" if i in faulty else "text": DOCUMENTS[i]}) for i in kept if i in (11, 12, 13, 17)]
    text = [b"\xe9" * (i in faulty) + DOCUMENTS[i].encode() for i in kept if 20 <= i < 30]
    articles = [f'<doc id="{i}">\n{DOCUMENTS[i]}\n{"</doc>" * (i not in faulty)}\n' for i in kept if i >= 30]
    contents = {
        "a.xml": f"<mediawiki>{''.join(pages)}</mediawiki>".encode(),
        "b.jsonl": "\n".join(lines).encode(),
        "c.txt": b"\n\n".join(text),
        "d.wiki": "".join(articles).encode(),
        "e.txt": gzip.compress("\n\n".join(DOCUMENTS[i] for i in (21, 33, 38)).encode(), mtime=0),
        "f.txt": PACKERS["bzip2 streams"]("\n\n".join(DOCUMENTS[i] for i in (12, 22)).encode()),
        "g.book": f"{DOCUMENTS[10]}\n\nunknown".replace("\n", "\n\n").encode(),
        "h.parquet": content_of("parquet", [[DOCUMENTS[18]]]),
        "i.arrow": content_of("arrow", [[DOCUMENTS[19]]]),
        "j.cirrus": content_of("cirrus", [["w9", DOCUMENTS[9]]]),
        "k.csv": content_of("csv", [[DOCUMENTS[15]]]),
        "l.tsv": content_of("tsv", [[DOCUMENTS[16]]]).decode().encode("utf-16"),
        "m.documents": DOCUMENTS[14].replace("\n", " ").encode(),
    }
    for name, content in contents.items():
        (directory / name).write_bytes(content)
    return directory


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    # Cut anywhere into streams of 37 bytes.
    "bzip2 streams": lambda content: b"".join(bz2.compress(content[i : i + 37]) for i in range(0, len(content), 37)),
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
}


def tar(files: dict[str, bytes]) -> bytes:
    """An archive of directories and files: `tar({"a/": b"", "a/1": content})`."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))
    return content.getvalue()


def packings(content: bytes) -> dict[str, bytes]:
    """The content in every compression and in archives: in `tar` twice, in `tar in tar` three times."""
    packed = {name: pack(content) for name, pack in PACKERS.items()}
    packed["tar"] = tar({"a/1": content, "a/2": gzip.compress(content)})
    inner = lzma.compress(tar({"a": content, "b": content}))
    packed["tar in tar"] = gzip.compress(tar({"1.tar.xz": inner, "2": content}))
    return packed


NUM_COPIES = {"tar": 2, "tar in tar": 3}


def content_of(format_name: str, documents: list[list[str]] | None = None) -> bytes:
    """A file of these documents, or of nine different ones of one to four lines."""
    numbers = itertools.count()
    documents = documents or [[f"{format_name} {next(numbers)} é" for _ in range(1 + i % 4)] for i in range(9)]
    texts = ["\n".join(lines) for lines in documents]
    # Values that are not in quotes, and are.
    rows = [text if "\n" not in text else f'"{text}"' for text in texts]
    if format_name in ("parquet", "arrow"):
        return table_of(format_name, pa.table({"text": texts}))
    contents = {
        "text": "\n\n".join(texts) + "\n",
        "wikiextractor": "".join(f'<doc id="1">\n{text}\n</doc>\n' for text in texts),
        "wikipedia": f"<mediawiki>\n{''.join(map(_wikipedia_page, documents))}</mediawiki>\n",
        "jsonl": "".join(json.dumps({"text": text}) + "\n" for text in texts),
        "cirrus": "".join(map(_cirrus_page, documents)),
        "csv": "text,id\n" + "".join(f"{row},{i}\n" for i, row in enumerate(rows)),
        "tsv": "id\ttext\n" + "".join(f"{i}\t{row}\n" for i, row in enumerate(rows)),
    }
    return contents.get(format_name, "".join(f"{text}\n" for text in texts)).encode()


def _cirrus_page(lines: list[str]) -> str:
    page = {"namespace": 0, "title": lines[0], "text": "\n".join(lines[1:] or ["Text."])}
    return f'{{"index":{{"_id":"7"}}}}\n{json.dumps(page)}\n'


def _wikipedia_page(lines: list[str]) -> str:
    text = "\n\n".join(lines[1:] or ["Text."])
    revision = f'<revision><text xml:space="preserve">{text}</text></revision>'
    return f"  <page>\n    <title>{lines[0]}</title>\n    <ns>0</ns>\n    {revision}\n  </page>\n"


def table_of(kind: str, table: pa.Table) -> bytes:
    """A file of the kind "parquet", "arrow" (a stream) or "arrow file", in groups of two rows."""
    content = io.BytesIO()
    if kind == "parquet":
        pq.write_table(table, content, row_group_size=2)
    else:
        with (pa.ipc.new_stream if kind == "arrow" else pa.ipc.new_file)(content, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    return content.getvalue()
