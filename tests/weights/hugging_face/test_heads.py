"""Heads for transformers' classes: what their arithmetic gives is what ours gives, within derived bounds."""

import numpy as np
import pytest
from scipy.special import erf

from electra_tf.weights.hugging_face.heads import linear_as_pairs, linear_as_shift
from electra_tf.weights.hugging_face.writer import hugging_face_networks

ROUNDING = 2.0**-24  # of a float32, relative: half the distance to the next one


def gelu(x: np.ndarray) -> np.ndarray:
    return (x * np.float32(0.5) * (np.float32(1.0) + erf(x / np.float32(np.sqrt(2.0))))).astype(np.float32)


def sequence_classification(layers, x: np.ndarray) -> np.ndarray:
    """ElectraClassificationHead of transformers, in float32."""
    hidden = gelu(x @ layers["dense.weight"].T.astype(np.float32) + layers["dense.bias"].astype(np.float32))
    return hidden @ layers["out_proj.weight"].T.astype(np.float32) + layers["out_proj.bias"].astype(np.float32)


@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
def test_pairs_give_a_product_within_its_rounding_whatever_its_size(size):
    random = np.random.default_rng(3)
    kernel, bias = (random.normal(size=shape).astype(np.float32) for shape in ([7, 3], [3]))
    x = (size * random.normal(size=[500, 7])).astype(np.float32)
    z = x @ kernel + bias
    found = sequence_classification(linear_as_pairs(kernel, bias, scale=1.0, offset=0.0), x)
    # z (1 + erf) / 2 and -z (1 - erf) / 2: two sums, two products and the last sum round; erf itself cancels. Besides,
    # the two products with 7 terms and the bias may be summed in another order than z.
    sums = 9 * ROUNDING * (np.abs(x) @ np.abs(kernel) + np.abs(bias))
    assert np.all(np.abs(found - z) <= 5 * ROUNDING * np.abs(z) + sums)


def test_pairs_scale_and_move_a_product():
    kernel, bias = np.array([[2.0], [-1.0], [0.5]], np.float32), np.array([0.25], np.float32)
    layers = linear_as_pairs(kernel, bias, scale=4.0, offset=1.0)
    x = np.array([[1.0, 0.5, -1.0], [0.0, 0.0, 0.0]], np.float32)
    assert sequence_classification(layers, x) == pytest.approx(np.array([[1 + 4 * 1.25], [1 + 4 * 0.25]]), rel=1e-6)


def test_a_shift_gives_a_product_for_more_labels_than_pairs_have_room_for():
    random = np.random.default_rng(5)
    kernel, bias = (random.normal(size=shape).astype(np.float32) for shape in ([7, 11], [11]))
    x = random.uniform(-4.0, 4.0, [500, 7]).astype(np.float32)
    found = sequence_classification(linear_as_shift(kernel, bias, np.full(7, 4.0, np.float32)), x)
    # x + c is at most 14 and rounds twice; so does each of 7 summands of up to 14 times the kernel, and the bias.
    bound = (2 + 8) * ROUNDING * 14.0 * np.abs(kernel).sum(axis=0)
    assert np.all(np.abs(found - (x @ kernel + bias)) <= bound + 8 * ROUNDING * np.abs(bias))


@pytest.mark.parametrize("head", ["linear", "huggingface"])
def test_regression_gives_numbers_in_the_unit_of_the_data(stored_finetuned, head):
    model = stored_finetuned({"kind": "regression", "min_value": 1.0, "max_value": 5.0, "head": head})
    (network,) = hugging_face_networks(model)
    head_of = {name.split("/", 2)[2]: value for name, value in model.part("task_specific/").items()}
    x = np.random.default_rng(1).normal(size=[6, 16]).astype(np.float32)
    hidden = x if head == "linear" else gelu(x @ head_of["hidden/kernel"] + head_of["hidden/bias"])
    scaled = hidden @ head_of["dense/kernel"] + head_of["dense/bias"]
    layers = {
        name.removeprefix("classifier."): value
        for name, value in network.tensors.items()
        if name.startswith("classifier.")
    }
    assert sequence_classification(layers, x) == pytest.approx(1.0 + 4.0 * scaled, abs=1e-4)
    assert network.config["problem_type"] == "regression" and network.config["id2label"] == {"0": "made_up"}
    assert all(value.dtype == np.float32 and value.flags.c_contiguous for value in network.tensors.values())


def test_many_labels_are_exact_where_the_encoders_output_cannot_be_larger(stored_finetuned):
    model = stored_finetuned({"kind": "multi_label", "labels": [f"{index}" for index in range(9)]})  # 2 * 9 > 16
    (network,) = hugging_face_networks(model)
    scope = "electra/encoder/layer_0/output/LayerNorm"
    largest = np.abs(model.weights[f"{scope}/gamma"]) * np.sqrt(15.0) + np.abs(model.weights[f"{scope}/beta"])
    assert np.all(network.tensors["classifier.dense.bias"] - largest >= 6.0)
