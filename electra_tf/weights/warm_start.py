"""Gives a pre-training run the weights of another model, without the state of its optimizer."""

import dataclasses
import os
import re
from collections.abc import Mapping

from electra_tf.config.errors import UserError
from electra_tf.config.networks import SHAPELESS_SETTINGS, EncoderConfig
from electra_tf.models.embeddings import DisentangledEmbeddings
from electra_tf.tasks.pretrain import Objective
from electra_tf.tasks.pretrain.fast_electra import FastElectra
from electra_tf.text.vocabulary import StoredTokenizer
from electra_tf.weights.names import NamedVariables, Weights, generator_variables, list_briefly, named_variables
from electra_tf.weights.source import load_trained
from electra_tf.weights.stored_model import SourceOverrides, StoredModel, assign_weights

# The settings of `objective.generator` that fix its shapes and heads.
_GENERATOR_SIZES = ("hidden_size", "num_layers", "num_heads", "intermediate_size", "embedding_size")
_LAYER = re.compile(r"(.+/encoder/layer_)(\d+)(/.+)")  # the name of a variable of an encoder's layer


def load_auxiliary(task: FastElectra, tokenizer: StoredTokenizer | None = None) -> list[str]:
    """Gives the frozen generator the weights of the masked language model that `objective.auxiliary` names.

    Args:
        task: built, compiled or not.        tokenizer: that of the task's data; None: unknown.
    Returns: lines for the log.
    Raises: UserError: there is no masked language model, or it differs in sizes, `layer_norm_epsilon`, vocabulary or
        casing.
    """
    setting, config = "objective.auxiliary", task.config
    place = f"{setting}={config.objective.auxiliary}"
    model = _read(config.objective.auxiliary, setting, tokenizer)
    model = dataclasses.replace(model, generator=model.masked_lm_sizes)
    expected = config.objective.generator_encoder(config)
    stated = [name for name in _GENERATOR_SIZES if name != "num_heads" or model.states_settings]
    sizes, ours = ({name: getattr(each, name) for name in stated} for each in (model.generator, expected))
    if different := [f"{name} {sizes[name]}, not {ours[name]}" for name in stated if sizes[name] != ours[name]]:
        settings = ", ".join(f"{name}: {value}" for name, value in sizes.items())
        raise UserError(
            f"{place} has other sizes than objective.generator ({'; '.join(different)}); give "
            f"'objective.generator={{{settings}}}'"
        )
    _require_agreement(place, model, {"generator": expected}, tokenizer)
    variables = generator_variables(task.generator)
    notes = [*model.notes, *assign_weights(model.source, model.masked_lm_weights, variables)]
    return [f"the frozen generator from {model.source}: {len(variables)} variables", *notes]


