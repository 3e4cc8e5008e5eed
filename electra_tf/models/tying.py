"""Weight sharing between generator and discriminator: both are given the same layer object.

Embeddings are shared as a whole (three tables and the LayerNorm) or not at all, except when gradient-disentangled. An
encoder whose hidden size differs from the embedding size projects.
Source: paper section 3.2, "Weight Sharing".
"""

from typing import NamedTuple

from electra_tf.config.schema import EncoderConfig, TransformerGeneratorConfig
from electra_tf.models.embeddings import DisentangledEmbeddings, Embeddings
from electra_tf.models.encoder import Encoder


class EncoderPair(NamedTuple):
    """The two encoders of an ELECTRA, tied or not."""

    generator: Encoder
    discriminator: Encoder


def build_discriminator(config: EncoderConfig, dtype) -> Encoder:
    """The discriminator's encoder, with embeddings of its own."""
    return Encoder(config, Embeddings(config, name="embeddings", dtype=dtype), name="electra", dtype=dtype)


def tie_none(config: EncoderConfig, generator: TransformerGeneratorConfig, dtype) -> EncoderPair:
    """Two encoders with nothing in common."""
    sizes = generator.encoder(config)
    own = Embeddings(sizes, name="generator_embeddings", dtype=dtype)
    return EncoderPair(Encoder(sizes, own, name="generator", dtype=dtype), build_discriminator(config, dtype))


def tie_embeddings(config: EncoderConfig, generator: TransformerGeneratorConfig, dtype) -> EncoderPair:
    """Two encoders with one embedding layer (tables and LayerNorm) and a projection each: the paper's choice."""
    discriminator = build_discriminator(config, dtype)
    encoder = Encoder(generator.encoder(config), discriminator.embeddings, name="generator", dtype=dtype)
    return EncoderPair(encoder, discriminator)


def tie_gradient_disentangled(config: EncoderConfig, generator: TransformerGeneratorConfig, dtype) -> EncoderPair:
    """The discriminator reads the generator's three tables plus differences of its own; it trains the differences only.

    Each network has its own LayerNorm.
    """
    sizes = generator.encoder(config)
    tables = Embeddings(sizes, name="generator_embeddings", dtype=dtype)
    own = DisentangledEmbeddings(config, tables, name="embeddings", dtype=dtype)
    return EncoderPair(
        Encoder(sizes, tables, name="generator", dtype=dtype), Encoder(config, own, name="electra", dtype=dtype)
    )


def tie_all(config: EncoderConfig, generator: TransformerGeneratorConfig, dtype) -> EncoderPair:
    """One encoder in both roles; only the heads differ. The configuration checks that the sizes agree."""
    encoder = build_discriminator(config, dtype)
    return EncoderPair(encoder, encoder)


TYINGS = {
    "none": tie_none,
    "embeddings": tie_embeddings,
    "gradient_disentangled": tie_gradient_disentangled,
    "all": tie_all,
}


def stand_alone(encoder: Encoder) -> None:
    """Gives an encoder tables of its own, so that it needs no other network; its results stay the same.

    Not for an encoder that is trained further together with the other.
    """
    if isinstance(encoder.embeddings, DisentangledEmbeddings):
        encoder.embeddings = encoder.embeddings.merged()
