"""transformers reads our Hugging Face folders and computes our outputs, and we those of its own folders.

    python -m venv PEERS && PEERS/bin/pip install -r benchmarks/requirements-peers.txt
    ELECTRA_TF_PEERS_PYTHON=PEERS/bin/python python -m pytest -s tests/weights/hugging_face/test_peer.py

Our outputs are compared with transformers' own in float64, for every real token. Both programs compute the same
formulas in float32 and only sum in other orders, so their roundings are of one size. Hence our largest distance from
float64, relative to the largest output of the network, may be at most twice transformers' largest one among all
networks. (The ids of a folder's tokenizer are compared in test_tokenizer.py.)
"""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.data.batch import Batch
from electra_tf.models.layers import ForwardContext
from electra_tf.tasks.finetune.task import FinetuningTask
from electra_tf.weights.hugging_face.writer import hugging_face_networks, write_hugging_face
from electra_tf.weights.source import load_trained
from tests.peers import PEERS_PYTHON, needs_peers
from tests.toy import EQUAL_SIZES, VOCABULARY
from tests.weights.conftest import BERT, BIASES, HEADS, LABELS, MASKED_LM, MODERN, SHALLOW

pytestmark = [pytest.mark.slow, needs_peers]
NOT_COMPARED = -500.0  # our logits of a start or end outside the context are 1000 lower than theirs
Outputs = dict[str, np.ndarray]

OBJECTIVES = {
    "modern electra": ({"generator": SHALLOW}, MODERN),
    "modern electra, biased": ({"generator": SHALLOW}, MODERN | BIASES),
    "modern bert_mlm, biased": (MASKED_LM, MODERN | BIASES),
    "modern all_tokens_mlm": ({"name": "all_tokens_mlm", "generator": SHALLOW}, MODERN),
    "all_tokens_mlm": ({"name": "all_tokens_mlm"}, {}),
    "electra": ({}, {"num_layers": 2}),
    "electra, tying none": ({"tying": "none"}, {}),
    "electra, tying all": ({"tying": "all", "generator": EQUAL_SIZES}, {}),
    "bert_mlm": (MASKED_LM, {}),
    "bert_mlm, equal sizes": (MASKED_LM, {"embedding_size": 16}),
    "bert_mlm, BERT's family": (MASKED_LM, BERT),
}
TASKS = {
    **HEADS,
    "regression": {"kind": "regression", "min_value": 1.0, "max_value": 5.0},
    "multi_label": {"kind": "multi_label", "labels": LABELS},
}
ENCODERS = {"electra": {}, "BERT": BERT, "modern": MODERN, "modern, biased": MODERN | BIASES}
TEXTS = [["w5 w6 w7 w8 w9"], ["w6 w10", "w11 w12 w5"], ["w7"], ["w8 w40", "w41"], ["w46 w9"], ["w9 [MASK] w5 w6"]]


