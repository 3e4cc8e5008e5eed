"""Multiple choice: its files, the model, its steps on replicas and in micro-batches, metrics, predictions, alarm."""

import json
import math

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from electra_tf.models.layers import INFERENCE, ForwardContext
from electra_tf.tasks.finetune import build_finetuning_task
from electra_tf.tasks.finetune.data import TaskData
from electra_tf.tasks.finetune.examples import Examples
from electra_tf.tasks.finetune.multiple_choice import read_choices
from electra_tf.text.tokenizer import load_tokenizer
from electra_tf.text.vocabulary import StoredTokenizer
from electra_tf.train.step import compile_task
from tests.toy import VOCABULARY, step_on_replicas, toy_finetuning_config

SWAG = {"sent1": "Ann sits_.", "sent2": "She", "ending0": "runs", "ending1": "sings", "ending2": "eats", "label": 2}
COPA = {"premise": "It rained.", "choice1": "Ann got wet.", "choice2": "Bo slept.", "question": "effect", "label": 0}
RACE = {
    "id": "high7.txt",
    "article": "Ann came.",
    "questions": ["Who came?", "__ came."],
    "options": [["Ann", "Bo"], ["Cy", "Ann", "Di"]],
    "answers": ["A", "B"],
}
FLAT_RACE = {"article": "Ann came.", "question": "_ came.", "options": ["Bo", "Ann"], "answer": "B"}
OWN = {"context": "Ann came.", "choices": ["She sat.", "It", "He"], "label": 1}


def lines(*objects: dict) -> str:
    return "".join(f"{json.dumps(each)}\n" for each in objects)


@pytest.mark.parametrize(
    ("row", "context", "choices", "label"),
    [
        (SWAG, "Ann sits_.", ["She runs", "She sings", "She eats"], 2),
        (
            COPA,
            "It rained.",
            ["What happened as a result? Ann got wet.", "What happened as a result? Bo slept."],
            0,
        ),
        (COPA | {"question": "cause"}, "It rained.",
         ["What was the cause of this? Ann got wet.", "What was the cause of this? Bo slept."], 0),
        (FLAT_RACE, "Ann came.", ["Bo came.", "Ann came."], 1),
        (FLAT_RACE | {"question": "Who came?"}, "Ann came.", ["Who came? Bo", "Who came? Ann"], 1),
        (OWN, "Ann came.", ["She sat.", "It", "He"], 1),
        (OWN | {"question": "Then"}, "Ann came.", ["Then She sat.", "Then It", "Then He"], 1),
        (OWN | {"question": "my_fn gives _?"}, "Ann came.",
         ["my_fn gives She sat.?", "my_fn gives It?", "my_fn gives He?"], 1),
        (OWN | {"question": "__x__ a_", "choices": ["b", "c"]}, "Ann came.", ["__x__ a_ b", "__x__ a_ c"], 1),
        (OWN | {"question": "他___走了"}, "Ann came.", ["他She sat.走了", "他It走了", "他He走了"], 1),
        (OWN | {"question": "a ___ b", "choices": [r"\1", "c"]}, "Ann came.", [r"a \1 b", "a c b"], 1),
    ],
)  # fmt: skip
def test_each_layout_gives_a_context_choices_and_the_index_of_the_right_one(write, row, context, choices, label):
    examples = read_choices(write("train.jsonl", lines(row)))
    assert (examples.inputs[0], examples.inputs[1], examples.labels) == ([context], [choices], [label])
    assert (examples.ids, examples.where(0)[-13:]) == (["0"], "train.jsonl:1")


def test_an_article_of_race_has_an_example_for_each_question(write):
    examples = read_choices(write("race.jsonl", lines(RACE, RACE | {"id": "high8.txt"})))
    assert examples.inputs[0] == ["Ann came."] * 4
    assert examples.inputs[1][:2] == [["Who came? Ann", "Who came? Bo"], ["Cy came.", "Ann came.", "Di came."]]
    assert (examples.labels, list(examples.rows)) == ([0, 1, 0, 1], [1, 1, 2, 2])
    assert examples.ids == ["high7.txt-0", "high7.txt-1", "high8.txt-0", "high8.txt-1"]


def test_swag_is_read_from_csv_and_parquet_alike(write, write_parquet):
    content = f"{','.join(SWAG)}\n{','.join(map(str, SWAG.values()))}\n"
    of_csv = read_choices(write("swag.csv", content))
    columns = {name: [value] for name, value in SWAG.items()}
    of_parquet = read_choices(write_parquet("swag.parquet", columns, ("0", "1", "2")))
    assert (of_csv.inputs, of_csv.labels) == (of_parquet.inputs, of_parquet.labels)
    assert of_csv.where(0).endswith("swag.csv:2")


