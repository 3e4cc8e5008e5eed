"""The models that test_peer.py compares: each as a StoredModel, with the outputs of our own code."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from electra_tf.config.networks import EncoderConfig
from electra_tf.data.batch import Batch
from electra_tf.models.encoder import build_encoder
from electra_tf.models.generators import TransformerGenerator
from electra_tf.models.layers import INFERENCE, ForwardContext
from electra_tf.tasks.finetune.config import FinetuningConfig, resolve
from electra_tf.tasks.finetune.kinds import build_finetuning_task
from electra_tf.tasks.finetune.task import FinetuningTask
from electra_tf.tasks.pretrain import Objective, build_objective
from electra_tf.tasks.pretrain.bert_mlm import BertMlm
from electra_tf.tasks.pretrain.config import load_config, parse_config
from electra_tf.tasks.pretrain.electra import Electra
from electra_tf.text.vocabulary import StoredTokenizer, Vocabulary
from electra_tf.text.wordpiece import BertTokenizer
from electra_tf.weights.names import named_variables
from electra_tf.weights.source import load_trained
from electra_tf.weights.stored_model import StoredModel, assign_weights
from tests.toy import EQUAL_SIZES, randomize
from tests.weights.conftest import BIASES, MODERN, SHALLOW

Outputs = dict[str, np.ndarray]
PROJECT = Path(__file__).resolve().parents[3]
VOCAB_FILE = PROJECT / "sample" / "vocab.txt"

_TINY = {
    "embedding_size": 12,
    "hidden_size": 16,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 131,
}
_TINY_GENERATOR = {"size_fraction": 0.375, "num_heads": 3, "intermediate_size": 14}
_LABELS = ("entailment", "neutral", "contradiction")
_PLAIN_ANSWERS = {"joint_prediction": False, "answerable_classifier": False}
HEADS: dict[str, dict] = {
    "classification": {"kind": "classification", "labels": _LABELS},
    "classification, Hugging Face's head": {"kind": "classification", "labels": _LABELS, "head": "huggingface"},
    "regression": {"kind": "regression", "min_value": 1.0, "max_value": 5.0},
    "regression, Hugging Face's head": {"kind": "regression", "max_value": 5.0, "head": "huggingface"},
    "multi_label": {"kind": "multi_label", "labels": ("a", "b", "c", "d")},
    "tagging": {"kind": "tagging", "labels": ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")},
    "question_answering": {"kind": "question_answering", "version_2": True, **_PLAIN_ANSWERS},
    "question_answering, joint": {"kind": "question_answering", "version_2": True},
    "multiple_choice": {"kind": "multiple_choice"},
    "multiple_choice, Hugging Face's head": {"kind": "multiple_choice", "head": "huggingface"},
}
_HUGGING_FACE = {"head": "huggingface"}
MODERN_HEADS: dict[str, dict] = {
    "classification, linear": {"kind": "classification", "labels": _LABELS},
    "classification": {"kind": "classification", "labels": _LABELS, **_HUGGING_FACE},
    "regression": {"kind": "regression", "min_value": 1.0, "max_value": 5.0, **_HUGGING_FACE},
    "tagging": {"kind": "tagging", "labels": ("O", "B-PER", "I-PER", "B-LOC", "I-LOC"), **_HUGGING_FACE},
    "question_answering": {"kind": "question_answering", "version_2": True, **_PLAIN_ANSWERS, **_HUGGING_FACE},
    "multiple_choice": {"kind": "multiple_choice", **_HUGGING_FACE},
}


@dataclass(frozen=True)
class Case:
    """A model, and functions that compute our outputs.

    Attributes:
        outputs: for the name of each network (see `electra_tf.weights.hugging_face.writer`) a function of a batch. It
            gives arrays, [B, ...], by the names of transformers' outputs.
    """

    name: str
    model: StoredModel
    outputs: Mapping[str, Callable[[Batch], Outputs]]


def built_cases(size: str) -> Iterator[Case]:
    """Models with random weights, `tiny` or `small`: each objective that transformers has, and each head.

    With the modern block the tiny sizes are those of the other tests, and the small ones have its default settings.
    """
    vocabulary = Vocabulary.load(VOCAB_FILE)
    tokenizer = StoredTokenizer(vocabulary.content)
    overrides = [f"encoder.vocab_size={vocabulary.size}"]
    if size == "tiny":
        overrides += [f"encoder.{name}={value}" for name, value in _TINY.items()]
        overrides += [f"objective.generator.{name}={value}" for name, value in _TINY_GENERATOR.items()]
    config = load_config(PROJECT / "configs" / "pretrain" / "small.yaml", overrides)
    for seed, (name, changes) in enumerate(_objectives(config, size).items()):
        objective = build_objective(parse_config({**config.model_dump(mode="json"), **changes}, name))
        weights = randomize(named_variables(objective), seed)
        settings = objective.config.objective
        generator = settings.generator_encoder(objective.config) if isinstance(objective, Electra) else None
        model = StoredModel(name, objective.config.encoder, generator, weights, tokenizer, objective=settings.name)
        yield Case(f"{size}, {name}", model, pretrained_outputs(objective))
    modern = _modern(config.encoder, size)
    heads = [(name, config.encoder, settings) for name, settings in HEADS.items()]
    heads += [(f"modern, {name}", modern, settings) for name, settings in MODERN_HEADS.items()]
    heads += [("modern, biased tagging", modern.model_copy(update=BIASES), MODERN_HEADS["tagging"])]
    bert = config.encoder.model_copy(update={"embedding_size": config.encoder.hidden_size, "family": "bert"})
    heads += [(f"BERT, {name}", bert, settings) for name, settings in HEADS.items() if "joint" not in name]
    for seed, (name, encoder, settings) in enumerate(heads):
        task = build_finetuning_task(_finetuning_config(encoder, settings))
        weights = randomize(named_variables(task), seed)
        model = StoredModel(name, encoder, None, weights, tokenizer, finetuned=task.config)
        yield Case(f"{size}, {name}", model, _finetuned_outputs(task))


def _modern(encoder: EncoderConfig, size: str) -> EncoderConfig:
    settings = MODERN if size == "tiny" else {"block": "modern", "embedding_size": encoder.hidden_size}
    return EncoderConfig.model_validate({**encoder.model_dump(), **settings})


def outputs_of_folder(folder: str, batch: Mapping[str, np.ndarray]) -> Outputs:
    """Our outputs for a Hugging Face folder of an encoder, a masked language model or a fine-tuned model."""
    model = load_trained(folder).finished()
    batch = {name: tf.constant(values, tf.int32) for name, values in batch.items()}
    if model.finetuned:
        task = build_finetuning_task(model.finetuned)
        assign_weights(folder, model.weights, named_variables(task))
        return _finetuned_outputs(task)["finetuned"](batch)
    if not model.has_masked_lm_head:
        encoder = build_encoder(model.encoder, "float32")
        tensors = {name: batch[name] for name in ("input_mask", "segment_ids")}
        encoder(batch["input_ids"], **tensors)  # creates the variables
        model.assign_encoder(encoder)
        return {"last_hidden_state": encoder(batch["input_ids"], **tensors).sequence_output.numpy()}
    values = load_config(PROJECT / "configs" / "pretrain" / "small.yaml").model_dump(mode="json")
    values |= {"objective": {"name": "bert_mlm"}, "encoder": model.encoder.model_dump(mode="json")}
    values["data"]["max_seq_length"] = batch["input_ids"].shape[1]
    objective = build_objective(parse_config(values, folder))
    assign_weights(folder, model.weights, named_variables(objective))
    return _masked_lm_logits(objective.masked_lm, batch)


def stepped_logits(folder: str, batch: Mapping[str, np.ndarray], classes: Sequence[int]) -> np.ndarray:
    """The logits [B, C] of a classifier after one step of gradient descent on its mean loss, at rate 1, no dropout."""
    model = load_trained(folder).finished()
    task = build_finetuning_task(model.finetuned)
    assign_weights(folder, model.weights, named_variables(task))
    tensors = {name: tf.constant(values, tf.int32) for name, values in batch.items()}
    tensors["label_ids"] = tf.constant(classes, tf.int32)
    with tf.GradientTape() as tape:
        forward = task.forward(tensors, ForwardContext(training=True, dropout_enabled=False))
        loss = tf.reduce_mean(task.row_losses(tensors, forward))
    variables = task.trainable_variables
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(tf.convert_to_tensor(gradient))
    return task(tensors).numpy()


def pretrained_outputs(objective: Objective) -> dict[str, Callable[[Batch], Outputs]]:
    outputs = {"encoder": lambda batch: {"last_hidden_state": objective(batch).sequence_output.numpy()}}
    if isinstance(objective, Electra):
        outputs["discriminator"] = lambda batch: {"logits": _detection_logits(objective, batch)}
        outputs["generator"] = lambda batch: _masked_lm_logits(objective.generator, batch)
    elif isinstance(objective, BertMlm):
        outputs |= {"generator": lambda batch: _masked_lm_logits(objective.masked_lm, batch)}
    return outputs


def _detection_logits(objective: Electra, batch: Batch) -> np.ndarray:
    """[B, S] float32, or [B, S, 2] with the modern block, whose folder has a logit of 0 for tokens of the text."""
    logits = objective.detection_logits(batch).numpy()
    if objective.config.encoder.block == "bert":
        return logits
    return np.stack([np.zeros_like(logits), logits], axis=-1)


def _finetuned_outputs(task: FinetuningTask) -> dict[str, Callable[[Batch], Outputs]]:
    settings = task.config.task

    def head(batch: Batch) -> Outputs:
        if settings.kind == "multiple_choice":  # two rows after each other are choices
            batch = {name: tf.reshape(values, [-1, 2, values.shape[1]]) for name, values in batch.items()}
        forward = task(batch)
        if settings.kind == "question_answering":
            predictions = task.outputs(batch, forward)
            return {name: predictions[name].numpy() for name in ("start_logits", "end_logits")}
        logits = forward.numpy()
        if settings.kind == "regression":
            logits = settings.min_value + logits * (settings.max_value - settings.min_value)
        return {"logits": logits}

    def encoder(batch: Batch) -> Outputs:
        return {"last_hidden_state": task.encode(batch, INFERENCE).sequence_output.numpy()}

    return {"finetuned": head, "encoder": encoder}


def batch_of(texts: Sequence[Sequence[str]], tokenizer: BertTokenizer) -> Batch:
    """One text or two a row, with [CLS] and [SEP], padded to the longest. `[MASK]` in a text is that token."""
    vocabulary, rows = tokenizer.vocabulary, []
    for row in texts:
        ids, segments = [vocabulary.cls_id], [0]
        for segment, text in enumerate(row):
            parts = tokenizer.tokenize(tf.constant(text.split("[MASK]"))).to_list()
            pieces = [piece for part in parts for piece in (vocabulary.mask_id, *part)][1:] + [vocabulary.sep_id]
            ids, segments = ids + pieces, segments + [segment] * len(pieces)
        rows.append((ids, [1] * len(ids), segments))
    longest = max(len(ids) for ids, _, _ in rows)
    columns = zip(*rows, strict=True)
    names = ("input_ids", "input_mask", "segment_ids")
    return {
        name: tf.constant([values + [0] * (longest - len(values)) for values in column], tf.int32)
        for name, column in zip(names, columns, strict=True)
    }


def _objectives(config, size: str) -> dict[str, dict]:
    """By name, the groups of the configuration that another objective changes."""
    electra = config.objective.model_dump(mode="json")
    equal = electra["generator"] | EQUAL_SIZES
    wide = {**config.encoder.model_dump(mode="json"), "embedding_size": config.encoder.hidden_size}
    modern = _modern(config.encoder, size).model_dump(mode="json")
    shallow = {"name": "electra", "generator": SHALLOW}
    return {
        "modern electra": {"objective": shallow, "encoder": modern},
        "modern electra, biased": {"objective": shallow, "encoder": modern | BIASES},
        "modern bert_mlm, biased": {"objective": {"name": "bert_mlm"}, "encoder": modern | BIASES},
        "modern all_tokens_mlm, encoder": {"objective": shallow | {"name": "all_tokens_mlm"}, "encoder": modern},
        "electra": {},
        "electra, tying none": {"objective": {**electra, "tying": "none"}},
        "electra, tying all": {"objective": {**electra, "tying": "all", "generator": equal}},
        "bert_mlm": {"objective": {"name": "bert_mlm"}},
        "bert_mlm, equal sizes": {"objective": {"name": "bert_mlm"}, "encoder": wide},
        "bert_mlm, BERT's family": {"objective": {"name": "bert_mlm"}, "encoder": wide | {"family": "bert"}},
    }


def _finetuning_config(encoder: EncoderConfig, task: dict) -> FinetuningConfig:
    sizes = {"num_epochs": 1, "max_seq_length": encoder.max_position_embeddings, "num_rows": 1}
    return resolve({}, "interop", name=task["kind"], task=task, encoder=encoder, init_from=None, **sizes)


def _masked_lm_logits(generator: TransformerGenerator, batch: Batch) -> Outputs:
    rows, length = batch["input_ids"].shape
    positions = tf.tile(tf.range(length)[tf.newaxis], [rows, 1])
    tensors = [batch[name] for name in ("input_ids", "input_mask", "segment_ids")]
    return {"logits": generator(*tensors, positions).logits.numpy()}
