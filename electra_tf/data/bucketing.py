"""The examples of a fine-tuning task in memory, and their batches of sequences of similar length.

Batch k is a function of (seed, k) alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from electra_tf.data.batch import Batch, prefetched

_BATCHES_OF_A_POOL = 32  # batches that are cut from one random share of the examples, sorted by length


@dataclass(frozen=True)
class Features:
    """The sequences of a split without padding: N rows with T tokens in total. A long text has a row for each window.

    A row of multiple choice consists of several sequences, one for each choice.

    Attributes:
        input_ids, segment_ids: [T] int32, [CLS] and [SEP] included.
        row_splits: [N + 1] int64, ascending from 0 to T: row i has the tokens from `row_splits[i]` on.
        example_index: [N] int32, the example of each row, ascending; several rows may have the same one.
        row_targets: by name, [N, ...] int32 or float32: the targets of rows.
        token_targets: by name, [T] int32 or float32: the targets of tokens.
        choice_splits: as `row_splits`, for each choice of each row; None if a row is one sequence.
    """

    input_ids: npt.NDArray[np.int32]
    segment_ids: npt.NDArray[np.int32]
    row_splits: npt.NDArray[np.int64]
    example_index: npt.NDArray[np.int32]
    row_targets: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    token_targets: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    choice_splits: npt.NDArray[np.int64] | None = None

    @property
    def num_rows(self) -> int:
        return len(self.row_splits) - 1

    @property
    def sequence_splits(self) -> npt.NDArray[np.int64]:
        """As `row_splits`, for each sequence: each row, or each choice of each row."""
        return self.row_splits if self.choice_splits is None else self.choice_splits

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """[N] int64: the number of tokens of each row's longest sequence."""
        lengths = np.diff(self.sequence_splits)
        return lengths if self.choice_splits is None else np.maximum.reduceat(lengths, self.first_choice[:-1])

    @cached_property
    def first_choice(self) -> npt.NDArray[np.int64]:
        """[N + 1] int64: the index in `sequence_splits` of each row's first choice, and of the end."""
        return np.searchsorted(self.sequence_splits, self.row_splits)

    @property
    def num_choices(self) -> int:
        """C: the number of sequences of the row that has most."""
        return 1 if self.choice_splits is None else int(np.diff(self.first_choice).max(initial=1))

    def row(self, index: int) -> slice:
        """Where the tokens of a row are in the flat arrays."""
        return slice(int(self.row_splits[index]), int(self.row_splits[index + 1]))


