"""Converts the heads of fine-tuned models: tasks of this program to transformers' classes, and back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np

from electra_tf.config.errors import UserError
from electra_tf.config.networks import EncoderConfig
from electra_tf.tasks.finetune.benchmarks import BENCHMARKS
from electra_tf.tasks.finetune.config import FinetuningConfig, resolve
from electra_tf.tasks.finetune.multiple_choice import MultipleChoiceConfig
from electra_tf.tasks.finetune.question_answering import QuestionAnsweringConfig
from electra_tf.tasks.finetune.scores import TagScheme
from electra_tf.tasks.finetune.sentence import SentenceConfig
from electra_tf.tasks.finetune.similarity import SimilarityConfig
from electra_tf.tasks.finetune.tagging import TaggingConfig, fits_scheme
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
from electra_tf.weights.stored_model import StoredModel

# The layers of each head: transformers' name, and ours. Each layer of ours has an equal share of the outputs.
_Layers = Mapping[str, tuple[str, ...]]
_NORM = "LayerNorm"
_POOLER: _Layers = {"bert.pooler.dense": ("hidden",)}
_MODERN_HIDDEN: _Layers = {"head.dense": ("hidden",), "head.norm": (_NORM,)}
# The ends of the names of classes.
_SENTENCE, _TAGGING, _ANSWERS = "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"
_CHOICE = "ForMultipleChoice"
READS_POOLER = _SENTENCE, _CHOICE  # of BERT's classes
_HEADS: Mapping[str, Mapping[str, _Layers]] = {
    "Electra": {
        _SENTENCE: {"classifier.dense": ("hidden",), "classifier.out_proj": ("dense",)},
        _TAGGING: {"classifier": ("dense",)},
        _ANSWERS: {"qa_outputs": ("dense", "dense_1")},  # the start and the end of an answer
        _CHOICE: {"sequence_summary.summary": ("hidden",), "classifier": ("dense",)},
    },
    "Bert": {
        _SENTENCE: {**_POOLER, "classifier": ("dense",)},
        _TAGGING: {"classifier": ("dense",)},
        _ANSWERS: {"qa_outputs": ("dense", "dense_1")},
        _CHOICE: {**_POOLER, "classifier": ("dense",)},
    },
    "ModernBert": {
        _SENTENCE: {**_MODERN_HIDDEN, "classifier": ("dense",)},
        _TAGGING: {**_MODERN_HIDDEN, "classifier": ("dense",)},
        _ANSWERS: {**_MODERN_HIDDEN, "classifier": ("dense", "dense_1")},
        _CHOICE: {**_MODERN_HIDDEN, "classifier": ("dense",)},
    },
}
# ElectraForMultipleChoice without a summary has the tensors of ElectraForTokenClassification.
_LINEAR_CHOICE: _Layers = {"classifier": ("dense",)}
_SUMMARY = {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"}
_NO_SUMMARY = {"summary_type": "first", "summary_use_proj": False, "summary_activation": ""}
_PROBLEM_TYPES = {
    "classification": "single_label_classification",
    "multi_label": "multi_label_classification",
    "regression": "regression",
}
_KINDS = {theirs: ours for ours, theirs in _PROBLEM_TYPES.items()}
# What a cross-encoder of sentence-transformers does with the logits of these kinds.
_ACTIVATIONS = {"multi_label": "torch.nn.modules.activation.Sigmoid", "regression": "torch.nn.modules.linear.Identity"}
_MAX_SEQ_LENGTH = 512
# Settings of a task that transformers' config.json has no names for.
_NOTED_OF_SENTENCES = ("text_columns", "label_column", "stride")
_OF_WINDOWS = ("doc_stride", "max_query_length", "max_answer_length", "n_best_size")
_NOTED_OF_ANSWERS = ("version_2", *_OF_WINDOWS, "null_threshold", "answer_language")
_NOTED = {_SENTENCE: _NOTED_OF_SENTENCES, _ANSWERS: _NOTED_OF_ANSWERS}
_SENTENCE_VECTORS = (
    "A text's vector is the mean of its tokens' vectors; --to=sentence_transformers writes a folder that computes it."
)
_NO_CLASS = "transformers has no class for this head: this is the encoder alone."
_LINEAR_ON_MODERN = (
    "transformers' heads on ModernBERT have a dense layer and a LayerNorm, which this linear head lacks: this is the "
    "encoder alone. With task.head huggingface, fine-tuning trains transformers' head."
)
_LINEAR_ON_BERT = (
    "BERT's class reads its pooler, which this linear head lacks: this is ELECTRA's class, with the same encoder. With "
    "task.head huggingface, fine-tuning trains BERT's head."
)


def noted_task(config: FinetuningConfig) -> dict:
    """The settings of a fine-tuned model that `read_head` needs and transformers' own entries lack."""
    settings = config.task.model_dump(mode="json")
    names = "kind", "labels", *_NOTED_OF_SENTENCES, *_NOTED_OF_ANSWERS, "scheme"
    noted = {name: settings[name] for name in names if name in settings}
    return {"name": config.name, "max_seq_length": config.data.max_seq_length, **noted}


