"""Writes stored models as Hugging Face folders for `from_pretrained`, one for each network."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import safetensors.numpy
import tensorflow as tf
from huggingface_hub import ModelCard, ModelCardData

from electra_tf.config.errors import UserError
from electra_tf.config.schema import EncoderConfig
from electra_tf.files import names_in, store_errors, write_atomically
from electra_tf.weights.hugging_face.heads import noted_task, task_head
from electra_tf.weights.hugging_face.tensors import CONFIG_NAMES, tensor_name
from electra_tf.weights.hugging_face.tokenizer import to_json, tokenizer_files
from electra_tf.weights.stored_model import StoredModel

# For each class of transformers a description, and its pipeline.
_CLASSES = {
    "ElectraForPreTraining": ("An ELECTRA discriminator: it detects the tokens that were replaced.", None),
    "ElectraForMaskedLM": ("A masked language model in ELECTRA's classes: it predicts masked tokens.", "fill-mask"),
    "ElectraModel": ("An ELECTRA encoder without a head: a vector for each token.", "feature-extraction"),
    "ElectraForSequenceClassification": ("An ELECTRA encoder that labels texts.", "text-classification"),
    "ElectraForTokenClassification": ("An ELECTRA encoder that labels each word.", "token-classification"),
    "ElectraForQuestionAnswering": (
        "An ELECTRA encoder that finds the answer to a question in a text.",
        "question-answering",
    ),
}
_CARD = """\
---
{metadata}
---

# {title}

{description}

