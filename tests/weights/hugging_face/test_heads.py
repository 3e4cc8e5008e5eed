"""Heads for transformers' classes compute our logits, within derived bounds."""

import numpy as np
import pytest
from scipy.special import erf

from electra_tf.tasks.finetune.kinds.sentence import linear_as_pairs
from electra_tf.weights.hugging_face.heads import noted_task
from electra_tf.weights.hugging_face.writer import hugging_face_networks

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


def test_two_layers_scale_and_shift_a_linear_layer():
    kernel, bias = np.array([[2.0], [-1.0], [0.5]], np.float32), np.array([0.25], np.float32)
    layers = linear_as_pairs(kernel, bias, scale=4.0, offset=1.0)
    x = np.array([[1.0, 0.5, -1.0], [0.0, 0.0, 0.0]], np.float32)
    assert of_pairs(layers, x) == pytest.approx(np.array([[1 + 4 * 1.25], [1 + 4 * 0.25]]), rel=1e-6)


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


def test_the_tag_scheme_is_noted(stored_finetuned):
    tagging = {"kind": "tagging", "labels": ["B-X", "I-X", "L-X", "O", "U-X"], "scheme": "bilou"}
    assert noted_task(stored_finetuned(tagging).finetuned)["scheme"] == "bilou"
