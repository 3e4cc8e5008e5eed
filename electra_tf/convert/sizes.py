"""The shapes of the authors' variables that go with an encoder's sizes, and the sizes that go with shapes."""

from collections.abc import Callable, Mapping

from electra_tf.config.errors import UserError
from electra_tf.config.schema import EncoderConfig
from electra_tf.config.validation import validate
from electra_tf.convert.stored_weights import list_briefly

HEAD_SIZE = 64  # of all of the authors' models

Shape = tuple[int, ...]
Shapes = dict[str, Shape]

_TABLES = ("word_embeddings", "position_embeddings", "token_type_embeddings")


def default_num_heads(hidden_size: int) -> int:
    """The heads of an encoder of this width, where nothing says it."""
    return max(1, hidden_size // HEAD_SIZE)


def encoder_sizes(
    source: str,
    shape_of: Callable[[str], Shape | None],
    scope: str = "electra",
    embeddings_scope: str = "electra",
    **settings,
) -> EncoderConfig:
    """The sizes of an encoder, from the shapes of its weights.

    Args:
        source: what messages call the place of the weights.
        shape_of: the shape of a variable by its name; None if there is none.
        settings: those of the configuration that no shape tells. Without `num_heads`: one for 64 hidden units.
    Raises: UserError: if weights of an encoder are missing.
    """
    tables = [f"{embeddings_scope}/embeddings/{name}" for name in _TABLES]
    first_layer = _intermediate(scope, 0)
    shapes = [shape_of(name) for name in (*tables, first_layer)]
    if missing := [name for name, shape in zip((*tables, first_layer), shapes, strict=True) if shape is None]:
        raise UserError(f"{source} holds no variable {list_briefly(missing)}; give a checkpoint of ELECTRA")
    if odd := [name for name, shape in zip((*tables, first_layer), shapes, strict=True) if len(shape) != 2]:
        raise UserError(f"{source}: {list_briefly(odd)} is no matrix; give a checkpoint of ELECTRA")
    (vocab_size, embedding_size), (positions, _), (types, _), (hidden_size, intermediate_size) = shapes
    num_layers = 1
    while shape_of(_intermediate(scope, num_layers)) is not None:
        num_layers += 1
    num_heads = settings.pop("num_heads", None) or default_num_heads(hidden_size)
    if hidden_size % num_heads:
        raise UserError(
            f"{source}: {hidden_size} hidden units do not divide into {num_heads} heads; correct the number of heads"
        )
    sizes = {
        "vocab_size": vocab_size,
        "embedding_size": embedding_size,
        "hidden_size": hidden_size,
        "num_layers": num_layers,
        "num_heads": num_heads,
        "intermediate_size": intermediate_size,
        "max_position_embeddings": positions,
        "type_vocab_size": types,
    }
    return validate({**sizes, **settings}, EncoderConfig, f"of {source}")


def encoder_shapes(config: EncoderConfig, scope: str, with_embeddings: bool = True) -> Shapes:
    """The shape of every variable of an encoder, by the authors' names.

    Args:
        with_embeddings: whether it has tables and their LayerNorm of its own.
    """
    hidden, inner, embedding = config.hidden_size, config.intermediate_size, config.embedding_size
    shapes: Shapes = {}
    if with_embeddings:
        rows = (config.vocab_size, config.max_position_embeddings, config.type_vocab_size)
        shapes = {f"{scope}/embeddings/{name}": (count, embedding) for name, count in zip(_TABLES, rows, strict=True)}
        shapes |= _layer_norm(f"{scope}/embeddings", embedding)
    if embedding != hidden:
        shapes |= _dense(f"{scope}/embeddings_project", embedding, hidden)
    for index in range(config.num_layers):
        layer = f"{scope}/encoder/layer_{index}"
        for name in ("query", "key", "value"):
            shapes |= _dense(f"{layer}/attention/self/{name}", hidden, hidden)
        shapes |= _dense(f"{layer}/attention/output/dense", hidden, hidden)
        shapes |= _layer_norm(f"{layer}/attention/output", hidden)
        shapes |= _dense(f"{layer}/intermediate/dense", hidden, inner)
        shapes |= _dense(f"{layer}/output/dense", inner, hidden)
        shapes |= _layer_norm(f"{layer}/output", hidden)
    return shapes


def masked_lm_shapes(config: EncoderConfig) -> Shapes:
    """Of the head of a generator, or of the masked-LM baseline, on an encoder of these sizes."""
    scope = "generator_predictions"
    return {
        **_dense(f"{scope}/dense", config.hidden_size, config.embedding_size),
        **_layer_norm(scope, config.embedding_size),
        f"{scope}/output_bias": (config.vocab_size,),
    }


def replaced_token_shapes(config: EncoderConfig) -> Shapes:
    """Of the head of a discriminator."""
    scope, hidden = "discriminator_predictions", config.hidden_size
    return {**_dense(f"{scope}/dense", hidden, hidden), **_dense(f"{scope}/dense_1", hidden, 1)}


def require_shapes(source: str, expected: Mapping[str, Shape], found: Mapping[str, Shape]) -> None:
    """Raises: UserError: if weights are missing, unknown or of another shape, listing them."""
    if missing := [name for name in expected if name not in found]:
        raise UserError(f"{source} holds no {list_briefly(missing)}; give a whole checkpoint of ELECTRA")
    if unknown := sorted(set(found) - set(expected)):
        raise UserError(f"{source} holds {list_briefly(unknown)}, of which ELECTRA knows nothing; is it another model?")
    wrong = [
        f"{name} has shape {list(found[name])}, expected {list(shape)}"
        for name, shape in expected.items()
        if tuple(found[name]) != shape
    ]
    if wrong:
        raise UserError(f"{source}: {list_briefly(wrong, separator='; ')}; give a checkpoint whose parts fit together")


def _intermediate(scope: str, layer: int) -> str:
    return f"{scope}/encoder/layer_{layer}/intermediate/dense/kernel"


def _dense(scope: str, inputs: int, outputs: int) -> Shapes:
    return {f"{scope}/kernel": (inputs, outputs), f"{scope}/bias": (outputs,)}


def _layer_norm(scope: str, size: int) -> Shapes:
    return {f"{scope}/LayerNorm/gamma": (size,), f"{scope}/LayerNorm/beta": (size,)}
