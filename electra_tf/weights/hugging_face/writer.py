"""Writes stored models as Hugging Face folders for `from_pretrained`, one for each network."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import safetensors.numpy

from electra_tf.config.errors import UserError
from electra_tf.config.networks import EncoderConfig
from electra_tf.files import make_directory, store_errors, write_atomically
from electra_tf.weights import names
from electra_tf.weights.hugging_face.heads import DESCRIPTIONS, head_tensors, label_entries, noted_task, written_head
from electra_tf.weights.hugging_face.layouts import (
    BERT,
    DETECTION_LABELS,
    ELECTRA,
    MODERN,
    Layout,
    Tensors,
    config_entries,
    layout_for,
    transposed,
    two_logits,
)
from electra_tf.weights.hugging_face.tokenizer import to_json, tokenizer_files
from electra_tf.weights.stored_model import StoredModel

# What each network is, after the title of its encoder, and its pipeline: for pre-trained ones by their name, for
# fine-tuned ones by the end of the name of their class.
_DISCRIMINATOR, _GENERATOR, _ENCODER, SENTENCES = "discriminator", "generator", "encoder", "sentence vectors"
_DESCRIPTIONS = {
    _DISCRIMINATOR: ("as a discriminator: it detects the tokens that were replaced.", None),
    _GENERATOR: ("as a masked language model: it predicts masked tokens.", "fill-mask"),
    _ENCODER: ("without a head: a vector for each token.", "feature-extraction"),
    SENTENCES: ("as a sentence encoder: a vector for a text.", "sentence-similarity"),
    **DESCRIPTIONS,
}
# A library, and how it loads a folder.
_TRANSFORMERS = (
    "transformers",
    """\
from transformers import AutoTokenizer, {architecture}

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = {architecture}.from_pretrained("FOLDER")""",
)
_SENTENCE_TRANSFORMERS = (
    "sentence-transformers",
    """\
from sentence_transformers import SentenceTransformer

vectors = SentenceTransformer("FOLDER").encode(["one text", "another"])""",
)
_NARROW_GENERATOR = (
    "The generator is left out: its hidden_size {hidden_size} is not its embedding_size {embedding_size}, and "
    "transformers' ModernBERT classes have no layer between the two. A generator of size_fraction 1.0 with fewer "
    "layers is written."
)
_NO_POOLER = "There is no pooler: BertModel makes a random one, and add_pooling_layer=False none."
_LEFT_POOLER = "The pooler is left out: {} has none."
_ONE_LOGIT = "The logit of `original` is always 0, so the softmax of `replaced` is the probability of a replaced token."
_CARD = """\
---
{metadata}
---

# {title}

{description}

