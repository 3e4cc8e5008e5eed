"""Heads of fine-tuned models: transformers' class for each, which computes our logits within derived bounds."""

import json

import numpy as np
import pytest
from scipy.special import erf

from electra_tf.tasks.finetune.kinds.sentence import linear_as_pairs
from electra_tf.weights.hugging_face.writer import hugging_face_networks, write_hugging_face
from electra_tf.weights.source import load_trained
from tests.weights.conftest import BERT, BIASES, HEADS, LABELS, MODERN, assert_same_weights, shapes_of

ROUNDING = 2.0**-24  # of a float32, relative: half the distance to the next one


def gelu(x: np.ndarray) -> np.ndarray:
    return (x * np.float32(0.5) * (np.float32(1.0) + erf(x / np.float32(np.sqrt(2.0))))).astype(np.float32)


def sequence_classification(layers, x: np.ndarray) -> np.ndarray:
    """ElectraClassificationHead of transformers, in float32."""
    hidden = gelu(x @ layers["classifier.dense.weight"].T + layers["classifier.dense.bias"])
    return hidden @ layers["classifier.out_proj.weight"].T + layers["classifier.out_proj.bias"]


def of_pairs(weights, x: np.ndarray) -> np.ndarray:
    hidden = gelu(x @ weights["hidden/kernel"] + weights["hidden/bias"])
    return hidden @ weights["dense/kernel"] + weights["dense/bias"]


@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
def test_two_layers_equal_a_linear_layer_within_its_rounding(size):
    random = np.random.default_rng(3)
    kernel, bias = (random.normal(size=shape).astype(np.float32) for shape in ([7, 3], [3]))
    x = (size * random.normal(size=[500, 7])).astype(np.float32)
    z = x @ kernel + bias
    computed = of_pairs(linear_as_pairs(kernel, bias, scale=1.0, offset=0.0), x)
    # z (1 + erf) / 2 and -z (1 - erf) / 2: two sums, two products and the last sum round; erf itself cancels. Besides,
    # the two products with 7 terms and the bias may be summed in another order than z.
    sums = 9 * ROUNDING * (np.abs(x) @ np.abs(kernel) + np.abs(bias))
    assert np.all(np.abs(computed - z) <= 5 * ROUNDING * np.abs(z) + sums)


@pytest.mark.parametrize("head", ["linear", "huggingface"])
def test_regression_gives_numbers_in_the_unit_of_the_data(stored_finetuned, head):
    model = stored_finetuned({"kind": "regression", "min_value": 1.0, "max_value": 5.0, "head": head})
    (network,) = hugging_face_networks(model)
    head_of = {name.split("/", 2)[2]: value for name, value in model.part("task_specific/").items()}
    x = np.random.default_rng(1).normal(size=[6, 16]).astype(np.float32)
    hidden = x if head == "linear" else gelu(x @ head_of["hidden/kernel"] + head_of["hidden/bias"])
    scaled = hidden @ head_of["dense/kernel"] + head_of["dense/bias"]
    assert sequence_classification(network.tensors, x) == pytest.approx(1.0 + 4.0 * scaled, abs=1e-4)
    assert network.config["problem_type"] == "regression" and network.config["id2label"] == {"0": "made_up"}
    assert all(value.dtype == np.float32 and value.flags.c_contiguous for value in network.tensors.values())


def head_shapes(family: str, ending: str, biases: dict) -> dict[str, list[int]]:
    """The tensors beside the encoder's, of BERT those of the pooler too where its class reads it."""
    rows = {"SequenceClassification": 3, "TokenClassification": 5, "QuestionAnswering": 2, "MultipleChoice": 1}[ending]
    if family == "ModernBert":
        head = {"head.dense.weight": [12, 12], "head.norm.weight": [12]}
        head |= {"head.dense.bias": [12], "head.norm.bias": [12]} if biases else {}
        return head | {"classifier.weight": [rows, 12], "classifier.bias": [rows]}
    pooler = {"bert.pooler.dense.weight": [16, 16], "bert.pooler.dense.bias": [16]}
    layer = "qa_outputs" if rows == 2 else "classifier"
    return (pooler if rows in (1, 3) else {}) | {f"{layer}.weight": [rows, 16], f"{layer}.bias": [rows]}


