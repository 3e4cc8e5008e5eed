"""Records and shards that cannot be read: the run stops and names them, or they count as examples of padding.

Sound data is read by TensorFlow alone. Only if that fails is the shard looked at here, record by record. Padding in the
place of a damaged record keeps every other example in its own place, so batch k stays the same function of (seed, k);
a row of padding holds no token, so nothing in it is masked, predicted or counted.
"""

import contextlib
import logging
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError, first_line
from electra_tf.data.batch import Batch
from electra_tf.data.corpus import Corpus
from electra_tf.data.record_frames import Frame, read_frames

logger = logging.getLogger(__name__)


class DamagedData(Exception):
    """Raised inside the input pipeline. TensorFlow makes an error of its own of it, see `damaged_data_reported`."""


@contextlib.contextmanager
def damaged_data_reported() -> Iterator[None]:
    """Around whatever takes batches: turns a `DamagedData` into a `UserError` of one line."""
    try:
        yield
    except tf.errors.OpError as error:
        # TensorFlow passes an exception out of a pipeline as text, with its type's name and a trace around it.
        described = re.search(rf"{DamagedData.__name__}: (.*)", str(error))
        if described is None:
            raise
        raise UserError(described[1].strip()) from None


def or_else(argument, preferred: Callable, otherwise: Callable):
    """Graph op: `preferred(*argument)`, or `otherwise(*argument)` if TensorFlow fails to compute that.

    A graph cannot catch an error, but a data set can leave out an element that fails. It costs some 60 us a call.
    """
    source = tf.data.Dataset.from_tensors(argument)
    return source.map(preferred).ignore_errors().concatenate(source.map(otherwise)).take(1).get_single_element()


class RecordReader:
    """Reads the shards of a corpus and parses their records, damaged or not. A shard is an index into its files."""

    def __init__(self, corpus: Corpus):
        self._corpus = corpus
        self._files = tf.constant(corpus.files)
        self._counts = tf.constant(corpus.num_examples, tf.int64)
        self._reported: set[int] = set()

    def records(self, shard: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The serialized records of a shard, [n] string in the order on disk, and the shard's index, [n] int64."""

        def read(shard: tf.Tensor) -> tf.Tensor:
            # Reads up to one more than expected, so that a shard with too many records fails as well.
            dataset = tf.data.TFRecordDataset(self._files[shard]).batch(self._counts[shard] + 1)
            serialized = dataset.get_single_element()
            check = tf.debugging.assert_equal(tf.size(serialized, tf.int64), self._counts[shard])
            with tf.control_dependencies([check]):
                return tf.identity(serialized)

        def examine(shard: tf.Tensor) -> tf.Tensor:
            return tf.ensure_shape(tf.numpy_function(self.examine, [shard], tf.string), [None])

        records = or_else(shard, read, examine)
        return records, tf.fill(tf.shape(records), shard)

    def parse(self, serialized: tf.Tensor, shards: tf.Tensor) -> Batch:
        """`corpus.parse` of [b] string; `shards`: [b] int64, from which each record comes."""

        def mend_and_parse(serialized: tf.Tensor, shards: tf.Tensor) -> Batch:
            mended = tf.numpy_function(self._mend, [serialized, shards], tf.string)
            return self._corpus.parse(tf.ensure_shape(mended, serialized.shape))

        return or_else((serialized, shards), lambda records, _: self._corpus.parse(records), mend_and_parse)

    def examine(self, shard: np.int64) -> np.ndarray:
        """[n] bytes: a shard's records, with padding for those that cannot be read.

        Raises: DamagedData: if that is not allowed, or if the shard is not the one that the run was started with.
        """
        file, expected = self._corpus.files[shard], self._corpus.num_examples[shard]
        try:
            frames = list(read_frames(file))
            size = tf.io.gfile.stat(file).length
        except tf.errors.OpError as error:
            raise DamagedData(
                f"{file} can no longer be read ({first_line(error)}); bring it back and give the same command again"
            ) from None
        padding = self._corpus.padding
        for number in unreadable([frame.record or padding for frame in frames], self._corpus.parse):
            problem = "its checksum is right, but it holds no example that fits this run"
            frames[number] = Frame(frames[number].offset, None, problem)
        if len(frames) > expected:
            raise DamagedData(
                f"{file} holds more than the {expected} examples it should; copy or build the data set again"
            )
        missing = expected - len(frames)
        frames += [Frame(size, None, f"the file ends {missing} records too early")] * missing
        self._report(int(shard), [number for number, frame in enumerate(frames) if frame.record is None], frames)
        return np.array([frame.record or padding for frame in frames], object)  # numpy's bytes would lose final zeros

    def _report(self, shard: int, lost: list[int], frames: list[Frame]) -> None:
        """Stops, or warns once per shard, if a record is lost; else the storage failed for a moment."""
        if not lost or shard in self._reported:
            return
        first = frames[lost[0]]
        what = f"{self._corpus.files[shard]}: record {lost[0]} at byte {first.offset}: {first.problem}"
        if self._corpus.on_damaged_record == "stop":
            raise DamagedData(
                f"{what}; copy or build the data set again, or leave out what is damaged with "
                "--set data.on_damaged_record=skip"
            )
        self._reported.add(shard)
        logger.warning("damaged data: %s; %d of its %d examples count as padding", what, len(lost), len(frames))

    def _mend(self, serialized: np.ndarray, shards: np.ndarray) -> np.ndarray:
        """[b] bytes: the records of a part of a batch, with padding for those that cannot be parsed."""
        mended = list(serialized)
        for row in unreadable(mended, self._corpus.parse):
            self.examine(shards[row])  # names the record, or stops
            mended[row] = self._corpus.padding
        return np.array(mended, object)


def unreadable(records: Sequence[bytes], parse: Callable[[tf.Tensor], Batch]) -> list[int]:
    """The indices of the records that `parse` refuses, found by bisection."""
    if not records:
        return []
    try:
        parse(tf.constant(records, tf.string))
    except tf.errors.OpError:
        if len(records) == 1:
            return [0]
        half = len(records) // 2
        second = [half + index for index in unreadable(records[half:], parse)]
        return unreadable(records[:half], parse) + second
    return []
