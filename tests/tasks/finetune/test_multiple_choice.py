"""Multiple choice: its files, model, metrics and predictions; the folders and training steps of transformers."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from electra_tf.models.layers import INFERENCE
from electra_tf.tasks.finetune.config import resolve
from electra_tf.tasks.finetune.examples import Examples, NewColumns
from electra_tf.tasks.finetune.kinds import KINDS, build_finetuning_task
from electra_tf.train.step import compile_task
from electra_tf.weights.hugging_face.reader import read_hugging_face
from electra_tf.weights.hugging_face.writer import hugging_face_networks
from electra_tf.weights.names import named_variables
from electra_tf.weights.stored_model import assign_weights
from tests.models.modernbert_fixture import SIZES
from tests.tasks.finetune import multiple_choice_fixture as peer
from tests.tasks.finetune.steps import CHOICE, build, choice_batch
from tests.toy import TOKENS

LOWEST = float(np.finfo(np.float32).min)
SWAG = {"sent1": "Ann sits_.", "sent2": "She", "ending0": "runs", "ending1": "sings", "ending2": "eats", "label": 2}
COPA = {"premise": "It rained.", "choice1": "Ann got wet.", "choice2": "Bo slept.", "question": "effect", "label": 0}
RACE = {"article": "Ann came.", "question": "_ came.", "options": ["Bo", "Ann"], "answer": "B"}
OWN = {"context": "Ann came.", "choices": ["She sat.", "It", "He"], "label": 1}
EFFECT, CAUSE = "What happened as a result? ", "What was the cause of this? "


def read_choices(path: str, new: NewColumns | None = None) -> Examples:
    return KINDS["multiple_choice"].read(path, None, new)


@pytest.mark.parametrize(
    ("row", "context", "choices", "label"),
    [
        (SWAG, "Ann sits_.", ["She runs", "She sings", "She eats"], 2),
        (COPA, "It rained.", [f"{EFFECT}Ann got wet.", f"{EFFECT}Bo slept."], 0),
        (COPA | {"question": "cause"}, "It rained.", [f"{CAUSE}Ann got wet.", f"{CAUSE}Bo slept."], 0),
        (RACE, "Ann came.", ["Bo came.", "Ann came."], 1),
        (RACE | {"question": "Who came?"}, "Ann came.", ["Who came? Bo", "Who came? Ann"], 1),
        (OWN, "Ann came.", ["She sat.", "It", "He"], 1),
        (OWN | {"question": "my_fn is _?", "choices": ["b", "c"]}, "Ann came.", ["my_fn is b?", "my_fn is c?"], 1),
        (OWN | {"question": "__x__ a_", "choices": ["b", "c"]}, "Ann came.", ["__x__ a_ b", "__x__ a_ c"], 1),
        (OWN | {"question": "他___走了", "choices": ["b", r"\1"]}, "Ann came.", ["他b走了", r"他\1走了"], 1),
    ],
)  # fmt: skip
def test_each_layout_gives_a_context_choices_and_the_index_of_the_right_one(write, row, context, choices, label):
    examples = read_choices(write("train.jsonl", [row]))
    assert (examples.inputs[0], examples.inputs[1], examples.labels) == ([context], [choices], [label])
    assert (examples.ids, examples.where(0)[-13:]) == (["0"], "train.jsonl:1")


@pytest.mark.parametrize("row", [SWAG | {"label": -1}, {name: OWN[name] for name in ("context", "choices")}])
def test_new_text_needs_no_labels(write, row):
    assert read_choices(write("new.jsonl", [row]), NewColumns()).labels is None


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        ([OWN, OWN | {"label": 3}], ["a.jsonl:2", "label 3", "0 to 2"]),
        ([OWN, OWN | {"label": -2}], ["a.jsonl:2", "label -2"]),
        ([OWN | {"label": "D"}], ["a.jsonl:1", "label 'D'", "letter to C"]),
        ([OWN, OWN | {"context": None}], ["a.jsonl:2", "the context None"]),
        ([OWN | {"choices": ["a", " "]}], ["a.jsonl:1", "the choices ['a', ' ']"]),
    ],
)
def test_a_mistake_in_a_file_is_reported_with_its_place(write, refusal, rows, parts):
    message = refusal(read_choices, write("a.jsonl", rows))
    assert all(part in message for part in parts), message


def test_a_row_may_lack_its_label(write):
    rows = [OWN | {"label": label} for label in (-1, 2, None, "-", "", "B", "2")]  # of CSV files the last
    assert read_choices(write("a.jsonl", rows)).labels == [None, 2, None, None, None, 1, 2]


def test_padding_choices_and_padding_tokens_change_nothing():
    task, batch, padded = build(CHOICE), choice_batch(), choice_batch(num_choices=5, length=9)
    logits, wide = (task.forward(each, INFERENCE).numpy() for each in (batch, padded))
    np.testing.assert_allclose(wide[:, :3], logits, rtol=1e-5, atol=1e-6)
    assert (wide[:, 3:] == LOWEST).all() and (logits == LOWEST).sum(axis=1).tolist() == [0, 1, 0, 2]
    losses = (task.row_losses(each, task.forward(each, INFERENCE)) for each in (batch, padded))
    np.testing.assert_allclose(*losses, rtol=1e-5)


def test_metrics_are_accuracy_and_mean_loss_and_a_row_has_each_choices_probability(data_of):
    choices = [["w9"], ["w5", "w6 w7"], ["w5", "w6", "w7"]]
    data = data_of(CHOICE, (["w5", "w6 w7", "w8"], choices), [0, 1, 2], is_train=False)
    logits = [[-9.0, LOWEST, LOWEST], [0.0, math.log(3), LOWEST], [math.log(6), 0.0, math.log(3)]]
    evaluated = data.evaluated({"logits": np.float32(logits), "loss": np.float32([0.0, 0.5, 1.0])})
    assert evaluated.metrics == pytest.approx({"accuracy": 2 / 3, "loss": 0.5})
    assert evaluated.table.decode().splitlines() == [
        "id\tlabel\tprediction\tprobability_0\tprobability_1\tprobability_2",
        "a\t0\t0\t1.000000\t\t",
        "b\t1\t1\t0.250000\t0.750000\t",
        "c\t2\t0\t0.600000\t0.100000\t0.300000",
    ]


FIXTURE = Path(__file__).parents[2] / "fixtures" / "multiple_choice.npz"
# A number added to all scores changes no loss, so the gradient of these is rounding alone, up to 1e-7. AdamW divides it
# by its own size plus 1e-6: in five steps of at most 3e-3 each, 1e-3 at most.
WITHOUT_GRADIENT = {case: ("classifier.bias", "attention.self.key.bias") for case in peer.CASES}
WITHOUT_GRADIENT["electra linear"] += (f".{peer.NUM_LAYERS - 1}.output.LayerNorm.bias",)
OPTIMIZER = {"learning_rate": peer.RATE, "layerwise_decay": 1.0, "clip_norm": peer.CLIP_NORM}
OPTIMIZER |= {"warmup_steps": peer.WARMUP_STEPS, "warmup_fraction": 0.0, "weight_decay_rate": peer.DECAY}
TRAINING = {
    "encoder": {"hidden_dropout": 0.0, "attention_dropout": 0.0},
    "optimizer": OPTIMIZER,
    "train": {"batch_size": peer.NUM_EXAMPLES, "num_steps": peer.PLANNED_STEPS, "fused_ops": False},
}


@pytest.fixture(scope="module")
def expected() -> dict[str, np.ndarray]:
    """What the fixture's script wrote."""
    with np.load(FIXTURE) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def folder_of(expected, tmp_path_factory):
    """`folder_of("electra")`: the folder that transformers would write before the first step, as a stored model."""

    def from_folder(case: str):
        place = tmp_path_factory.mktemp("folder")
        (place / "config.json").write_text(str(expected[f"{case}|config"]))
        names = [name.split("|")[2] for name in expected if name.startswith(f"{case}|weight|")]
        shapes = {name: expected[f"{case}|weight|{name}"].shape for name in names}
        tensors = {name: peer.initial_weight(case, name, shape) for name, shape in shapes.items()}
        (place / "vocab.txt").write_text("\n".join(TOKENS[: SIZES["vocab_size"]]))
        safetensors.numpy.save_file(tensors, place / "model.safetensors")
        model = read_hugging_face(str(place))
        assert not [note for note in model.notes if "not read" in note]
        return model, tensors

    return from_folder


