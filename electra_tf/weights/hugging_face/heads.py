"""Converts the heads of fine-tuned models: each kind's file says how its head is one of transformers' classes."""

from dataclasses import replace
from typing import Any

import numpy as np

from electra_tf.config.errors import UserError
from electra_tf.config.networks import EncoderConfig
from electra_tf.tasks.finetune.benchmarks import BENCHMARKS
from electra_tf.tasks.finetune.config import FinetuningConfig, resolve
from electra_tf.tasks.finetune.kinds import KINDS
from electra_tf.tasks.finetune.transformers_head import FoundHead, Layers, WrittenHead
from electra_tf.weights.hugging_face.layouts import (
    BERT,
    ELECTRA,
    ENDINGS,
    MODERN,
    Layout,
    Tensors,
    architecture_of,
    layout_for,
)
from electra_tf.weights.names import Weights
from electra_tf.weights.stored_model import StoredModel

_WITH_CLASS = [kind for kind in KINDS.values() if kind.transformers.layers]
# By the ends of the names of classes: what a model is, and its pipeline.
DESCRIPTIONS = {k.transformers.ending: (k.transformers.description, k.transformers.pipeline) for k in _WITH_CLASS}
READS_POOLER = tuple({kind.transformers.ending for kind in _WITH_CLASS if kind.model.reads_cls})  # of BERT's classes
# The first parts of the names of tensors that only fine-tuned heads have, by the family of their class.
HEAD_ROOTS = {
    layout.family: {
        layer.partition(".")[0] for kind in _WITH_CLASS for layer in kind.transformers.layers[layout.family]
    }
    - {layout.root.rstrip(".")}
    for layout in (ELECTRA, BERT, MODERN)
}
_MAX_SEQ_LENGTH = 512
_LINEAR_ON_MODERN = (
    "transformers' heads on ModernBERT have a dense layer and a LayerNorm, which this linear head lacks: this is the "
    "encoder alone. With task.head huggingface, fine-tuning trains transformers' head."
)
_LINEAR_ON_BERT = (
    "BERT's class reads its pooler, which this linear head lacks: this is ELECTRA's class, with the same encoder. With "
    "task.head huggingface, fine-tuning trains BERT's head."
)


def noted_task(config: FinetuningConfig) -> dict[str, Any]:
    """The settings of a fine-tuned model that `read_head` needs and transformers' own entries lack."""
    settings = config.task.model_dump(mode="json")
    names = "kind", "labels", *KINDS[config.task.kind].transformers.noted
    noted = {name: settings[name] for name in names if name in settings}
    return {"name": config.name, "max_seq_length": config.data.max_seq_length, **noted}