def bucket_lengths(max_seq_length: int, whole_step: bool = False) -> tuple[int, ...]:
    """The lengths that training pads sequences to: few, because compiling for a length takes a second.

    From 16 on they are at most a quarter apart: 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, ...; the longest is
    `max_seq_length`. If XLA compiles the whole step for each, which takes many seconds, they double: 8, 16, 32, ...
    """
    octaves = (2**power for power in range(3, max(4, max_seq_length.bit_length())))
    gaps = ((first, first if whole_step else max(4, first // 4)) for first in octaves)
    lengths = (length for first, gap in gaps for length in range(first, 2 * first, gap))
    return (*(length for length in lengths if length < max_seq_length), max_seq_length)


def training_order(features: Features, batch_size: int, seed: int, num_steps: int) -> npt.NDArray[np.int64]:
    """The rows of each training batch: [num_steps, batch_size] int32, -1 for padding rows of an epoch's last batch.

    Every epoch has each row once, in another order. Rows of similar length go together: the rows of a random part of
    the epoch are sorted by length and cut into batches, and the batches are shuffled.
    """
    steps_per_epoch = -(-features.num_rows // batch_size)
    pool, epochs = _BATCHES_OF_A_POOL * batch_size, []
    for epoch in range(-(-num_steps // steps_per_epoch)):
        random = np.random.Generator(np.random.Philox(key=[seed, epoch]))
        shuffled = random.permutation(features.num_rows)
        pools = [shuffled[start : start + pool] for start in range(0, features.num_rows, pool)]
        by_length = [rows[np.argsort(features.lengths[rows], kind="stable")] for rows in pools]
        order = np.concatenate([_filled(rows, batch_size) for rows in by_length])
        epochs.append(order[random.permutation(len(order))])
    return np.concatenate(epochs)[:num_steps]


def evaluation_order(features: Features, batch_size: int) -> npt.NDArray[np.int64]:
    """The rows of each batch of one pass, the longest first: [steps, batch_size], -1 for padding rows."""
    return _filled(np.argsort(-features.lengths, kind="stable"), batch_size)


def fitting_batch_size(num_rows: int, batch_size: int) -> int:
    """The batch size for one pass over perhaps few rows: a power of two, so that few sizes are traced."""
    return min(batch_size, 1 << (num_rows - 1).bit_length())


def padded_lengths(features: Features, order: npt.NDArray[np.integer], lengths: Sequence[int]) -> npt.NDArray[np.int64]:
    """The length that each batch is padded to: the first of `lengths` that its longest row fits into. [steps] int64."""
    longest = np.where(order >= 0, features.lengths[order], 0).max(axis=1)
    return np.asarray(lengths)[np.searchsorted(lengths, longest)]


def padded_batches(
    features: Features,
    order: npt.NDArray[np.integer],
    lengths: Sequence[int],
    context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """The padded batches of the rows in `order`.

    Args:
        order: result of `training_order` or `evaluation_order`, or its rows from a later batch on.
        lengths: see `padded_lengths`.
        context: the share of each batch that this pipeline prepares; None for all of it.
    Returns: a batch for each replica, those of a step in replica order. A batch has `input_ids`, `input_mask`,
        `segment_ids` and the token targets [B, S]; the row targets [B, ...]; `row_weights` [B] float32, 0 for padding
        rows; `row_index` [B] int32, -1 for padding rows. S is static if `lengths` has only one length. With several
        sequences a row [B, C, S] in place of [B, S]; a choice that a row lacks is padding.
    """
    context = context or tf.distribute.InputContext()
    assert order.shape[1] % context.num_replicas_in_sync == 0, "some rows would be in no replica's batch"
    replica_size = order.shape[1] // context.num_replicas_in_sync
    share = order.shape[1] // context.num_input_pipelines
    mine = order[:, context.input_pipeline_id * share :][:, :share].reshape(-1, replica_size)
    step_lengths = np.repeat(padded_lengths(features, order, lengths), share // replica_size)
    rows_and_lengths = tf.data.Dataset.from_tensor_slices((mine.astype(np.int32), step_lengths.astype(np.int32)))
    batch_of = _batch_function(features, lengths[0] if len(lengths) == 1 else None)
    return prefetched(rows_and_lengths.map(batch_of, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True))


def _batch_function(features: Features, static_length: int | None) -> Callable[[tf.Tensor, tf.Tensor], Batch]:
    """The function of rows [B] int32 and a length that gives their batch of this length; -1 gives a padding row."""
    splits, choices = [features.sequence_splits], []  # `choices`: the axis of choices, if there is one
    if features.choice_splits is not None:
        splits, choices = [features.first_choice, *splits], [features.num_choices]
    flat = {
        "input_ids": features.input_ids,
        "input_mask": np.ones_like(features.input_ids),
        "segment_ids": features.segment_ids,
        **features.token_targets,
    }
    with tf.device("CPU:0"):
        of_tokens = {
            name: tf.RaggedTensor.from_nested_row_splits(tf.constant(values), splits, validate=False)
            for name, values in flat.items()
        }
        of_rows = {name: tf.constant(values) for name, values in features.row_targets.items()}

    def batch_of(rows: tf.Tensor, length: tf.Tensor) -> Batch:
        real, indices = rows >= 0, tf.maximum(rows, 0)

        def padded(table: tf.RaggedTensor) -> tf.Tensor:
            values = tf.gather(table, indices).to_tensor(shape=tf.stack([-1, *choices, length]))
            return tf.ensure_shape(of_real_rows(values), [rows.shape[0], *choices, static_length])

        def of_real_rows(values: tf.Tensor) -> tf.Tensor:
            return tf.where(tf.reshape(real, [-1, *[1] * (values.shape.rank - 1)]), values, tf.zeros([], values.dtype))

        return {
            **{name: padded(table) for name, table in of_tokens.items()},
            **{name: of_real_rows(tf.gather(table, indices)) for name, table in of_rows.items()},
            "row_weights": tf.cast(real, tf.float32),
            "row_index": rows,
        }

    return batch_of


def _filled(rows: npt.NDArray[np.int64], batch_size: int) -> npt.NDArray[np.int64]:
    filling = np.full(-len(rows) % batch_size, -1, rows.dtype)
    return np.concatenate([rows, filling]).reshape(-1, batch_size)
