"""Reads Hugging Face folders as stored models: one network, or `discriminator/` and `generator/` side by side."""

import dataclasses
import os
from typing import Any

import numpy as np

from electra_tf.config.errors import UserError
from electra_tf.config.networks import EncoderConfig
from electra_tf.config.validation import validate
from electra_tf.files import exists, read_json
from electra_tf.tasks.pretrain import OBJECTIVES
from electra_tf.text.vocabulary import StoredTokenizer
from electra_tf.text.vocabulary_settings import require_possible_tokens
from electra_tf.weights import names
from electra_tf.weights.hugging_face.heads import HEAD_ROOTS, READS_POOLER, read_head
from electra_tf.weights.hugging_face.layouts import (
    BERT,
    ELECTRA,
    MODERN,
    Layout,
    Tensors,
    architecture_of,
    encoder_settings,
    is_detector,
    layout_for,
    layout_of,
    one_logit,
    transposed,
)
from electra_tf.weights.hugging_face.sentence_transformers import MODULES_FILE, read_pooling
from electra_tf.weights.hugging_face.tensors import read_tensors
from electra_tf.weights.hugging_face.tokenizer import read_tokenizer
from electra_tf.weights.stored_model import FLAGS_OF_SETTINGS, NO_OVERRIDES, SourceOverrides, StoredModel, sound_weights

_CONFIG = "config.json"
# How to turn a setting of the text off.
_REMEDY = '"{}": false in tokenizer_config.json (with PreTrainedTokenizerFast, "{}" in tokenizer.json)'
_REMEDIES = {
    "lower_case": f"{FLAGS_OF_SETTINGS['lower_case']} or {_REMEDY.format('do_lower_case', 'lowercase')}",
    "strip_accents": _REMEDY.format("strip_accents", "strip_accents"),
    "isolate_cjk": "another folder (the words of this one need a segmenter)",
}


def is_hugging_face(path: str) -> bool:
    """Whether a path is a Hugging Face folder, or a directory of two."""
    return bool(_folders(path))


def read_hugging_face(path: str, overrides: SourceOverrides = NO_OVERRIDES) -> StoredModel:
    """Reads a discriminator, a masked language model, an encoder alone or a fine-tuned model, or a pair.

    Their classes are those of ELECTRA, BERT and ModernBERT, see `electra_tf.weights.hugging_face.layouts`. A folder of
    sentence-transformers is an encoder alone. In a pair, embeddings or whole encoders that are equal to the bit in both
    folders become shared weights.

    Raises: UserError: files or tensors are missing, or it is another kind of model.
    """
    folder, *others = _folders(path)
    model = _read_network(folder, overrides.num_heads)
    for other in others:  # one or none
        generator = _read_network(other, overrides.generator_num_heads)
        is_pair = model.has_discriminator_head and generator.has_masked_lm_head
        if not is_pair or model.stored_tokenizer != generator.stored_tokenizer:
            raise UserError(
                f"{folder} and {other} are not a discriminator and a generator with one vocabulary and casing; "
                "give the two networks of one model, or one folder alone"
            )
        weights, notes = model.weights | _generator_weights(model, generator), (*model.notes, *generator.notes)
        model = dataclasses.replace(model, generator=generator.encoder, weights=weights, notes=notes)
    stated, notes = model.objective, model.notes
    objective = "bert_mlm" if model.has_masked_lm_head else ""
    if model.has_discriminator_head:
        objective = stated if stated in OBJECTIVES else "electra"
    elif objective:
        may_be_generator = model.facts["is_assumed"] and layout_for(model.encoder) is ELECTRA
        if may_be_generator or stated not in ("bert_mlm", ""):
            notes += (f"{folder} is a masked language model alone; to fine-tune ELECTRA, give its discriminator",)
    stored = model.stored_tokenizer
    tokenizer = StoredTokenizer.of(overrides.vocabulary or stored.content, overrides.text_settings or stored.settings)
    foreign = model.facts["foreign_tokenizer"] if overrides.vocabulary is None else ""
    if tokenizer.content and not foreign:
        require_possible_tokens(tokenizer, f"the vocabulary of {path}", _REMEDIES)
    pooling, longest = read_pooling(path)
    facts = {
        **model.facts,
        "foreign_tokenizer": foreign,
        "max_seq_length": min(longest, model.encoder.max_position_embeddings) if isinstance(longest, int) else None,
        "sentence_transformers": exists(os.path.join(path, MODULES_FILE)),
    }
    return dataclasses.replace(
        model,
        source=path,
        weights=sound_weights(path, model.weights),
        stored_tokenizer=tokenizer,
        objective=objective,
        facts={name: fact for name, fact in facts.items() if fact},
        pooling=pooling,
        notes=notes,
    )


def _folders(path: str) -> list[str]:
    """The folder of the encoder, and that of a generator if there is one; none if the path is something else."""
    for folder in (path, os.path.join(path, "0_Transformer")):  # of older sentence-transformers
        if exists(os.path.join(folder, _CONFIG)):
            return [folder]
    pair = [os.path.join(path, name) for name in ("discriminator", "generator")]
    return [folder for folder in pair if exists(os.path.join(folder, _CONFIG))]


