"""What a training step computes, as data: which network runs over an example, under which heads, and what is trained.

Costs follow from it (`electra_tf.flops`, `profile_flops.py`) without a model being built; a test holds the
matrix products that follow against those of the traced training step of every objective.
"""

from dataclasses import dataclass
from typing import Literal

from electra_tf.config.networks import EncoderConfig


@dataclass(frozen=True)
class Head:
    """What stands on top of an encoder, and at how many of its positions.

    Attributes:
        kind: `vocabulary`: dense to the embedding size, GELU, LayerNorm, product with the word table;
            `token`: dense with GELU to the hidden size (`inner_size`), then to one unit (`num_outputs`);
            `unit`: dense to one unit (`num_outputs`), as a linear classifier is.
        positions: `masked`: at the M masked positions; `all`: at all S; `first`: at [CLS].
        input_size: of the vectors that it reads; None: the encoder's hidden size. (Two towers give twice that.)
        inner_size: units of the dense layer of a `token` head; None: the encoder's hidden size.
        num_outputs: of a `token` or `unit` head.
        trains_encoder: whether gradients flow on into the encoder; otherwise the head alone learns.
        trained: whether any gradient flows through it; otherwise it has a forward pass only.
    """

    kind: Literal["vocabulary", "token", "unit"]
    positions: Literal["masked", "all", "first"]
    input_size: int | None = None
    inner_size: int | None = None
    num_outputs: int = 1
    trains_encoder: bool = True
    trained: bool = True


@dataclass(frozen=True)
class NetworkPass:
    """One network run once over every example of a batch.

    Attributes:
        name: `generator`, `discriminator` or what else the objective calls it.
        encoder: its sizes.
        heads: on top of it.
        trained: whether gradients flow through it; otherwise there is a forward pass only.
    """

    name: str
    encoder: EncoderConfig
    heads: tuple[Head, ...]
    trained: bool = True


@dataclass(frozen=True)
class Phase:
    """So many steps of a run that compute the same.

    Attributes:
        num_steps: optimizer updates.        passes: what each example of them goes through.
    """

    num_steps: int
    passes: tuple[NetworkPass, ...]