```python
{example}
```
{notes}
{facts}
"""


@dataclass(frozen=True)
class Network:
    """One network as one of transformers' classes.

    Attributes:
        name: of its folder, where there are two networks.
        layout: of its class.
        architecture: transformers' class.
        config: the content of config.json.
        tensors: float32 by transformers' names, contiguous. A tensor that the class ties to another one is left out.
        notes: facts that a user of the class needs, whole sentences.
    """

    name: str
    layout: Layout
    architecture: str
    config: dict[str, Any]
    tensors: Tensors
    notes: tuple[str, ...] = ()

    @property
    def num_parameters(self) -> int:
        return sum(tensor.size for tensor in self.tensors.values())


def write_hugging_face(model: StoredModel, output_dir: str) -> list[str]:
    """Writes each network of a model with its tokenizer and its model card.

    ELECTRA's networks go to `discriminator/` and `generator/`, a single network into `output_dir` itself.

    Returns: lines for the log: the folders written, and facts that their users need.
    Raises: UserError: a folder cannot be written, the model does not fit its vocabulary, or transformers has no class
        for it.
    """
    model, lines = model.of_authors()
    model.require_fitting_vocabulary()
    networks = hugging_face_networks(model)
    folders = {os.path.join(output_dir, each.name) if len(networks) > 1 else output_dir: each for each in networks}
    for folder, network in folders.items():
        lines += write_folder(folder, model, network)
    return lines


def write_bert(model: StoredModel, output_dir: str) -> list[str]:
    """As `write_hugging_face`, with BERT's classes: a masked language model, or of another model the encoder alone.

    A model of BERT's family is written whole.
    """
    sizes = model.encoder
    if sizes.family == "bert":
        return write_hugging_face(model, output_dir)
    lines, weights = [], model.part(("electra/", "generator_predictions/"))
    if model.finetuned or model.generator or model.has_discriminator_head:
        lines.append(f"{model.source}: only its encoder is converted; BERT's family has no such heads")
        weights = model.part("electra/")
    sizes = sizes.model_copy(update={"family": "bert"})
    bert = replace(model, encoder=sizes, generator=None, weights=weights, finetuned=None)
    return lines + write_hugging_face(bert, output_dir)


def hugging_face_networks(model: StoredModel) -> list[Network]:
    """The networks of a model: ELECTRA's discriminator and generator, a fine-tuned model, or the only encoder.

    A masked-LM baseline is a masked language model. A head that transformers has no class for is left out, and so is a
    generator of the modern block that projects its embeddings.

    Raises: UserError: see `require_classes`.
    """
    require_classes(model)
    if model.finetuned is not None:
        head = written_head(model)
        if isinstance(head, str):
            return [encoder_alone(model, (head,))]
        layout, ending, written = head
        tensors = _tensors(model.part("electra/"), layout) | head_tensors(written)
        return [_network("finetuned", model, layout, ending, tensors, written.entries, notes=written.notes)]
    layout, networks = layout_for(model.encoder), []
    if layout is BERT and model.has_discriminator_head:
        layout = ELECTRA
    sizes = model.generator or model.encoder
    is_narrow = model.has_masked_lm_head and layout is MODERN and sizes.hidden_size != sizes.embedding_size
    notes: tuple[str, ...] = (_NARROW_GENERATOR.format(**sizes.model_dump()),) if is_narrow else ()
    if model.has_discriminator_head:
        tensors, entries = _tensors(model.part(("electra/", "discriminator_predictions/")), layout), None
        if layout is MODERN:
            tensors, entries, notes = two_logits(tensors), label_entries(DETECTION_LABELS), (_ONE_LOGIT, *notes)
        networks.append(_network(_DISCRIMINATOR, model, layout, layout.discriminator, tensors, entries, notes=notes))
    if model.has_masked_lm_head and not is_narrow:
        own, shared = model.part("generator/"), model.part("electra/")  # what the discriminator also uses
        if own:
            shared = {} if model.part("generator/embeddings/") else model.part("electra/embeddings/")
        tensors = _tensors({**shared, **own, **model.part("generator_predictions/")}, layout)
        notes = (_LEFT_POOLER.format(f"{layout.family}ForMaskedLM"),) if model.pooler else ()
        networks.append(_network(_GENERATOR, model, layout, "ForMaskedLM", tensors, sizes=sizes, notes=notes))
    return networks or [encoder_alone(model)]


def require_classes(model: StoredModel) -> None:
    """Raises: UserError: transformers has no classes that project the encoder's embeddings."""
    sizes, layout = model.encoder, layout_for(model.encoder)
    if layout is not ELECTRA and sizes.hidden_size != sizes.embedding_size:
        raise UserError(
            f"{model.source} has encoder.embedding_size {sizes.embedding_size} and encoder.hidden_size "
            f"{sizes.hidden_size}, and transformers' {layout.family} classes have no layer between the two; train with "
            "equal sizes"
        )


def encoder_alone(model: StoredModel, notes: tuple[str, ...] = (), name: str = _ENCODER) -> Network:
    """The encoder without a head, but with BERT's pooler if there is one."""
    layout = layout_for(model.encoder)
    if layout is BERT and not model.pooler:
        notes = (*notes, _NO_POOLER)
    pooler = zip((f"{names.POOLER}dense/{part}" for part in ("kernel", "bias")), model.pooler, strict=False)
    tensors = _tensors({**model.part("electra/"), **dict(pooler)}, layout)
    tensors = {name.removeprefix(layout.root): tensor for name, tensor in tensors.items()}
    return _network(name, model, layout, "Model", tensors, notes=notes)


def _tensors(weights: names.Weights, layout: Layout) -> Tensors:
    return {layout.tensor_name(name): transposed(name, value) for name, value in weights.items()}


