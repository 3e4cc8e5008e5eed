"""Records and shards that cannot be read: the run stops and names them, or they count as examples of padding.

Sound data takes the short way through TensorFlow's readers. Only where they fail is the shard looked at here, record by
record. With padding in the place of a damaged record every other example keeps its own place, so batch k stays the same
function of (seed, k): a row of padding holds no token, so nothing of it is masked, predicted or counted.
"""

import contextlib
import logging
import re
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.corpus import Corpus
from electra_tf.data.record_frames import Frame, read_frames

logger = logging.getLogger(__name__)


class DamagedData(Exception):
    """Raised inside the input pipeline. `damaged_data_reported` makes a `UserError` of what TensorFlow makes of it."""


@contextlib.contextmanager
def damaged_data_reported() -> Iterator[None]:
    """Around whatever takes batches: a damaged record or shard is a `UserError` of one line."""
    try:
        yield
    except tf.errors.OpError as error:
        # TensorFlow passes an exception out of a pipeline as text, with its type's name and a trace around it.
        found = re.search(rf"{DamagedData.__name__}: (.*)", str(error))
        if found is None:
            raise
        raise UserError(found[1].strip()) from None


def or_else(argument, preferred: Callable, otherwise: Callable):
    """`preferred(*argument)`, or `otherwise(*argument)` if TensorFlow fails to compute it. For graphs of a pipeline.

    A graph cannot catch an error, but a data set can leave out an element that fails. It costs some 60 us a call.
    """
    source = tf.data.Dataset.from_tensors(argument)
    return source.map(preferred).ignore_errors().concatenate(source.map(otherwise)).take(1).get_single_element()


class RecordReader:
    """Reads the shards of a corpus and parses their records, whatever their state.

    Args:
        shard_of_example: tells the shard, an index into `corpus.files`, of an example of the stream, by its number.
    """

    def __init__(self, corpus: Corpus, shard_of_example: Callable[[int], int]):
        self._corpus = corpus
        self._shard_of_example = shard_of_example
        self._files = tf.constant(corpus.files)
        self._counts = tf.constant(corpus.num_examples, tf.int64)
        self._lock = threading.Lock()
        self._reported: set[int] = set()

    def records(self, shard: tf.Tensor) -> tf.Tensor:
        """[n] string: the serialized records of a shard, in the order they lie on disk. `shard`: scalar int64."""

        def read(shard: tf.Tensor) -> tf.Tensor:
            # One more than expected, so that a shard with too many is noticed too.
            dataset = tf.data.TFRecordDataset(self._files[shard]).batch(self._counts[shard] + 1)
            found = dataset.get_single_element()
            with tf.control_dependencies([tf.debugging.assert_equal(tf.size(found, tf.int64), self._counts[shard])]):
                return tf.identity(found)

        def examine(shard: tf.Tensor) -> tf.Tensor:
            return tf.ensure_shape(tf.numpy_function(self._examined_records, [shard], tf.string), [None])

        return or_else(shard, read, examine)

    def parse(self, serialized: tf.Tensor, first_example: tf.Tensor) -> dict[str, tf.Tensor]:
        """`corpus.parse` of consecutive examples; `first_example`: scalar int64, the first one's number."""

        def parse(serialized: tf.Tensor, first_example: tf.Tensor) -> dict[str, tf.Tensor]:
            return self._corpus.parse(serialized)

        def mend(serialized: tf.Tensor, first_example: tf.Tensor) -> dict[str, tf.Tensor]:
            mended = tf.numpy_function(self._mended_records, [serialized, first_example], tf.string)
            return self._corpus.parse(tf.ensure_shape(mended, serialized.shape))

        return or_else((serialized, first_example), parse, mend)

    def _examined_records(self, shard: np.int64) -> np.ndarray:
        """[n] bytes: a shard's records, with padding for those that cannot be read.

        Raises: DamagedData: if that is not allowed, or if the shard is not the one that the run was started with.
        """
        file, expected = self._corpus.files[shard], self._corpus.num_examples[shard]
        frames = read_frames(_content(file))
        if len(frames) > expected:
            raise DamagedData(
                f"{file} holds more than the {expected} examples it should; copy or build the data set again"
            )
        frames = self._with_unreadable_ones_marked(frames)
        missing = expected - len(frames)
        damaged = [number for number, frame in enumerate(frames) if frame.record is None]
        # If there are none, the storage failed for a moment.
        if damaged or missing:
            first = damaged[0] if damaged else len(frames)
            frame = frames[first] if damaged else Frame(_size(file), None, f"the file ends {missing} records too early")
            self._report(
                int(shard), f"{file}: record {first} at byte {frame.offset}: {frame.problem}", damaged, missing
            )
        padding = self._corpus.padding
        return _bytes_array([frame.record or padding for frame in frames] + [padding] * missing)

    def _mended_records(self, serialized: np.ndarray, first_example: np.int64) -> np.ndarray:
        """[b] bytes: the records of a part of a batch, with padding for those that cannot be parsed."""
        mended = list(serialized)
        for row in unreadable(mended, self._corpus.parse):
            shard = self._shard_of_example(int(first_example) + row)
            self._examined_records(np.int64(shard))  # names the record and its place, or stops
            mended[row] = self._corpus.padding
        return _bytes_array(mended)

    def _with_unreadable_ones_marked(self, frames: list[Frame]) -> list[Frame]:
        whole = [number for number, frame in enumerate(frames) if frame.record is not None]
        marked = list(frames)
        for index in unreadable([frames[number].record for number in whole], self._corpus.parse):
            number = whole[index]
            problem = "its checksum is right, but it holds no example that fits this run"
            marked[number] = Frame(frames[number].offset, None, problem)
        return marked

    def _report(self, shard: int, what: str, damaged: list[int], missing: int) -> None:
        """Stops, or says once what is left out."""
        if self._corpus.on_damaged_record == "stop":
            raise DamagedData(
                f"{what}; copy or build the data set again, or leave out what is damaged with "
                "--set data.on_damaged_record=skip"
            )
        with self._lock:
            if shard in self._reported:
                return
            self._reported.add(shard)
        count, total = len(damaged) + missing, self._corpus.num_examples[shard]
        logger.warning("damaged data: %s; %d of its %d examples count as padding", what, count, total)


def unreadable(records: Sequence[bytes], parse: Callable[[tf.Tensor], dict[str, tf.Tensor]]) -> list[int]:
    """The places of the records that `parse` refuses, found by halving what it refuses as a whole."""
    if not records:
        return []
    try:
        parse(tf.constant(records, tf.string))
    except tf.errors.OpError:
        if len(records) == 1:
            return [0]
        half = len(records) // 2
        second = [half + place for place in unreadable(records[half:], parse)]
        return unreadable(records[:half], parse) + second
    return []


def _content(file: str) -> bytes:
    try:
        with tf.io.gfile.GFile(file, "rb") as stream:
            return stream.read()
    except tf.errors.OpError as error:
        reason = str(error.message).strip().partition("\n")[0]
        raise DamagedData(
            f"{file} can no longer be read ({reason}); bring it back and give the same command again"
        ) from None


def _size(file: str) -> int:
    return tf.io.gfile.stat(file).length


def _bytes_array(records: Sequence[bytes]) -> np.ndarray:
    """[n] object: numpy's own type for bytes would cut zeros off their ends."""
    array = np.empty(len(records), object)
    array[:] = records
    return array
