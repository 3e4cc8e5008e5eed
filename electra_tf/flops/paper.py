"""The `paper` convention: FLOPs as the paper's appendix E and the authors' code count them, peculiarities included.

Use it to compare with the paper's figures only; `electra_tf.flops.hardware` says what a device has to compute. Where
the two differ, the code below is marked QUIRK:

- a backward pass counts as much as the forward pass; matrix products need twice as much;
- a look-up in the word or position table counts as a product with one-hot vectors: 40 % of ELECTRA-Small;
- 80 of 512 positions are predicted, whatever the length and the masked fraction;
- one of the two LayerNorms of a layer costs five operations in total, not five for each hidden unit;
- the weighted sum of the attention and the projection after it are counted with the hidden size even where the heads
  together are wider (T5);
- a decoder's attention to the encoder doubles the whole attention, residual and LayerNorm included, and its products
  use the decoder's length.

An operation is a mathematical one: an exponential counts as one, a multiplication and the addition after it as two.
All counts are exact: integers or fractions.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from electra_tf.config.networks import EncoderConfig
from electra_tf.flops.passes import Head, NetworkPass

# Operations for each element.
DROPOUT = 4  # draw, compare, mask, rescale
LAYER_NORM = 5  # mean, square, variance, shift, scale
GELU = 8  # the approximation by tanh, though the authors' models compute erf
SOFTMAX = 5  # maximum, subtraction, exponential, sum, division
# QUIRK: BERT's 80 predictions in a sequence of 512; 15 % of it would be 77, and ELECTRA's own code has 79 slots.
PREDICTED_FRACTION = Fraction(80, 512)


@dataclass(frozen=True)
class PaperNetwork:
    """The sizes that the count depends on.

    Attributes:
        attention_size: of all heads together.
        is_decoder: whether each layer also attends to an encoder.
    """

    hidden_size: int
    num_layers: int
    seq_length: int
    vocab_size: int
    embedding_size: int
    intermediate_size: int
    num_heads: int
    attention_size: int
    is_decoder: bool = False

    @classmethod
    def of(cls, encoder: EncoderConfig, seq_length: int) -> "PaperNetwork":
        """An encoder over sequences of a length."""
        return cls(
            hidden_size=encoder.hidden_size,
            num_layers=encoder.num_layers,
            seq_length=seq_length,
            vocab_size=encoder.vocab_size,
            embedding_size=encoder.embedding_size,
            intermediate_size=encoder.intermediate_size,
            num_heads=encoder.num_heads,
            attention_size=encoder.hidden_size,
        )

    def embeddings(self) -> int:
        """Forward, for a sequence: look-ups, their sum, LayerNorm, dropout, and the projection if there is one."""
        size, hidden = self.embedding_size, self.hidden_size
        # QUIRK: dense look-ups, of a word among V, of a position among S and of a segment among 2.
        look_ups = 2 * size * self.vocab_size + 2 * size * (self.seq_length + 2)
        operations = look_ups + (2 + LAYER_NORM + DROPOUT) * size
        if size != hidden:
            operations += 2 * size * hidden + hidden
        return operations * self.seq_length

    def attention(self) -> int:
        """Forward, for a sequence, in all layers."""
        hidden, width, length = self.hidden_size, self.attention_size, self.seq_length
        projections = 3 * (2 * hidden * width + width)
        scores = 2 * width * length + (1 + SOFTMAX + DROPOUT) * length * self.num_heads  # 1: the scale
        # QUIRK: the hidden size for the heads' width in the weighted sum and in the projection after it.
        output = 2 * hidden * length + 2 * hidden * hidden + hidden
        # QUIRK: this LayerNorm has no factor of the hidden size.
        residual = (DROPOUT + 1) * hidden + LAYER_NORM
        operations = projections + scores + output + residual
        # QUIRK: attention to an encoder counts as if all of it were done twice.
        return (2 if self.is_decoder else 1) * operations * length * self.num_layers

    def feed_forward(self) -> int:
        """Forward, for a sequence, in all layers."""
        hidden, inner = self.hidden_size, self.intermediate_size
        products = 2 * (2 * hidden * inner)
        biases_and_gelu = (1 + GELU) * inner + hidden
        residual = (DROPOUT + 1 + LAYER_NORM) * hidden
        return (products + biases_and_gelu + residual) * self.seq_length * self.num_layers

    def body(self) -> int:
        """Forward, for a sequence: everything below the heads."""
        return self.embeddings() + self.attention() + self.feed_forward()

    def vocabulary_head(self, fraction: Fraction = PREDICTED_FRACTION, input_size: int | None = None) -> Fraction:
        """Forward, for a sequence of which a fraction is predicted."""
        size, vocab_size = self.embedding_size, self.vocab_size
        dense = 2 * (input_size or self.hidden_size) * size + (1 + GELU + LAYER_NORM) * size
        # QUIRK: the cross-entropy counts two operations for each word of the vocabulary, the output bias none.
        softmax = 2 * size * vocab_size + (SOFTMAX + 2) * vocab_size
        return fraction * (dense + softmax) * self.seq_length

    def token_head(self) -> int:
        """Forward, for a sequence: the discriminator's head, at every position."""
        hidden = self.hidden_size
        return (2 * hidden * hidden + (1 + GELU) * hidden + 2 * hidden) * self.seq_length

    def inference(self) -> int:
        """One forward pass over a sequence, with a classifier of the discriminator's form at every position."""
        return self.body() + self.token_head()

    def masked_lm_training(self, fraction: Fraction = PREDICTED_FRACTION) -> Fraction:
        """Forward and backward, for a sequence, under a softmax over the vocabulary."""
        # QUIRK: backward as forward.
        return 2 * (self.body() + self.vocabulary_head(fraction))

    def token_training(self) -> int:
        """Forward and backward, for a sequence, as a discriminator."""
        return 2 * self.inference()


