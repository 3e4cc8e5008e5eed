"""Folders of transformers' classes for multiple choice: read, trained for six steps, written back, as in PyTorch."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from electra_tf.models.layers import INFERENCE
from electra_tf.tasks.finetune.config import resolve
from electra_tf.tasks.finetune.kinds import build_finetuning_task
from electra_tf.train.step import compile_task
from electra_tf.weights.hugging_face.reader import read_hugging_face
from electra_tf.weights.hugging_face.writer import hugging_face_networks
from electra_tf.weights.names import named_variables
from electra_tf.weights.stored_model import assign_weights
from tests.models.modernbert_fixture import SIZES
from tests.tasks.finetune import multiple_choice_fixture as peer
from tests.toy import TOKENS

FIXTURE = Path(__file__).parents[2] / "fixtures" / "multiple_choice.npz"
LOSS_TOLERANCE, WEIGHT_TOLERANCE = 1e-5, 1e-5
# A number added to all scores changes no loss, so the gradient of these is rounding alone, up to 1e-7. AdamW divides it
# by its own size plus 1e-6: in five steps of at most 3e-3 each, 1e-3 at most.
WITHOUT_GRADIENT = {case: ("classifier.bias", "attention.self.key.bias") for case in peer.CASES}
WITHOUT_GRADIENT["electra linear"] += (f".{peer.NUM_LAYERS - 1}.output.LayerNorm.bias",)
SETTINGS = {
    "encoder": {"hidden_dropout": 0.0, "attention_dropout": 0.0},
    "optimizer": {
        "learning_rate": peer.RATE,
        "layerwise_decay": 1.0,
        "warmup_steps": peer.WARMUP_STEPS,
        "warmup_fraction": 0.0,
        "weight_decay_rate": peer.DECAY,
        "clip_norm": peer.CLIP_NORM,
    },
    "train": {"batch_size": peer.NUM_EXAMPLES, "num_steps": peer.PLANNED_STEPS, "fused_ops": False},
}


@pytest.fixture(scope="module")
def expected() -> dict[str, dict[str, np.ndarray]]:
    """By case, what the fixture's script wrote."""
    with np.load(FIXTURE) as arrays:
        return {
            case: {name.removeprefix(f"{case}|"): arrays[name] for name in arrays if name.startswith(f"{case}|")}
            for case in peer.CASES
        }


@pytest.fixture(scope="module")
def read(expected, tmp_path_factory):
    """`read("electra")`: the folder that transformers would write before the first step, as a stored model."""

    def from_folder(case: str):
        place = tmp_path_factory.mktemp("folder")
        (place / "config.json").write_text(str(expected[case]["config"]))
        shapes = {n.removeprefix("weight|"): e.shape for n, e in expected[case].items() if n.startswith("weight|")}
        tensors = {name: peer.initial_weight(case, name, shape) for name, shape in shapes.items()}
        (place / "vocab.txt").write_text("\n".join(TOKENS[: SIZES["vocab_size"]]))
        safetensors.numpy.save_file(tensors, place / "model.safetensors")
        model = read_hugging_face(str(place))
        notes = list(model.notes)
        assert not [note for note in notes if "not read" in note]
        return model, tensors

    return from_folder


def task_of(model):
    """A compiled task with the model's weights, without dropout."""
    task_settings = model.finetuned.task.model_dump() | {"dropout": 0.0}
    names = {"name": "multiple_choice", "task": task_settings, "encoder": model.encoder, "init_from": None}
    sizes = {"num_epochs": 1, "max_seq_length": peer.NUM_TOKENS, "num_rows": 1}
    task = compile_task(build_finetuning_task(resolve(SETTINGS, "the test", **names, **sizes)))
    assign_weights("the test", model.weights, named_variables(task))
    return task


def batches() -> list[dict[str, tf.Tensor]]:
    rows = {"row_weights": tf.ones(peer.NUM_EXAMPLES), "row_index": tf.range(peer.NUM_EXAMPLES)}
    return [{name: tf.constant(values, tf.int32) for name, values in batch.items()} | rows for batch in peer.batches()]


@pytest.mark.parametrize("case", peer.CASES)
def test_a_folder_is_read_with_its_head_and_gives_transformers_logits(read, expected, case):
    model, tensors = read(case)
    settings = model.finetuned.task
    head = "linear" if "linear" in case else "huggingface"
    rate = json.loads(str(expected[case]["config"])).get("summary_last_dropout", 0.0)
    assert (settings.kind, settings.head, settings.dropout) == ("multiple_choice", head, rate)
    logits = task_of(model).forward(batches()[0], INFERENCE)
    np.testing.assert_allclose(logits, expected[case]["logits"], atol=1e-5)
    (network,) = hugging_face_networks(model)
    assert network.tensors.keys() == tensors.keys()
    assert [name for name in tensors if not np.array_equal(network.tensors[name], tensors[name])] == []
    assert [network.architecture] == json.loads(str(expected[case]["config"]))["architectures"]


# Only the first in the default tests, to save time.
@pytest.mark.parametrize(
    "case", [case if case == "electra" else pytest.param(case, marks=pytest.mark.slow) for case in peer.CASES]
)
def test_losses_and_weights_of_six_steps_are_those_of_pytorch(read, expected, case):
    model, tensors = read(case)
    task = task_of(model)
    losses = [float(task.train_step(batch)["loss"]) for batch in batches()]
    np.testing.assert_allclose(losses, expected[case]["losses"], rtol=LOSS_TOLERANCE)
    weights = {name: variable.numpy() for name, variable in named_variables(task).items()}
    trained = dataclasses.replace(model, weights=weights)
    (network,) = hugging_face_networks(trained)
    for name in tensors:
        tolerance = 1e-3 if name.endswith(WITHOUT_GRADIENT[case]) else WEIGHT_TOLERANCE
        after = expected[case][f"weight|{name}"]
        np.testing.assert_allclose(network.tensors[name], after, rtol=0, atol=tolerance, err_msg=name)
