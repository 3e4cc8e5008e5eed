"""The `paper` convention: FLOPs as the paper's appendix E and the authors' code count them, peculiarities included.

Use it only to compare with the paper's figures, and `electra_tf.flops.hardware` for the work of a device. QUIRK marks
the differences between the two:

- a backward pass counts as much as the forward pass, though its matrix products need twice as much;
- a look-up in the word or position table counts as a product with one-hot vectors, 40 % of ELECTRA-Small's FLOPs;
- 80 of 512 positions are predicted, whatever the length and the masked fraction;
- one of the two LayerNorms of a layer costs five operations in total, not five for each hidden unit;
- the attention's weighted sum and the projection after it count with the hidden size, even where all heads together
  are wider (T5).

An operation is a mathematical one: an exponential counts as one, a multiplication and the addition after it as two.
All counts are exact: integers or fractions.
"""

from collections.abc import Iterable
from fractions import Fraction

from electra_tf.config.networks import EncoderConfig
from electra_tf.flops.passes import HeadPass, NetworkPass, scored

# Operations for each element.
DROPOUT = 4  # draw, compare, mask, rescale
LAYER_NORM = 5  # mean, square, variance, shift, scale
GELU = 8  # the approximation by tanh, though the authors' models compute erf
SOFTMAX = 5  # maximum, subtraction, exponential, sum, division
# QUIRK: BERT's 80 predictions in a sequence of 512; 15 % of it would be 77, and ELECTRA's own code has 79 slots.
PREDICTED_FRACTION = Fraction(80, 512)


def embeddings(encoder: EncoderConfig, seq_length: int) -> int:
    """Forward FLOPs for a sequence: look-ups, their sum, LayerNorm, dropout, and the projection if there is one."""
    size, hidden = encoder.embedding_size, encoder.hidden_size
    # QUIRK: look-ups as products with one-hot vectors, over V words, S positions and 2 segments.
    operations = 2 * size * encoder.vocab_size + (LAYER_NORM + DROPOUT) * size
    if encoder.traits.has_position_tables:
        operations += 2 * size * (seq_length + 2) + 2 * size
    if size != hidden:
        operations += 2 * size * hidden + hidden
    return operations * seq_length


def attention(encoder: EncoderConfig, seq_length: int, attention_size: int | None = None) -> int:
    """Forward FLOPs for a sequence, in all layers. `attention_size`: of all heads together; None: the hidden size."""
    hidden, width = encoder.hidden_size, attention_size or encoder.hidden_size
    projections = 3 * (2 * hidden * width + width)
    # QUIRK: the hidden size for the heads' width in the weighted sum and in the projection after it.
    output = 2 * hidden * hidden + hidden
    # QUIRK: this LayerNorm has no factor of the hidden size.
    residual = (DROPOUT + 1) * hidden + LAYER_NORM
    of_key = 2 * width + (1 + SOFTMAX + DROPOUT) * encoder.num_heads + 2 * hidden  # 1: the scale
    keys = sum(scored(encoder, layer, seq_length)[1] for layer in range(encoder.num_layers))
    return seq_length * ((projections + output + residual) * encoder.num_layers + of_key * keys)


def feed_forward(encoder: EncoderConfig, seq_length: int) -> int:
    """Forward FLOPs for a sequence, in all layers."""
    hidden, inner = encoder.hidden_size, encoder.intermediate_size
    products = (3 if encoder.traits.is_gated else 2) * (2 * hidden * inner)
    biases_and_gelu = (1 + GELU) * inner + hidden
    residual = (DROPOUT + 1 + LAYER_NORM) * hidden
    return (products + biases_and_gelu + residual) * seq_length * encoder.num_layers


def head_flops(encoder: EncoderConfig, head: HeadPass, seq_length: int) -> Fraction:
    """Forward FLOPs of a head for a sequence; heads for which the paper has no rule are counted like its own."""
    inputs, size, vocab_size = head.input_size or encoder.hidden_size, encoder.embedding_size, encoder.vocab_size
    if head.kind == "vocabulary":
        # QUIRK: the cross-entropy counts two operations for each word of the vocabulary, the output bias none.
        operations = 2 * inputs * size + (1 + GELU + LAYER_NORM) * size + 2 * size * vocab_size
        operations += (SOFTMAX + 2) * vocab_size
    elif head.kind == "unit":
        operations = 2 * inputs * head.num_outputs
    else:
        inner = head.inner_size or encoder.hidden_size
        operations = 2 * inputs * inner + (1 + GELU) * inner + 2 * inner * head.num_outputs
    fractions = {"masked": PREDICTED_FRACTION, "all": Fraction(1), "first": Fraction(1, seq_length)}
    return fractions[head.positions] * operations * seq_length


def forward_parts(network: NetworkPass, seq_length: int) -> dict[str, Fraction]:
    """Forward FLOPs for a sequence, by part of the network."""
    parts = {
        function.__name__: Fraction(function(network.encoder, seq_length))
        for function in (embeddings, attention, feed_forward)
    }
    for head in network.heads:
        name = f"{head.kind}_head"
        parts[name] = parts.get(name, Fraction(0)) + head_flops(network.encoder, head, seq_length)
    return parts


def example_flops(passes: Iterable[NetworkPass], seq_length: int) -> Fraction:
    """FLOPs of one example of a training step, forward and backward; frozen parts have no backward pass."""
    total = Fraction(0)
    for network in passes:
        forward = sum(forward_parts(network, seq_length).values())
        untrained = sum(head_flops(network.encoder, head, seq_length) for head in network.heads if not head.trained)
        # QUIRK: backward as forward.
        total += 2 * forward - untrained if network.trained else forward
    return total