def read_head(
    config: dict, tensors: Tensors, encoder: EncoderConfig, path: str
) -> tuple[FinetuningConfig | None, dict[str, np.ndarray]]:
    """Reads the head of a model for sequence or token classification, question answering or multiple choice.

    A folder of another program does not state whether its model takes one text or two, which leaves `text_columns`
    empty, or whether questions may have no answer: they all have one.

    Args:
        config: the content of config.json, at `path`.        tensors: those of the head.
    Returns: the configuration of the task, None for another kind of head; the head's weights by our names.
    Raises: UserError: labels do not fit the head, or it is one for the mean of all tokens, or another summary of them.
    """
    head, layers, is_electra = *_head_of(config, tensors, encoder), layout_for(encoder) is ELECTRA
    if head is None:
        return None, {}
    pooling = config.get("classifier_pooling", "cls")
    if encoder.block == "modern" and head in (_SENTENCE, _CHOICE) and pooling != "cls":
        raise UserError(
            f"{path}: classifier_pooling is {pooling!r:.80}, but heads for texts read the vector of [CLS]: 'cls'; give "
            "another folder"
        )
    task = _task(head, config, len(tensors[f"{list(layers)[-1]}.bias"]), path)
    noted = _fitting_note(config, task)
    task |= {name: noted[name] for name in _NOTED.get(head, ()) if name in noted}
    if head == _TAGGING:
        task["scheme"] = _scheme(task["labels"], noted.get("scheme"))
    if head == _CHOICE and is_electra:
        _require_known_summary(config, layers, path)
        task["dropout"] = config.get("summary_last_dropout", 0.1)
    elif head != _ANSWERS:
        rate = config.get("classifier_dropout")
        task["dropout"] = encoder.hidden_dropout if rate is None else rate
    if layers.keys() - {"classifier", "qa_outputs"}:
        task["head"] = "huggingface"
    resolved = resolve(
        {}, path, name=noted.get("name") or task["kind"], task=task, encoder=encoder, init_from=None, num_epochs=3,
        max_seq_length=noted.get("max_seq_length", _MAX_SEQ_LENGTH), num_rows=1,
    )  # fmt: skip
    return resolved, _weights(layers, tensors, f"task_specific/{resolved.name}")


def _head_of(config: dict, tensors: Tensors, encoder: EncoderConfig) -> tuple[str | None, _Layers]:
    """The kind of a head, None if it is unknown, and its layers. ELECTRA alone has other tensors for each."""
    biases = {"head.dense": encoder.has_head_bias, "head.norm": encoder.has_norm_bias}
    layout, architecture = layout_for(encoder), architecture_of(config)
    heads = [*_HEADS[layout.family].items()]
    if layout is ELECTRA and architecture.endswith(_CHOICE):
        heads.insert(0, (_CHOICE, _LINEAR_CHOICE))
    for head, layers in heads:
        names = {f"{layer}.weight" for layer in layers} | {f"{n}.bias" for n in layers if biases.get(n, True)}
        if tensors.keys() == names and (layout is ELECTRA or architecture.endswith(head)):
            return head, layers
    return None, {}


def _require_known_summary(config: dict, layers: _Layers, path: str) -> None:
    """Raises: UserError: the head of ElectraForMultipleChoice does not read [CLS], or has another activation."""
    expected = _NO_SUMMARY if layers == _LINEAR_CHOICE else _SUMMARY
    for name, value in expected.items():
        if (found := config.get(name, _SUMMARY[name])) != value:
            raise UserError(f"{path}: {name} is {found!r:.80}, expected {value!r}; give another folder")


