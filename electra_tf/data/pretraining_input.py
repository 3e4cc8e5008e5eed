"""Batches for pre-training. Batch k is a function of (seed, k) alone.

An epoch permutes the shards, and the examples within each shard, both by (seed, epoch). So reading can start directly
at any batch of any epoch: the numbers of examples per shard determine its shard. (The builder shuffles examples over
all shards.) One shard is held in memory while the next one is read. A mixture reads each of its sources like this.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from electra_tf.config.schema import MaskingConfig
from electra_tf.data.batch import Batch, prefetched
from electra_tf.data.corpus import Corpus, PretrainingData
from electra_tf.data.masking import mask_batch
from electra_tf.data.mixture import PERIOD, source_order
from electra_tf.data.records import padding_example
from electra_tf.ops.random import RandomStream

_Function = TypeVar("_Function", bound=Callable[..., Any])

# Autograph's conversion of the functions below takes a second, and they have no control flow in Python.
_without_autograph: Callable[[_Function], _Function] = tf.autograph.experimental.do_not_convert

# The permutations must not share a seed.
_SHARD_ORDER, _EXAMPLE_ORDER = 1, 2


@_without_autograph
def training_batches(
    data: PretrainingData,
    masking: MaskingConfig,
    *,
    seed: int,
    batch_size: int,
    first_step: int,
    num_steps: int,
    input_context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """Endless training batches from step `first_step` on.

    Args:
        batch_size: examples of one step over all replicas, a multiple of their number.
        first_step: counted from the start of this input.
        num_steps: of this input, over which a `masked_fraction` of two numbers changes.
        input_context: the share of each batch that this pipeline prepares; None for all of it, as one batch per step.
    Returns: a batch of `mask_batch` for each replica; those of a step in replica order.
    """
    records = mixed_records(data.sources, seed, first_step * batch_size)
    batches = records.batch(batch_size, drop_remainder=True).enumerate(first_step)
    stream = functools.partial(RandomStream, seed, name="masking")
    return _prepared(batches, data, data.train, masking, stream, batch_size, input_context, num_steps)


@_without_autograph
def evaluation_batches(
    data: PretrainingData,
    masking: MaskingConfig,
    *,
    seed: int,
    batch_size: int,
    max_batches: int,
    input_context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """One pass over each source's held-out split in the order on disk, with the same masks each time.

    The last batch of a source is filled with rows of padding, whose weights are 0.

    Args and returns: as `training_batches`, but at most `max_batches` steps a source, and with one `masked_fraction`.
    """

    def one_pass(corpus: Corpus) -> tf.data.Dataset:
        padding = tf.data.Dataset.from_tensors(padding_example(corpus.layout, corpus.max_seq_length))
        padding = padding.repeat(-corpus.total_examples % batch_size)
        records = tf.data.Dataset.range(len(corpus.files)).map(corpus.records).unbatch().concatenate(padding)
        return records.batch(batch_size, drop_remainder=True).take(max_batches).enumerate()

    assert data.held_out is not None, "without a held-out split there is no evaluation"
    passes = [one_pass(source.held_out) for source in data.sources if source.held_out]
    batches = functools.reduce(tf.data.Dataset.concatenate, passes)
    stream = functools.partial(RandomStream, seed, name="evaluation_masking")
    return _prepared(batches, data, data.held_out, masking, stream, batch_size, input_context, num_steps=1)


def num_evaluation_batches(data: PretrainingData, batch_size: int, max_batches: int) -> int:
    """The number of steps of `evaluation_batches`; 0 without a held-out split."""
    sizes = [source.held_out.total_examples for source in data.sources if source.held_out]
    return sum(min(max_batches, -(-size // batch_size)) for size in sizes)


def _prepared(
    batches: tf.data.Dataset,
    data: PretrainingData,
    corpus: Corpus,
    masking: MaskingConfig,
    stream: Callable[..., RandomStream],
    batch_size: int,
    input_context: tf.distribute.InputContext | None,
    num_steps: int,
) -> tf.data.Dataset:
    """Parses and masks this pipeline's share of each batch, and splits it into the batches of its replicas.

    Args:
        batches: pairs of a step and the serialized records of the whole batch, [batch_size] string.
        stream: (step, first example) -> the random numbers of a batch.
    """
    context = input_context or tf.distribute.InputContext()
    share = batch_size // context.num_input_pipelines
    first_row, vocabulary = share * context.input_pipeline_id, data.masking_vocabulary

    def prepare(step: tf.Tensor, whole: tf.Tensor) -> Batch:
        batch = corpus.parse(whole[first_row : first_row + share])
        progress = tf.cast(tf.minimum(step / num_steps, 1.0), tf.float32)
        return mask_batch(batch, masking, vocabulary, stream(step, first_row), progress)

    prepared = batches.map(prepare, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    replica_batch_size = batch_size // context.num_replicas_in_sync
    if replica_batch_size != share:
        prepared = prepared.rebatch(replica_batch_size, drop_remainder=True)
    return prefetched(prepared)


def mixed_records(sources: Sequence[PretrainingData], seed: int, first_example: int) -> tf.data.Dataset:
    """The serialized records of an endless stream, from example `first_example` on, in which each source has its share.

    The order of a source's examples is that of a stream of it alone.
    """
    order = source_order([source.share for source in sources])
    periods, index = divmod(first_example, PERIOD)
    begins = periods * np.bincount(order) + np.bincount(order[:index], minlength=len(sources))
    streams = [shuffled_records(source.train, seed, int(begin)) for source, begin in zip(sources, begins, strict=True)]
    if len(streams) == 1:
        return streams[0]  # a choice for each example costs time
    choices = tf.data.Dataset.from_tensor_slices(np.roll(order, -index)).repeat()
    return tf.data.Dataset.choose_from_datasets(streams, choices)


def shuffled_records(corpus: Corpus, seed: int, first_example: int) -> tf.data.Dataset:
    """The serialized records of an endless stream of epochs, from example `first_example` on.

    Each epoch visits each shard once; visits are numbered consecutively over all epochs.
    """
    num_shards, counts = len(corpus.files), tf.constant(corpus.num_examples)

    def permutation(size: tf.Tensor | int, purpose: int, number: tf.Tensor) -> tf.Tensor:  # [size] int32
        key = tf.random.experimental.stateless_fold_in(tf.constant([seed, purpose], tf.int64), number)
        return tf.random.experimental.stateless_shuffle(tf.range(size), seed=key)

    epoch, index = divmod(first_example, corpus.total_examples)
    shard_order = permutation(num_shards, _SHARD_ORDER, tf.constant(epoch, tf.int64)).numpy()
    begins = np.cumsum([0, *np.asarray(corpus.num_examples)[shard_order]])
    slot = int(np.searchsorted(begins, index, side="right")) - 1
    first_visit, num_skipped = epoch * num_shards + slot, index - int(begins[slot])

    def records_of_visit(visit: tf.Tensor) -> tf.Tensor:
        shard = tf.cast(permutation(num_shards, _SHARD_ORDER, visit // num_shards)[visit % num_shards], tf.int64)
        order = permutation(counts[shard], _EXAMPLE_ORDER, visit)
        order = order[tf.where(visit == first_visit, num_skipped, 0) :]
        return tf.gather(corpus.records(shard), order)

    visits = tf.data.Dataset.range(first_visit, np.iinfo(np.int64).max)
    # The next shard is read while this one is used.
    return visits.map(records_of_visit).prefetch(1).unbatch()
