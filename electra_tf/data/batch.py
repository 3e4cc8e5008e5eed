"""The schema of a batch: the name, shape and type of each of its tensors.

Pre-training batches of packed examples also have `position_ids`, [B, S] int32: the position of each token in its
sequence, 0 for padding. Other tasks declare their schema with the same class:
`BatchSchema({**TEXT_TENSORS, "label_ids": ("", tf.int32)})`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import tensorflow as tf

from electra_tf.config.networks import EncoderConfig
from electra_tf.config.schema import DataConfig, MaskingConfig
from electra_tf.data.records import INPUT_IDS, INPUT_MASK, POSITION_IDS, SEGMENT_IDS

Batch = dict[str, tf.Tensor]

# By name: the axes after the batch axis in letters of the package's legend ("": one value per example), and the type.
TEXT_TENSORS = {
    INPUT_IDS: ("S", tf.int32),
    INPUT_MASK: ("S", tf.int32),  # 1 for a token, 0 for padding
    SEGMENT_IDS: ("S", tf.int32),
}


@dataclass(frozen=True)
class BatchSchema:
    """The tensors of a batch, laid out as `TEXT_TENSORS`. The specs have the same order."""

    tensors: Mapping[str, tuple[str, tf.DType]]

    def specs(self, batch_size: int, **sizes: int) -> dict[str, tf.TensorSpec]:
        """Specs with static shapes. `sizes` are the sizes of the axes by letter: `specs(4, S=128, M=19)`."""
        return {
            name: tf.TensorSpec([batch_size, *(sizes[axis] for axis in axes)], dtype, name=name)
            for name, (axes, dtype) in self.tensors.items()
        }

    def empty(self, batch_size: int, **sizes: int) -> Batch:
        """A batch of padding: all tensors are zeros. `sizes` as for `specs`."""
        return {name: tf.zeros(spec.shape, spec.dtype) for name, spec in self.specs(batch_size, **sizes).items()}


PRETRAINING_BATCH = BatchSchema(
    {
        **TEXT_TENSORS,
        "masked_input_ids": ("S", tf.int32),  # the input of the generator (or BERT)
        "masked_lm_positions": ("M", tf.int32),
        "masked_lm_ids": ("M", tf.int32),  # the original tokens there
        "masked_lm_weights": ("M", tf.float32),  # 1 for a slot in use, 0 for the rest
        "mask_token_weights": ("M", tf.float32),  # 1 for a slot in use whose token is shown as [MASK]
        "unigram_losses": ("M", tf.float32),  # -log of the original token's frequency in the training text, in nats
    }
)


class PretrainingSettings(Protocol):
    """What the input reads of the settings of a pre-training run."""

    data: DataConfig
    encoder: EncoderConfig
    masking: MaskingConfig


def batch_specs(config: PretrainingSettings, batch_size: int) -> dict[str, tf.TensorSpec]:
    """The specs of a pre-training run's batches."""
    length = config.data.max_seq_length
    return PRETRAINING_BATCH.specs(batch_size, S=length, M=config.masking.max_predictions(length))


def mask_and_segments(batch: Batch) -> Batch:
    """The inputs of a network besides token ids, as keyword arguments."""
    return {name: batch[name] for name in (INPUT_MASK, SEGMENT_IDS, POSITION_IDS) if name in batch}


def word_tokens(batch: Batch) -> tf.Tensor:
    """The tokens that masking may select: the real ones except [CLS] and [SEP]. [B, S] bool.

    It needs no vocabulary, because [CLS] is the first token of a sequence, and [SEP] the last token of each segment.
    """
    mask, segments = batch[INPUT_MASK], batch[SEGMENT_IDS]
    positions = batch.get(POSITION_IDS, tf.range(mask.shape[1])[tf.newaxis, :])
    next_mask, next_segments, next_positions = (
        tf.pad(rows[:, 1:], [[0, 0], [0, 1]]) for rows in (mask, segments, positions)
    )
    ends_segment = (next_mask == 0) | (next_segments != segments) | (next_positions == 0)
    return (mask > 0) & ~ends_segment & (positions > 0)


def prefetched(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Prepares a pipeline's batches ahead of the loop that reads them, and keeps their order."""
    options = tf.data.Options()
    options.deterministic = True
    options.autotune.enabled = False  # an autotuned iterator may take a minute to end, see train/device_loop.py
    # Each pipeline takes its share itself: TensorFlow must not shard the files or batches again.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return batches.prefetch(tf.data.AUTOTUNE).with_options(options)
