"""The heads of transformers' ModernBERT classes, for fine-tuning the modern block."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.models.layers import INFERENCE
from electra_tf.tasks.finetune.kinds import build_finetuning_task
from tests.tasks.finetune.steps import CLASSES
from tests.tasks.finetune.test_models import gelu, headed, set_weights
from tests.toy import toy_finetuning_config

MODERN = {"block": "modern", "layer_norm_epsilon": 0.25}


def modern_head(x: np.ndarray) -> np.ndarray:
    """GELU and LayerNorm with weight [2, 1], for vectors of two numbers after a dense layer [[1, 0], [2, 1]]."""
    values = gelu(x @ np.array([[1.0, 0.0], [2.0, 1.0]]))
    values = values - values.mean(axis=-1, keepdims=True)
    return values / np.sqrt((values**2).mean(axis=-1, keepdims=True) + 0.25) * [2.0, 1.0]


@pytest.mark.parametrize(
    "kind", [{**CLASSES, "labels": ("a", "b")}, {"kind": "tagging", "labels": ("O", "X")}], ids=["texts", "tagging"]
)
def test_the_huggingface_head_on_the_modern_block_has_a_layer_norm_and_no_first_bias(kind):
    hidden = [[[1.0, -2.0], [0.5, 3.0], [-1.0, 0.0]]]
    task, batch = headed({**kind, "head": "huggingface"}, hidden, **MODERN)
    task.forward(batch, INFERENCE)
    assert task.hidden_layer.bias is None and task.hidden_norm.beta is None
    task.hidden_layer.kernel.assign([[1, 0], [2, 1]])
    task.hidden_norm.gamma.assign([2, 1])
    set_weights(task.output_layer, [[1, 0], [0, 1]], [0, 4])
    expected = modern_head(np.array(hidden[0])) + [0, 4]
    expected = expected[0] if kind["kind"] == "classification" else expected
    assert task.forward(batch, INFERENCE).numpy()[0] == pytest.approx(expected, abs=1e-6)


def test_answers_have_that_head_too_and_every_bias_where_the_encoder_has_them():
    answers = {"kind": "question_answering", "version_2": True, "head": "huggingface"}
    with pytest.raises(UserError, match="needs joint_prediction: false and answerable_classifier: false"):
        toy_finetuning_config(answers)
    answers |= {"joint_prediction": False, "answerable_classifier": False}
    biases = {"norm_bias": True, "classifier_bias": True}
    task, batch = headed(answers, [[[1.0, -2.0], [0.5, 3.0]]], **MODERN, **biases)
    batch |= {"input_mask": tf.ones([1, 2], tf.int32), "segment_ids": tf.ones([1, 2], tf.int32)}
    task.outputs(batch, task.forward(batch, INFERENCE))
    set_weights(task.hidden_layer, [[1, 0], [2, 1]], [0, 0])
    task.hidden_norm.gamma.assign([2, 1])
    task.hidden_norm.beta.assign([0, 5])
    for layer, kernel in ((task.start_layer, [[1], [0]]), (task.end_layer, [[0], [1]])):
        set_weights(layer, kernel, [0.5])
    predictions = task.outputs(batch, task.forward(batch, INFERENCE))
    expected = modern_head(np.array([[1.0, -2.0], [0.5, 3.0]])) + [0, 5] + 0.5
    assert predictions["start_logits"].numpy()[0] == pytest.approx(expected[:, 0], abs=1e-6)
    assert predictions["end_logits"].numpy()[0] == pytest.approx(expected[:, 1], abs=1e-6)


def test_the_last_norm_of_the_modern_block_has_the_rate_of_the_top_layer():
    sizes = {"num_layers": 2, "num_heads": 2} | MODERN
    config = toy_finetuning_config(CLASSES, encoder=sizes, optimizer={"layerwise_decay": 0.5})
    task = build_finetuning_task(config)
    rates = {v.path.split("/")[1]: task.learning_rate_multiplier(v) for v in task.encoder.trainable_variables}
    assert rates == {"embeddings": 0.0625, "embeddings_project": 0.0625, "layer_0": 0.125, "layer_1": 0.25,
                     "final_LayerNorm": 0.25}  # fmt: skip