@pytest.mark.parametrize("row", [SWAG | {"label": -1}, {name: OWN[name] for name in ("context", "choices")}, RACE])
def test_new_text_needs_no_labels(write, row):
    row = {name: value for name, value in row.items() if name != "answers"}
    assert read_choices(write("new.jsonl", lines(row)), may_lack_labels=True).labels is None


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        ([{"sent1": "a", "text": "b"}], ["a.jsonl has the columns sent1, text", "SWAG: sent1, sent2, ending0"]),
        ([{"context": "a", "choices": ["b"]}], ["a.jsonl has no column 'label'"]),
        ([RACE | {"answers": ["A"]}], ["a.jsonl:1", "answers"]),
        ([RACE | {"questions": [], "options": [], "answers": []}], ["a.jsonl has no questions"]),
        ([COPA, COPA | {"question": "why"}], ["a.jsonl:2", "'why'", "cause or effect"]),
        ([COPA | {"question": ["cause"]}], ["a.jsonl:1", "['cause']"]),
        ([OWN, OWN | {"label": 3}], ["a.jsonl:2", "label 3", "0 to 2"]),
        ([OWN | {"label": -1}], ["a.jsonl:1", "label -1"]),
        ([OWN | {"label": 0.5}], ["a.jsonl:1", "label 0.5"]),
        ([OWN | {"label": None}], ["a.jsonl:1", "label None"]),
        ([OWN | {"label": "D"}], ["a.jsonl:1", "label 'D'", "letter to C"]),
        ([OWN, OWN | {"context": None}], ["a.jsonl:2", "None as its context"]),
        ([OWN | {"question": 5}], ["a.jsonl:1", "5 as its question"]),
        ([OWN | {"choices": "a b"}], ["a.jsonl:1", "'a b' as its choices", "a list"]),
        ([OWN, OWN | {"choices": []}], ["a.jsonl:2", "[] as its choices"]),
        ([OWN | {"choices": ["a", " "]}], ["a.jsonl:1", "' ' as choice 1"]),
        ([SWAG | {"ending1": None}], ["a.jsonl:1", "None as choice 1"]),
    ],
)
def test_a_mistake_in_a_file_is_reported_with_its_place(write, refusal, rows, parts):
    message = refusal(read_choices, write("a.jsonl", lines(*rows)))
    for part in parts:
        assert part in message, (part, message)


CHOICE = {"kind": "multiple_choice"}
NUM_CHOICES = (3, 2, 3, 1)  # of the four examples


def batch_of(num_choices: int = 3, length: int = 7) -> dict[str, tf.Tensor]:
    """Four examples of one to three choices with 5 tokens each. The last fills the batch up."""
    ids = np.random.default_rng(2).integers(5, 47, [4, 3, 5])
    ids *= np.arange(3)[:, np.newaxis] < np.array(NUM_CHOICES)[:, np.newaxis, np.newaxis]
    ids = np.pad(ids, [(0, 0), (0, num_choices - 3), (0, length - 5)])
    texts = {"input_ids": ids, "input_mask": ids > 0, "segment_ids": (ids > 0) & (np.arange(length) > 2)}
    rows = {"label_ids": [2, 0, 1, 0], "row_index": [0, 1, 2, -1]}
    batch = {name: tf.constant(np.int32(values)) for name, values in (texts | rows).items()}
    return batch | {"row_weights": tf.constant([1.0, 1.0, 1.0, 0.0])}


def build(strategy: tf.distribute.Strategy | None = None, encoder: dict | None = None, task: dict = CHOICE, **train):
    train = {"batch_size": 4, "num_steps": 9, "fused_ops": False, **train}
    optimizer = {"learning_rate": 1e-2, "warmup_fraction": 0}
    config = toy_finetuning_config(CHOICE | task, encoder=encoder or {}, optimizer=optimizer, train=train)
    tf_keras.utils.set_random_seed(5)
    with (strategy or tf.distribute.get_strategy()).scope():
        return compile_task(build_finetuning_task(config))


@pytest.fixture(scope="module", params=[{}, {"block": "modern"}], ids=["bert", "modern"])
def task(request):
    head = "huggingface" if request.param else "linear"
    return build(encoder=request.param, task={"head": head})


def test_permuted_choices_have_permuted_logits(task):
    batch, order = batch_of(), [2, 0, 1]
    permuted = {name: tf.gather(values, order, axis=1) if len(values.shape) == 3 else values
                for name, values in batch.items()}  # fmt: skip
    expected = task.forward(batch, INFERENCE).numpy()[:, order]
    np.testing.assert_allclose(task.forward(permuted, INFERENCE), expected, atol=1e-6)
    assert np.ptp(expected[0]) > 1e-3


def test_padding_choices_and_padding_tokens_change_nothing(task):
    batch, padded = batch_of(), batch_of(num_choices=5, length=9)
    logits, wide = (task.forward(each, INFERENCE).numpy() for each in (batch, padded))
    np.testing.assert_allclose(wide[:, :3], logits, rtol=1e-5, atol=1e-6)
    lowest = np.finfo(np.float32).min
    assert (wide[:, 3:] == lowest).all() and (logits == lowest).sum(axis=1).tolist() == [0, 1, 0, 2]
    losses = (task.row_losses(each, task.forward(each, INFERENCE)) for each in (batch, padded))
    np.testing.assert_allclose(*losses, rtol=1e-5)