def _fitting_note(config: dict, task: dict) -> dict:
    """What this program noted of a task; nothing if transformers, which keeps the note, trained another head since."""
    noted = (config.get("electra_tf") or {}).get("finetuned") or {}
    benchmark = BENCHMARKS.get(noted.get("name"))
    expected = task | (benchmark.settings if benchmark else {}) | noted
    return noted if all(expected.get(name) == task.get(name) for name in ("kind", "labels")) else {}


def _task(head: str, config: dict, num_outputs: int, path: str) -> dict:
    if head == _TAGGING:
        return {"kind": "tagging", "labels": _labels(config, num_outputs, path)}
    if head == _CHOICE:
        return {"kind": "multiple_choice"}
    if head == _ANSWERS:
        unused = {"joint_prediction": False, "answerable_classifier": False}
        return {"kind": "question_answering", "version_2": False, **unused}
    kind = _kind_of_sentences(config, num_outputs, path)
    # A number is predicted in the unit of the data, so the range of targets is left at its default, 0 to 1.
    return {"kind": kind, "labels": [] if kind == "regression" else _labels(config, num_outputs, path)}


def _kind_of_sentences(config: dict, num_outputs: int, path: str) -> str:
    """The kind that computes what transformers' pipeline or, by its activation, a cross-encoder makes of the logits.

    One number is a probability, its sigmoid, unless it is stated to be the result.
    """
    problem = str(config.get("problem_type") or "single_label_classification")
    if problem not in _KINDS:
        raise UserError(f"{path}: problem_type is {problem!r:.80}, expected one of {', '.join(_KINDS)}; correct it")
    stated = (config.get("sentence_transformers") or {}).get("activation_fn")
    stated = str(stated or config.get("sbert_ce_default_activation_function") or "")  # the second is of older versions
    activation = stated.rsplit(".", 1)[-1]  # of torch.nn.modules.activation.Sigmoid
    if activation not in ("", "Identity", "Sigmoid", "Softmax"):
        raise UserError(f"{path}: the activation is {stated!r:.80}, expected Identity, Sigmoid or Softmax of torch")
    if activation == "Sigmoid":
        return "multi_label"
    if num_outputs > 1:
        return _KINDS[problem]
    return "regression" if activation == "Identity" or problem == "regression" else "multi_label"


def _labels(config: dict, num_outputs: int, path: str) -> list[str]:
    ids = [str(index) for index in range(num_outputs)]
    names = config.get("id2label") or {index: f"LABEL_{index}" for index in ids}
    labels = [str(names.get(index)) for index in ids] if isinstance(names, dict) else []
    if len(set(labels)) != num_outputs or names.keys() != set(ids):
        raise UserError(
            f'{path}: id2label is {names!r:.80}, expected {num_outputs} different labels by their ids, from "0" on; '
            "correct it"
        )
    return labels


def _scheme(labels: list[str], noted: Any) -> str:
    """The tag scheme: of the noted one, iob2 and bioes the first that all tags belong to, else plain."""
    schemes_of_spans = set(get_args(TagScheme)) - {"plain"}  # to which any tags belong
    known = [scheme for scheme in (noted, "iob2", "bioes") if scheme in schemes_of_spans]
    return next((scheme for scheme in known if all(fits_scheme(label, scheme) for label in labels)), "plain")


def _weights(layers: _Layers, tensors: Tensors, scope: str) -> dict[str, np.ndarray]:
    """The weights of a head by our names, from transformers' tensors."""
    weights = {}
    for theirs, ours in layers.items():
        parts = ("gamma", "beta") if ours == (_NORM,) else ("kernel", "bias")
        for part, of_theirs in zip(parts, ("weight", "bias"), strict=True):
            if (tensor := tensors.get(f"{theirs}.{of_theirs}")) is not None:
                values = np.split(tensor.T, len(ours), axis=-1)
                weights |= {
                    f"{scope}/{layer}/{part}": np.ascontiguousarray(value)
                    for layer, value in zip(ours, values, strict=True)
                }
    return weights


