"""The head of one of Hugging Face's fine-tuned models as a fine-tuning task of this program."""

import re
from typing import NamedTuple

import numpy as np

from electra_tf.config.errors import UserError
from electra_tf.config.schema import EncoderConfig
from electra_tf.convert.hugging_face_files import Tensors
from electra_tf.convert.sizes import require_shapes
from electra_tf.tasks.finetune.config import FinetuningConfig, resolve
from electra_tf.tasks.finetune.glue import GLUE_TASKS
from electra_tf.tasks.finetune.squad import SQUAD_TASKS

# By the tensors of a head, the layers of ours that it is.
_SENTENCE = {"classifier.dense": "hidden", "classifier.out_proj": "dense"}
_TAGGING = {"classifier": "dense"}
_KINDS = {
    "single_label_classification": "classification",
    "multi_label_classification": "multi_label",
    "regression": "regression",
}
_MAX_SEQ_LENGTH = 512
# Settings of a task of texts that transformers' config.json has no names for.
_NOTED = ("text_columns", "stride")


class Finetuned(NamedTuple):
    """A task, and the weights of its head by the names of `electra_tf.convert.names.finetuned_variables`."""

    config: FinetuningConfig
    weights: dict[str, np.ndarray]


def noted_task(config: FinetuningConfig) -> dict:
    """What config.json notes of a fine-tuned model for `finetuned_task`, beside what transformers knows."""
    settings = config.task.model_dump(mode="json")
    noted = {name: settings[name] for name in _NOTED if name in settings}
    return {"name": config.name, "max_seq_length": config.data.max_seq_length, **noted}


def finetuned_task(config: dict, tensors: Tensors, encoder: EncoderConfig, path: str) -> Finetuned | None:
    """The task of an ElectraForSequenceClassification or ElectraForTokenClassification.

    A folder that is not of this program does not say whether its model takes one text or two; it is taken for one.

    Args:
        config: the content of config.json, at `path`.        tensors: those of the head.
    Returns: None for another head: one that this program has not, or that does not say all that its task needs.
    Raises: UserError: if labels and tensors disagree.
    """
    layers = next((each for each in (_SENTENCE, _TAGGING) if tensors.keys() == _tensors_of(each)), None)
    if layers is None:
        return None
    num_outputs = _num_outputs(layers, tensors, encoder, path)
    labels, noted = _labels(config, num_outputs, path), _noted(config, encoder)
    rate = config.get("classifier_dropout")
    task = {"dropout": encoder.hidden_dropout if rate is None else rate}
    if layers is _TAGGING:
        task |= {"kind": "tagging", "labels": labels, "scheme": _scheme(labels)}
    else:
        kind = _kind(config, num_outputs, path)
        # A number is predicted in the unit of the data: the range of the scaled target is as it is by default.
        task |= {"kind": kind, "head": "huggingface", "text_columns": ["text"]}
        task |= {setting: noted[setting] for setting in _NOTED if setting in noted}
        task["labels"] = [] if kind == "regression" else labels
    name = noted.get("name", "")
    if not _is_name_of(name, task):
        name = task["kind"]
    resolved = resolve(
        {}, path, name=name, task=task, encoder=encoder, init_from=None, num_epochs=3,
        max_seq_length=noted.get("max_seq_length", _MAX_SEQ_LENGTH), num_rows=1,
    )  # fmt: skip
    weights = {}
    for theirs, ours in layers.items():
        weights[f"task_specific/{name}/{ours}/kernel"] = np.ascontiguousarray(tensors[f"{theirs}.weight"].T)
        weights[f"task_specific/{name}/{ours}/bias"] = tensors[f"{theirs}.bias"]
    return Finetuned(resolved, weights)


def _noted(config: dict, encoder: EncoderConfig) -> dict:
    """What `noted_task` has written; empty for a folder of others, or where it has been changed to something else."""
    ours = config.get("electra_tf")
    noted = ours.get("finetuned") if isinstance(ours, dict) else None
    if not isinstance(noted, dict):
        return {}
    fits = {"name": str, "max_seq_length": int, "text_columns": list, "stride": int | None}
    noted = {key: value for key, value in noted.items() if key in fits and isinstance(value, fits[key])}
    noted = {key: value for key, value in noted.items() if not isinstance(value, bool)}
    columns, stride = noted.get("text_columns", []), noted.get("stride")
    length = min(noted.get("max_seq_length", _MAX_SEQ_LENGTH), encoder.max_position_embeddings)
    if len(columns) not in (1, 2) or not all(isinstance(column, str) for column in columns):
        noted.pop("text_columns", None)
    if stride is not None and not 1 <= stride <= length - 2:  # of what fits between [CLS] and [SEP]
        del noted["stride"]
    return noted


def _is_name_of(name: str, task: dict) -> bool:
    """Whether a noted name is one, and not that of a task with other labels, which other files go by."""
    if name in GLUE_TASKS:
        known = GLUE_TASKS[name]
        return (known.problem, list(known.labels)) == (task["kind"], task["labels"])
    return re.fullmatch(r"\w[\w.-]*", name) is not None and name not in SQUAD_TASKS


def _num_outputs(layers: dict[str, str], tensors: Tensors, encoder: EncoderConfig, path: str) -> int:
    """Of the last layer of a head. Raises: UserError: if the layers are no products on the encoder's vectors."""
    found, hidden = {name: tensor.shape for name, tensor in tensors.items()}, encoder.hidden_size
    *others, last = layers
    outputs = (found[f"{last}.weight"] or (0,))[0]
    expected = {}
    for layer, units in [*((layer, hidden) for layer in others), (last, outputs)]:
        expected |= {f"{layer}.weight": (units, hidden), f"{layer}.bias": (units,)}
    require_shapes(path, expected, found)
    return outputs


def _tensors_of(layers: dict[str, str]) -> set[str]:
    return {f"{layer}.{part}" for layer in layers for part in ("weight", "bias")}


def _labels(config: dict, number: int, path: str) -> list[str]:
    """In the order of their ids; without names those that transformers gives."""
    names = config.get("id2label") or {str(index): f"LABEL_{index}" for index in range(number)}
    if not isinstance(names, dict) or sorted(names) != sorted(str(index) for index in range(number)):
        raise UserError(
            f"{path}: id2label is {names!r:.80}, the classifier has {number} labels; name 0 to {number - 1}"
        )
    labels = [names[str(index)] for index in range(number)]
    if wrong := [label for label in labels if not isinstance(label, str | int | float)]:
        raise UserError(f"{path}: id2label has {wrong[0]!r:.40}, expected a text; correct it")
    labels = [str(label) for label in labels]
    if twice := [label for index, label in enumerate(labels) if label in labels[:index]]:
        raise UserError(f"{path}: id2label names {twice[0]!r} twice; give each label a name of its own")
    return labels


def _kind(config: dict, num_labels: int, path: str) -> str:
    """Where config.json does not say, one output is a number and several are one label, as transformers takes them."""
    default = "regression" if num_labels == 1 else "single_label_classification"
    stated = config.get("problem_type") or default
    if not isinstance(stated, str) or stated not in _KINDS:
        raise UserError(f"{path}: problem_type is {stated!r}, expected one of {', '.join(_KINDS)}; correct it")
    return _KINDS[stated]


def _scheme(labels: list[str]) -> str:
    """Of the tags of spans by their first letters."""
    first = {label[:2] for label in labels if label != "O"}
    if first <= {"B-", "I-"}:
        return "iob2"
    return "bioes" if first <= {"B-", "I-", "E-", "S-"} else "plain"
