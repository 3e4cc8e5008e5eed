"""A stored model as Hugging Face's networks: class, config.json and tensors of each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from electra_tf.config.errors import UserError
from electra_tf.config.schema import EncoderConfig
from electra_tf.convert.hugging_face_heads import finetuned_head
from electra_tf.convert.hugging_face_names import hugging_face_tensor
from electra_tf.convert.hugging_face_task import noted_task
from electra_tf.convert.stored_model import StoredModel

# The names of BertForMaskedLM, from the begin of ElectraForMaskedLM's. Its output bias stands under two names that are
# tied, of which one is stored.
_BERT_NAMES = {
    "electra.": "bert.",
    "generator_predictions.": "cls.predictions.transform.",
    "generator_lm_head.": "cls.predictions.",
}


@dataclass(frozen=True)
class Network:
    """One network as one of transformers' classes.

    Attributes:
        name: of its folder, where there are several networks.
        architecture: transformers' class.
        config: the content of config.json.
        tensors: by transformers' names, contiguous. A tensor that the class ties to another one is not there.
        notes: what a user of this class has to know, whole sentences.
    """

    name: str
    architecture: str
    config: dict
    tensors: Mapping[str, np.ndarray]
    notes: tuple[str, ...] = field(default=())

    @property
    def num_parameters(self) -> int:
        return sum(tensor.size for tensor in self.tensors.values())


def hugging_face_networks(model: StoredModel) -> list[Network]:
    """The networks of a model: ELECTRA's discriminator and generator, a fine-tuned model, or the one encoder there is.

    A masked-LM baseline is an ElectraForMaskedLM, and a BertForMaskedLM too if its embeddings are as wide as its
    layers. What has no head that transformers knows is an ElectraModel.

    Raises: UserError: if the sizes of a generator are not known.
    """
    if model.finetuned is not None:
        return [_finetuned(model)]
    networks = []
    if model.has_discriminator_head:
        weights = {**model.part("electra/"), **model.part("discriminator_predictions/")}
        networks.append(_electra(model, "discriminator", "ElectraForPreTraining", model.encoder, weights))
    if model.has_masked_lm_head:
        networks.extend(_masked_language_models(model))
    return networks or [_encoder_alone(model)]


def _masked_language_models(model: StoredModel) -> Iterator[Network]:
    weights, sizes = _generator_weights(model), model.encoder
    if model.part("generator/"):
        sizes = model.generator
    if sizes is None:
        raise UserError(f"{model.source} has a generator whose sizes are not known; give a source that states them")
    is_baseline = not model.has_discriminator_head
    name = "electra" if is_baseline else "generator"
    network = _electra(model, name, "ElectraForMaskedLM", sizes, weights)
    yield network
    if is_baseline and sizes.embedding_size == sizes.hidden_size:
        config = {**network.config, "architectures": ["BertForMaskedLM"], "model_type": "bert"}
        del config["embedding_size"]
        yield Network("bert", "BertForMaskedLM", config, _renamed(network.tensors, _BERT_NAMES))


def _generator_weights(model: StoredModel) -> dict[str, np.ndarray]:
    """Of the whole network: what it shares with the discriminator, and its own."""
    own = model.part("generator/")
    shared = model.part("electra/embeddings/") if own else model.part("electra/")
    if model.part("generator/embeddings/"):
        shared = {}
    return {**shared, **own, **model.part("generator_predictions/")}


def _finetuned(model: StoredModel) -> Network:
    """A fine-tuned model by the class of its head; the encoder alone if transformers has no such class."""
    found = finetuned_head(model)
    if found.architecture is None:
        return _encoder_alone(model, found.notes)
    tensors = {**_tensors(model.part("electra/")), **found.tensors}
    config = {**_config(model, found.architecture, model.encoder), **found.config}
    return Network("finetuned", found.architecture, config, tensors, found.notes)


def _encoder_alone(model: StoredModel, notes: tuple[str, ...] = ()) -> Network:
    tensors = _renamed(_tensors(model.part("electra/")), {"electra.": ""})
    return Network("encoder", "ElectraModel", _config(model, "ElectraModel", model.encoder), tensors, notes)


def _electra(
    model: StoredModel, name: str, architecture: str, sizes: EncoderConfig, weights: Mapping[str, np.ndarray]
) -> Network:
    return Network(name, architecture, _config(model, architecture, sizes), _tensors(weights))


def _tensors(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    tensors = {}
    for name, value in weights.items():
        tensor = hugging_face_tensor(name)
        # safetensors stores the memory of an array as it lies, so that of a transposed view would be wrong.
        tensors[tensor.name] = np.ascontiguousarray(value.T if tensor.transposed else value)
    return tensors


def _renamed(tensors: Mapping[str, np.ndarray], prefixes: Mapping[str, str]) -> dict[str, np.ndarray]:
    renamed = {}
    for name, tensor in tensors.items():
        prefix = next(each for each in prefixes if name.startswith(each))
        renamed[prefixes[prefix] + name.removeprefix(prefix)] = tensor
    return renamed


def _config(model: StoredModel, architecture: str, sizes: EncoderConfig) -> dict:
    """The content of config.json. `electra_tf` is ours: transformers keeps it as an attribute and does not read it.

    Source: transformers 5, models/electra/configuration_electra.py, which refuses 4.0 where it wants 4.
    """
    ours = {
        "objective": model.objective,
        "step": model.step,
        "data": model.facts.get("data", []),
        "num_heads": sizes.num_heads,  # said twice, so that one of them edited is told
    }
    if model.finetuned is not None:
        ours["finetuned"] = noted_task(model.finetuned)
    return {
        "architectures": [architecture],
        "model_type": "electra",
        "vocab_size": sizes.vocab_size,
        "embedding_size": sizes.embedding_size,
        "hidden_size": sizes.hidden_size,
        "num_hidden_layers": sizes.num_layers,
        "num_attention_heads": sizes.num_heads,
        "intermediate_size": sizes.intermediate_size,
        "hidden_act": "gelu",
        "hidden_dropout_prob": sizes.hidden_dropout,
        "attention_probs_dropout_prob": sizes.attention_dropout,
        "max_position_embeddings": sizes.max_position_embeddings,
        "type_vocab_size": sizes.type_vocab_size,
        "initializer_range": sizes.initializer_stddev,
        "layer_norm_eps": sizes.layer_norm_epsilon,
        "pad_token_id": 0,
        "tie_word_embeddings": True,
        "dtype": "float32",
        "electra_tf": ours,
    }