def test_the_loss_is_the_cross_entropy_over_the_choices_of_an_example(task):
    lowest = np.finfo(np.float32).min
    logits = tf.constant([[math.log(3), 0.0, lowest], [0.0, 0.0, 0.0], [7.0, lowest, lowest]])
    losses = task.row_losses({"label_ids": tf.constant([0, 1, 0])}, logits).numpy()
    assert losses == pytest.approx([math.log(4 / 3), math.log(3), 0.0])
    assert losses[2] == 0.0


@pytest.mark.parametrize(("head", "dropouts"), [("linear", ["head"]), ("huggingface", ["hidden"])])
def test_dropout_precedes_the_last_layer_alone(monkeypatch, head, dropouts):
    task, seen = build(task={"head": head, "dropout": 0.3}), []
    monkeypatch.setattr(ForwardContext, "dropout", lambda self, x, rate, name: seen.append((name, rate)) or x)
    task.forward(batch_of(), INFERENCE)
    assert [each for each in seen if each[1] == 0.3] == [(name, 0.3) for name in dropouts]


def metrics_and_weights(task, step_of=lambda task: task.train_step(batch_of())):
    task.seed.assign(3)
    metrics = {name: float(value) for name, value in step_of(task).items()}
    return metrics, [variable.numpy() for variable in task.trainable_variables]


@pytest.fixture(scope="module")
def step_of_one_device():
    metrics, weights = metrics_and_weights(build())
    assert metrics["loss"] == pytest.approx(4 * metrics["multiple_choice"])
    return metrics, weights


def assert_same_step(found, expected) -> None:
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
    assert max(np.abs(a - b).max() for a, b in zip(found[1], expected[1], strict=True)) < 1e-5


def test_micro_batches_train_like_one_batch_dropout_included(step_of_one_device):
    assert_same_step(metrics_and_weights(build(gradient_accumulation_steps=2)), step_of_one_device)


@pytest.mark.slow
def test_two_replicas_train_like_one_dropout_included(two_replicas, step_of_one_device):
    task = build(two_replicas)
    step = tf.function(task.train_step)
    found = metrics_and_weights(task, lambda _: step_on_replicas(two_replicas, step, batch_of()))
    assert_same_step(found, step_of_one_device)


LOWEST = float(np.finfo(np.float32).min)


@pytest.fixture(scope="module")
def data_of():
    """`data_of(labels)`: the three examples as data, for metrics and predictions."""

    def build_data(labels: list[int] | None) -> TaskData:
        choices = [["w9"], ["w5", "w6 w7"], ["w5", "w6", "w7"]]
        examples = Examples((["w5", "w6 w7", "w8"], choices), labels, ["a", "b", "c"], "dev.jsonl", [1, 2, 3])
        tokenizer = load_tokenizer(StoredTokenizer(VOCABULARY), "a test")
        return TaskData(toy_finetuning_config(CHOICE), tokenizer, None, {"validation": examples})

    return build_data


def outputs(*logits: list[float], losses: list[float] = (0.0, 0.5, 1.0)) -> dict[str, np.ndarray]:
    rows = [row + [LOWEST] * (3 - len(row)) for row in logits]
    return {"logits": np.float32(rows), "loss": np.float32(losses)}


def test_metrics_are_accuracy_and_mean_loss(data_of):
    found = data_of([0, 1, 2]).evaluated(outputs([-9.0], [0.0, 1.0], [5.0, 0.0, 1.0])).metrics
    assert found == pytest.approx({"accuracy": 2 / 3, "loss": 0.5})


@pytest.mark.parametrize(("labels", "column"), [([0, 1, 2], "\tlabel"), (None, "")])
def test_a_row_of_the_predictions_has_the_index_and_each_choices_probability(data_of, labels, column):
    logits = outputs([-9.0], [0.0, math.log(3)], [math.log(6), 0.0, math.log(3)])
    table = data_of(labels).evaluated(logits).table
    label = ["", "", ""] if labels is None else ["\t0", "\t1", "\t2"]
    assert table.decode().splitlines() == [
        f"id{column}\tprediction\tprobability_0\tprobability_1\tprobability_2",
        f"a{label[0]}\t0\t1.000000\t\t",
        f"b{label[1]}\t1\t0.250000\t0.750000\t",
        f"c{label[2]}\t0\t0.600000\t0.100000\t0.300000",
    ]


def test_a_loss_and_an_accuracy_no_better_than_chance_are_an_alarm(data_of):
    data, chance = data_of([0, 1, 2]), math.log(6) / 3
    wrong, right = ([0.0], [0.1, 0.0], [0.1, 0.0, 0.0]), ([0.0], [0.0, 0.1], [0.0, 0.0, 0.1])
    at_chance = [chance + 1e-3] * 3
    found = data.evaluated(outputs(*wrong, losses=at_chance)).problem
    assert f"equal scores for all choices have {chance:.4f}" in found
    for fine in (outputs(*right, losses=at_chance), outputs(*wrong, losses=[chance - 1e-3] * 3)):
        assert data.evaluated(fine).problem is None
