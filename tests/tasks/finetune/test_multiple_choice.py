"""Multiple choice: its files, the model, its metrics and predictions."""

import json
import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.layers import INFERENCE
from electra_tf.tasks.finetune.examples import Examples, NewColumns
from electra_tf.tasks.finetune.kinds import KINDS
from tests.tasks.finetune.steps import CHOICE, build, choice_batch

LOWEST = float(np.finfo(np.float32).min)
SWAG = {"sent1": "Ann sits_.", "sent2": "She", "ending0": "runs", "ending1": "sings", "ending2": "eats", "label": 2}
COPA = {"premise": "It rained.", "choice1": "Ann got wet.", "choice2": "Bo slept.", "question": "effect", "label": 0}
RACE = {"article": "Ann came.", "question": "_ came.", "options": ["Bo", "Ann"], "answer": "B"}
OWN = {"context": "Ann came.", "choices": ["She sat.", "It", "He"], "label": 1}
EFFECT, CAUSE = "What happened as a result? ", "What was the cause of this? "


def read_choices(path: str, new: NewColumns | None = None) -> Examples:
    return KINDS["multiple_choice"].read(path, None, new)


def lines(*objects: dict) -> str:
    return "".join(f"{json.dumps(each)}\n" for each in objects)


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
    examples = read_choices(write("train.jsonl", lines(row)))
    assert (examples.inputs[0], examples.inputs[1], examples.labels) == ([context], [choices], [label])
    assert (examples.ids, examples.where(0)[-13:]) == (["0"], "train.jsonl:1")


def test_swag_is_read_from_csv_and_parquet_alike(write, write_parquet):
    content = f"{','.join(SWAG)}\n{','.join(map(str, SWAG.values()))}\n"
    of_csv = read_choices(write("swag.csv", content))
    columns = {name: [value] for name, value in SWAG.items()}
    of_parquet = read_choices(write_parquet("swag.parquet", columns, ("0", "1", "2")))
    assert (of_csv.inputs, of_csv.labels) == (of_parquet.inputs, of_parquet.labels)


@pytest.mark.parametrize("row", [SWAG | {"label": -1}, {name: OWN[name] for name in ("context", "choices")}])
def test_new_text_needs_no_labels(write, row):
    assert read_choices(write("new.jsonl", lines(row)), NewColumns()).labels is None


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
    message = refusal(read_choices, write("a.jsonl", lines(*rows)))
    assert all(part in message for part in parts), message


def test_a_row_may_lack_its_label(write):
    rows = [OWN | {"label": label} for label in (-1, 2, None, "-", "", "B")]
    assert read_choices(write("a.jsonl", lines(*rows))).labels == [None, 2, None, None, None, 1]


@pytest.fixture(scope="module", params=[{}, {"block": "modern"}], ids=["bert", "modern"])
def task(request):
    head = "huggingface" if request.param else "linear"
    return build(CHOICE | {"head": head}, encoder=request.param)


def test_permuted_choices_have_permuted_logits(task):
    batch, order = choice_batch(), [2, 0, 1]
    permuted = {name: tf.gather(values, order, axis=1) if len(values.shape) == 3 else values
                for name, values in batch.items()}  # fmt: skip
    expected = task.forward(batch, INFERENCE).numpy()[:, order]
    np.testing.assert_allclose(task.forward(permuted, INFERENCE), expected, atol=1e-6)
    assert np.ptp(expected[0]) > 1e-3


def test_padding_choices_and_padding_tokens_change_nothing(task):
    batch, padded = choice_batch(), choice_batch(num_choices=5, length=9)
    logits, wide = (task.forward(each, INFERENCE).numpy() for each in (batch, padded))
    np.testing.assert_allclose(wide[:, :3], logits, rtol=1e-5, atol=1e-6)
    assert (wide[:, 3:] == LOWEST).all() and (logits == LOWEST).sum(axis=1).tolist() == [0, 1, 0, 2]
    losses = (task.row_losses(each, task.forward(each, INFERENCE)) for each in (batch, padded))
    np.testing.assert_allclose(*losses, rtol=1e-5)


def test_the_loss_is_the_cross_entropy_over_the_choices_of_an_example(task):
    logits = tf.constant([[math.log(3), 0.0, LOWEST], [0.0, 0.0, 0.0], [7.0, LOWEST, LOWEST]])
    losses = task.row_losses({"label_ids": tf.constant([0, 1, 0])}, logits).numpy()
    assert losses == pytest.approx([math.log(4 / 3), math.log(3), 0.0])
    assert losses[2] == 0.0


@pytest.mark.parametrize(("labels", "column"), [([0, 1, 2], "\tlabel"), (None, "")])
def test_metrics_are_accuracy_and_mean_loss_and_a_row_has_each_choices_probability(data_of, labels, column):
    choices = [["w9"], ["w5", "w6 w7"], ["w5", "w6", "w7"]]
    data = data_of(CHOICE, (["w5", "w6 w7", "w8"], choices), labels, is_train=False)
    logits = [[-9.0, LOWEST, LOWEST], [0.0, math.log(3), LOWEST], [math.log(6), 0.0, math.log(3)]]
    evaluated = data.evaluated({"logits": np.float32(logits), "loss": np.float32([0.0, 0.5, 1.0])})
    if labels is not None:
        assert evaluated.metrics == pytest.approx({"accuracy": 2 / 3, "loss": 0.5})
    label = ["", "", ""] if labels is None else ["\t0", "\t1", "\t2"]
    assert evaluated.table.decode().splitlines() == [
        f"id{column}\tprediction\tprobability_0\tprobability_1\tprobability_2",
        f"a{label[0]}\t0\t1.000000\t\t",
        f"b{label[1]}\t1\t0.250000\t0.750000\t",
        f"c{label[2]}\t0\t0.600000\t0.100000\t0.300000",
    ]
