"""The fixtures' network in our settings, and the names that transformers' classes give to its variables."""

from collections.abc import Iterator, Mapping

import tensorflow as tf

from electra_tf.models.encoder import Encoder
from electra_tf.models.heads import MaskedLmHead, ReplacedTokenHead
from tests.models.modernbert_fixture import SIZES, weight

# The settings of `EncoderConfig` for `modernbert_fixture.transformers_config`.
ENCODER = {
    "block": "modern",
    "vocab_size": SIZES["vocab_size"],
    "embedding_size": SIZES["hidden_size"],
    "hidden_size": SIZES["hidden_size"],
    "num_layers": SIZES["num_hidden_layers"],
    "num_heads": SIZES["num_attention_heads"],
    "intermediate_size": SIZES["intermediate_size"],
    "max_position_embeddings": 64,
    "layer_norm_epsilon": 2e-3,
    "global_attention_every_n_layers": 2,
    "local_attention": 4,
    "global_rope_theta": 800.0,
    "local_rope_theta": 50.0,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
}


def encoder_places(encoder: Encoder) -> Iterator[tuple[str, tf.Variable]]:
    """Transformers' name of each variable of an encoder."""
    yield "model.embeddings.tok_embeddings.weight", encoder.embeddings.word_embeddings
    parts = {"model.embeddings.norm": encoder.embeddings.layer_norm, "model.final_norm": encoder.final_norm}
    for index, layer in enumerate(encoder.transformer_layers):
        prefix = f"model.layers.{index}"
        parts |= {f"{prefix}.attn.Wqkv": layer.qkv, f"{prefix}.attn.Wo": layer.attention_output}
        parts |= {f"{prefix}.mlp_norm": layer.mlp_norm}
        parts |= {f"{prefix}.mlp.Wi": layer.mlp_input, f"{prefix}.mlp.Wo": layer.mlp_output}
        if index > 0:
            parts[f"{prefix}.attn_norm"] = layer.attention_norm
    yield from _named(parts)


def head_places(head: MaskedLmHead | ReplacedTokenHead) -> Iterator[tuple[str, tf.Variable]]:
    """Transformers' name of each variable of a head, without the table of an output."""
    parts = {"head.dense": head.transform, "head.norm": head.layer_norm}
    if isinstance(head, MaskedLmHead):
        yield "decoder.bias", head.output_bias
    else:
        parts["classifier"] = head.score
    yield from _named(parts)


def _named(parts: Mapping[str, tf.Module]) -> Iterator[tuple[str, tf.Variable]]:
    for name, part in parts.items():
        for variable in part.variables:
            yield f"{name}.{'bias' if variable.path.endswith(('bias', 'beta')) else 'weight'}", variable


def is_transposed(name: str, variable: tf.Variable) -> bool:
    """Whether transformers stores the transpose: of every kernel, but not of the table."""
    return len(variable.shape) == 2 and "embeddings" not in name


def assign_weight(name: str, variable: tf.Variable, prefix: str = "") -> None:
    """Gives a variable the fixture's values of the tensor of this name, which may have a prefix of its own."""
    transposed = is_transposed(name, variable)
    values = weight(prefix + name, tuple(variable.shape[::-1] if transposed else variable.shape))
    variable.assign(values.T if transposed else values)