def task_of(model):
    """A compiled task with the model's weights, without dropout."""
    task_settings = model.finetuned.task.model_dump() | {"dropout": 0.0}
    names = {"name": "multiple_choice", "task": task_settings, "encoder": model.encoder, "init_from": None}
    sizes = {"num_epochs": 1, "max_seq_length": peer.NUM_TOKENS, "num_rows": 1}
    task = compile_task(build_finetuning_task(resolve(TRAINING, "the test", **names, **sizes)))
    assign_weights("the test", model.weights, named_variables(task))
    return task


def step_batches() -> list[dict[str, tf.Tensor]]:
    rows = {"row_weights": tf.ones(peer.NUM_EXAMPLES), "row_index": tf.range(peer.NUM_EXAMPLES)}
    return [tf.nest.map_structure(lambda values: tf.constant(values, tf.int32), each) | rows for each in peer.batches()]


@pytest.mark.parametrize("case", peer.CASES)
def test_a_folder_is_read_with_its_head_and_gives_transformers_logits(folder_of, expected, case):
    model, tensors = folder_of(case)
    settings = model.finetuned.task
    head = "linear" if "linear" in case else "huggingface"
    config = json.loads(str(expected[f"{case}|config"]))
    rate = config.get("summary_last_dropout", 0.0)
    assert (settings.kind, settings.head, settings.dropout) == ("multiple_choice", head, rate)
    logits = task_of(model).forward(step_batches()[0], INFERENCE)
    np.testing.assert_allclose(logits, expected[f"{case}|logits"], atol=1e-5)
    (network,) = hugging_face_networks(model)
    assert network.tensors.keys() == tensors.keys()
    assert [name for name in tensors if not np.array_equal(network.tensors[name], tensors[name])] == []
    assert [network.architecture] == config["architectures"]


@pytest.mark.parametrize("case", ["electra", *(pytest.param(case, marks=pytest.mark.slow) for case in peer.CASES[1:])])
def test_losses_and_weights_of_six_steps_are_those_of_pytorch(folder_of, expected, case):
    model, tensors = folder_of(case)
    task = task_of(model)
    losses = [float(task.train_step(batch)["loss"]) for batch in step_batches()]
    np.testing.assert_allclose(losses, expected[f"{case}|losses"], rtol=1e-5)
    weights = {name: variable.numpy() for name, variable in named_variables(task).items()}
    (network,) = hugging_face_networks(dataclasses.replace(model, weights=weights))
    for name in tensors:
        tolerance = 1e-3 if name.endswith(WITHOUT_GRADIENT[case]) else 1e-5
        after = expected[f"{case}|weight|{name}"]
        np.testing.assert_allclose(network.tensors[name], after, rtol=0, atol=tolerance, err_msg=name)