def _tensors(layers: _Layers, weights: Mapping[str, np.ndarray]) -> Tensors:
    """Transformers' tensors of a head, from the weights by the names of our layers."""
    tensors = {}
    for theirs, ours in layers.items():
        for part, of_theirs in (*ENDINGS.items(), ("bias", "bias")):
            if f"{ours[0]}/{part}" in weights:
                value = np.concatenate([weights[f"{layer}/{part}"] for layer in ours], axis=-1)
                tensors[f"{theirs}.{of_theirs}"] = np.ascontiguousarray(value.T)
    return tensors


def _head_tensors(layout: Layout, head: str, weights: Mapping[str, np.ndarray]) -> Tensors:
    return _tensors(_HEADS[layout.family][head], weights)


@dataclass(frozen=True)
class TaskHead:
    """The head of a fine-tuned model for transformers.

    Attributes:
        architecture: transformers' class; None if it has no class with such a head.
        layout: of that class.
        config: entries of config.json.
        tensors: by transformers' names.
        notes: facts that a user of the class needs, whole sentences.
    """

    architecture: str | None
    layout: Layout
    config: dict = field(default_factory=dict)
    tensors: Mapping[str, np.ndarray] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def task_head(model: StoredModel) -> TaskHead:
    """The head of a fine-tuned model for transformers."""
    weights = {  # `task_specific/<task>/dense/kernel`
        name.split("/", 2)[2]: value for name, value in model.part("task_specific/").items()
    }
    task, layout = model.finetuned.task, layout_for(model.encoder)
    if task.kind not in _HEADS_BY_KIND:
        note = _SENTENCE_VECTORS if isinstance(task, SimilarityConfig) else _NO_CLASS
        return TaskHead(None, layout, notes=(note,))
    if layout is MODERN and task.head == "linear":
        return TaskHead(None, layout, notes=(_LINEAR_ON_MODERN,))
    make = _HEADS_BY_KIND[task.kind]
    if layout is BERT and task.head == "linear" and make in (_sentence, _multiple_choice):
        of_electra = make(model.finetuned.name, task, weights, ELECTRA)
        return (
            replace(of_electra, notes=(_LINEAR_ON_BERT, *of_electra.notes)) if of_electra.architecture else of_electra
        )
    return make(model.finetuned.name, task, weights, layout)


def _tagging(_: str, task: TaggingConfig, weights: Mapping[str, np.ndarray], layout: Layout) -> TaskHead:
    config = {**label_entries(task.labels), "classifier_dropout": task.dropout}
    notes = ("A word has the label of its first piece; the other pieces were not trained.",)
    return TaskHead(f"{layout.family}{_TAGGING}", layout, config, _head_tensors(layout, _TAGGING, weights), notes)


def _multiple_choice(_: str, task: MultipleChoiceConfig, weights: Mapping[str, np.ndarray], layout: Layout) -> TaskHead:
    layers, config = _HEADS[layout.family][_CHOICE], {"classifier_dropout": task.dropout}
    if layout is ELECTRA:
        config = {**_SUMMARY, "summary_last_dropout": task.dropout}
        if task.head == "linear":
            layers, config = _LINEAR_CHOICE, {**_NO_SUMMARY, "summary_last_dropout": task.dropout}
    note = "Each choice is a pair: the context, and the choice with its question. The logits are scores of the choices."
    return TaskHead(f"{layout.family}{_CHOICE}", layout, config, _tensors(layers, weights), (note,))


def _question_answering(
    _: str, task: QuestionAnsweringConfig, weights: Mapping[str, np.ndarray], layout: Layout
) -> TaskHead:
    if task.joint_prediction or task.answerable_classifier:
        note = (
            "transformers has no class for this head: this is the encoder alone. With task.joint_prediction and "
            f"task.answerable_classifier false, fine-tuning trains the head of {layout.family}{_ANSWERS}."
        )
        return TaskHead(None, layout, notes=(note,))
    note = (
        "The logits of the question, of its [SEP] and of padding mean nothing: training left them out, and so must the "
        "choice of an answer, as pipeline('question-answering') of transformers 4 does. The span of a question without "
        "an answer is [CLS]."
    )
    return TaskHead(f"{layout.family}{_ANSWERS}", layout, {}, _head_tensors(layout, _ANSWERS, weights), (note,))