```python
from transformers import AutoTokenizer, {architecture}

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = {architecture}.from_pretrained("FOLDER")
```
{notes}
{facts}
"""


@dataclass(frozen=True)
class Network:
    """One network as one of transformers' classes.

    Attributes:
        name: of its folder, where there are two networks.
        architecture: transformers' class.
        config: the content of config.json.
        tensors: float32 by transformers' names, contiguous. A tensor that the class ties to another one is left out.
        notes: facts that a user of the class needs, whole sentences.
    """

    name: str
    architecture: str
    config: dict
    tensors: Mapping[str, np.ndarray]
    notes: tuple[str, ...] = ()

    @property
    def num_parameters(self) -> int:
        return sum(tensor.size for tensor in self.tensors.values())


def write_hugging_face(model: StoredModel, output_dir: str) -> list[str]:
    """Writes each network of a model with its tokenizer and its model card.

    ELECTRA's networks go to `discriminator/` and `generator/`, a single network into `output_dir` itself.

    Returns: lines for the log: the folders written, and facts that their users need.
    Raises: UserError: a folder is not empty or cannot be written, or the model does not fit its vocabulary.
    """
    model, lines = model.of_authors()
    networks = hugging_face_networks(model)
    model.require_fitting_vocabulary()
    folders = {os.path.join(output_dir, each.name) if len(networks) > 1 else output_dir: each for each in networks}
    for folder in folders:
        if names_in(folder):
            raise UserError(f"{folder} is not empty; give a new directory")
    for folder, network in folders.items():
        _write_folder(folder, model, network)
        lines.append(
            f"{folder}: {network.architecture}, {len(network.tensors)} tensors, {network.num_parameters:,} parameters"
        )
        lines += [f"{folder}: {note}" for note in network.notes]
    return lines


def hugging_face_networks(model: StoredModel) -> list[Network]:
    """The networks of a model: ELECTRA's discriminator and generator, a fine-tuned model, or the only encoder.

    A masked-LM baseline is an ElectraForMaskedLM. A head that transformers has no class for is left out.
    """
    if model.finetuned is not None:
        head = task_head(model)
        if head.architecture is None:
            return [_encoder_alone(model, head.notes)]
        config = {**_config(model, head.architecture, model.encoder), **head.config}
        tensors = {**_tensors(model.part("electra/")), **head.tensors}
        return [Network("finetuned", head.architecture, config, tensors, head.notes)]
    networks = []
    if model.has_discriminator_head:
        tensors = _tensors(model.part("electra/") | model.part("discriminator_predictions/"))
        config = _config(model, "ElectraForPreTraining", model.encoder)
        networks.append(Network("discriminator", "ElectraForPreTraining", config, tensors))
    if model.has_masked_lm_head:
        sizes = model.generator if model.has_discriminator_head else model.encoder
        config = _config(model, "ElectraForMaskedLM", sizes)
        networks.append(Network("generator", "ElectraForMaskedLM", config, _tensors(_generator_weights(model))))
    return networks or [_encoder_alone(model)]


def _generator_weights(model: StoredModel) -> dict[str, np.ndarray]:
    """The weights of the whole generator, those that it shares with the discriminator included."""
    own = model.part("generator/")
    shared = model.part("electra/embeddings/") if own else model.part("electra/")
    if model.part("generator/embeddings/"):
        shared = {}
    return {**shared, **own, **model.part("generator_predictions/")}


def _encoder_alone(model: StoredModel, notes: tuple[str, ...] = ()) -> Network:
    tensors = {name.removeprefix("electra."): tensor for name, tensor in _tensors(model.part("electra/")).items()}
    return Network("encoder", "ElectraModel", _config(model, "ElectraModel", model.encoder), tensors, notes)


def _tensors(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    tensors = {}
    for name, value in weights.items():
        tensor = tensor_name(name)
        # safetensors writes the memory of an array, which of a transposed view is in the wrong order.
        tensors[tensor.name] = np.ascontiguousarray(value.T if tensor.transposed else value)
    return tensors


def _config(model: StoredModel, architecture: str, sizes: EncoderConfig) -> dict:
    """The content of config.json. Its entry `electra_tf` is ours: transformers keeps it but does not use it.

    Source: transformers 5, models/electra/configuration_electra.py, which refuses 4.0 in place of 4.
    """
    noted = {"objective": model.objective, "step": model.step, "data": model.facts.get("data", [])}
    if model.finetuned is not None:
        noted["finetuned"] = noted_task(model.finetuned)
    values = sizes.model_dump() | {"initializer_range": sizes.initializer_stddev}
    return {
        "architectures": [architecture],
        "model_type": "electra",
        **{theirs: values[ours] for theirs, ours in CONFIG_NAMES.items()},
        "hidden_act": "gelu",
        "pad_token_id": 0,
        "tie_word_embeddings": True,
        "dtype": "float32",
        "electra_tf": noted,
    }


def _write_folder(folder: str, model: StoredModel, network: Network) -> None:
    max_length = network.config["max_position_embeddings"]
    files = {
        **tokenizer_files(model.tokenizer, max_length),
        "config.json": to_json(network.config),
        "README.md": str(model_card(model, network)).encode(),
        # Older transformers refuse a file that does not name its format.
        "model.safetensors": safetensors.numpy.save(dict(network.tensors), {"format": "pt"}),
    }
    with store_errors(folder, "cannot be written"):
        tf.io.gfile.makedirs(folder)
    for name, content in files.items():
        write_atomically(os.path.join(folder, name), content)


def model_card(model: StoredModel, network: Network) -> ModelCard:
    """The card of one network: how to load it, its sizes, its data and the settings of its training."""
    description, pipeline = _CLASSES[network.architecture]
    title = ["electra_tf", model.finetuned.name if model.finetuned else model.objective]
    title += [network.name] if network.name in ("discriminator", "generator") and model.has_discriminator_head else []
    title = " ".join(filter(None, title))
    data = ModelCardData(library_name="transformers", pipeline_tag=pipeline, tags=["electra"], model_name=title)
    return ModelCard(
        _CARD.format(
            metadata=data.to_yaml(),
            title=title,
            description=description,
            architecture=network.architecture,
            notes="".join(f"\n- {note}" for note in network.notes) + "\n" * bool(network.notes),
            facts="\n".join(f"- {fact}" for fact in _card_facts(model, network)),
        )
    )


def _card_facts(model: StoredModel, network: Network) -> list[str]:
    config, facts = network.config, [f"parameters: {network.num_parameters:,}"]
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "embedding_size")
    facts += [f"`{name}`: {config[name]:,}" for name in sizes]
    facts.append(f"vocabulary: {config['vocab_size']:,} {model.tokenizer.description}")
    facts += [f"data set, SHA-256: `{identity}`" for identity in model.facts.get("data") or ()]
    if origin := model.facts.get("init_from"):
        facts.append(f"initial weights: {'/'.join(origin.rstrip('/').split('/')[-2:])}")  # the rest is of one machine
    if model.step:
        facts.append(f"steps: {model.step:,}")
    settings = model.finetuned.model_dump(mode="json") if model.finetuned else model.facts.get("configuration") or {}
    for group, name in (("train", "batch_size"), ("data", "max_seq_length"), ("optimizer", "learning_rate")):
        if group in settings:
            facts.append(f"`{group}.{name}`: {settings[group][name]:g}")
    return facts
