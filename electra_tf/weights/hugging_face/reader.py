"""Hugging Face folders as stored models: one network, or `discriminator/` and `generator/` beside each other."""

import os
from dataclasses import dataclass

import numpy as np

from electra_tf.config.errors import UserError
from electra_tf.config.schema import EncoderConfig
from electra_tf.files import exists, read_json
from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.tasks.pretrain import OBJECTIVES
from electra_tf.weights.hugging_face.heads import read_head
from electra_tf.weights.hugging_face.tensors import Tensors, read_tensors, tensor_name
from electra_tf.weights.hugging_face.tokenizer import FolderTokenizer, read_tokenizer
from electra_tf.weights.names import (
    HEAD_SIZE,
    Shapes,
    default_num_heads,
    encoder_shapes,
    encoder_sizes,
    list_briefly,
    masked_lm_shapes,
    replaced_token_shapes,
    require_shapes,
)
from electra_tf.weights.stored_model import NO_OVERRIDES, SourceOverrides, StoredModel, sound_weights

_CONFIG = "config.json"
_SETTINGS = {
    "hidden_dropout_prob": "hidden_dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "initializer_range": "initializer_range",
    "layer_norm_eps": "layer_norm_epsilon",
}
_DEFAULT_NUM_HEADS = 4  # of transformers' ElectraConfig
_TASK_HEADS = ("classifier.", "qa_outputs.", "sequence_summary.")
_TABLE, _TIED_TABLE = "electra.embeddings.word_embeddings.weight", "generator_lm_head.weight"


@dataclass(frozen=True)
class _Network:
    """One folder.

    Attributes:
        weights: by our names, the encoder's in the scope `electra`.
        finetuned: its task, if this program has such a head.
        ours: the entry of this program in config.json; empty for other folders.
        notes: lines for the log.
    """

    folder: str
    sizes: EncoderConfig
    weights: dict[str, np.ndarray]
    finetuned: FinetuningConfig | None
    ours: dict
    tokenizer: FolderTokenizer
    notes: list[str]


def is_hugging_face(path: str) -> bool:
    """Whether a path is such a folder, or a directory of two."""
    return bool(_folders(path))


def read_hugging_face(path: str, overrides: SourceOverrides = NO_OVERRIDES) -> tuple[StoredModel, list[str]]:
    """Reads an ElectraForPreTraining, ElectraForMaskedLM, ElectraModel or fine-tuned model, or a pair.

    Embeddings, or whole encoders, that are equal to the bit in `discriminator/` and `generator/` are the shared ones.

    Returns: the model, and lines for the log.
    Raises: UserError: if files or tensors are missing, or it is another kind of model.
    """
    folder, *others = _folders(path)
    kept = _read_network(folder, overrides.num_heads)
    weights, generator, notes = kept.weights, None, kept.notes
    if others:
        other = _read_network(others[0], overrides.generator_num_heads)
        _require_pair(kept, other)
        generator, notes = other.sizes, [*notes, *other.notes]
        weights = weights | _generator_weights(kept, other)
    has_discriminator = "discriminator_predictions/dense/kernel" in weights
    has_masked_lm = "generator_predictions/dense/kernel" in weights
    if has_masked_lm and not has_discriminator and kept.ours.get("objective") != "bert_mlm":
        notes = [*notes, f"{folder} is a masked language model alone; to fine-tune ELECTRA, give its discriminator"]
    objective = "bert_mlm" if has_masked_lm else ""
    if has_discriminator:
        objective = kept.ours.get("objective")
        objective = objective if objective in OBJECTIVES else "electra"
    lower_case, strip_accents = kept.tokenizer.lower_case, kept.tokenizer.strip_accents
    if overrides.lower_case is not None:
        lower_case = strip_accents = overrides.lower_case
    model = StoredModel(
        source=path,
        encoder=kept.sizes,
        generator=generator,
        weights=sound_weights(path, weights),
        vocabulary_file=overrides.vocabulary or kept.tokenizer.vocabulary_file,
        lower_case=lower_case,
        strip_accents=strip_accents,
        objective=objective,
        step=kept.ours.get("step", 0),
        finetuned=kept.finetuned,
        facts={"data": kept.ours["data"]} if kept.ours.get("data") else {},
    )
    return model, notes


def _folders(path: str) -> list[str]:
    """The folder of the network that is kept, and that of a generator if there is one; none if it is something else."""
    if exists(os.path.join(path, _CONFIG)):
        return [path]
    found = [os.path.join(path, name) for name in ("discriminator", "generator")]
    return [folder for folder in found if exists(os.path.join(folder, _CONFIG))]


