"""TFRecord examples of pre-training text, in three layouts.

`compact` is written by our builder: `input_ids` holds `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]` without padding,
`segment_lengths` the length of `[CLS] A [SEP]` and, if there is a second segment, of `B [SEP]`. `packed`, of
`--examples=pack`, is the same with several such sequences one after the other; `segment_lengths` then has two entries
for each, the second 0 if there is no B. `fixed_length` is written by the ELECTRA authors' builder: `input_ids`,
`input_mask` and `segment_ids`, each padded to `max_seq_length`. None contains the masking, which is drawn each time an
example is read.
"""

from collections.abc import Sequence
from typing import Literal

import tensorflow as tf

from electra_tf.config.errors import UserError

INPUT_IDS = "input_ids"
SEGMENT_LENGTHS = "segment_lengths"
INPUT_MASK = "input_mask"
SEGMENT_IDS = "segment_ids"
POSITION_IDS = "position_ids"

COMPACT_FEATURES = (INPUT_IDS, SEGMENT_LENGTHS)
FIXED_LENGTH_FEATURES = (INPUT_IDS, INPUT_MASK, SEGMENT_IDS)

RecordFormat = Literal["compact", "packed", "fixed_length"]


class ExampleSerializer:
    """Serializes examples in the compact layout; equal arguments give equal bytes.

    Fills one message again and again, which takes half the time of a new one. Not for several threads.
    """

    def __init__(self) -> None:
        self._example = tf.train.Example()
        feature = self._example.features.feature
        self._input_ids = feature[INPUT_IDS].int64_list.value
        self._segment_lengths = feature[SEGMENT_LENGTHS].int64_list.value

    def __call__(self, input_ids: Sequence[int], segment_lengths: Sequence[int]) -> bytes:
        """Serializes one example without padding; the segment lengths add up to the number of ids."""
        self._input_ids[:] = input_ids
        self._segment_lengths[:] = segment_lengths
        # Without `deterministic` protobuf may write the two map entries in either order.
        return self._example.SerializeToString(deterministic=True)


def parse_examples(serialized: tf.Tensor, max_seq_length: int, is_packed: bool = False) -> dict[str, tf.Tensor]:
    """Parses and pads a batch of compact examples; or of packed ones, among which a compact one is a single sequence.

    Args:
        serialized: [B] string.
        max_seq_length: S, the length that rows are padded to.
    Returns: `input_ids`, `input_mask` (1 for a token, 0 for padding) and `segment_ids` (0 for `[CLS] A [SEP]` and
        padding, 1 for `B [SEP]`), each [B, S] int32 with a static S, padded with 0; of packed examples also
        `position_ids`, which begin anew with each sequence.
    Raises: tf.errors.InvalidArgumentError: when run, if an example has more than `max_seq_length` tokens or lacks a
        feature.
    """
    parsed = tf.io.parse_example(serialized, {name: tf.io.RaggedFeature(tf.int64) for name in COMPACT_FEATURES})
    lengths = tf.cast(parsed[INPUT_IDS].row_lengths(), tf.int32)  # [B]
    num_segments = None if is_packed else 2
    segment_lengths = tf.cast(parsed[SEGMENT_LENGTHS].to_tensor(shape=[None, num_segments]), tf.int32)
    checks = [
        # `to_tensor` truncates silently.
        tf.debugging.assert_less_equal(lengths, max_seq_length, "an example is longer than max_seq_length"),
        tf.debugging.assert_equal(
            tf.reduce_sum(segment_lengths, axis=1), lengths, "segment_lengths do not add up: not a compact record"
        ),
    ]
    with tf.control_dependencies(checks):
        input_ids = tf.cast(parsed[INPUT_IDS].to_tensor(shape=[None, max_seq_length]), tf.int32)
    mask = tf.sequence_mask(lengths, max_seq_length, tf.int32)
    ends = tf.pad(tf.cumsum(segment_lengths, axis=1), [[0, 0], [1, 0]])  # of a segment, and of none before the first
    positions = tf.broadcast_to(tf.range(max_seq_length), tf.shape(input_ids))
    segment = tf.searchsorted(ends, positions, side="right") - 1  # [B, S]
    batch = {INPUT_IDS: input_ids, INPUT_MASK: mask, SEGMENT_IDS: segment % 2 * mask}
    if is_packed:
        begin = tf.gather(ends[:, ::2], segment // 2, batch_dims=1)  # of the token's sequence
        batch[POSITION_IDS] = (positions - begin) * mask
    return batch


def parse_fixed_length_examples(serialized: tf.Tensor, max_seq_length: int) -> dict[str, tf.Tensor]:
    """Parses a batch of examples that the ELECTRA authors' builder wrote, each of exactly S tokens with padding.

    Args and returns: as `parse_examples`.
    Raises: tf.errors.InvalidArgumentError: when run, if a feature is missing or has another length.
    """
    feature = tf.io.FixedLenFeature([max_seq_length], tf.int64)
    parsed = tf.io.parse_example(serialized, dict.fromkeys(FIXED_LENGTH_FEATURES, feature))
    return {name: tf.cast(parsed[name], tf.int32) for name in FIXED_LENGTH_FEATURES}


def padding_example(layout: RecordFormat, max_seq_length: int) -> bytes:
    """A serialized example without tokens, which parses to a row of zeros."""
    if layout != "fixed_length":
        return ExampleSerializer()([], [0])
    example = tf.train.Example()
    for name in FIXED_LENGTH_FEATURES:
        example.features.feature[name].int64_list.value.extend([0] * max_seq_length)
    return example.SerializeToString(deterministic=True)


def record_format(serialized: bytes, file: str, mask_id: int) -> tuple[RecordFormat, int]:
    """The layout of a record of `file`, and its number of ids: of `fixed_length` that of all examples.

    Raises: UserError: the record has other features, or masks.
    """
    example = tf.train.Example.FromString(serialized)
    names = set(example.features.feature)
    ids = example.features.feature[INPUT_IDS].int64_list.value
    # BERT's builder masks the text already, and training would put masks among masks.
    is_masked = mask_id in ids or any("masked" in name for name in names)
    if names == set(COMPACT_FEATURES) and not is_masked:
        return "compact", len(ids)
    # Builders derived from the authors' may add other features, which are ignored.
    if names >= set(FIXED_LENGTH_FEATURES) and not is_masked:
        return "fixed_length", len(ids)
    raise UserError(
        f"{file} has records with the features {sorted(names)}, expected {list(COMPACT_FEATURES)} or"
        f" {list(FIXED_LENGTH_FEATURES)}, and no [MASK]; build the data set from the text with electra-tf build-data"
    )
