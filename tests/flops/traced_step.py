from collections import Counter
from dataclasses import replace

from electra_tf.flops import hardware
from electra_tf.flops.budget import StepRange
from electra_tf.ops.reference import COLUMNS


def expected_products(steps: StepRange) -> Counter:
    """FLOPs of the matrix products of a step by formula, by (part, True for the backward pass).

    The step pads the vocabulary to whole rows of `COLUMNS` (see `VocabularyLogits`); this padding is included.
    """
    products: Counter = Counter()
    for network in steps.passes:
        padded_size = network.encoder.vocab_size + -network.encoder.vocab_size % COLUMNS
        padded = replace(network, encoder=network.encoder.model_copy(update={"vocab_size": padded_size}))
        for name, flops in hardware.pass_flops(padded, steps.seq_length, steps.max_predictions).items():
            part = "heads" if name.endswith("_head") else name
            products[part, False] += steps.batch_size * flops.forward.products
            products[part, True] += steps.batch_size * flops.backward.products
    return +products
