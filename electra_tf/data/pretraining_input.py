"""Batches for pre-training. Batch k is a function of (seed, k) alone.

The order of an epoch is a permutation of the shards, and within each shard a permutation of its examples, both
computed from (seed, epoch). So the reader can start at any batch of any epoch at once: it finds the shard by its counts
and skips within that one. Shards are shuffled globally when they are built. One shard is held in memory while the next
is read.
"""

import numpy as np
import tensorflow as tf

from electra_tf.config.schema import MaskingConfig
from electra_tf.data.corpus import Corpus
from electra_tf.data.masking import SpecialIds, mask_batch
from electra_tf.random import RandomStream

Batches = tf.data.Dataset

WRONG_COUNT = "does not hold the number of examples that the manifest names"

# The two permutations must not share a seed.
_SHARD_ORDER, _EXAMPLE_ORDER = 1, 2


def training_batches(
    corpus: Corpus,
    masking: MaskingConfig,
    special: SpecialIds,
    *,
    seed: int,
    batch_size: int,
    first_step: int,
    input_context: tf.distribute.InputContext | None = None,
) -> Batches:
    """Endless training batches from step `first_step` on.

    Args:
        batch_size: examples of one step over all replicas; it must divide among them.
        input_context: which share of each batch this pipeline prepares; None for all of it, as one batch a step.
    Returns: batches of `mask_batch`, each for one replica; those of one step follow each other in replica order.
    """
    context = input_context or tf.distribute.InputContext()
    share = batch_size // context.num_input_pipelines
    offset = share * context.input_pipeline_id

    def prepare(step: tf.Tensor, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = corpus.parse(serialized[offset : offset + share])
        return mask_batch(batch, masking, special, RandomStream(seed, step, offset, name="masking"))

    batches = (
        shuffled_records(corpus, seed, first_step * batch_size)
        .batch(batch_size, drop_remainder=True)
        .enumerate(start=first_step)
        .map(prepare, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    )
    return _for_replicas(batches, batch_size // context.num_replicas_in_sync, share)


def evaluation_batches(
    corpus: Corpus,
    masking: MaskingConfig,
    special: SpecialIds,
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

    def prepare(step: tf.Tensor, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = {name: _fill_up(rows, batch_size) for name, rows in corpus.parse(serialized).items()}
        batch = {name: rows[offset : offset + share] for name, rows in batch.items()}
        return mask_batch(batch, masking, special, RandomStream(seed, step, offset, name="evaluation_masking"))

    batches = (
        tf.data.TFRecordDataset(list(corpus.files))
        .batch(batch_size)
        .take(max_batches)
        .enumerate()
        .map(prepare, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    )
    return _for_replicas(batches, batch_size // context.num_replicas_in_sync, share)


def num_evaluation_batches(corpus: Corpus, batch_size: int, max_batches: int) -> int:
    """How many steps `evaluation_batches` has."""
    return min(max_batches, -(-corpus.total_examples // batch_size))


def shuffled_records(corpus: Corpus, seed: int, first_example: int) -> tf.data.Dataset:
    """Serialized records without end, from number `first_example` of the whole stream of epochs on.

    Raises: tf.errors.InvalidArgumentError: when read, if a shard does not hold as many records as it should.
    """
    files, counts = tf.constant(corpus.files), tf.constant(corpus.num_examples, tf.int64)
    first_visit, to_skip = _locate(corpus, seed, first_example)

    def records_of_visit(visit: tf.Tensor) -> tf.Tensor:
        epoch, place = visit // len(corpus.files), visit % len(corpus.files)
        shard = _shard_order(len(corpus.files), seed, epoch)[place]
        # One more than expected, so that a shard with too many is noticed too.
        found = tf.data.TFRecordDataset(files[shard]).batch(counts[shard] + 1).get_single_element()
        message = tf.strings.join([files[shard], WRONG_COUNT], separator=" ")
        with tf.control_dependencies([tf.debugging.Assert(tf.size(found, tf.int64) == counts[shard], [message])]):
            order = _permutation(tf.size(found), seed, _EXAMPLE_ORDER, visit)
        return tf.gather(found, order)

    visits = tf.data.Dataset.range(first_visit, np.iinfo(np.int64).max)
    # The next shard is read while this one is used.
    return visits.map(records_of_visit).prefetch(1).unbatch().skip(to_skip)


def _locate(corpus: Corpus, seed: int, first_example: int) -> tuple[int, int]:
    """The visit (the shards of all epochs, counted through) that holds an example, and its place in that visit."""
    epoch, place = divmod(first_example, corpus.total_examples)
    order = _shard_order(len(corpus.files), seed, tf.constant(epoch, tf.int64)).numpy()
    ends = np.cumsum(np.asarray(corpus.num_examples)[order])
    slot = int(np.searchsorted(ends, place, side="right"))
    return epoch * len(corpus.files) + slot, place - (int(ends[slot - 1]) if slot else 0)


def _shard_order(num_shards: int, seed: int, epoch: tf.Tensor) -> tf.Tensor:
    return _permutation(tf.constant(num_shards), seed, _SHARD_ORDER, epoch)


def _permutation(size: tf.Tensor, seed: int, purpose: int, number: tf.Tensor) -> tf.Tensor:
    """[size] int32: the permutation that belongs to (seed, purpose, number)."""
    key = tf.random.experimental.stateless_fold_in(tf.constant([seed, purpose], tf.int64), number)
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
