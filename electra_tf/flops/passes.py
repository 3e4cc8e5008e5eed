"""What a training step computes, as data: which networks run over an example, with which heads, and what is trained.

Each objective describes its steps so, and the FLOPs follow without a model being built. A test compares the matrix
products that follow with those of every objective's traced step.
"""

from dataclasses import dataclass
from typing import Literal

from electra_tf.config.schema import EncoderConfig


@dataclass(frozen=True)
class HeadPass:
    """A head on an encoder, and at how many positions it is computed.

    Attributes:
        kind: `vocabulary`: dense to the embedding size, GELU, LayerNorm, product with the word table;
            `token`: dense with GELU to the hidden size (`inner_size`), then to one unit (`num_outputs`);
            `unit`: dense to one unit (`num_outputs`), as a linear classifier is.
        positions: `masked`: the M masked positions; `all`: all S; `first`: [CLS].
        input_size: of the vectors that it reads; None: the encoder's hidden size. (Two towers give twice that.)
        inner_size: units of the dense layer of a `token` head; None: the encoder's hidden size.
        num_outputs: of a `token` or `unit` head.
        trains_encoder: False if gradients stop at the head's input, so that the head alone learns.
        trained: False if the head has a forward pass only.
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
    """One network that runs once over every example of a batch.

    Attributes:
        name: `generator`, `discriminator` or another name that the objective gives it.
        encoder: its sizes.        heads: on top of it.
        trained: False if it has a forward pass only.
    """

    name: str
    encoder: EncoderConfig
    heads: tuple[HeadPass, ...]
    trained: bool = True


@dataclass(frozen=True)
class Phase:
    """A training phase: steps that train the same networks.

    Attributes:
        num_steps: optimizer updates.        passes: the networks that run over each example.
    """

    num_steps: int
    passes: tuple[NetworkPass, ...]