def answer_of(request: dict, directory: Path) -> tuple[dict[str, np.ndarray], dict]:
    """The answer of peer.py: arrays, and a report."""
    request_file, answer_file = directory / "request.json", directory / "answer.npz"
    request_file.write_text(json.dumps(request), encoding="utf-8")
    command = [PEERS_PYTHON, str(Path(__file__).with_name("peer.py")), str(request_file), str(answer_file)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(answer_file) as arrays:
        return dict(arrays), json.loads(done.stdout.strip().splitlines()[-1])


def batch_of(arrays: Mapping[str, np.ndarray]) -> Batch:
    """A batch of ours from transformers' inputs. ModernBERT has no segments."""
    ids, mask = arrays["input_ids"], arrays["attention_mask"]
    batch = {"input_ids": ids, "input_mask": mask, "segment_ids": arrays.get("token_type_ids", np.zeros_like(ids))}
    return {name: tf.constant(values, tf.int32) for name, values in batch.items()}


def outputs_of(folder: str, arrays: Mapping[str, np.ndarray]) -> Outputs:
    """Our outputs for a folder, [B, ...] by transformers' names."""
    model, batch = load_trained(folder).finished(), batch_of(arrays)
    if model.has_masked_lm_head:
        rows, length = batch["input_ids"].shape
        positions = tf.tile(tf.range(length)[tf.newaxis], [rows, 1])
        return {"logits": model.build_masked_lm()(*batch.values(), positions).logits.numpy()}
    task = model.build_task()
    if isinstance(task, FinetuningTask):
        return head_outputs(task, batch)
    if not model.has_discriminator_head:
        return {"last_hidden_state": task(batch).sequence_output.numpy()}
    logits = task.detection_logits(batch).numpy()
    if model.encoder.block == "modern":  # its folder has a logit of 0 for tokens of the text
        logits = np.stack([np.zeros_like(logits), logits], axis=-1)
    return {"logits": logits}


def head_outputs(task: FinetuningTask, batch: Batch) -> Outputs:
    settings = task.config.task
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


def relative_errors(outputs: Outputs, arrays: dict[str, np.ndarray]) -> tuple[float, float]:
    """The largest errors of our outputs and of transformers', relative to the largest output.

    Measured against transformers' float64 outputs, for real tokens, and for starts and ends within the context.
    """
    mask, errors = arrays["attention_mask"].astype(bool), []
    for key, ours in outputs.items():
        theirs, exact, compared = arrays[key], arrays[f"{key}|exact"], ours > NOT_COMPARED
        if ours.shape[:2] == mask.shape:
            compared &= mask.reshape(mask.shape + (1,) * (ours.ndim - 2))
        largest = np.abs(exact[compared]).max()
        errors.append([np.abs(each - exact)[compared].max() / largest for each in (ours, theirs)])
    return tuple(np.max(errors, axis=0))


def test_transformers_computes_our_outputs_for_every_class(stored, stored_finetuned, tmp_path):
    models, folders = {}, {}
    for name, (objective, encoder) in OBJECTIVES.items():
        models[name] = stored(objective=objective, encoder=encoder)
    for family, encoder in ENCODERS.items():
        for head in ("linear", "huggingface"):
            tasks = {f"{family}, {name}, {head}": task | {"head": head} for name, task in TASKS.items()}
            models |= {name: stored_finetuned(task, **encoder) for name, task in tasks.items()}
    for name, model in models.items():
        write_hugging_face(model, str(tmp_path / name))
        networks = [network.name for network in hugging_face_networks(model.of_authors()[0])]
        for network in networks:
            folders[f"{name}, {network}"] = str(tmp_path / name / network if len(networks) > 1 else tmp_path / name)
    answer, report = answer_of({"texts": TEXTS, "folders": folders}, tmp_path)
    errors = {}
    for name, folder in folders.items():
        arrays = {key.removeprefix(f"{name}|"): each for key, each in answer.items() if key.startswith(f"{name}|")}
        errors[name] = relative_errors(outputs_of(folder, arrays), arrays)
        print(f"{name:<54} {report[name]['class']:<33} {errors[name][0]:7.1e} {errors[name][1]:7.1e}")
    assert {name: report[name]["problems"] for name in folders if report[name]["problems"]} == {}
    limit = 2 * max(theirs for _, theirs in errors.values())
    assert {name: ours for name, (ours, _) in errors.items() if ours > limit} == {}


# Every setting away from its default; positions and kinds of layers in the forms of transformers 5 and 4.
THETAS = {"full_attention": 700.0, "sliding_attention": 20.0}
THEIRS = {
    **{"vocab_size": 47, "hidden_size": 24, "intermediate_size": 10, "num_hidden_layers": 4, "num_attention_heads": 3},
    **{"max_position_embeddings": 40, "norm_eps": 1e-3, "local_attention": 6, "initializer_range": 0.5},
    **dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), True),
    "layer_types": ["full_attention", "sliding_attention"] * 2,
    "rope_parameters": {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in THETAS.items()},
    **{"global_attn_every_n_layers": 2, "global_rope_theta": 700.0, "local_rope_theta": 20.0},
    **{"attention_dropout": 0.2, "mlp_dropout": 0.3, "embedding_dropout": 0.3, "classifier_dropout": 0.4},
    **{"pad_token_id": 0, "cls_token_id": 2, "bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3},
    **{"id2label": {0: "O", 1: "B-X", 2: "I-X"}, "label2id": {"O": 0, "B-X": 1, "I-X": 2}},
}
PLAIN = dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), False)
MADE = {
    "encoder": ("ModernBertModel", {}),
    "masked_lm": ("ModernBertForMaskedLM", {}),
    "masked_lm, plain": ("ModernBertForMaskedLM", PLAIN | {"decoder_bias": False}),
    "classification": ("ModernBertForSequenceClassification", {}),
    "tagging": ("ModernBertForTokenClassification", {}),
    "tagging, plain": ("ModernBertForTokenClassification", PLAIN),
    "question_answering": ("ModernBertForQuestionAnswering", {"id2label": {0: "a", 1: "b"}, "label2id": {}}),
}
THEIR_BERT = {
    **{name: THEIRS[name] for name in ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads")},
    **{name: THEIRS[name] for name in ("max_position_embeddings", "classifier_dropout", "id2label", "label2id")},
    **{"num_hidden_layers": 3, "layer_norm_eps": 1e-3, "type_vocab_size": 3, "initializer_range": 0.5},
}
MADE_BERT = {
    "encoder": ("BertModel", {}),
    "masked_lm": ("BertForMaskedLM", {}),
    "pre_training": ("BertForPreTraining", {}),
    "classification": ("BertForSequenceClassification", {}),
    "regression": ("BertForSequenceClassification", {"id2label": {0: "a"}, "label2id": {}}),
    "tagging": ("BertForTokenClassification", {}),
    "question_answering": ("BertForQuestionAnswering", {"id2label": {0: "a", 1: "b"}, "label2id": {}}),
    "multiple_choice": ("BertForMultipleChoice", {}),
}
CLASSES = [2, 0, 1, 1]  # of the rows


def stepped_logits(folder: str, batch: Batch) -> np.ndarray:
    """The logits [B, C] of a classifier after one step of gradient descent on its mean loss, at rate 1, no dropout."""
    task, batch = load_trained(folder).finished().build_task(), batch | {"label_ids": tf.constant(CLASSES)}
    with tf.GradientTape() as tape:
        forward = task.forward(batch, ForwardContext(training=True, dropout_enabled=False))
        loss = tf.reduce_mean(task.row_losses(batch, forward))
    variables = task.trainable_variables
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(tf.convert_to_tensor(gradient))
    return task(batch).numpy()


@pytest.mark.parametrize(("made", "config"), [(MADE, THEIRS), (MADE_BERT, THEIR_BERT)], ids=["ModernBert", "Bert"])
def test_we_compute_the_outputs_of_models_that_transformers_made(tmp_path, made, config):
    mask = (np.arange(21) < np.array([[21], [17], [9], [14]])).astype(np.int32)
    ids = np.where(mask, np.random.default_rng(3).integers(5, 47, mask.shape), 0)
    segments = np.random.default_rng(4).integers(0, 2, mask.shape)  # in ModernBERT they have no effect
    inputs = {"input_ids": ids, "attention_mask": mask} | ({"token_type_ids": segments} if made is MADE_BERT else {})
    models = {
        name: {"folder": str(tmp_path / name), "class": architecture, "config": config | changes}
        for name, (architecture, changes) in made.items()
    }
    models["classification"]["labels"] = CLASSES
    models["masked_lm"]["saving"] = {"max_shard_size": "10KB"}  # in parts
    lists = {name: values.tolist() for name, values in inputs.items()}
    arrays, _ = answer_of({"texts": [], "folders": {}, "inputs": lists, "made": models}, tmp_path)
    for name in made:
        folder = str(tmp_path / name)
        Path(folder, "vocab.txt").write_bytes(VOCABULARY)
        outputs = outputs_of(folder, inputs)
        if name == "classification":
            outputs["stepped"] = stepped_logits(folder, batch_of(inputs))
            assert np.abs(arrays[f"{name}|stepped"] - arrays[f"{name}|logits"]).max() > 1  # a step that is seen
        for key, values in outputs.items():
            theirs = arrays[f"{name}|{'prediction_logits' if name == 'pre_training' else key}"]
            compared = mask.astype(bool) if theirs.shape[:2] == mask.shape else np.ones(len(theirs), bool)
            compared = compared.reshape(compared.shape + (1,) * (theirs.ndim - compared.ndim)) & (values > NOT_COMPARED)
            largest, difference = np.abs(theirs).max(), np.abs(values - theirs)[compared].max()
            print(f"{name:<24} {key:<20} {difference:7.1e} {largest:.1f}")
            assert difference <= (1e-4 if key == "stepped" else 1e-5) * max(1.0, largest), name
