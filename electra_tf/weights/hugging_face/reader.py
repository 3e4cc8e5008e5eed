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
)
from electra_tf.weights.hugging_face.sentence_transformers import MODULES_FILE, read_pooling
from electra_tf.weights.hugging_face.tensors import read_tensors
from electra_tf.weights.hugging_face.tokenizer import foreign_tokenizer, read_tokenizer
from electra_tf.weights.stored_model import FLAGS_OF_SETTINGS, NO_OVERRIDES, SourceOverrides, StoredModel, sound_weights

_CONFIG = "config.json"
_DISCRIMINATOR_HEAD = "discriminator_predictions/dense/kernel"
_MASKED_LM_HEAD = "generator_predictions/dense/kernel"
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
    sentence-transformers is an encoder alone.

    In a pair, embeddings or whole encoders that are equal to the bit in both folders become shared weights.

    Raises: UserError: files or tensors are missing, or it is another kind of model.
    """
    folder, *others = _folders(path)
    model = _read_network(folder, overrides.num_heads)
    is_electra, stated, weights = layout_for(model.encoder) is ELECTRA, model.objective, model.weights
    notes = list(model.notes)
    if others:
        generator = _read_network(others[0], overrides.generator_num_heads)
        is_pair = _DISCRIMINATOR_HEAD in model.weights and _MASKED_LM_HEAD in generator.weights
        if not is_pair or model.stored_tokenizer != generator.stored_tokenizer:
            raise UserError(
                f"{folder} and {others[0]} are not a discriminator and a generator with one vocabulary and casing; "
                "give the two networks of one model, or one folder alone"
            )
        notes, weights = [*notes, *generator.notes], weights | _generator_weights(model, generator)
        model = dataclasses.replace(model, generator=generator.encoder)
    objective = "bert_mlm" if _MASKED_LM_HEAD in weights else ""
    if model.has_discriminator_head:
        objective = stated if stated in OBJECTIVES else "electra"
    elif objective and (stated not in ("bert_mlm", "") or (model.facts["is_assumed"] and is_electra)):
        notes.append(f"{folder} is a masked language model alone; to fine-tune ELECTRA, give its discriminator")
    stored = model.stored_tokenizer
    tokenizer = StoredTokenizer.of(overrides.vocabulary or stored.content, overrides.text_settings or stored.settings)
    foreign = model.facts["foreign_tokenizer"] if overrides.vocabulary is None else ""
    if tokenizer.content and not foreign:
        require_possible_tokens(tokenizer, f"the vocabulary of {path}", _REMEDIES)
    pooling, longest = read_pooling(path)
    longest = min(longest, model.encoder.max_position_embeddings) if isinstance(longest, int) else None
    facts = model.facts | {"max_seq_length": longest, "foreign_tokenizer": foreign}
    facts["sentence_transformers"] = exists(os.path.join(path, MODULES_FILE))
    facts = {name: fact for name, fact in facts.items() if fact}
    weights = sound_weights(path, weights)
    return dataclasses.replace(
        model,
        source=path,
        weights=weights,
        stored_tokenizer=tokenizer,
        objective=objective,
        facts=facts,
        pooling=pooling,
        notes=tuple(notes),
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
    ours = dict(config.get("electra_tf") or {})
    stated = {} if num_heads is None else {"num_heads": num_heads}
    sizes = validate(values | stated, EncoderConfig, f"of {config_file}")
    file, stored = read_tensors(folder)
    stored, notes = _unwrapped(stored, layout, file)
    tensors, head = _split(stored, layout, config, file)
    weights, unread = _pretrained_weights(sizes, tensors, layout, file)
    foreign = foreign_tokenizer(folder, config)
    tokenizer, warnings = read_tokenizer(folder, layout.model_type, foreign)
    finetuned, head_weights = read_head(config, head, sizes, config_file) if head else (None, {})
    if finetuned is None:
        unread += sorted(head)
    notes += [f"{file}: not read: {names.list_briefly(unread)}"] if unread else []
    notes += warnings
    notes += [f"warning: {folder} needs its tokenizer {foreign}, which is not computed here"] * bool(foreign)
    name = finetuned and finetuned.name
    if name != (ours.get("finetuned") or {}).get("name"):  # transformers keeps the entry when it trains another head
        ours = {}
    noted = (ours.get("finetuned") or ours).get("max_seq_length")
    configuration = noted and {"data": {"max_seq_length": noted}}
    facts = {"data": ours.get("data"), "is_assumed": not ours}
    return StoredModel(
        source=folder,
        encoder=sizes,
        generator=None,
        weights=weights | head_weights,
        stored_tokenizer=tokenizer,
        objective=ours.get("objective", ""),
        step=ours.get("step", 0),
        finetuned=finetuned,
        facts=facts | {"configuration": configuration, "foreign_tokenizer": foreign},
        notes=tuple(notes),
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
    scopes = zip(layout.marks, ("discriminator_predictions/", "generator_predictions/", names.POOLER), strict=True)
    heads = (scope for mark, scope in scopes if mark and any(name.startswith(mark) for name in tensors))
    expected = names.network_shapes(sizes, tuple(heads))
    places = {name: layout.tensor_name(name) for name in expected}
    shapes = {places[n].name: shape[::-1] if places[n].transposed else shape for n, shape in expected.items()}
    names.require_shapes(file, shapes, {name: tensor.shape for name, tensor in tensors.items()})
    weights = {
        name: np.ascontiguousarray(tensors[place.name].T if place.transposed else tensors[place.name])
        for name, place in places.items()
    }
    return weights, sorted(set(tensors) - set(shapes))


def _generator_weights(discriminator: StoredModel, generator: StoredModel) -> names.Weights:
    """The weights that only the generator has: its head, and its encoder without shared parts."""
    encoder = {name: value for name, value in generator.weights.items() if name.startswith("electra/")}
    head = {name: value for name, value in generator.weights.items() if name not in encoder}
    tables = {name for name in encoder if name.startswith("electra/embeddings/")}
    if all(np.array_equal(encoder[name], discriminator.weights[name]) for name in tables):
        encoder = {name: value for name, value in encoder.items() if name not in tables}
        if generator.encoder == discriminator.encoder and all(
            np.array_equal(value, discriminator.weights[name]) for name, value in encoder.items()
        ):
            encoder = {}  # one network in both roles
    return {**{name.replace("electra/", "generator/", 1): value for name, value in encoder.items()}, **head}
