"""Which weights generator and discriminator share. Tying is passing the same layer object, from the start.

Source: paper section 3.2, "Weight Sharing".
"""

from typing import NamedTuple

from electra_tf.config.networks import EncoderConfig, GeneratorConfig
from electra_tf.models.embeddings import Embeddings
from electra_tf.models.encoder import Encoder


class EncoderPair(NamedTuple):
    """The two encoders of an ELECTRA, tied or not."""

    generator: Encoder
    discriminator: Encoder


def _discriminator(config: EncoderConfig, dtype) -> Encoder:
    return Encoder(config, Embeddings(config, name="embeddings", dtype=dtype), name="electra", dtype=dtype)


def tie_none(config: EncoderConfig, generator: GeneratorConfig, dtype) -> EncoderPair:
    """Two encoders with nothing in common."""
    sizes = generator.encoder(config)
    own = Embeddings(sizes, name="generator_embeddings", dtype=dtype)
    return EncoderPair(Encoder(sizes, own, name="generator", dtype=dtype), _discriminator(config, dtype))


def tie_embeddings(config: EncoderConfig, generator: GeneratorConfig, dtype) -> EncoderPair:
    """One embedding layer (tables and LayerNorm), two encoders, each with its own projection: the paper's choice."""
    discriminator = _discriminator(config, dtype)
    encoder = Encoder(generator.encoder(config), discriminator.embeddings, name="generator", dtype=dtype)
    return EncoderPair(encoder, discriminator)


def tie_all(config: EncoderConfig, generator: GeneratorConfig, dtype) -> EncoderPair:
    """One encoder in both roles; only the heads differ. The configuration has checked that the sizes agree."""
    encoder = _discriminator(config, dtype)
    return EncoderPair(encoder, encoder)


TYINGS = {"none": tie_none, "embeddings": tie_embeddings, "all": tie_all}
