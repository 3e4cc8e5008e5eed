"""The heads of fine-tuned models between this program's tasks and transformers' classes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from electra_tf.config.errors import UserError
from electra_tf.config.schema import EncoderConfig
from electra_tf.tasks.finetune.config import (
    FinetuningConfig,
    QuestionAnsweringConfig,
    SentenceConfig,
    TaggingConfig,
    resolve,
)
from electra_tf.tasks.finetune.glue import GLUE_TASKS
from electra_tf.tasks.finetune.squad import SQUAD_TASKS
from electra_tf.weights.hugging_face.tensors import Tensors
from electra_tf.weights.names import Shapes, require_shapes
from electra_tf.weights.stored_model import StoredModel

# Both ways: kind of task, problem_type.
_PROBLEM_TYPES = {
    "classification": "single_label_classification",
    "multi_label": "multi_label_classification",
    "regression": "regression",
}
# By the tensors of a head, the layers of ours.
_SENTENCE = {"classifier.dense": "hidden", "classifier.out_proj": "dense"}
_TAGGING = {"classifier": "dense"}
_ANSWERS = {"qa_outputs": "dense"}
_MAX_SEQ_LENGTH = 512
# Settings of a task that transformers' config.json has no names for.
_NOTED = ("text_columns", "stride", "version_2")
_EXACT_GELU_FROM = 6.0  # GELU(x) is x in float32 for all larger x: 1 - erf(6 / sqrt 2) is 2e-9


def noted_task(config: FinetuningConfig) -> dict:
    """What config.json notes of a fine-tuned model for `read_head`, beside what transformers knows."""
    settings = config.task.model_dump(mode="json")
    noted = {name: settings[name] for name in _NOTED if name in settings}
    return {"name": config.name, "max_seq_length": config.data.max_seq_length, **noted}


def read_head(
    config: dict, tensors: Tensors, encoder: EncoderConfig, path: str
) -> tuple[FinetuningConfig | None, dict[str, np.ndarray]]:
    """The task of an ElectraForSequenceClassification, ElectraForTokenClassification or ElectraForQuestionAnswering.

    A folder of others does not state whether its model takes one text or two, or whether questions may have no answer:
    one text, and each has an answer.

    Args:
        config: the content of config.json, at `path`.        tensors: those of the head.
    Returns: its configuration, None for another head; and the weights of the head by our names.
    Raises: UserError: if labels and tensors disagree.
    """
    layers = next((each for each in (_SENTENCE, _TAGGING, _ANSWERS) if tensors.keys() == _shapes(each).keys()), None)
    if layers is None:
        return None, {}
    num_outputs = len(tensors[f"{list(layers)[-1]}.bias"])
    require_shapes(path, _shapes(layers, encoder.hidden_size, num_outputs), {n: t.shape for n, t in tensors.items()})
    noted = (config.get("electra_tf") or {}).get("finetuned") or {}
    task = _task(layers, config, noted, num_outputs, path)
    if layers is not _ANSWERS:
        rate = config.get("classifier_dropout")
        task["dropout"] = encoder.hidden_dropout if rate is None else rate
    name = noted.get("name") or task["kind"]
    resolved = resolve(
        {}, path, name=name if _is_name_of(name, task) else task["kind"], task=task, encoder=encoder, init_from=None,
        num_epochs=3, max_seq_length=noted.get("max_seq_length", _MAX_SEQ_LENGTH), num_rows=1,
    )  # fmt: skip
    weights = {}
    for theirs, ours in layers.items():
        kernel, bias, scope = tensors[f"{theirs}.weight"].T, tensors[f"{theirs}.bias"], f"task_specific/{resolved.name}"
        if layers is _ANSWERS:  # the two columns are two layers of ours
            weights |= {
                f"{scope}/dense_1/kernel": np.ascontiguousarray(kernel[:, 1:]),
                f"{scope}/dense_1/bias": bias[1:],
            }
            kernel, bias = kernel[:, :1], bias[:1]
        weights |= {f"{scope}/{ours}/kernel": np.ascontiguousarray(kernel), f"{scope}/{ours}/bias": bias}
    return resolved, weights


def _task(layers: Mapping[str, str], config: dict, noted: dict, num_outputs: int, path: str) -> dict:
    """The settings of the task."""
    if layers is _ANSWERS:
        task = {"kind": "question_answering", "version_2": False}
        task |= {"joint_prediction": False, "answerable_classifier": False}
    elif layers is _TAGGING:
        labels = _labels(config, num_outputs, path)
        return {"kind": "tagging", "labels": labels, "scheme": _scheme(labels)}
    else:
        kind = _kind(config, num_outputs, path)
        labels = [] if kind == "regression" else _labels(config, num_outputs, path)
        # A number is predicted in the unit of the data: the range of the scaled target is as it is by default.
        task = {"kind": kind, "head": "huggingface", "text_columns": ["text"], "labels": labels}
    return task | {name: noted[name] for name in _NOTED if name in noted}


def _is_name_of(name: str, task: dict) -> bool:
    """Whether a noted name is one, and not that of a task with other labels, which other files go by."""
    if name in GLUE_TASKS:
        known = GLUE_TASKS[name]
        return (known.problem, list(known.labels)) == (task["kind"], task.get("labels"))
    if name in SQUAD_TASKS:
        return task["kind"] == "question_answering"
    return re.fullmatch(r"\w[\w.-]*", name) is not None


def _shapes(layers: Mapping[str, str], hidden: int = 0, num_outputs: int = 0) -> Shapes:
    """The shape of every tensor of a head; the last layer has the outputs."""
    units = [hidden] * (len(layers) - 1) + [num_outputs]
    shapes: Shapes = {}
    for layer, size in zip(layers, units, strict=True):
        shapes |= {f"{layer}.weight": (size, hidden), f"{layer}.bias": (size,)}
    return shapes


def _labels(config: dict, number: int, path: str) -> list[str]:
    """In the order of their ids; without names those that transformers gives."""
    names = config.get("id2label") or {str(index): f"LABEL_{index}" for index in range(number)}
    if sorted(names) != sorted(map(str, range(number))) or len(set(names.values())) < number:
        raise UserError(
            f"{path}: id2label is {names!r:.80}, the classifier has {number} labels; give each its own name"
        )
    return [str(names[str(index)]) for index in range(number)]


def _kind(config: dict, num_labels: int, path: str) -> str:
    """Without a problem_type one output is a number and several are one label, as transformers takes them."""
    default = "regression" if num_labels == 1 else "single_label_classification"
    stated = config.get("problem_type") or default
    kinds = {theirs: ours for ours, theirs in _PROBLEM_TYPES.items()}
    if stated not in kinds:
        raise UserError(f"{path}: problem_type is {stated!r}, expected one of {', '.join(kinds)}")
    return kinds[stated]


def _scheme(labels: list[str]) -> str:
    """Of the tags of spans by their first letters."""
    first = {label[:2] for label in labels if label != "O"}
    if first <= {"B-", "I-"}:
        return "iob2"
    return "bioes" if first <= {"B-", "I-", "E-", "S-"} else "plain"


@dataclass(frozen=True)
class TaskHead:
    """The head of a fine-tuned model as transformers has it.

    Attributes:
        architecture: transformers' class; None if it has none with such a head.
        config: entries of config.json.
        tensors: by transformers' names.
        notes: what a user of the class has to know, whole sentences.
    """

    architecture: str | None
    config: dict = field(default_factory=dict)
    tensors: Mapping[str, np.ndarray] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def task_head(model: StoredModel) -> TaskHead:
    """The head of a fine-tuned model for transformers."""
    weights = {  # `task_specific/<task>/dense/kernel`
        name.split("/", 2)[2]: value for name, value in model.part("task_specific/").items()
    }
    task = model.finetuned.task
    if isinstance(task, TaggingConfig):
        config = {**_label_entries(task.labels), "classifier_dropout": task.dropout}
        notes = ("A word has the label of its first word piece; the other pieces were not trained.",)
        return TaskHead("ElectraForTokenClassification", config, _linear("classifier", weights, "dense"), notes)
    if isinstance(task, QuestionAnsweringConfig):
        return _question_answering(task, weights)
    return _sentence(model, task, weights)


def _question_answering(task: QuestionAnsweringConfig, weights: Mapping[str, np.ndarray]) -> TaskHead:
    if task.joint_prediction or task.answerable_classifier:
        note = (
            "transformers has no class for this head: this is the encoder alone. With task.joint_prediction and "
            "task.answerable_classifier false, fine-tuning trains the head of ElectraForQuestionAnswering."
        )
        return TaskHead(None, notes=(note,))
    layers = ("dense", "dense_1")  # start and end
    kernels, biases = ([weights[f"{layer}/{part}"] for layer in layers] for part in ("kernel", "bias"))
    tensors = {
        "qa_outputs.weight": np.ascontiguousarray(np.concatenate(kernels, axis=1).T),  # [2, H]
        "qa_outputs.bias": np.concatenate(biases),
    }
    note = (
        "The logits of the question, of its [SEP] and of padding mean nothing: training left them out, and so must the "
        "choice of an answer, as pipeline('question-answering') of transformers 4 does. The span of a question without "
        "an answer is [CLS]."
    )
    return TaskHead("ElectraForQuestionAnswering", {}, tensors, (note,))


def _sentence(model: StoredModel, task: SentenceConfig, weights: Mapping[str, np.ndarray]) -> TaskHead:
    """The head with logits of regression in the unit of the data, not scaled to [0, 1]."""
    labels, scale, offset, notes = task.labels, 1.0, 0.0, []
    if task.kind == "regression":
        labels, scale, offset = (model.finetuned.name,), task.max_value - task.min_value, task.min_value
        trained = f"{task.min_value:g} to {task.max_value:g}"
        notes.append(f"The one logit is the predicted number in the unit of the data, {trained} in training.")
    if task.kind == "multi_label":
        notes.append("A label is predicted where its logit is above 0.")
    config = {**_label_entries(labels), "problem_type": _PROBLEM_TYPES[task.kind], "classifier_dropout": task.dropout}
    if task.head == "huggingface":
        tensors = {**_linear("classifier.dense", weights, "hidden"), **_linear("classifier.out_proj", weights, "dense")}
        tensors["classifier.out_proj.weight"] = tensors["classifier.out_proj.weight"] * scale
        tensors["classifier.out_proj.bias"] = tensors["classifier.out_proj.bias"] * scale + offset
    else:
        kernel, bias = weights["dense/kernel"], weights["dense/bias"]
        hidden_size, num_labels = kernel.shape
        if 2 * num_labels <= hidden_size:
            layers = linear_as_pairs(kernel, bias, scale, offset)
        else:
            layers = linear_as_shift(kernel * scale, bias * scale + offset, _largest_output(model))
            notes.append("With this many labels the weights need float32, and logits agree to about 1e-4.")
        tensors = {f"classifier.{name}": value for name, value in layers.items()}
        config["classifier_dropout"] = 0.0
        notes.append(
            "The head was trained as one product. The two layers of ElectraForSequenceClassification hold weights that "
            "compute the same; to fine-tune further, start from the pre-trained encoder."
        )
    tensors = {name: np.ascontiguousarray(value, np.float32) for name, value in tensors.items()}
    return TaskHead("ElectraForSequenceClassification", config, tensors, tuple(notes))


def linear_as_pairs(kernel: np.ndarray, bias: np.ndarray, scale: float, offset: float) -> dict[str, np.ndarray]:
    """One product as two with GELU between: scale * z + offset with z = x kernel + bias.

    The first product gives z and -z of each label, for GELU(z) - GELU(-z) = z; the other hidden units stay 0. The
    error is a few roundings of z, whatever x is.

    Args:
        kernel: [H, C] with 2 C <= H.        bias: [C].
    Returns: `dense.weight` [H, H], `dense.bias` [H], `out_proj.weight` [C, H], `out_proj.bias` [C].
    """
    hidden_size, num_labels = kernel.shape
    dense, dense_bias = np.zeros([hidden_size, hidden_size], np.float32), np.zeros(hidden_size, np.float32)
    out = np.zeros([num_labels, hidden_size], np.float32)
    for unit, sign in ((0, 1.0), (1, -1.0)):
        units = slice(unit, 2 * num_labels, 2)
        dense[units], dense_bias[units] = sign * kernel.T, sign * bias
        out[:, units] = sign * scale * np.eye(num_labels)
    return {
        "dense.weight": dense,
        "dense.bias": dense_bias,
        "out_proj.weight": out,
        "out_proj.bias": np.full(num_labels, offset, np.float32),
    }


def linear_as_shift(kernel: np.ndarray, bias: np.ndarray, bound: np.ndarray) -> dict[str, np.ndarray]:
    """One product as two with GELU between, for any number of labels: GELU(x + c) = x + c where c is large enough.

    Each x loses the digits that c takes, so this is less precise than `linear_as_pairs`.

    Args:
        kernel: [H, C].        bias: [C].        bound: [H], above the magnitude of each x.
    Returns: as `linear_as_pairs`.
    """
    shift = np.ceil(bound + _EXACT_GELU_FROM)
    return {
        "dense.weight": np.eye(len(kernel), dtype=np.float32),
        "dense.bias": shift,
        "out_proj.weight": kernel.T,
        "out_proj.bias": bias - shift.astype(np.float64) @ kernel.astype(np.float64),
    }


def _largest_output(model: StoredModel) -> np.ndarray:
    """[H]: a bound of the encoder's output. The largest of H numbers of variance 1 is at most sqrt(H - 1)."""
    scope = f"electra/encoder/layer_{model.encoder.num_layers - 1}/output/LayerNorm"
    gamma, beta = model.weights[f"{scope}/gamma"], model.weights[f"{scope}/beta"]
    return np.abs(gamma) * np.sqrt(model.encoder.hidden_size - 1) + np.abs(beta)


def _linear(layer: str, weights: Mapping[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    return {
        f"{layer}.weight": np.ascontiguousarray(weights[f"{name}/kernel"].T),
        f"{layer}.bias": weights[f"{name}/bias"],
    }


def _label_entries(labels: tuple[str, ...]) -> dict:
    """The names of labels as config.json has them, whose keys are strings."""
    id2label = {str(index): label for index, label in enumerate(labels)}
    return {"id2label": id2label, "label2id": {label: index for index, label in enumerate(labels)}}
