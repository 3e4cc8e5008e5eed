"""How transformers names the classes, the tensors and the settings of ELECTRA, BERT and ModernBERT.

BERT is ELECTRA's encoder without a projection of embeddings. What it has in addition is a pooler, dense with tanh on
the vector of [CLS], which its classes for texts and pairs read.

A replaced-token head of the modern block is that of ModernBertForTokenClassification with two labels. The logit of
`original` is always 0, so the softmax of the logits is the sigmoid of the other one.
Source: transformers 5, models/electra, models/bert and models/modernbert.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from electra_tf.config.errors import UserError
from electra_tf.config.networks import EncoderConfig

Array = npt.NDArray[np.float32]
Tensors = dict[str, Array]

DETECTION_LABELS = ("original", "replaced")
_GLOBAL, _LOCAL = "full_attention", "sliding_attention"
_THETAS = {_GLOBAL: "global_rope_theta", _LOCAL: "local_rope_theta"}


@dataclass(frozen=True)
class Layout:
    """The names of one kind of model.

    Attributes:
        model_type: in config.json.        family: the beginning of the classes' names.
        title: of an encoder, with its article.
        discriminator: the end of the name of a discriminator's class; "" if there is none.
        settings: transformers' settings of a network, and ours.
        required: settings that must have one value.
        root: the beginning of the names of an encoder's tensors.
        table: the tensor of the input table.        tied: tensors that are equal to others, by their names.
        marks: the scopes of heads and of a pooler, with the beginnings of tensors that only these have.
        rules: regular expressions that turn our names of weights into transformers'.
    """

    model_type: str
    family: str
    title: str
    discriminator: str
    settings: Mapping[str, str]
    required: Mapping[str, str | bool]
    root: str
    table: str
    tied: Mapping[str, str]
    marks: Mapping[str, str]
    rules: tuple[tuple[str, str], ...]

    def tensor_name(self, name: str) -> str:
        """The name of the tensor that holds a weight; not for heads of fine-tuned models.

        A weight that both networks share has one name of ours, and a tensor in both folders.
        """
        for pattern, replacement in self.rules:
            name = re.sub(pattern, replacement, name)
        *parents, ending = re.split(r"[/.]", name)
        ending = f"{ending}.weight" if ending.endswith("_embeddings") else ENDINGS.get(ending, ending)
        return ".".join([*parents, ending])


def transposed(name: str, values: Array) -> Array:
    """The tensor of a weight of ours, or the reverse: a kernel is stored as [out, in].

    Contiguous: safetensors writes the memory of an array, which of a transposed view is in the wrong order.
    """
    return np.ascontiguousarray(values.T if name.endswith("/kernel") else values)


ENDINGS = {"gamma": "weight", "beta": "bias", "kernel": "weight", "bias": "bias"}
# Settings with one name in transformers and here.
_SAME_SIZES = ("vocab_size", "hidden_size", "intermediate_size", "max_position_embeddings", "initializer_range")
_SAME_OF_MODERN = (
    *("attention_dropout", "local_attention", "global_rope_theta", "local_rope_theta"),
    *("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"),
)
_SETTINGS = {
    **{name: name for name in (*_SAME_SIZES, "type_vocab_size")},
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "hidden_dropout_prob": "hidden_dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "layer_norm_eps": "layer_norm_epsilon",
}
_REQUIRED: dict[str, str | bool] = {"hidden_act": "gelu", "position_embedding_type": "absolute", "is_decoder": False}
ELECTRA = Layout(
    model_type="electra",
    family="Electra",
    title="An ELECTRA encoder",
    discriminator="ForPreTraining",
    settings=_SETTINGS | {"embedding_size": "embedding_size"},
    required=_REQUIRED,
    root="electra.",
    table="electra.embeddings.word_embeddings.weight",
    tied={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
    marks={"discriminator_predictions/": "discriminator_predictions.", "generator_predictions/": "generator_"},
    rules=(
        (r"^(electra|generator)/", "electra."),
        (r"^discriminator_predictions/dense_1/", "discriminator_predictions.dense_prediction."),
        (r"^generator_predictions/output_bias$", "generator_lm_head.bias"),
        (r"/layer_(\d+)/", r"/layer/\1/"),
    ),
)
BERT = Layout(
    model_type="bert",
    family="Bert",
    title="A BERT encoder",
    discriminator="",
    settings=_SETTINGS,
    required=_REQUIRED,
    root="bert.",
    table="bert.embeddings.word_embeddings.weight",
    tied={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    marks={"generator_predictions/": "cls.predictions.", "pooler/": "bert.pooler."},
    rules=(
        (r"^(electra|generator)/", "bert."),
        (r"^pooler/", "bert.pooler."),
        (r"^generator_predictions/output_bias$", "cls.predictions.bias"),
        (r"^generator_predictions/", "cls.predictions.transform."),
        (r"/layer_(\d+)/", r"/layer/\1/"),
    ),
)
MODERN = Layout(
    model_type="modernbert",
    family="ModernBert",
    title="A ModernBERT encoder",
    discriminator="ForTokenClassification",
    settings={
        **{name: name for name in (*_SAME_SIZES, *_SAME_OF_MODERN)},
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
        "mlp_dropout": "hidden_dropout",
        "norm_eps": "layer_norm_epsilon",
        "global_attn_every_n_layers": "global_attention_every_n_layers",
    },
    required={"hidden_activation": "gelu", "classifier_activation": "gelu"},
    root="model.",
    table="model.embeddings.tok_embeddings.weight",
    tied={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    marks={"discriminator_predictions/": "classifier.", "generator_predictions/": "decoder."},
    rules=(
        (r"^(electra|generator)/", "model."),
        (r"^discriminator_predictions/dense_1/", "classifier."),
        (r"^generator_predictions/output_bias$", "decoder.bias"),
        (r"^(discriminator|generator)_predictions/", "head."),
        (r"encoder/layer_(\d+)/", r"layers.\1."),
        (r"attention_norm/", "attn_norm."),
        (r"qkv/", "attn.Wqkv."),
        (r"attention/output/", "attn.Wo."),
        (r"mlp_input/", "mlp.Wi."),
        (r"mlp_output/", "mlp.Wo."),
        (r"LayerNorm/", "norm."),
        (r"word_embeddings$", "tok_embeddings"),
    ),
)
LAYOUTS = (ELECTRA, BERT, MODERN)
# transformers' defaults of settings where ours differ.
_MODERN_DEFAULTS = {"mlp_dropout": 0.0, "attention_dropout": 0.0, "norm_eps": 1e-5, "max_position_embeddings": 8192}


def layout_for(encoder: EncoderConfig) -> Layout:
    """The layout of an encoder of ours, by its block and its family. Raises: KeyError: transformers has no such one."""
    return {"bert": BERT if encoder.family == "bert" else ELECTRA, "modern": MODERN}[encoder.block]


def config_entries(sizes: EncoderConfig, layout: Layout | None = None) -> dict[str, Any]:
    """The entries of config.json for a network. transformers refuses 4.0 in place of 4. None: its own layout."""
    layout = layout or layout_for(sizes)
    values = sizes.model_dump() | {"initializer_range": sizes.initializer_stddev}
    entries = {"model_type": layout.model_type} | {theirs: values[ours] for theirs, ours in layout.settings.items()}
    if layout is not MODERN:
        return entries | {"hidden_act": "gelu"}
    # transformers 4 reads the numbers above, and ignores these two forms of the same.
    thetas = {kind: {"rope_type": "default", "rope_theta": values[name]} for kind, name in _THETAS.items()}
    return {
        **entries,
        **layout.required,
        "layer_types": _layer_types(sizes.num_layers, sizes.global_attention_every_n_layers),
        "rope_parameters": thetas,
        "embedding_dropout": sizes.hidden_dropout,
        "initializer_cutoff_factor": 2.0,
        "decoder_bias": True,
        "classifier_pooling": "cls",
        "classifier_dropout": 0.0,
    }


def layout_of(config: dict[str, Any], path: str) -> Layout:
    """The layout of the model of a config.json. Raises: UserError: it is another kind of model."""
    model_type, architecture = config.get("model_type"), architecture_of(config)
    for layout in LAYOUTS:
        # Folders of the first versions of transformers state the class alone.
        if model_type == layout.model_type or (model_type is None and architecture.startswith(layout.family)):
            return layout
    known = " or ".join(repr(each.model_type) for each in LAYOUTS)
    raise UserError(f"{path}: model_type is {model_type!r:.80}, expected {known}; give another folder")


def encoder_settings(config: dict[str, Any], path: str) -> dict[str, Any]:
    """The settings of an encoder, for EncoderConfig, from the content of config.json.

    Raises: UserError: a setting has a value that the block cannot compute.
    """
    layout = layout_of(config, path)
    required: dict[str, Any] = {**layout.required}
    if layout is MODERN:
        every, types = _global_attention_every_n_layers(config), config.get("layer_types")
        if types is not None:  # not of transformers 4
            required |= {"layer_types": _layer_types(len(types), every), "num_hidden_layers": len(types)}
    for key, expected in required.items():
        if (value := config.get(key, expected)) != expected:
            raise UserError(f"{path}: {key} is {value!r:.80}, expected {expected!r:.200}; give another folder")
    config = {**_MODERN_DEFAULTS, **config} if layout is MODERN else config
    values = {ours: config[theirs] for theirs, ours in layout.settings.items() if theirs in config}
    if layout is not ELECTRA and "hidden_size" in values:
        values["embedding_size"] = values["hidden_size"]
    if layout is BERT:
        values["family"] = "bert"
    if layout is MODERN:
        values |= {"block": "modern", "global_attention_every_n_layers": every, **_rope_thetas(config, path)}
    return values


def _layer_types(num_layers: int, every: int) -> list[str]:
    return [_LOCAL if layer % every else _GLOBAL for layer in range(num_layers)]


def _global_attention_every_n_layers(config: dict[str, Any]) -> int:
    every, types = config.get("global_attn_every_n_layers", 3), config.get("layer_types")
    if types is None:  # transformers 4
        return every
    # Of two or more global layers the distance, otherwise a number beyond the last layer.
    last = max(every, len(types)) if isinstance(every, int) else len(types)
    return next((index for index, kind in enumerate(types) if index > 0 and kind == _GLOBAL), last)


def _rope_thetas(config: dict[str, Any], path: str) -> dict[str, float]:
    """The thetas by our names, of transformers 5's entry if there is one, else of transformers 4's."""
    stated, scaling = config.get("rope_parameters") or {}, config.get("rope_scaling") or {}
    parameters = {name: {**(stated.get(kind) or {}), **scaling} for kind, name in _THETAS.items()}
    # The second is the older name.
    scales = any(each.get(key, "default") != "default" for each in parameters.values() for key in ("rope_type", "type"))
    if scales or stated and not stated.keys() & _THETAS.keys():
        raise UserError(
            f"{path}: rope_parameters is {stated!r:.200} and rope_scaling {scaling!r:.80}, expected entries "
            f"{' and '.join(map(repr, _THETAS))} of rope_type 'default' (no scaling); give another folder"
        )
    thetas = {
        name: each.get("rope_theta", config.get(name, EncoderConfig.model_fields[name].default))
        for name, each in parameters.items()
    }
    if thetas["local_rope_theta"] is None:  # transformers 4
        thetas["local_rope_theta"] = thetas["global_rope_theta"]
    return thetas


def is_detector(config: dict[str, Any]) -> bool:
    """Whether a config.json is that of a discriminator of the modern block."""
    labels = {str(index): label for index, label in enumerate(DETECTION_LABELS)}
    return architecture_of(config).endswith(MODERN.discriminator) and config.get("id2label") == labels


def architecture_of(config: dict[str, Any]) -> str:
    """The class that a config.json names; "" if there is none."""
    return str((config.get("architectures") or [""])[0])


def two_logits(tensors: Tensors) -> Tensors:
    """The last layer of a replaced-token head for two labels: zeros, which are the logit of `original`, come first."""
    return tensors | {
        name: np.concatenate([np.zeros_like(one), one])
        for name, one in tensors.items()
        if name.startswith("classifier.")
    }


def one_logit(tensors: Tensors) -> Tensors:
    """The reverse of `two_logits`. The difference of two logits has the same softmax."""
    return tensors | {name: two[1:] - two[:1] for name, two in tensors.items() if name.startswith("classifier.")}
