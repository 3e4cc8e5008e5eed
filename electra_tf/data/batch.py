"""The schema of a batch: the name, shape and type of each of its tensors, stated once.

A pre-training batch is what `electra_tf.data.masking.mask_batch` returns. A task of another kind states its schema
with the same class: `BatchSchema({**TEXT_TENSORS, "label_ids": ("", tf.int32)})`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import tensorflow as tf

from electra_tf.config.schema import RunConfig
from electra_tf.text.records import INPUT_IDS, INPUT_MASK, SEGMENT_IDS

Batch = dict[str, tf.Tensor]

# By name: the axes after the batch axis, in letters of the package's legend ("" for one value per example), and type.
TEXT_TENSORS = {
    INPUT_IDS: ("S", tf.int32),
    INPUT_MASK: ("S", tf.int32),  # 1 for a token, 0 for padding
    SEGMENT_IDS: ("S", tf.int32),
}


@dataclass(frozen=True)
class BatchSchema:
    """Which tensors a batch has; `tensors` is laid out as `TEXT_TENSORS`. Their order is that of the specs."""

    tensors: Mapping[str, tuple[str, tf.DType]]

    def specs(self, batch_size: int, **sizes: int) -> dict[str, tf.TensorSpec]:
        """Fully defined specs. `sizes` gives the size of each axis by its letter: `specs(4, S=128, M=19)`."""
        return {
            name: tf.TensorSpec([batch_size, *(sizes[axis] for axis in axes)], dtype, name=name)
            for name, (axes, dtype) in self.tensors.items()
        }

    def empty(self, batch_size: int, **sizes: int) -> Batch:
        """A batch of zeros: rows of padding, in which nothing counts. `sizes` as for `specs`."""
        return {name: tf.zeros(spec.shape, spec.dtype) for name, spec in self.specs(batch_size, **sizes).items()}


PRETRAINING_BATCH = BatchSchema(
    {
        **TEXT_TENSORS,
        "masked_input_ids": ("S", tf.int32),  # what the generator (or BERT) reads
        "masked_lm_positions": ("M", tf.int32),
        "masked_lm_ids": ("M", tf.int32),  # the original tokens there
        "masked_lm_weights": ("M", tf.float32),  # 1 for a slot in use, 0 for the rest
        "mask_token_weights": ("M", tf.float32),  # 1 for a slot in use whose token is shown as [MASK]
        "unigram_losses": ("M", tf.float32),  # -log of the original's share of the training text, in nats
    }
)


def batch_specs(config: RunConfig, batch_size: int) -> dict[str, tf.TensorSpec]:
    """The specs of a pre-training run's batches; `config` also has `max_predictions`, the number of slots M."""
    return PRETRAINING_BATCH.specs(batch_size, S=config.data.max_seq_length, M=config.max_predictions)


def mask_and_segments(batch: Batch) -> Batch:
    """What a network reads besides token ids, as its keyword arguments."""
    return {name: batch[name] for name in (INPUT_MASK, SEGMENT_IDS)}


def word_tokens(batch: Batch) -> tf.Tensor:
    """[B, S] bool: the tokens that masking may select, which are the real ones except [CLS] and [SEP].

    It needs no vocabulary: an example is [CLS] A [SEP] or [CLS] A [SEP] B [SEP], so [CLS] is the first token, and
    [SEP] is the last of each segment.
    """
    mask, segments = batch[INPUT_MASK], batch[SEGMENT_IDS]
    next_mask, next_segments = (tf.pad(rows[:, 1:], [[0, 0], [0, 1]]) for rows in (mask, segments))
    ends_segment = (next_mask == 0) | (next_segments != segments)
    return (mask > 0) & ~ends_segment & (tf.range(mask.shape[1]) > 0)
