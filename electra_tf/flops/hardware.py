"""FLOPs that a device has to compute for a training step, by formula.

Unlike the paper's count (`electra_tf.flops.paper`): look-ups are look-ups, the backward pass of what is trained
computes two products for each of the forward pass and that of what is not trained none, and the masked positions are
the M slots that a step has. What a run computes again to save memory (`train.rematerialize`), and what it pads the
vocabulary by, is no work done for the model and does not count.

Matrix products and everything else are kept apart: the products are exact, a test holds them against the traced step
of every objective; the rest (biases, activations, softmax, dropout, LayerNorm) counts the operations of the formulas as
the paper does, and takes the gradient of each to cost twice as much.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from electra_tf.config.networks import EncoderConfig
from electra_tf.flops.paper import DROPOUT, GELU, LAYER_NORM, SOFTMAX
from electra_tf.flops.passes import Head, NetworkPass


@dataclass(frozen=True)
class Flops:
    """A number of operations.

    Attributes:
        products: of matrix products; a multiplication and the addition after it are two.
        elementwise: of everything else.
    """

    products: int
    elementwise: int

    @property
    def total(self) -> int:
        return self.products + self.elementwise

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(self.products + other.products, self.elementwise + other.elementwise)

    def __mul__(self, count: int) -> "Flops":
        return Flops(self.products * count, self.elementwise * count)

    __rmul__ = __mul__


@dataclass(frozen=True)
class PassFlops:
    """Forward and backward FLOPs of one part of a network, for one example."""

    forward: Flops
    backward: Flops

    @property
    def total(self) -> Flops:
        return self.forward + self.backward

    def __add__(self, other: "PassFlops") -> "PassFlops":
        return PassFlops(self.forward + other.forward, self.backward + other.backward)

    def __rmul__(self, count: int) -> "PassFlops":
        return PassFlops(count * self.forward, count * self.backward)


NO_FLOPS = Flops(0, 0)


def pass_flops(network_pass: NetworkPass, seq_length: int, max_predictions: int) -> dict[str, PassFlops]:
    """FLOPs of one example of a training step in one network, by part.

    Args:
        seq_length: S, padding included: it is computed like anything else.
        max_predictions: M, the slots for masked positions, all of which are computed.
    """
    encoder = network_pass.encoder
    parts = {"embeddings": _embeddings(encoder, seq_length)}
    if encoder.embedding_size != encoder.hidden_size:
        size = encoder.embedding_size * encoder.hidden_size
        parts["projection"] = seq_length * Flops(2 * size, encoder.hidden_size)
    parts["attention"] = encoder.num_layers * _attention(encoder, seq_length)
    parts["feed_forward"] = encoder.num_layers * _feed_forward(encoder, seq_length)
    # The segment of a token is looked up by a product with one-hot vectors of two entries: no gradient flows to these.
    segments = Flops(2 * encoder.type_vocab_size * encoder.embedding_size * seq_length, 0)
    found = {"segments": PassFlops(segments, segments)}
    found |= {name: PassFlops(forward, 2 * forward) for name, forward in parts.items()}
    for head in network_pass.heads:
        name = f"{head.kind}_head"
        positions = {"masked": max_predictions, "all": seq_length, "first": 1}[head.positions]
        found[name] = found.get(name, PassFlops(NO_FLOPS, NO_FLOPS)) + positions * _head(encoder, head)
    if not network_pass.trained:
        found = {name: PassFlops(part.forward, NO_FLOPS) for name, part in found.items()}
    return found


def example_flops(passes: Iterable[NetworkPass], seq_length: int, max_predictions: int) -> Flops:
    """FLOPs of one example of a training step, forward and backward, in all of its networks."""
    found = (part.total for each in passes for part in pass_flops(each, seq_length, max_predictions).values())
    return sum(found, NO_FLOPS)


def inference_flops(encoder: EncoderConfig, heads: tuple[Head, ...], seq_length: int) -> Flops:
    """FLOPs of one forward pass over a sequence."""
    return example_flops((NetworkPass("encoder", encoder, heads, trained=False),), seq_length, max_predictions=0)


def finetuning_flops(encoder: EncoderConfig, heads: tuple[Head, ...], seq_length: int) -> Flops:
    """FLOPs of one example of fine-tuning, forward and backward: the encoder under small heads, all of it trained.

    Args:
        heads: such as `classifier_heads` and `span_heads` give.
        seq_length: S, padding included.
    """
    return example_flops((NetworkPass("encoder", encoder, heads),), seq_length, max_predictions=0)


def classifier_heads(num_classes: int) -> tuple[Head, ...]:
    """A linear classifier, or for one class a regression, on [CLS]: the tasks of GLUE."""
    return (Head("unit", "first", num_outputs=num_classes),)


def span_heads(encoder: EncoderConfig, inner_size: int = 512) -> tuple[Head, ...]:
    """The question-answering module of the paper in training: start, end given the start, and answerability.

    The start is scored by one unit; the end, and whether there is an answer, by a layer over two vectors side by side.
    """
    both = 2 * encoder.hidden_size
    return (
        Head("unit", "all"),
        Head("token", "all", input_size=both, inner_size=inner_size),
        Head("token", "first", input_size=both, inner_size=inner_size),
    )


def _embeddings(encoder: EncoderConfig, seq_length: int) -> Flops:
    return seq_length * Flops(0, (2 + LAYER_NORM + DROPOUT) * encoder.embedding_size)  # 2: the sum of three look-ups


def _attention(encoder: EncoderConfig, seq_length: int) -> Flops:
    """Of one layer."""
    hidden = encoder.hidden_size
    products = 4 * (2 * hidden * hidden) + 2 * (2 * hidden * seq_length)
    scores = (1 + SOFTMAX + DROPOUT) * seq_length * encoder.num_heads  # 1: the padding mask
    return seq_length * Flops(products, scores + 3 * hidden + _residual(hidden))


def _feed_forward(encoder: EncoderConfig, seq_length: int) -> Flops:
    """Of one layer."""
    hidden, inner = encoder.hidden_size, encoder.intermediate_size
    return seq_length * Flops(2 * (2 * hidden * inner), (1 + GELU) * inner + _residual(hidden))


def _residual(hidden_size: int) -> int:
    """Bias, dropout, sum and LayerNorm of a token."""
    return (1 + DROPOUT + 1 + LAYER_NORM) * hidden_size


def _head(encoder: EncoderConfig, head: Head) -> PassFlops:
    """Of one position."""
    inputs = head.input_size or encoder.hidden_size
    if head.kind == "unit":
        first, others = 2 * inputs * head.num_outputs, Flops(0, head.num_outputs)
    elif head.kind == "token":
        inner = head.inner_size or encoder.hidden_size
        first, others = 2 * inputs * inner, Flops(2 * inner * head.num_outputs, (1 + GELU) * inner + head.num_outputs)
    else:
        size, vocab_size = encoder.embedding_size, encoder.vocab_size
        elementwise = (1 + GELU + LAYER_NORM) * size + (1 + SOFTMAX + 1) * vocab_size
        first, others = 2 * inputs * size, Flops(2 * size * vocab_size, elementwise)
    forward = Flops(first, 0) + others
    if not head.trained:
        return PassFlops(forward, NO_FLOPS)
    # Of its first product the gradient by the encoder's vectors is wanted only where these are trained by it.
    return PassFlops(forward, 2 * forward if head.trains_encoder else Flops(first, 0) + 2 * others)