def _sentence(name: str, task: SentenceConfig, weights: Mapping[str, np.ndarray], layout: Layout) -> TaskHead:
    """The head of a model for texts. The logit of a regression is in the unit of the data, not in [0, 1]."""
    labels, scale, offset, notes = task.labels, 1.0, 0.0, []
    if task.kind == "regression":
        labels, scale, offset = (name,), task.max_value - task.min_value, task.min_value
        trained = f"{task.min_value:g} to {task.max_value:g}"
        notes.append(f"The one logit is the predicted number in the unit of the data, {trained} in training.")
    if task.kind == "multi_label":
        notes.append("A label is predicted where its logit is above 0.")
    config = {**label_entries(labels), "problem_type": _PROBLEM_TYPES[task.kind], "classifier_dropout": task.dropout}
    if task.kind in _ACTIVATIONS:
        config["sentence_transformers"] = {"activation_fn": _ACTIVATIONS[task.kind]}
    if task.head == "huggingface":
        layers = _HEADS[layout.family][_SENTENCE]
        tensors, last = _tensors(layers, weights), list(layers)[-1]
        tensors[f"{last}.weight"] = tensors[f"{last}.weight"] * scale
        tensors[f"{last}.bias"] = tensors[f"{last}.bias"] * scale + offset
    else:
        kernel, bias = weights["dense/kernel"], weights["dense/bias"]
        hidden_size, num_labels = kernel.shape
        if 2 * num_labels > hidden_size:
            note = (
                f"transformers' head of {hidden_size} hidden units cannot compute a linear layer of {num_labels} "
                "labels: this is the encoder alone. With task.head huggingface, fine-tuning trains transformers' head."
            )
            return TaskHead(None, layout, notes=(note,))
        tensors = linear_as_pairs(kernel, bias, scale, offset)
        config["classifier_dropout"] = 0.0
        notes.append(
            "The head was trained as one linear layer. The two layers of ElectraForSequenceClassification have weights "
            "that compute the same; to fine-tune further, start from the pre-trained encoder."
        )
    tensors = {name: np.ascontiguousarray(value, np.float32) for name, value in tensors.items()}
    return TaskHead(f"{layout.family}{_SENTENCE}", layout, config, tensors, tuple(notes))


def linear_as_pairs(kernel: np.ndarray, bias: np.ndarray, scale: float, offset: float) -> dict[str, np.ndarray]:
    """One linear layer as two with GELU between them. They compute scale * z + offset with z = x kernel + bias.

    The first layer computes z and -z for each label; GELU(z) - GELU(-z) = z. The other hidden units stay 0. The error
    is a few roundings of z, for any x.

    Args:
        kernel: [H, C] float32 with 2 C <= H.        bias: [C] float32.
    Returns: float32 tensors of ElectraForSequenceClassification: `classifier.dense.weight` [H, H],
        `classifier.dense.bias` [H], `classifier.out_proj.weight` [C, H], `classifier.out_proj.bias` [C].
    """
    hidden_size, num_labels = kernel.shape
    dense, dense_bias = np.zeros([hidden_size, hidden_size], np.float32), np.zeros(hidden_size, np.float32)
    out = np.zeros([num_labels, hidden_size], np.float32)
    for unit, sign in ((0, 1.0), (1, -1.0)):
        units = slice(unit, 2 * num_labels, 2)
        dense[units], dense_bias[units] = sign * kernel.T, sign * bias
        out[:, units] = sign * scale * np.eye(num_labels)
    return {
        "classifier.dense.weight": dense,
        "classifier.dense.bias": dense_bias,
        "classifier.out_proj.weight": out,
        "classifier.out_proj.bias": np.full(num_labels, offset, np.float32),
    }


def label_entries(labels: tuple[str, ...]) -> dict:
    """The entries of config.json for the names of labels. JSON has strings as keys."""
    id2label = {str(index): label for index, label in enumerate(labels)}
    return {"id2label": id2label, "label2id": {label: index for index, label in enumerate(labels)}}


_HEADS_BY_KIND: Mapping[str, Callable[..., TaskHead]] = {
    **dict.fromkeys(_PROBLEM_TYPES, _sentence),
    "tagging": _tagging,
    "question_answering": _question_answering,
    "multiple_choice": _multiple_choice,
}