def _read_network(folder: str, num_heads: int | None) -> _Network:
    config_file = os.path.join(folder, _CONFIG)
    config = read_json(config_file)
    _require_known(config, config_file)
    file, stored = read_tensors(folder)
    tensors, head = _split(stored, file)
    heads = num_heads or config.get("num_attention_heads", _DEFAULT_NUM_HEADS)
    sizes = _sizes(config, tensors, file, heads)
    expected = encoder_shapes(sizes)
    for root, shapes_of in (("discriminator_predictions.", replaced_token_shapes), ("generator_", masked_lm_shapes)):
        if any(name.startswith(root) for name in tensors):
            expected |= shapes_of(sizes)
    weights, unread = _weights(expected, tensors, file)
    ours, tokenizer = config.get("electra_tf") or {}, read_tokenizer(folder)
    finetuned, head_weights = read_head(config, head, sizes, config_file) if head else (None, {})
    if finetuned is None:
        unread += sorted(head)
    notes = [f"{file}: not read: {list_briefly(unread)}"] if unread else []
    usual = default_num_heads(sizes.hidden_size)
    if heads != usual and num_heads is None and not ours:
        notes.append(
            f"warning: {config_file} has num_attention_heads {heads} for hidden_size {sizes.hidden_size}; published "
            f"ELECTRA models have one head for {HEAD_SIZE} units, here {usual}. No tensor shows a wrong number"
        )
    notes += tokenizer.notes
    return _Network(folder, sizes, weights | head_weights, finetuned, ours, tokenizer, notes)


def _sizes(config: dict, tensors: Tensors, file: str, num_heads: int) -> EncoderConfig:
    """By the shapes of the tensors, which config.json may contradict; heads and rates by config.json."""
    shapes: Shapes = {}
    for name, tensor in tensors.items():
        ours = name.removesuffix(".weight").replace(".layer.", "/layer_").replace(".", "/")
        is_table = ours.endswith("_embeddings")
        shapes[ours if is_table else f"{ours}/kernel"] = tensor.shape if is_table else tensor.shape[::-1]
    settings = {ours: config[theirs] for theirs, ours in _SETTINGS.items() if theirs in config}
    return encoder_sizes(file, shapes, num_heads=num_heads, **settings)


def _weights(expected: Shapes, tensors: Tensors, file: str) -> tuple[dict[str, np.ndarray], list[str]]:
    """The tensors by our names, and the names of the others."""
    stored = {name: tensor_name(name) for name in expected}
    shapes = {stored[n].name: shape[::-1] if stored[n].transposed else shape for n, shape in expected.items()}
    require_shapes(file, shapes, {name: tensor.shape for name, tensor in tensors.items()})
    weights = {
        name: np.ascontiguousarray(tensors[tensor.name].T if tensor.transposed else tensors[tensor.name])
        for name, tensor in stored.items()
    }
    return weights, sorted(set(tensors) - set(shapes))


def _require_known(config: dict, path: str) -> None:
    """Raises: UserError: for another kind of model, or one that computes something else."""
    for key, expected in (("model_type", "electra"), ("hidden_act", "gelu"), ("position_embedding_type", "absolute")):
        if (found := config.get(key, expected)) != expected:
            raise UserError(f"{path}: {key} is {found!r:.80}, ELECTRA's is {expected!r}; give another folder")


def _split(tensors: Tensors, source: str) -> tuple[Tensors, Tensors]:
    """The tensors of the pre-trained networks with the names they have below a head, and those of a task's head."""
    if _TABLE not in tensors and _TABLE.removeprefix("electra.") in tensors:  # an ElectraModel
        tensors = {f"electra.{name}": tensor for name, tensor in tensors.items()}
    head = {name: tensor for name, tensor in tensors.items() if name.startswith(_TASK_HEADS)}
    kept = {name: tensor for name, tensor in tensors.items() if name not in head}
    table = kept.pop(_TIED_TABLE, None)
    if table is not None and not np.array_equal(table, kept.get(_TABLE)):
        raise UserError(f"{source}: {_TIED_TABLE} is not the word table, to which ELECTRA ties it; give another folder")
    return kept, head


def _require_pair(discriminator: _Network, generator: _Network) -> None:
    """Raises: UserError: if the two are not a discriminator and a generator of one vocabulary and casing."""
    for network, part, name in (
        (discriminator, "discriminator_predictions/dense/kernel", "ElectraForPreTraining"),
        (generator, "generator_predictions/dense/kernel", "ElectraForMaskedLM"),
    ):
        if part not in network.weights:
            raise UserError(f"{network.folder} is no {name}: it has no such head; give the folder of the other alone")
    if discriminator.tokenizer[:3] != generator.tokenizer[:3]:
        raise UserError(
            f"{discriminator.folder} and {generator.folder} differ in vocabulary or casing; give the two networks of "
            "one model"
        )


def _generator_weights(kept: _Network, generator: _Network) -> dict[str, np.ndarray]:
    """What the generator adds to the discriminator: its head, and what it does not share."""
    own = {name: value for name, value in generator.weights.items() if not name.startswith("electra/")}
    encoder = {name: value for name, value in generator.weights.items() if name.startswith("electra/")}
    tables = {name for name in encoder if name.startswith("electra/embeddings/")}
    if all(np.array_equal(encoder[name], kept.weights[name]) for name in tables):
        encoder = {name: value for name, value in encoder.items() if name not in tables}
        if generator.sizes == kept.sizes and all(np.array_equal(encoder[n], kept.weights[n]) for n in encoder):
            encoder = {}  # one network in both roles
    return {**{name.replace("electra/", "generator/", 1): value for name, value in encoder.items()}, **own}
