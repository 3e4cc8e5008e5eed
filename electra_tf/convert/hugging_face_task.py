"""The head of one of Hugging Face's fine-tuned models as a fine-tuning task of this program."""

from typing import NamedTuple

import numpy as np

from electra_tf.config.errors import UserError
from electra_tf.config.networks import EncoderConfig
from electra_tf.convert.hugging_face_files import Tensors
from electra_tf.tasks.finetune.config import FinetuningConfig, resolve

# By the tensors of a head, the layers of ours that it is.
_SENTENCE = {"classifier.dense": "hidden", "classifier.out_proj": "dense"}
_TAGGING = {"classifier": "dense"}
_KINDS = {
    "single_label_classification": "classification",
    "multi_label_classification": "multi_label",
    "regression": "regression",
}
_MAX_SEQ_LENGTH = 512


class Finetuned(NamedTuple):
    """A task, and the weights of its head by the names of `electra_tf.convert.names.finetuned_variables`."""

    config: FinetuningConfig
    weights: dict[str, np.ndarray]


def finetuned_task(config: dict, tensors: Tensors, encoder: EncoderConfig, path: str) -> Finetuned | None:
    """The task of an ElectraForSequenceClassification or ElectraForTokenClassification.

    Args:
        config: the content of config.json, at `path`.        tensors: those of the head.
    Returns: None for another head: one that this program has not, or that does not say all that its task needs.
    Raises: UserError: if labels and tensors disagree.
    """
    layers = next((each for each in (_SENTENCE, _TAGGING) if tensors.keys() == _tensors_of(each)), None)
    if layers is None:
        return None
    bias = tensors["classifier.out_proj.bias" if layers is _SENTENCE else "classifier.bias"]
    labels = _labels(config, len(bias), path)
    rate = config.get("classifier_dropout")
    task = {"dropout": encoder.hidden_dropout if rate is None else rate}
    if layers is _TAGGING:
        task |= {"kind": "tagging", "labels": labels, "scheme": _scheme(labels)}
    else:
        kind = _kind(config, len(bias), path)
        # A number is predicted in the unit of the data: the range of the scaled target is as it is by default.
        task |= {"kind": kind, "head": "huggingface", "text_columns": ["text"]}
        task["labels"] = [] if kind == "regression" else labels
    name = task["kind"]
    resolved = resolve(
        {}, path, name=name, task=task, encoder=encoder, init_from=None, num_epochs=3, max_seq_length=_MAX_SEQ_LENGTH,
        num_rows=1,
    )  # fmt: skip
    weights = {}
    for theirs, ours in layers.items():
        weights[f"task_specific/{name}/{ours}/kernel"] = np.ascontiguousarray(tensors[f"{theirs}.weight"].T)
        weights[f"task_specific/{name}/{ours}/bias"] = tensors[f"{theirs}.bias"]
    return Finetuned(resolved, weights)


def _tensors_of(layers: dict[str, str]) -> set[str]:
    return {f"{layer}.{part}" for layer in layers for part in ("weight", "bias")}


def _labels(config: dict, number: int, path: str) -> list[str]:
    """In the order of their ids; without names those that transformers gives."""
    names = config.get("id2label") or {str(index): f"LABEL_{index}" for index in range(number)}
    if sorted(names) != sorted(str(index) for index in range(number)):
        raise UserError(f"{path}: id2label has {len(names)} labels, the classifier {number}; name 0 to {number - 1}")
    return [str(names[str(index)]) for index in range(number)]


def _kind(config: dict, num_labels: int, path: str) -> str:
    """Where config.json does not say, one output is a number and several are one label, as transformers takes them."""
    default = "regression" if num_labels == 1 else "single_label_classification"
    stated = config.get("problem_type") or default
    if stated not in _KINDS:
        raise UserError(f"{path}: problem_type is {stated!r}, expected one of {', '.join(_KINDS)}; correct it")
    return _KINDS[stated]


def _scheme(labels: list[str]) -> str:
    """Of the tags of spans by their first letters."""
    first = {label[:2] for label in labels if label != "O"}
    if first <= {"B-", "I-"}:
        return "iob2"
    return "bioes" if first <= {"B-", "I-", "E-", "S-"} else "plain"
