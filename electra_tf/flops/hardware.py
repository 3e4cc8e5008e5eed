"""The `hardware` convention: FLOPs that a device has to compute for a training step, by formula.

It differs from the paper's convention (`electra_tf.flops.paper`): look-ups are free, a backward pass computes two
matrix products for each one of the forward pass, frozen networks have no backward pass, and a step predicts M masked
positions. What is computed again to save memory (layers with `train.rematerialize`, on accelerators the attention's
scores) and padding of the vocabulary do not count.

Matrix products are exact. Everything else (biases, activations, softmax, dropout, LayerNorm) is counted by the paper's
rules of thumb, and its gradient counts twice as much.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Self

from electra_tf.config.networks import EncoderConfig
from electra_tf.flops.paper import DROPOUT, GELU, LAYER_NORM, SOFTMAX
from electra_tf.flops.passes import HeadPass, NetworkPass, scored


@dataclass(frozen=True)
class Countable:
    """Base of dataclasses of numbers: addition and multiplication by an integer, field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def __mul__(self, count: int) -> Self:
        return type(self)(*(getattr(self, each.name) * count for each in fields(self)))

    __rmul__ = __mul__


@dataclass(frozen=True)
class Flops(Countable):
    """Numbers of operations."""

    products: int = 0  # in matrix products; a multiplication and the addition after it are two operations
    elementwise: int = 0  # all others

    @property
    def total(self) -> int:
        return self.products + self.elementwise


@dataclass(frozen=True)
class PassFlops(Countable):
    """Forward and backward FLOPs of one part of a network, for one example."""

    forward: Flops
    backward: Flops = Flops()

    @property
    def total(self) -> Flops:
        return self.forward + self.backward


def pass_flops(network: NetworkPass, seq_length: int, max_predictions: int) -> dict[str, PassFlops]:
    """FLOPs of one example of a training step in one network, by part of the network.

    Padding costs as much as other tokens (`seq_length`, S), and empty slots for masked positions as much as others
    (`max_predictions`, M).
    """
    encoder = network.encoder
    sums = len(encoder.table_rows) - 1  # of the look-ups
    parts = {"embeddings": seq_length * Flops(0, (sums + LAYER_NORM + DROPOUT) * encoder.embedding_size)}
    if encoder.embedding_size != encoder.hidden_size:
        size = encoder.embedding_size * encoder.hidden_size
        parts["projection"] = seq_length * Flops(2 * size, encoder.hidden_size)
    layers = (
        _attention(encoder, seq_length, *scored(encoder, layer, seq_length)) for layer in range(encoder.num_layers)
    )
    parts["attention"] = sum(layers, Flops())
    parts["feed_forward"] = encoder.num_layers * _feed_forward(encoder, seq_length)
    # The look-up of segments is a product with one-hot vectors; only the table needs a gradient.
    num_types = encoder.table_rows.get("token_type_embeddings", 0)
    segments = Flops(2 * num_types * encoder.embedding_size * seq_length, 0)
    counted = {"segments": PassFlops(segments, segments)}
    counted |= {name: PassFlops(forward, 2 * forward) for name, forward in parts.items()}
    for head in network.heads:
        name = f"{head.kind}_head"
        positions = {"masked": max_predictions, "all": seq_length, "first": 1}[head.positions]
        counted[name] = counted.get(name, PassFlops(Flops())) + positions * _head(encoder, head)
    return counted if network.trained else {name: PassFlops(part.forward) for name, part in counted.items()}


def example_flops(passes: Iterable[NetworkPass], seq_length: int, max_predictions: int) -> Flops:
    """FLOPs of one example of a training step, forward and backward, in all networks."""
    parts = (part.total for each in passes for part in pass_flops(each, seq_length, max_predictions).values())
    return sum(parts, Flops())


def _attention(encoder: EncoderConfig, seq_length: int, queries: int, keys: int) -> Flops:
    """FLOPs of the attention of one layer, for a sequence. `queries`, `keys`: see `scored`."""
    hidden = encoder.hidden_size
    scores = (1 + SOFTMAX + DROPOUT) * keys * encoder.num_heads  # 1: the padding mask
    # Biases of queries, keys and values; or the rotation of queries and keys, 3 operations for each number.
    others = 6 * hidden if encoder.traits.is_rotary else 3 * hidden
    return queries * Flops(2 * (2 * hidden * keys), scores) + seq_length * Flops(
        4 * (2 * hidden * hidden), others + _residual(hidden)
    )


def _feed_forward(encoder: EncoderConfig, seq_length: int) -> Flops:
    """FLOPs of the feed-forward network of one layer, for a sequence."""
    hidden, inner = encoder.hidden_size, encoder.intermediate_size
    # A gate needs a third product, and a multiplication in place of the bias.
    num_products = 3 if encoder.traits.is_gated else 2
    return seq_length * Flops(num_products * (2 * hidden * inner), (1 + GELU) * inner + _residual(hidden))


def _residual(hidden_size: int) -> int:
    """FLOPs of bias, dropout, sum and LayerNorm for one token."""
    return (1 + DROPOUT + 1 + LAYER_NORM) * hidden_size


def _head(encoder: EncoderConfig, head: HeadPass) -> PassFlops:
    """FLOPs of a head for one position."""
    inputs = head.input_size or encoder.hidden_size
    if head.kind == "unit":
        first, others = 2 * inputs * head.num_outputs, Flops(0, head.num_outputs)
    elif head.kind == "token":
        inner = head.inner_size or encoder.hidden_size
        norm = LAYER_NORM if encoder.traits.has_head_norm else 0
        elementwise = (1 + GELU + norm) * inner + head.num_outputs
        first, others = 2 * inputs * inner, Flops(2 * inner * head.num_outputs, elementwise)
    else:
        size, vocab_size = encoder.embedding_size, encoder.vocab_size
        elementwise = (1 + GELU + LAYER_NORM) * size + (1 + SOFTMAX + 1) * vocab_size
        first, others = 2 * inputs * size, Flops(2 * size * vocab_size, elementwise)
    forward = Flops(first, 0) + others
    if not head.trained:
        return PassFlops(forward)
    # The first product needs the gradient by its input only if that trains the encoder.
    return PassFlops(forward, 2 * forward if head.trains_encoder else Flops(first, 0) + 2 * others)
