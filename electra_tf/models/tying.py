"""Which weights generator and discriminator share. Tying is passing the same layer object, from the start.

Embeddings are shared whole (three tables and the LayerNorm) or not at all, but for the gradient-disentangled way. The
embedding size is free in each: an encoder of another hidden size projects.
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
    """An encoder that shares nothing, or whose embeddings another one is then given."""
    return Encoder(config, Embeddings(config, name="embeddings", dtype=dtype), name="electra", dtype=dtype)


def tie_none(config: EncoderConfig, generator: TransformerGeneratorConfig, dtype) -> EncoderPair:
    """Two encoders with nothing in common."""
    sizes = generator.encoder(config)
    own = Embeddings(sizes, name="generator_embeddings", dtype=dtype)
    return EncoderPair(Encoder(sizes, own, name="generator", dtype=dtype), build_discriminator(config, dtype))


def tie_embeddings(config: EncoderConfig, generator: TransformerGeneratorConfig, dtype) -> EncoderPair:
    """One embedding layer (tables and LayerNorm), two encoders, each with its own projection: the paper's choice."""
    discriminator = build_discriminator(config, dtype)
    encoder = Encoder(generator.encoder(config), discriminator.embeddings, name="generator", dtype=dtype)
    return EncoderPair(encoder, discriminator)


def tie_gradient_disentangled(config: EncoderConfig, generator: TransformerGeneratorConfig, dtype) -> EncoderPair:
    """The generator's tables, which the discriminator reads with a difference of its own added and does not train.

    All three tables are so covered; each network has its own LayerNorm.
    """
    sizes = generator.encoder(config)
    tables = Embeddings(sizes, name="generator_embeddings", dtype=dtype)
    own = DisentangledEmbeddings(config, tables, name="embeddings", dtype=dtype)
    return EncoderPair(
        Encoder(sizes, tables, name="generator", dtype=dtype), Encoder(config, own, name="electra", dtype=dtype)
    )


def tie_all(config: EncoderConfig, generator: TransformerGeneratorConfig, dtype) -> EncoderPair:
    """One encoder in both roles; only the heads differ. The configuration has checked that the sizes agree."""
    encoder = build_discriminator(config, dtype)
    return EncoderPair(encoder, encoder)


TYINGS = {
    "none": tie_none,
    "embeddings": tie_embeddings,
    "gradient_disentangled": tie_gradient_disentangled,
    "all": tie_all,
}


def stand_alone(encoder: Encoder) -> None:
    """Makes an encoder one that needs no other network, for good: it computes what it did, with tables of its own.

    Only for one that is not trained further beside the other.
    """
    if isinstance(encoder.embeddings, DisentangledEmbeddings):
        encoder.embeddings = encoder.embeddings.merged()
