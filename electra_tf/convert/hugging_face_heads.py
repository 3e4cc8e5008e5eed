"""The heads of fine-tuned models as those of transformers' classes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from electra_tf.convert.stored_model import StoredModel
from electra_tf.tasks.finetune.config import QuestionAnsweringConfig, SentenceConfig, TaggingConfig

_PROBLEM_TYPES = {
    "classification": "single_label_classification",
    "multi_label": "multi_label_classification",
    "regression": "regression",
}
_EXACT_GELU_FROM = 6.0  # GELU(x) is x in float32 for all larger x: 1 - erf(6 / sqrt 2) is 2e-9


@dataclass(frozen=True)
class Head:
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


def finetuned_head(model: StoredModel) -> Head:
    """The head of a fine-tuned model."""
    weights = {  # `task_specific/<task>/dense/kernel`
        name.split("/", 2)[2]: value for name, value in model.part("task_specific/").items()
    }
    task = model.finetuned.task
    if isinstance(task, TaggingConfig):
        config = {**_labels(task.labels), "classifier_dropout": task.dropout}
        notes = ("A word has the label of its first word piece; the other pieces were not trained.",)
        return Head("ElectraForTokenClassification", config, _linear("classifier", weights, "dense"), notes)
    if isinstance(task, QuestionAnsweringConfig):
        return _question_answering(task, weights)
    return _sentence(model, task, weights)


def _question_answering(task: QuestionAnsweringConfig, weights: Mapping[str, np.ndarray]) -> Head:
    if task.joint_prediction or task.answerable_classifier:
        found = "the end of an answer given its start" if task.joint_prediction else "whether there is an answer"
        return Head(
            None,
            notes=(
                f"The head predicts {found}, for which transformers has no class: this is the encoder alone. "
                "With task.joint_prediction and task.answerable_classifier false, fine-tuning trains the head of "
                "ElectraForQuestionAnswering.",
            ),
        )
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
    return Head("ElectraForQuestionAnswering", {}, tensors, (note,))


def _sentence(model: StoredModel, task: SentenceConfig, weights: Mapping[str, np.ndarray]) -> Head:
    """Logits of regression are in the unit of the data here, not scaled to [0, 1]."""
    labels, scale, offset, notes = task.labels, 1.0, 0.0, []
    if task.kind == "regression":
        labels, scale, offset = (model.finetuned.name,), task.max_value - task.min_value, task.min_value
        trained = f"{task.min_value:g} to {task.max_value:g}"
        notes.append(f"The one logit is the predicted number in the unit of the data, {trained} in training.")
    if task.kind == "multi_label":
        notes.append("A label is predicted where its logit is above 0.")
    config = {**_labels(labels), "problem_type": _PROBLEM_TYPES[task.kind], "classifier_dropout": task.dropout}
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
            layers = linear_as_shift(kernel * scale, bias * scale + offset, _bound_of_output(model))
            notes.append("With this many labels the weights need float32, and logits agree to about 1e-4.")
        tensors = {f"classifier.{name}": value for name, value in layers.items()}
        config["classifier_dropout"] = 0.0
        notes.append(
            "The head was trained as one product. The two layers of ElectraForSequenceClassification hold weights that "
            "compute the same; to fine-tune further, start from the pre-trained encoder."
        )
    tensors = {name: np.ascontiguousarray(value, np.float32) for name, value in tensors.items()}
    return Head("ElectraForSequenceClassification", config, tensors, tuple(notes))


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


def _bound_of_output(model: StoredModel) -> np.ndarray:
    """[H]: the encoder's output is never larger. The largest of H numbers of variance 1 is at most sqrt(H - 1)."""
    scope = f"electra/encoder/layer_{model.encoder.num_layers - 1}/output/LayerNorm"
    gamma, beta = model.weights[f"{scope}/gamma"], model.weights[f"{scope}/beta"]
    return np.abs(gamma) * np.sqrt(model.encoder.hidden_size - 1) + np.abs(beta)


def _linear(layer: str, weights: Mapping[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    return {
        f"{layer}.weight": np.ascontiguousarray(weights[f"{name}/kernel"].T),
        f"{layer}.bias": weights[f"{name}/bias"],
    }


def _labels(labels: tuple[str, ...]) -> dict:
    """The names of labels as config.json has them, whose keys are strings."""
    id2label = {str(index): label for index, label in enumerate(labels)}
    return {"id2label": id2label, "label2id": {label: index for index, label in enumerate(labels)}}