@pytest.mark.parametrize("ending", HEADS)
@pytest.mark.parametrize(
    ("family", "encoder", "biases"),
    [("Electra", {}, {}), ("Bert", BERT, {}), ("ModernBert", MODERN, {}), ("ModernBert", MODERN, BIASES)],
)
def test_a_fine_tuned_model_is_written_as_the_class_of_its_head_and_read_back(
    stored_finetuned, shapes_of_classes, tmp_path, family, encoder, biases, ending
):
    model = stored_finetuned(HEADS[ending] | {"head": "huggingface"}, **encoder | biases)
    (network,) = hugging_face_networks(model)
    assert network.architecture == f"{family}For{ending}"
    shapes = shapes_of(network)
    if family == "Electra":
        assert shapes == shapes_of_classes[network.architecture]
    else:
        parts = tuple(network.layout.root + part for part in ("embeddings.", "encoder.", "layers.", "final_norm."))
        head = {name: shape for name, shape in shapes.items() if not name.startswith(parts)}
        assert head == head_shapes(family, ending, biases)
    write_hugging_face(model, str(tmp_path))
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["model_max_length"] == 12  # of 13 positions
    found = load_trained(tmp_path).finished()
    assert_same_weights(found.weights, model.weights)
    has_hidden = family == "ModernBert" or ending in ("SequenceClassification", "MultipleChoice")
    expected = HEADS[ending] | {"head": "huggingface" if has_hidden else "linear"}
    settings = found.finetuned.task.model_dump()
    assert {name: settings[name] for name in expected} == expected and found.encoder == model.encoder
    assert (found.finetuned.name, found.finetuned.data.max_seq_length, found.step) == ("made_up", 12, 4)


def test_a_linear_head_is_written_as_two_layers_with_labels_and_no_dropout(stored_finetuned, shapes_of_classes):
    (network,) = hugging_face_networks(stored_finetuned({"kind": "classification", "labels": LABELS}))
    assert network.architecture == "ElectraForSequenceClassification"
    assert shapes_of(network) == shapes_of_classes[network.architecture]
    expected = {
        **{"problem_type": "single_label_classification", "classifier_dropout": 0.0},
        **{"id2label": {"0": "no", "1": "maybe", "2": "yes"}, "label2id": {"no": 0, "maybe": 1, "yes": 2}},
    }
    assert {name: network.config[name] for name in expected} == expected


ALONE = "this is the encoder alone"


@pytest.mark.parametrize(
    ("task", "encoder", "architecture", "note"),
    [
        ({"kind": "question_answering", "version_2": True, "head_size": 9}, {}, "ElectraModel", ALONE),
        # More labels than half of the 16 hidden units.
        ({"kind": "multi_label", "labels": tuple(map(str, range(9)))}, {}, "ElectraModel", ALONE),
        (HEADS["SequenceClassification"], MODERN, "ModernBertModel", f"{ALONE}. With task.head huggingface"),
        (HEADS["TokenClassification"], MODERN, "ModernBertModel", f"{ALONE}. With task.head huggingface"),
        (HEADS["SequenceClassification"], BERT, "ElectraForSequenceClassification", "BERT's class reads its pooler"),
        (HEADS["MultipleChoice"], BERT, "ElectraForMultipleChoice", "BERT's class reads its pooler"),
    ],
)
def test_a_head_that_transformers_lacks_leaves_the_encoder_and_one_that_bert_lacks_is_electras(
    stored_finetuned, tmp_path, task, encoder, architecture, note
):
    model = stored_finetuned(task, **encoder)
    (network,) = hugging_face_networks(model)
    assert network.architecture == architecture and note in network.notes[0]
    write_hugging_face(model, str(tmp_path))
    found = load_trained(tmp_path).finished()
    assert (found.finetuned is None) is architecture.endswith("Model")
    assert_same_weights(found.part("electra/"), model.part("electra/"))