def _network(
    name: str,
    model: StoredModel,
    layout: Layout,
    ending: str,
    tensors: Tensors,
    entries: Mapping[str, object] | None = None,
    sizes: EncoderConfig | None = None,
    notes: tuple[str, ...] = (),
) -> Network:
    """A network with its config.json, whose entry `electra_tf` is ours: transformers keeps it but does not use it.

    Args:
        ending: of the name of its class.
        entries: of config.json, for its head.        sizes: None: those of the model's encoder.
    """
    noted = {"objective": model.objective, "step": model.step, "data": model.facts.get("data", [])}
    if model.trained_length < model.encoder.max_position_embeddings:
        noted["max_seq_length"] = model.trained_length
    if model.finetuned is not None:
        noted["finetuned"] = noted_task(model.finetuned)
    vocabulary, architecture = model.tokenizer.vocabulary, f"{layout.family}{ending}"
    token_ids = {"pad_token_id": vocabulary.pad_id}
    if model.encoder.block != "bert":  # the defaults of ModernBERT's configuration are beyond most vocabularies
        token_ids |= dict.fromkeys(("cls_token_id", "bos_token_id"), vocabulary.cls_id)
        token_ids |= dict.fromkeys(("sep_token_id", "eos_token_id"), vocabulary.sep_id)
    config = {
        "architectures": [architecture],
        **config_entries(sizes or model.encoder, layout),
        **token_ids,
        "tie_word_embeddings": True,
        "dtype": "float32",
        **(entries or {}),
        "electra_tf": noted,
    }
    return Network(name, layout, architecture, config, tensors, notes)


def write_folder(
    folder: str, model: StoredModel, network: Network, further: Mapping[str, bytes] | None = None
) -> list[str]:
    """Writes a network with its tokenizer, its card and `further` files by name. Returns: lines for the log."""
    # As in training and in --predict, where a longer text was cut.
    max_length = model.trained_length if model.finetuned else network.config["max_position_embeddings"]
    has_segments = network.layout is not MODERN and model.encoder.type_vocab_size > 1
    files = {
        **tokenizer_files(model.tokenizer, max_length, has_segments),
        "config.json": to_json(network.config),
        "README.md": model_card(model, network).encode(),
        # Older transformers refuse a file that does not name its format.
        "model.safetensors": safetensors.numpy.save(dict(network.tensors), {"format": "pt"}),
        **(further or {}),
    }
    for name, content in files.items():
        path = os.path.join(folder, name)
        with store_errors(folder, "cannot be written"):
            make_directory(os.path.dirname(path))
        write_atomically(path, content)
    line = f"{network.architecture}, {len(network.tensors)} tensors, {network.num_parameters:,} parameters"
    return [f"{folder}: {each}" for each in (line, *network.notes)]


def model_card(model: StoredModel, network: Network) -> str:
    """The card of one network: how to load it, its sizes, its data and the settings of its training."""
    from huggingface_hub import ModelCardData  # here, because its import takes long

    layout = network.layout
    ending = network.architecture.removeprefix(layout.family)
    description, pipeline = _DESCRIPTIONS[network.name if network.name in _DESCRIPTIONS else ending]
    is_assumed = model.facts.get("is_assumed", False)
    words = ["electra_tf", model.finetuned.name if model.finetuned else "" if is_assumed else model.objective]
    words += [network.name] if network.name in (_DISCRIMINATOR, _GENERATOR) and model.has_discriminator_head else []
    title = " ".join(filter(None, words))
    is_own = not is_assumed and layout is not BERT
    tags = list(dict.fromkeys(["electra", layout.model_type])) if is_own else [layout.model_type]
    library, example = _SENTENCE_TRANSFORMERS if network.name == SENTENCES else _TRANSFORMERS
    data = ModelCardData(library_name=library, pipeline_tag=pipeline, tags=tags, model_name=title)
    return _CARD.format(
        metadata=data.to_yaml(),
        title=title,
        description=f"{layout.title} {description}",
        example=example.format(architecture=network.architecture),
        notes="".join(f"\n- {note}" for note in network.notes) + "\n" * bool(network.notes),
        facts="\n".join(f"- {fact}" for fact in _card_facts(model, network)),
    )


def _card_facts(model: StoredModel, network: Network) -> list[str]:
    config, facts = network.config, [f"parameters: {network.num_parameters:,}"]
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "embedding_size")
    facts += [f"`{name}`: {config[name]:,}" for name in sizes if name in config]
    facts.append(f"vocabulary: {model.tokenizer.vocabulary.size:,} {model.tokenizer.description}")
    facts += [f"data set, SHA-256: `{identity}`" for identity in model.facts.get("data") or ()]
    if origin := model.facts.get("init_from"):
        facts.append(f"initial weights: {'/'.join(origin.rstrip('/').split('/')[-2:])}")  # the rest is of one machine
    if model.step:
        facts.append(f"steps: {model.step:,}")
    settings = {} if model.facts.get("is_assumed") else model.facts.get("configuration") or {}
    for group, name in (("train", "batch_size"), ("data", "max_seq_length"), ("optimizer", "learning_rate")):
        if group in settings:
            facts.append(f"`{group}.{name}`: {settings[group][name]:g}")
    return facts
