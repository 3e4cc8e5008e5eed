"""The one table of names for weights: the authors' names where their code has such a variable, ours elsewhere.

Runs, Hugging Face folders and TensorFlow 1 checkpoints are all read into these names, so a warm start of any objective
from any source is a copy by name. The scope `electra` holds the discriminator, or the encoder of a masked-LM baseline,
and `generator` the generator. Embeddings that both networks use, or a whole shared encoder, are in `electra`.
"""

import functools
import itertools
import math
import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from electra_tf.config import errors
from electra_tf.config.errors import UserError
from electra_tf.config.networks import EncoderConfig
from electra_tf.config.validation import validate
from electra_tf.models.encoder import Encoder, build_encoder
from electra_tf.models.generators import TransformerGenerator
from electra_tf.models.heads import MaskedLmHead, ReplacedTokenHead
from electra_tf.models.layers import ForwardContext
from electra_tf.tasks.base import Task
from electra_tf.tasks.finetune.task import FinetuningTask

NamedVariables = dict[str, keras.Variable]
Weights = dict[str, npt.NDArray[np.float32]]
Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]

list_briefly = functools.partial(errors.list_briefly, most=6)  # the names of weights are long

# The beginnings of the authors' names.
AUTHORS_SCOPES = ("electra/", "generator/", "discriminator_predictions/", "generator_predictions/", "task_specific/")
POOLER = "pooler/"  # of BERT: dense with tanh on the vector of [CLS], as it was pre-trained

# Turn the path of attributes that leads to a variable into its name. A path that matches no rule is the name.
_RULES = (
    (r"^(generator|difficulty)/encoder/", r"\1/"),
    (r"^generator/(left_to_right|right_to_left)/", r"generator_\1/"),  # the two towers of Electric
    (r"^(generator|masked_lm)/head/", "generator_predictions/"),
    (r"^replaced_token_head/transform/", "discriminator_predictions/dense/"),
    (r"^replaced_token_head/score/", "discriminator_predictions/dense_1/"),
    (r"^replaced_token_head/", "discriminator_predictions/"),  # a LayerNorm
    (r"^prediction_head/", "encoder_predictions/"),
    (r"^difficulty/head/", "difficulty_predictions/"),
    (r"/transformer_layers/(\d+)/", r"/encoder/layer_\1/"),
    (r"/attention/", "/attention/self/"),
    (r"/attention_output/", "/attention/output/"),
    (r"/feed_forward_output/", "/output/"),
    (r"/output/projection/", "/output/dense/"),
    (r"/intermediate/", "/intermediate/dense/"),
    (r"/transform/", "/dense/"),
    (r"/layer_norm/", "/LayerNorm/"),
)


def named_variables(task: Task) -> NamedVariables:
    """Every trainable variable of a task by its name."""
    if isinstance(task, FinetuningTask):
        return finetuned_variables(task, task.config.name)
    named, beside = encoder_variables(task.encoder), _beside_encoder(task)
    counts = Counter([*named, *(_name_of(path) for path, _ in beside)])
    # An objective may have `transform` beside `dense`: these keep their paths.
    return named | {path if counts[name := _name_of(path)] > 1 else name: variable for path, variable in beside}


def encoder_variables(encoder: Encoder) -> NamedVariables:
    """Every variable of an encoder by its name in the scope `electra`."""
    return _named("electra/", encoder)


def generator_variables(generator: TransformerGenerator) -> NamedVariables:
    """Every variable of a generator that shares none, by its name in the scopes of the generator."""
    return _named("generator/", generator)


def discriminator_variables(encoder: Encoder, head: ReplacedTokenHead) -> NamedVariables:
    """Every variable of an encoder and of its head by its name in the scopes of the discriminator."""
    return encoder_variables(encoder) | _named("replaced_token_head/", head)


def finetuned_variables(task: FinetuningTask, task_name: str) -> NamedVariables:
    """Every trainable variable of a fine-tuning task by its name, of which `task_name` is a part for its head."""
    named = encoder_variables(task.encoder)
    for path, variable in _beside_encoder(task):
        layer, _, part = path.partition("/")
        named[f"task_specific/{task_name}/{task.layer_names.get(layer, layer)}/{part}"] = variable
    return named


def _beside_encoder(task: Task) -> list[tuple[str, keras.Variable]]:
    """The trainable variables of a task that are not its encoder's, with their paths."""
    beside = {id(each) for each in task.trainable_variables} - {id(each) for each in task.encoder.variables}
    return [(path, variable) for path, variable in _variables_of(task) if id(variable) in beside]


def _named(place: str, part: tf.Module) -> NamedVariables:
    """The variables of a part of a task by their names. Args: place: the path of the part, with a slash."""
    return {_name_of(f"{place}{path}"): variable for path, variable in _variables_of(part)}


def _variables_of(root: tf.Module) -> Iterator[tuple[str, keras.Variable]]:
    """Each variable below an object with the shortest path of attributes that leads to it."""
    view, queue, seen = tf.train.TrackableView(root), deque([("", root)]), {id(root)}
    while queue:
        path, node = queue.popleft()
        if isinstance(node, keras.Variable):
            # Keras' own Dense, in an objective of the user's, calls it so.
            yield re.sub(r"(^|/)_kernel$", r"\1kernel", path), node
            continue
        for name, child in view.children(node).items():
            if id(child) not in seen and not (node is root and name == "optimizer"):
                seen.add(id(child))
                queue.append((f"{path}/{name}" if path else name, child))