def initialize_from(
    task: Objective,
    path: str | os.PathLike[str],
    fresh_generator: bool = False,
    tokenizer: StoredTokenizer | None = None,
    stacks: bool = False,
) -> list[str]:
    """Gives a task the weights of a stored model. The optimizer and the step stay unchanged.

    Every trainable variable needs a weight of its shape. If the model has more positions, the first rows of its
    position table are taken. Weights without a variable in the task, such as another head's, are ignored. From a masked
    language model, or an encoder with `fresh_generator`, a discriminator's head stays random; a generator of its width,
    with as many layers or fewer, gets its first layers. From the first phase of two_stage a task with one network gets
    the generator.

    Args:
        task: built, compiled or not.        path: see `electra_tf.weights.source.load_trained`.
        fresh_generator: the variables that only the generator has keep their initial values.
        tokenizer: that of the task's data; None: unknown.
        stacks: the model has fewer layers, which are repeated: see `_stacked_layers`.
    Returns: lines for the log: the weights that were loaded and those that were ignored.
    Raises: UserError: there is no such model, a weight is missing or has another shape, or the model differs in block,
        heads, `layer_norm_epsilon`, vocabulary or casing.
    """
    config, is_disentangled = task.config, isinstance(task.encoder.embeddings, DisentangledEmbeddings)
    if fresh_generator and (is_disentangled or not config.objective.trains_generator):
        raise UserError(
            "fresh_generator requires an objective that trains a generator, with objective.tying embeddings or none: "
            "in gradient_disentangled the discriminator's embeddings are differences to the generator's"
        )
    place = f"init_from={os.fspath(path)}"
    model = _read(path, "init_from", tokenizer)
    if model.finetuned is not None:
        origin = model.finetuned.origin or "a pre-trained model"
        raise UserError(f"{place} is a fine-tuned model, which lacks the heads of pre-training; give {origin}")
    named = named_variables(task)
    if model.kept_scope != "electra/" and not any(name.startswith(model.kept_scope) for name in named):
        model = model.generator_alone()  # the discriminator has not been trained
    fresh_head = _fresh_head(place, model, named, fresh_generator)
    fresh = [name for name in named if fresh_generator and name.startswith("generator")]
    networks = {"encoder": config.encoder}
    if config.objective.trains_generator and not fresh_generator:
        networks["generator"] = config.objective.generator_encoder(config)
    _require_agreement(place, model, networks, tokenizer)
    variables = {name: variable for name, variable in named.items() if name not in (*fresh, *fresh_head)}
    if not is_disentangled:
        model = model.with_merged_tables()
    generator, most = networks.get("generator"), model.encoder.num_layers
    gives_generator = _gives_generator(model, generator)
    weights, notes = model.masked_lm_weights if gives_generator else model.weights, [*model.notes]
    if stacks:
        stacked, lines = _stacked_layers(place, weights, variables, config.encoder)
        weights, notes = weights | stacked, notes + lines
    notes += assign_weights(model.source, weights, variables)
    if gives_generator and generator and not model.generator and generator.num_layers < most:
        notes.append(f"the generator: the first {generator.num_layers} of the source's {most} layers")
    if fresh:
        notes.append(
            f"a fresh generator: {len(fresh)} variables stay random (fresh_generator). At first its samples are easy "
            "to detect and the discriminator learns little; see docs/interop.md"
        )
    if fresh_head:
        notes.append(f"the source has no head of a discriminator: its {len(fresh_head)} variables stay random")
    if config.objective.name == "bert_mlm" and model.encoder.family == "bert" != config.encoder.family:
        notes.append("the source is a BERT; with encoder.family bert, electra-tf convert writes this run as one too")
    if ignored := sorted(set(model.weights) - set(variables)):
        notes.append(f"ignored: {len(ignored)} variables, {list_briefly(ignored)}")
    return [f"weights from {model.source}: {len(variables)} variables; the optimizer starts anew", *notes]


def _read(path: str | os.PathLike[str], flag: str, tokenizer: StoredTokenizer | None) -> StoredModel:
    """Reads a source. If it does not state its settings, they are the data's, which decided how text was normalized."""
    return load_trained(path, flag=flag, unstated=SourceOverrides(text_settings=tokenizer and tokenizer.settings))


def _fresh_head(place: str, model: StoredModel, named: NamedVariables, fresh_generator: bool) -> list[str]:
    """The variables of a discriminator's head, if the model has none and they stay random.

    Raises: UserError: the model is a folder that may be ELECTRA's generator, whose encoder is not one to train as a
        discriminator.
    """
    head = [name for name in named if name.startswith("discriminator_predictions/")]
    if not head or model.has_discriminator_head or not (fresh_generator or model.has_masked_lm_head):
        return []
    is_run = "objective" in model.facts.get("configuration", {})  # and so no generator of another model
    may_be_generator = model.encoder.block == "bert" and model.encoder.family != "bert" and not is_run
    if model.has_masked_lm_head and may_be_generator:
        raise UserError(
            f"{place} is a masked language model alone, such as ELECTRA's generator, and this objective trains a "
            "discriminator; give a directory with discriminator/ and generator/"
        )
    return head