def _read_network(folder: str, num_heads: int | None) -> StoredModel:
    """The model in one folder, with the objective that it states."""
    config_file = os.path.join(folder, _CONFIG)
    config = read_json(config_file)
    # A cross-encoder's activation, which is in a file of its own since version 6 of sentence-transformers.
    own_file = read_json(os.path.join(folder, "config_sentence_transformers.json"))
    config["sentence_transformers"] = {**(config.get("sentence_transformers") or {}), **own_file}
    layout, values = layout_of(config, config_file), encoder_settings(config, config_file)
    if num_heads is not None:
        values["num_heads"] = num_heads
    sizes = validate(values, EncoderConfig, f"of {config_file}")
    file, stored = read_tensors(folder)
    stored, notes = _unwrapped(stored, layout, file)
    tensors, head = _split(stored, layout, config, file)
    weights, unread = _pretrained_weights(sizes, tensors, layout, file)
    tokenizer, foreign, warnings = read_tokenizer(folder, layout.model_type, config.get("tokenizer_class"))
    finetuned, head_weights = read_head(config, head, sizes, config_file) if head else (None, {})
    if finetuned is None:
        unread += sorted(head)
    notes += [f"{file}: not read: {names.list_briefly(unread)}"] if unread else []
    ours = config.get("electra_tf") or {}
    if (finetuned and finetuned.name) != (ours.get("finetuned") or {}).get("name"):
        ours = {}  # transformers keeps the entry when it trains another head
    noted = (ours.get("finetuned") or ours).get("max_seq_length")
    return StoredModel(
        source=folder,
        encoder=sizes,
        generator=None,
        weights=weights | head_weights,
        stored_tokenizer=tokenizer,
        objective=ours.get("objective", ""),
        step=np.int64(int(ours.get("step", 0))).item(),  # of 64 bits, as in a checkpoint
        finetuned=finetuned,
        facts={
            "data": [*map(str, ours.get("data") or [])],
            "is_assumed": not ours,
            "configuration": noted and {"data": {"max_seq_length": min(int(noted), sizes.max_position_embeddings)}},
            "foreign_tokenizer": foreign,
        },
        notes=(*notes, *warnings),
    )


def _unwrapped(tensors: Tensors, layout: Layout, file: str) -> tuple[Tensors, list[str]]:
    """The tensors without what a wrapper, such as torch.compile, puts before all names; and lines for the log.

    The names of an encoder alone get the encoder's prefix.
    """
    table = layout.table.removeprefix(layout.root)
    found = [name.removesuffix(table) for name in tensors if f".{name}".endswith(f".{table}")]
    if len(found) != 1:  # two may be two networks
        return tensors, []
    (before,) = found
    wrapper = before.removesuffix(layout.root)

    def plain(name: str) -> str:
        return layout.root + name.removeprefix(before) if name.startswith(before) else name.removeprefix(wrapper)

    without = sorted(name for name in tensors if not name.startswith(wrapper))
    rest = f"; without it: {names.list_briefly(without)}" if without else ""
    notes = [f"{file}: {wrapper!r} before the names of tensors is left out{rest}"] if wrapper else []
    return {plain(name): tensor for name, tensor in tensors.items()}, notes


def _split(tensors: Tensors, layout: Layout, config: dict[str, Any], source: str) -> tuple[Tensors, Tensors]:
    """The tensors of the pre-trained networks, the encoder's with their prefix, and those of a fine-tuned head."""
    head = {name: tensor for name, tensor in tensors.items() if name.partition(".")[0] in HEAD_ROOTS[layout.family]}
    if layout is BERT and architecture_of(config).endswith(READS_POOLER):
        head |= {name: tensor for name, tensor in tensors.items() if name.startswith("bert.pooler.")}
    if layout is MODERN and head:
        if is_detector(config):
            tensors, head = one_logit(tensors), {}
        elif "classifier.weight" not in head:  # a masked language model, whose head begins as the others do
            head = {}
            if config.get("decoder_bias") is False and (table := tensors.get(layout.table)) is not None:
                tensors = {**tensors, "decoder.bias": np.zeros(len(table), np.float32)}
    pretrained = {name: tensor for name, tensor in tensors.items() if name not in head}
    for tied, name in layout.tied.items():
        tensor = pretrained.pop(tied, None)
        if tensor is not None and not np.array_equal(tensor, pretrained.setdefault(name, tensor)):
            raise UserError(f"{source}: {tied} is not {name}, to which this program ties it; give another folder")
    return pretrained, head


def _pretrained_weights(
    sizes: EncoderConfig, tensors: Tensors, layout: Layout, file: str
) -> tuple[names.Weights, list[str]]:
    """The weights of the encoder, a pre-training head and a pooler by our names, and the names of other tensors."""
    heads = tuple(scope for scope, mark in layout.marks.items() if any(name.startswith(mark) for name in tensors))
    names.require_room(file, sizes, {name: tensor.shape for name, tensor in tensors.items()})
    expected = names.network_shapes(sizes, heads)
    places = {name: layout.tensor_name(name) for name in expected}
    shapes = {places[name]: shape[::-1] if name.endswith("/kernel") else shape for name, shape in expected.items()}
    names.require_shapes(file, shapes, {name: tensor.shape for name, tensor in tensors.items()})
    return {name: transposed(name, tensors[place]) for name, place in places.items()}, sorted(tensors.keys() - shapes)


def _generator_weights(discriminator: StoredModel, generator: StoredModel) -> names.Weights:
    """The weights that only the generator has: its head, and its encoder without shared parts."""
    encoder, tables = generator.part("electra/"), generator.part("electra/embeddings/")

    def are_shared(weights: names.Weights) -> bool:
        return all(np.array_equal(value, discriminator.weights[name]) for name, value in weights.items())

    shared = tables if are_shared(tables) else {}
    if shared and generator.encoder == discriminator.encoder and are_shared(encoder):
        shared = encoder  # one network in both roles
    return {
        name.replace("electra/", "generator/", 1): value
        for name, value in generator.weights.items()
        if name not in shared
    }
