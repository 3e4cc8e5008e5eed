"""Batches of a split in memory, of sequences of similar length. Batch k is a function of (seed, k) alone."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from electra_tf.data.batch import Batch
from electra_tf.data.features import Features

# So many batches are filled from one random share of the examples, sorted by length.
_BATCHES_OF_A_POOL = 32


def bucket_lengths(max_seq_length: int) -> tuple[int, ...]:
    """The lengths that training pads sequences to: few, as each one that occurs takes a second to compile for.

    They are at most a quarter apart from 16 on: 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, ...; the longest is
    `max_seq_length`.
    """
    octaves = ((2**power, max(4, 2 ** (power - 2))) for power in range(3, max(4, max_seq_length.bit_length())))
    lengths = (length for first, gap in octaves for length in range(first, 2 * first, gap))
    return (*(length for length in lengths if length < max_seq_length), max_seq_length)


def num_batches(num_rows: int, batch_size: int) -> int:
    """Batches of one pass; the last one is filled up."""
    return -(-num_rows // batch_size)


def training_order(features: Features, batch_size: int, seed: int, num_steps: int) -> np.ndarray:
    """The rows of each training batch: [num_steps, batch_size] int32, -1 where the last batch of an epoch is filled up.

    Every epoch has each row once, in an order of its own. Rows of similar length go together: those of a random share
    of the epoch are sorted by length and cut into batches, and the batches are shuffled.
    """
    steps_per_epoch = num_batches(features.num_rows, batch_size)
    epochs = [_epoch(features.lengths, batch_size, seed, epoch) for epoch in range(-(-num_steps // steps_per_epoch))]
    return np.concatenate(epochs)[:num_steps]


def evaluation_order(features: Features, batch_size: int) -> np.ndarray:
    """The rows of each batch of one pass, the longest first: as `training_order`."""
    return _filled(np.argsort(-features.lengths, kind="stable"), batch_size)


def padded_lengths(features: Features, order: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
    """[steps] int64: what each batch is padded to, the first of `lengths` that is enough for all of its rows."""
    longest = np.where(order >= 0, features.lengths[order], 0).max(axis=1)
    return np.asarray(lengths)[np.searchsorted(lengths, longest)]


def padding_share(features: Features, order: np.ndarray, lengths: Sequence[int]) -> float:
    """The share of padding in the tokens of all batches of an order."""
    of_batches = padded_lengths(features, order, lengths)
    real = np.where(order >= 0, features.lengths[order], 0).sum()
    return 1.0 - real / float(of_batches.sum() * order.shape[1])


def batches(
    features: Features, order: np.ndarray, lengths: Sequence[int], context: tf.distribute.InputContext | None = None
) -> tf.data.Dataset:
    """The batches of an order, from its first to its last.

    Args:
        order: of `training_order` or `evaluation_order`; from a later row on, to begin with a later batch.
        lengths: of `bucket_lengths`; each batch is padded to the first that is enough.
        context: which share of each batch this pipeline prepares; None for all of it.
    Returns: batches for one replica each, those of one step one after another: `input_ids`, `input_mask`, `segment_ids`
        and the token targets [B, S]; the row targets [B, ...]; `row_weights` [B] float32, 0 in a row that fills the
        batch up; `row_index` [B] int32, -1 there. S is None unless `lengths` is a single one.
    """
    context = context or tf.distribute.InputContext()
    assert order.shape[1] % context.num_replicas_in_sync == 0, "some rows would be in no replica's batch"
    replica_size = order.shape[1] // context.num_replicas_in_sync
    share = order.shape[1] // context.num_input_pipelines
    mine = order[:, context.input_pipeline_id * share :][:, :share].reshape(-1, replica_size)
    step_lengths = np.repeat(padded_lengths(features, order, lengths), share // replica_size)
    tables = _Tables(features)
    static_length = lengths[0] if len(lengths) == 1 else None
    rows_and_lengths = tf.data.Dataset.from_tensor_slices((mine.astype(np.int32), step_lengths.astype(np.int32)))
    prepared = rows_and_lengths.map(
        lambda rows, length: tables.batch(rows, length, static_length),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    options = tf.data.Options()
    options.deterministic = True
    options.autotune.enabled = False  # a tuned iterator may take a second or more to end: see `Evaluator`
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return prepared.prefetch(tf.data.AUTOTUNE).with_options(options)


class _Tables:
    """The arrays of a split as tensors on the host, from which batches are gathered."""

    def __init__(self, features: Features):
        with tf.device("CPU:0"):
            splits = tf.constant(features.row_splits)
            flat = {
                "input_ids": features.input_ids,
                "input_mask": np.ones_like(features.input_ids),
                "segment_ids": features.segment_ids,
                **features.token_targets,
            }
            self._of_tokens = {
                name: tf.RaggedTensor.from_row_splits(tf.constant(values), splits, validate=False)
                for name, values in flat.items()
            }
            self._of_rows = {name: tf.constant(values) for name, values in features.row_targets.items()}

    def batch(self, rows: tf.Tensor, length: tf.Tensor, static_length: int | None) -> Batch:
        """The batch of some rows [B], padded to `length`."""
        real, indices = rows >= 0, tf.maximum(rows, 0)

        def padded(table: tf.RaggedTensor) -> tf.Tensor:
            values = tf.gather(table, indices).to_tensor(shape=tf.stack([-1, length]))
            values = tf.where(real[:, tf.newaxis], values, tf.zeros([], values.dtype))
            return tf.ensure_shape(values, [rows.shape[0], static_length])

        def of_rows(table: tf.Tensor) -> tf.Tensor:
            values = tf.gather(table, indices)
            return tf.where(tf.reshape(real, [-1, *[1] * (values.shape.rank - 1)]), values, tf.zeros([], values.dtype))

        return {
            **{name: padded(table) for name, table in self._of_tokens.items()},
            **{name: of_rows(table) for name, table in self._of_rows.items()},
            "row_weights": tf.cast(real, tf.float32),
            "row_index": rows,
        }


def _epoch(lengths: np.ndarray, batch_size: int, seed: int, epoch: int) -> np.ndarray:
    random = np.random.Generator(np.random.Philox(key=[seed, epoch]))
    shuffled = random.permutation(len(lengths))
    pool = _BATCHES_OF_A_POOL * batch_size
    pools = [shuffled[start : start + pool] for start in range(0, len(shuffled), pool)]
    by_length = [rows[np.argsort(lengths[rows], kind="stable")] for rows in pools]
    order = np.concatenate([_filled(rows, batch_size) for rows in by_length])
    return order[random.permutation(len(order))]


def _filled(rows: np.ndarray, batch_size: int) -> np.ndarray:
    filling = np.full(-len(rows) % batch_size, -1, rows.dtype)
    return np.concatenate([rows, filling]).reshape(-1, batch_size)
