"""Synthetic batches for timing training steps. Imports only NumPy, for the peers' environment."""

from dataclasses import dataclass

import numpy as np

_CLS, _SEP, _MASK, _FIRST_WORD = 1, 2, 3, 5
# At length 128, 82 % of the builder's examples fill their row and the others have random lengths: 8 % padding.
_FULL_ROW_FRACTION = 0.82
_SHORTEST = 5
NUM_BATCHES = 4  # used in turn
_MASK_TOKEN_FRACTION = 0.85  # of the selected tokens; the others stay unchanged


@dataclass(frozen=True)
class BatchShape:
    """Sizes of a batch.

    Attributes:
        num_examples: B.        max_seq_length: S.        num_slots: M.        vocab_size: V.
        masked_fraction: of the real tokens of an example.
    """

    num_examples: int
    max_seq_length: int
    num_slots: int
    vocab_size: int
    masked_fraction: float = 0.15


def synthetic_batch(shape: BatchShape, seed: int) -> dict[str, np.ndarray]:
    """A masked batch of random tokens, with the keys of the input pipeline.

    Returns: `input_ids`, `input_mask`, `segment_ids`, `masked_input_ids`: [B, S] int32; `masked_lm_positions`,
        `masked_lm_ids`: [B, M] int32; `masked_lm_weights`, `mask_token_weights`, `unigram_losses`: [B, M] float32.
    """
    random = np.random.default_rng(seed)
    batch, slots = (shape.num_examples, shape.max_seq_length), (shape.num_examples, shape.num_slots)
    lengths = random.integers(_SHORTEST, shape.max_seq_length + 1, shape.num_examples)
    lengths[random.random(shape.num_examples) < _FULL_ROW_FRACTION] = shape.max_seq_length
    columns = np.arange(shape.max_seq_length)
    input_mask = (columns < lengths[:, None]).astype(np.int32)
    segment_ids = ((columns > lengths[:, None] // 2) & (input_mask > 0)).astype(np.int32)
    input_ids = random.integers(_FIRST_WORD, shape.vocab_size, batch, dtype=np.int32) * input_mask
    rows = np.arange(shape.num_examples)
    input_ids[:, 0] = _CLS
    input_ids[rows, lengths // 2] = input_ids[rows, lengths - 1] = _SEP

    scores = np.where(input_ids >= _FIRST_WORD, random.random(batch), -1.0)
    counts = np.clip(np.rint(lengths * shape.masked_fraction), 1, np.minimum(shape.num_slots, lengths - 3))
    weights = (np.arange(shape.num_slots) < counts[:, None]).astype(np.float32)
    positions = np.argsort(-scores, axis=1)[:, : shape.num_slots] * (weights > 0)
    masked_input_ids = input_ids.copy()
    becomes_mask = (weights > 0) & (random.random(slots) < _MASK_TOKEN_FRACTION)
    masked_input_ids[np.nonzero(becomes_mask)[0], positions[becomes_mask]] = _MASK
    return {
        "input_ids": input_ids,
        "input_mask": input_mask,
        "segment_ids": segment_ids,
        "masked_input_ids": masked_input_ids,
        "masked_lm_positions": positions.astype(np.int32),
        "masked_lm_ids": (np.take_along_axis(input_ids, positions, axis=1) * (weights > 0)).astype(np.int32),
        "masked_lm_weights": weights,
        "mask_token_weights": becomes_mask.astype(np.float32),
        "unigram_losses": np.zeros_like(weights),  # has no effect on training
    }
