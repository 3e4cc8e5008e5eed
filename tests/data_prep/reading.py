"""What readers, units and data sets hold, taken apart."""

import copy
import io
import os
from collections.abc import Iterable, Iterator

import tensorflow as tf

from data_prep.counts import ReadCounts
from data_prep.documents import Origin
from data_prep.readers import FORMATS, Document
from data_prep.sources import find_files
from data_prep.units import Unit, plan_units, read_unit
from electra_tf.data.manifest import DatasetSettings, Manifest
from electra_tf.files import names_in, read_bytes

READER_SETTINGS = DatasetSettings(lines_per_document=3)


def documents_of(items: Iterable[Document | ReadCounts], counts: ReadCounts | None = None) -> Iterator[Document]:
    """Yields the documents; the counts are added to `counts`."""
    counts = counts or ReadCounts()
    for item in items:
        if isinstance(item, Document):
            yield item
        else:
            counts.add(item)


def lines_of(items: Iterable[Document | ReadCounts], counts: ReadCounts | None = None) -> list[list[str]]:
    return [document.lines for document in documents_of(items, counts)]


def read(format_name: str, content: str | bytes, counts: ReadCounts | None = None, offset: int = 0) -> list[list[str]]:
    """The lines of the documents in a file; three per document for `sentences`."""
    stream = io.BytesIO(content.encode() if isinstance(content, str) else content)
    origin = Origin("file.txt", offset)
    return lines_of(FORMATS[format_name].documents(stream, origin, READER_SETTINGS), counts)


def plan(text: str, unit_bytes: int) -> list[Unit]:
    """The units of files: `plan("text:a/*", 100)`."""
    return list(plan_units(find_files([text]), unit_bytes, READER_SETTINGS))


def read_units(units: list[Unit], counts: ReadCounts | None = None) -> list[list[str]]:
    """The lines of the documents of units."""
    units = copy.deepcopy(units)  # by the methods that also send them to another process
    return lines_of((item for unit in units for item in read_unit(unit, READER_SETTINGS)), counts)


def read_files(text: str, unit_bytes: int, counts: ReadCounts | None = None) -> list[list[str]]:
    """The lines of the documents of files: `read_files("text:a/*", 100)`."""
    return read_units(plan(text, unit_bytes), counts)


def contents(directory: str | os.PathLike) -> dict[str, bytes]:
    """The content of each file in a directory, local or at a URL."""
    return {name: read_bytes(os.path.join(directory, name)) for name in names_in(directory)}


def records(data_dir: str | os.PathLike, split: str) -> list[tuple[list[int], list[int]]]:
    """The token ids and the lengths of the segments of all examples of a split."""
    files = [os.path.join(data_dir, shard.file) for shard in Manifest.load(data_dir).splits[split].shards]
    written = tf.data.TFRecordDataset(files).as_numpy_iterator()
    features = [tf.train.Example.FromString(each).features.feature for each in written]
    names = ("input_ids", "segment_lengths")
    return [tuple(list(each[name].int64_list.value) for name in names) for each in features]