def forward_parts(network_pass: NetworkPass, seq_length: int) -> dict[str, Fraction]:
    """Forward FLOPs for a sequence, by part of the network.

    The paper has no rule for heads on [CLS], of one unit, or with an inner layer of another size; they are counted in
    the way of its heads.
    """
    network = PaperNetwork.of(network_pass.encoder, seq_length)
    parts = {
        "embeddings": Fraction(network.embeddings()),
        "attention": Fraction(network.attention()),
        "feed_forward": Fraction(network.feed_forward()),
    }
    for head in network_pass.heads:
        name = f"{head.kind}_head"
        parts[name] = parts.get(name, Fraction(0)) + _head(network, head)
    return parts


def example_flops(passes: Iterable[NetworkPass], seq_length: int) -> Fraction:
    """FLOPs of one example of a training step, forward and backward; what is not trained has no backward pass."""
    total = Fraction(0)
    for each in passes:
        total += (2 if each.trained else 1) * sum(forward_parts(each, seq_length).values())
        if each.trained:
            network = PaperNetwork.of(each.encoder, seq_length)
            total -= sum(_head(network, head) for head in each.heads if not head.trained)
    return total


def _head(network: PaperNetwork, head: Head) -> Fraction:
    fractions = {"masked": PREDICTED_FRACTION, "all": Fraction(1), "first": Fraction(1, network.seq_length)}
    fraction = fractions[head.positions]
    inputs = head.input_size or network.hidden_size
    if head.kind == "vocabulary":
        return network.vocabulary_head(fraction, inputs)
    if head.kind == "unit":
        return fraction * 2 * inputs * head.num_outputs * network.seq_length
    inner = head.inner_size or network.hidden_size
    operations = 2 * inputs * inner + (1 + GELU) * inner + 2 * inner * head.num_outputs
    return fraction * operations * network.seq_length
