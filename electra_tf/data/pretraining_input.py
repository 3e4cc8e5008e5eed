"""Batches for pre-training. Batch k is a function of (seed, k) alone.

The order of an epoch is a permutation of the shards, and within each shard a permutation of its examples, both
computed from (seed, epoch). So the reader can start at any batch of any epoch at once: it finds the shard by its counts
and takes the rest of that one's permutation. Shards are shuffled globally when they are built. One shard is held in
memory while the next is read. What cannot be read is `electra_tf.data.damage`'s matter.
"""

import numpy as np
import tensorflow as tf

from electra_tf.config.schema import MaskingConfig
from electra_tf.data.corpus import Corpus
from electra_tf.data.damage import RecordReader
from electra_tf.data.masking import MaskingVocabulary, mask_batch
from electra_tf.ops.random import RandomStream

Batches = tf.data.Dataset

# The permutations must not share a seed.
_SHARD_ORDER, _EXAMPLE_ORDER = 1, 2


def training_batches(
    corpus: Corpus,
    masking: MaskingConfig,
    special: MaskingVocabulary,
    *,
    seed: int,
    batch_size: int,
    first_step: int,
    input_context: tf.distribute.InputContext | None = None,
) -> Batches:
    """Endless training batches from step `first_step` on.

    Args:
        batch_size: examples of one step over all replicas; it must divide among them.
        first_step: counted from the start of this input.
        input_context: which share of each batch this pipeline prepares; None for all of it, as one batch a step.
    Returns: batches of `mask_batch`, each for one replica; those of one step follow each other in replica order.
    """
    context = input_context or tf.distribute.InputContext()
    share = batch_size // context.num_input_pipelines
    offset = share * context.input_pipeline_id

    order = EpochOrder(corpus, seed)
    reader = RecordReader(corpus, order.shard_of)

    def prepare(step: tf.Tensor, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = reader.parse(serialized[offset : offset + share], step * batch_size + offset)
        return mask_batch(batch, masking, special, RandomStream(seed, step, offset, name="masking"))

    batches = (
        order.records(reader, first_step * batch_size)
        .batch(batch_size, drop_remainder=True)
        .enumerate(start=first_step)
        .map(prepare, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    )
    return _for_replicas(batches, batch_size // context.num_replicas_in_sync, share)


def evaluation_batches(
    corpus: Corpus,
    masking: MaskingConfig,
    special: MaskingVocabulary,
    *,
    seed: int,
    batch_size: int,
    max_batches: int,
    input_context: tf.distribute.InputContext | None = None,
) -> Batches:
    """One pass over a split, in the order it lies on disk, masked the same way every time.

    The last batch is filled up with rows of padding, in which nothing is real or masked, so nothing counts.

    Args and returns: as `training_batches`; at most `max_batches` steps.
    """
    context = input_context or tf.distribute.InputContext()
    share = batch_size // context.num_input_pipelines
    offset = share * context.input_pipeline_id

    first_of_shard = np.cumsum([0, *corpus.num_examples])
    reader = RecordReader(corpus, lambda example: int(np.searchsorted(first_of_shard, example, side="right")) - 1)

    def prepare(step: tf.Tensor, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = reader.parse(serialized, step * batch_size)
        batch = {name: _fill_up(rows, batch_size)[offset : offset + share] for name, rows in batch.items()}
        return mask_batch(batch, masking, special, RandomStream(seed, step, offset, name="evaluation_masking"))

    batches = (
        tf.data.Dataset.range(len(corpus.files))
        .map(reader.records)
        .unbatch()
        .batch(batch_size)
        .take(max_batches)
        .enumerate()
        .map(prepare, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    )
    return _for_replicas(batches, batch_size // context.num_replicas_in_sync, share)


def num_evaluation_batches(corpus: Corpus, batch_size: int, max_batches: int) -> int:
    """How many steps `evaluation_batches` has."""
    return min(max_batches, -(-corpus.total_examples // batch_size))


class EpochOrder:
    """Which record comes when, in an endless stream of epochs.

    A visit is the reading of one shard; the visits of all epochs are counted through.
    """

    def __init__(self, corpus: Corpus, seed: int):
        self._corpus = corpus
        self._seed = seed

    def records(self, reader: RecordReader, first_example: int) -> tf.data.Dataset:
        """Serialized records without end, from example `first_example` of the stream on."""
        counts = tf.constant(self._corpus.num_examples)
        first_visit, first_place = self._locate(first_example)

        def records_of_visit(visit: tf.Tensor) -> tf.Tensor:
            shard = self._shard_of_visit(visit)
            order = self._permutation(counts[shard], _EXAMPLE_ORDER, visit)
            begin = tf.where(visit == first_visit, first_place, 0)
            return tf.gather(reader.records(tf.cast(shard, tf.int64)), order[begin:])

        visits = tf.data.Dataset.range(first_visit, np.iinfo(np.int64).max)
        # The next shard is read while this one is used.
        return visits.map(records_of_visit).prefetch(1).unbatch()

    def shard_of(self, example: int) -> int:
        """The shard, an index into the corpus's files, that holds an example of the stream."""
        visit, _ = self._locate(example)
        return int(self._shard_of_visit(tf.constant(visit, tf.int64)))

    def _locate(self, example: int) -> tuple[int, int]:
        """The visit that holds an example, and its place in that visit."""
        epoch, place = divmod(example, self._corpus.total_examples)
        order = self._shard_order(tf.constant(epoch, tf.int64)).numpy()
        ends = np.cumsum(np.asarray(self._corpus.num_examples)[order])
        slot = int(np.searchsorted(ends, place, side="right"))
        return epoch * len(self._corpus.files) + slot, place - (int(ends[slot - 1]) if slot else 0)

    def _shard_of_visit(self, visit: tf.Tensor) -> tf.Tensor:
        num_shards = len(self._corpus.files)
        return self._shard_order(visit // num_shards)[visit % num_shards]

    def _shard_order(self, epoch: tf.Tensor) -> tf.Tensor:
        return self._permutation(tf.constant(len(self._corpus.files)), _SHARD_ORDER, epoch)

    def _permutation(self, size: tf.Tensor, purpose: int, number: tf.Tensor) -> tf.Tensor:
        """[size] int32: the permutation that belongs to (seed, purpose, number)."""
        seed = tf.constant([self._seed, purpose], tf.int64)
        key = tf.random.experimental.stateless_fold_in(seed, number)
        return tf.random.experimental.stateless_shuffle(tf.range(size), seed=key)


def _fill_up(rows: tf.Tensor, num_rows: int) -> tf.Tensor:
    """[b, S] -> [num_rows, S], with rows of zeros below."""
    filled = tf.pad(rows, [[0, num_rows - tf.shape(rows)[0]], [0, 0]])
    return tf.ensure_shape(filled, [num_rows, rows.shape[1]])


def _for_replicas(batches: Batches, replica_batch_size: int, pipeline_batch_size: int) -> Batches:
    """Cuts the batches of a pipeline into those of its replicas, and reads ahead."""
    if replica_batch_size != pipeline_batch_size:
        batches = batches.rebatch(replica_batch_size, drop_remainder=True)
    options = tf.data.Options()
    options.deterministic = True
    # Each pipeline takes its share itself; TensorFlow must not divide the files or batches once more.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return batches.prefetch(tf.data.AUTOTUNE).with_options(options)