def _name_of(path: str) -> str:
    for pattern, replacement in _RULES:
        path = re.sub(pattern, replacement, path)
    return path


def default_num_heads(hidden_size: int) -> int:
    """The number of attention heads where the source does not state it: of 64 units, as in all published models."""
    return max(1, hidden_size // 64)


@functools.cache
def network_shapes(
    config: EncoderConfig, heads: tuple[str, ...] = (), scope: str = "electra", with_embeddings: bool = True
) -> Shapes:
    """The shape of every variable of an encoder and of heads on it.

    The networks are built with few rows and layers, which takes little time and memory.

    Args:
        heads: their scopes: `discriminator_predictions/`, `generator_predictions/`, `POOLER`.
        scope: of the encoder.        with_embeddings: whether it has embeddings of its own.
    """
    # The layers are alike, but for the first one of a block that begins with a LayerNorm.
    last = min(config.num_layers, 2 if config.traits.is_pre_norm else 1) - 1
    few = {"num_layers": last + 1, "vocab_size": 1, "max_position_embeddings": 3, "type_vocab_size": 1}
    sample = config.model_copy(update=few)
    encoder, ids = build_encoder(sample, "float32"), np.zeros([1, 3], np.int32)
    hidden = encoder(ids, ids, ids, context=ForwardContext(creates_variables=True)).sequence_output
    variables = encoder_variables(encoder)
    if "discriminator_predictions/" in heads:
        detector = ReplacedTokenHead(sample)
        detector(hidden)
        variables |= discriminator_variables(encoder, detector)
    if "generator_predictions/" in heads:
        masked_lm = TransformerGenerator(encoder, MaskedLmHead(sample, encoder.embeddings))
        masked_lm.head(hidden)
        variables |= {name: each for name, each in generator_variables(masked_lm).items() if name.startswith(heads)}
    rows = {f"electra/embeddings/{name}": number for name, number in config.table_rows.items()}
    rows["generator_predictions/output_bias"] = config.vocab_size
    shapes = {}
    for name, variable in variables.items():
        shape = (rows.get(name, variable.shape[0]), *variable.shape[1:])
        for index in range(last, config.num_layers) if f"/layer_{last}/" in name else (last,):
            shapes[name.replace(f"/layer_{last}/", f"/layer_{index}/").replace("electra/", f"{scope}/", 1)] = shape
    if POOLER in heads:  # which no network here has: a fine-tuned head does
        shapes |= {f"{POOLER}dense/kernel": (config.hidden_size,) * 2, f"{POOLER}dense/bias": (config.hidden_size,)}
    tables = f"{scope}/embeddings/"
    return {name: shape for name, shape in shapes.items() if with_embeddings or not name.startswith(tables)}


def encoder_sizes(
    source: str,
    shapes: Shapes,
    scope: str = "electra",
    tables_scope: str = "electra",
    num_heads: int | None = None,
) -> EncoderConfig:
    """The sizes of an encoder, from the shapes of its weights.

    Args:
        scope, tables_scope: the scope of its layers, and the one of its embeddings.
        num_heads: which no shape shows; None: one head for 64 hidden units.
    Raises: UserError: weights of an encoder are missing.
    """
    tables = ("word_embeddings", "position_embeddings", "token_type_embeddings")
    layer = f"{scope}/encoder/layer_{{}}/intermediate/dense/kernel"
    names = [*(f"{tables_scope}/embeddings/{name}" for name in tables), layer.format(0)]
    if wrong := [name for name in names if len(shapes.get(name, ())) != 2]:
        raise UserError(f"{source} holds no matrix {list_briefly(wrong)}; give a checkpoint of ELECTRA")
    (vocab_size, embedding_size), (positions, _), (types, _), (hidden_size, inner_size) = (shapes[n] for n in names)
    sizes = {
        "vocab_size": vocab_size,
        "embedding_size": embedding_size,
        "hidden_size": hidden_size,
        "num_layers": next(number for number in itertools.count(1) if layer.format(number) not in shapes),
        "num_heads": num_heads or default_num_heads(hidden_size),
        "intermediate_size": inner_size,
        "max_position_embeddings": positions,
        "type_vocab_size": types,
    }
    encoder = validate(sizes, EncoderConfig, f"of {source}")
    require_room(source, encoder, shapes)
    return encoder


def require_room(source: str, sizes: EncoderConfig, shapes: Shapes) -> None:
    """Raises: UserError: a network of these sizes has far more numbers than these weights, so do not build it."""
    layer = sizes.hidden_size * (sizes.hidden_size + sizes.intermediate_size + sizes.embedding_size)
    if sizes.num_layers > len(shapes) or layer > max(2**20, sum(map(math.prod, shapes.values()))):
        raise UserError(
            f"{source} is too small for {sizes.num_layers} layers with hidden_size {sizes.hidden_size}, "
            f"intermediate_size {sizes.intermediate_size} and embedding_size {sizes.embedding_size}; give a whole "
            "checkpoint of one model"
        )


def require_shapes(source: str, expected: Shapes, shapes: Shapes) -> None:
    """Raises: UserError: a weight is missing or has another shape."""
    wrong = [
        f"{name} has shape {list(shapes[name])}, expected {list(shape)}" if name in shapes else f"there is no {name}"
        for name, shape in expected.items()
        if shapes.get(name) != shape
    ]
    if wrong:
        raise UserError(f"{source}: {list_briefly(wrong, '; ')}; give a whole checkpoint of one model")
