"""What a training step computes, as data: which network runs over an example, under which heads, and what is trained.

Costs follow from it (`electra_tf.profiling`) without a model being built.
"""

from dataclasses import dataclass
from typing import Literal

from electra_tf.config.networks import EncoderConfig


@dataclass(frozen=True)
class Head:
    """What stands on top of an encoder, and at how many of its positions.

    Attributes:
        kind: `vocabulary`: dense to the embedding size, GELU, LayerNorm, product with the word table;
            `token`: dense with GELU to the hidden size, then to one unit; `unit`: dense to one unit.
        positions: `masked`: at the M masked positions; `all`: at all S; `first`: at [CLS].
    """

    kind: Literal["vocabulary", "token", "unit"]
    positions: Literal["masked", "all", "first"]


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
