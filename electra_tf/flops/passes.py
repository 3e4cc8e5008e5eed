"""A description of a training step: the networks that run over an example, their heads, and what is trained.

Each objective describes its steps in this form, and the FLOPs follow from it without a model. A test compares them with
the matrix products in the traced step of every objective.
"""

from dataclasses import dataclass
from typing import Literal

from electra_tf.config.networks import EncoderConfig


@dataclass(frozen=True)
class HeadPass:
    """One head that runs on an encoder's output."""

    # vocabulary: dense layer to the embedding size, GELU, LayerNorm, product with the word table;
    # token: dense layer with GELU to `inner_size`, then one to `num_outputs`; unit: dense layer to `num_outputs`.
    kind: Literal["vocabulary", "token", "unit"]
    positions: Literal["masked", "all", "first"]  # the M masked ones, all S, or [CLS]
    input_size: int | None = None  # None: the encoder's hidden size; two towers have twice that size
    inner_size: int | None = None  # None: the encoder's hidden size
    num_outputs: int = 1
    trains_encoder: bool = True  # False: gradients stop at the head's input
    trained: bool = True  # False: the head has no backward pass


@dataclass(frozen=True)
class NetworkPass:
    """One network that runs once over every example of a batch."""

    name: str  # for tables
    encoder: EncoderConfig
    heads: tuple[HeadPass, ...]
    trained: bool = True  # False: it has no backward pass


@dataclass(frozen=True)
class PhaseCost:
    """A training phase: `num_steps` optimizer updates in which the networks `passes` run over each example."""

    num_steps: int
    passes: tuple[NetworkPass, ...]


def scored(encoder: EncoderConfig, layer: int, seq_length: int) -> tuple[int, int]:
    """How many queries a layer computes scores for, and for how many keys each.

    A local layer computes long sequences in blocks, see `electra_tf.ops.local_attention`.
    """
    window = encoder.local_attention // 2
    if not encoder.is_local(layer) or seq_length <= 3 * window:
        return seq_length, seq_length
    return -(-seq_length // window) * window, 3 * window
