"""Weight sharing between generator and discriminator: both are given the same layer object.

Source: paper section 3.2, "Weight Sharing".
"""

from electra_tf.config.schema import EncoderConfig
from electra_tf.models.embeddings import DisentangledEmbeddings, Embeddings
from electra_tf.models.encoder import Encoder


def build_encoder(config: EncoderConfig, dtype) -> Encoder:
    """An encoder with embeddings of its own, named as the discriminator's."""
    return Encoder(config, Embeddings(config, name="embeddings", dtype=dtype), name="electra", dtype=dtype)


def tied_embeddings(
    tying: str, generator: EncoderConfig, discriminator: EncoderConfig, dtype
) -> tuple[Embeddings, Embeddings]:
    """The embeddings of generator and discriminator.

    Args:
        tying: `embeddings` or `all`: one layer for both, with its three tables and its LayerNorm; the encoders project
            its vectors to their hidden sizes. `gradient_disentangled`: the discriminator's tables are the generator's
            plus differences that it trains alone, and each network has its own LayerNorm. `none`: two layers.
    """
    if tying in ("embeddings", "all"):
        shared = Embeddings(discriminator, name="embeddings", dtype=dtype)
        return shared, shared
    of_generator = Embeddings(generator, name="generator_embeddings", dtype=dtype)
    if tying == "gradient_disentangled":
        return of_generator, DisentangledEmbeddings(discriminator, of_generator, name="embeddings", dtype=dtype)
    return of_generator, Embeddings(discriminator, name="embeddings", dtype=dtype)


def stand_alone(encoder: Encoder) -> None:
    """Gives an encoder with disentangled embeddings tables of its own; its results stay the same.

    For serving and export, not for an encoder that is trained further together with the generator.
    """
    if isinstance(encoder.embeddings, DisentangledEmbeddings):
        encoder.embeddings = encoder.embeddings.merged()