def _gives_generator(model: StoredModel, generator: EncoderConfig | None) -> bool:
    """Whether a model has weights of a generator of these sizes, or shares them with its other network.

    A masked language model gives one that differs in no more than a smaller number of layers its first ones, and the
    LayerNorm after its last.
    """
    fits = model.has_discriminator_head or (
        generator is not None
        and generator.num_layers <= model.encoder.num_layers
        and all(
            getattr(generator, name) == getattr(model.encoder, name)
            for name in _GENERATOR_SIZES
            if name != "num_layers"
        )
    )
    return model.has_masked_lm_head and fits


def _stacked_layers(
    place: str, weights: Weights, variables: NamedVariables, sizes: EncoderConfig
) -> tuple[Weights, list[str]]:
    """The layers that a network has above the L of its source: layer i is layer i mod L.

    The LayerNorm that a modern layer 0 lacks keeps its initial values in the repetitions.

    Returns: the weights of these layers, and a line for each network.
    Raises: UserError: there are none, or a local layer would become a global one.
    Source: Gong et al. 2019, section 4.1, where a network of L layers gives one of 2 L.
    """
    depths: dict[str, int] = {}  # by the beginning of the names of a network's layers
    for scope, layer, _ in (match.groups() for match in map(_LAYER.fullmatch, weights) if match):
        depths[scope] = max(depths.get(scope, 0), 1 + int(layer))
    stacked, lines = {}, {}
    for name, variable in variables.items():
        scope, index, part = match.groups() if (match := _LAYER.fullmatch(name)) else ("", "0", "")
        layer, depth = int(index), depths.get(scope)
        if depth is None or layer < depth:
            continue
        if sizes.is_local(layer) != sizes.is_local(layer % depth):
            raise UserError(
                f"{place} grow=stack: its {depth} layers are no multiple of encoder.global_attention_every_n_layers "
                f"{sizes.global_attention_every_n_layers}, so a local layer would become a global one"
            )
        original = f"{scope}{layer % depth}{part}"
        if original in weights or part.startswith("/attention_norm/"):
            stacked[name] = weights.get(original, variable.numpy())
        lines[scope] = f"{scope}{depth} to {layer} are copies of the {depth} layers below (grow=stack)"
    if not stacked:
        raise UserError(f"{place} has no fewer layers than this run; remove grow, or raise encoder.num_layers")
    return stacked, [*lines.values()]


def _require_agreement(
    place: str,
    model: StoredModel,
    networks: Mapping[str, EncoderConfig],
    tokenizer: StoredTokenizer | None,
) -> None:
    """Raises: UserError: settings differ that no shape shows, so that the model would compute something else."""
    stored = model.stored_tokenizer
    if tokenizer and stored.content and stored.tokens[: len(tokenizer.tokens)] != tokenizer.tokens:  # it may have more
        raise UserError(f"{place} has another vocabulary than the data; build the data with the source's vocabulary")
    if not model.states_settings:
        return
    theirs = {"encoder": model.encoder, "generator": model.generator}
    for network, expected in networks.items():
        for name in SHAPELESS_SETTINGS if theirs[network] else ():  # a generator has all but the heads from `encoder`
            group = "objective.generator" if (network, name) == ("generator", "num_heads") else "encoder"
            value, ours, setting = getattr(theirs[network], name), getattr(expected, name), f"{group}.{name}"
            if value != ours:
                raise UserError(f"{place}: {name} of its {network} is {value}, {setting} is {ours}; set it to {value}")
    if tokenizer is None:
        return
    for name, value in stored.settings._asdict().items():
        ours = getattr(tokenizer.settings, name)
        if ours != value and (name != "strip_accents" or stored.settings.lower_case):
            raise UserError(f"{place} was trained with {name} {value}, the data with {ours}; rebuild the data")