def read_head(
    config: dict[str, Any], tensors: Tensors, encoder: EncoderConfig, path: str
) -> tuple[FinetuningConfig | None, Weights]:
    """Reads the head of a model for sequence or token classification, question answering or multiple choice.

    A folder of another program does not state whether its model takes one text or two, which leaves `text_columns`
    empty, or whether questions may have no answer: they all have one.

    Args:
        config: the content of config.json, at `path`.        tensors: those of the head.
    Returns: the configuration of the task, None for another kind of head; the head's weights by our names.
    Raises: UserError: labels do not fit the head, or it is one for the mean of all tokens, or another summary of them.
    """
    layout, architecture = layout_for(encoder), architecture_of(config)
    is_electra = layout is ELECTRA
    biases = {"head.dense": encoder.has_head_bias, "head.norm": encoder.has_norm_bias}
    # The tensors of ELECTRA's classes tell them apart, except for a multiple choice without a layer below the last one.
    fitting = [
        (kind, layers)
        for kind in sorted(_WITH_CLASS, key=lambda kind: not architecture.endswith(kind.transformers.ending))
        if is_electra or architecture.endswith(kind.transformers.ending)
        for layers in (kind.transformers.layers[layout.family], kind.transformers.electra_linear)[: 1 + is_electra]
        if tensors.keys()
        == {f"{layer}.weight" for layer in layers} | {f"{n}.bias" for n in layers if biases.get(n, True)}
    ]
    for kind, layers in fitting:
        pooling = config.get("classifier_pooling", "cls")
        if layout is MODERN and kind.model.reads_cls and pooling != "cls":
            raise UserError(
                f"{path}: classifier_pooling is {pooling!r:.80}, but heads for texts read the vector of [CLS]: "
                "'cls'; give another folder"
            )
        found = FoundHead(config, path, encoder, layers, len(tensors[f"{list(layers)[-1]}.bias"]))
        if (settings := kind.transformers.settings(found)) is None:
            continue
        task = {"kind": kind.name, **settings}
        noted = (config.get("electra_tf") or {}).get("finetuned") or {}
        benchmark = BENCHMARKS.get(noted.get("name", ""))
        expected = task | (benchmark.settings if benchmark else {}) | noted
        if any(expected.get(name) != task.get(name) for name in ("kind", "labels")):
            noted = {}  # transformers, which keeps the note, has trained another head since
        task = {"kind": kind.name, **kind.transformers.with_noted(settings, noted)}
        if ("hidden",) in layers.values():
            task["head"] = "huggingface"
        resolved = resolve(
            {}, path, name=noted.get("name") or kind.name, task=task, encoder=encoder, init_from=None, num_epochs=3,
            max_seq_length=noted.get("max_seq_length", _MAX_SEQ_LENGTH), num_rows=1,
        )  # fmt: skip
        return resolved, _weights(layers, tensors, f"task_specific/{resolved.name}")
    return None, {}


def _weights(layers: Layers, tensors: Tensors, scope: str) -> Weights:
    """The weights of a head by our names, from transformers' tensors: the reverse of `head_tensors`."""
    weights: Weights = {}
    for theirs, ours in layers.items():
        for part in ("gamma", "beta") if ours == ("LayerNorm",) else ("kernel", "bias"):
            if (tensor := tensors.get(f"{theirs}.{ENDINGS[part]}")) is not None:
                shares = zip(ours, np.split(tensor.T, len(ours), axis=-1), strict=True)
                weights |= {f"{scope}/{layer}/{part}": np.ascontiguousarray(share) for layer, share in shares}
    return weights


def head_tensors(head: WrittenHead) -> Tensors:
    """The tensors of a head by transformers' names."""
    tensors: Tensors = {}
    for theirs, ours in head.layers.items():
        for part, ending in ENDINGS.items():
            if f"{ours[0]}/{part}" in head.weights:
                shares = [head.weights[f"{layer}/{part}"] for layer in ours]
                tensors[f"{theirs}.{ending}"] = np.ascontiguousarray(np.concatenate(shares, axis=-1).T)
    return tensors


def written_head(model: StoredModel) -> tuple[Layout, str, WrittenHead] | str:
    """The head of a fine-tuned model, with the layout and the ending of its class; or why transformers has no class."""
    config, layout = model.finetuned, layout_for(model.encoder)
    assert config is not None
    notes: tuple[str, ...] = ()
    kind = KINDS[config.task.kind]
    weights = {  # `task_specific/<task>/dense/kernel`
        name.split("/", 2)[2]: value for name, value in model.part("task_specific/").items()
    }
    if getattr(config.task, "head", None) == "linear":
        if layout is MODERN:
            return _LINEAR_ON_MODERN
        if layout is BERT and kind.model.reads_cls:
            layout, notes = ELECTRA, (_LINEAR_ON_BERT,)
    head = kind.transformers.written(config, weights, layout.family)
    if isinstance(head, str):
        return head
    labels = {} if head.labels is None else label_entries(head.labels)
    head = replace(head, entries={**labels, **head.entries}, notes=(*notes, *head.notes))
    return layout, kind.transformers.ending, head


def label_entries(labels: tuple[str, ...]) -> dict[str, Any]:
    """The entries of config.json for the names of labels. JSON has strings as keys."""
    id2label = {str(index): label for index, label in enumerate(labels)}
    return {"id2label": id2label, "label2id": {label: index for index, label in enumerate(labels)}}
