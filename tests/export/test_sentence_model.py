"""Served labels and numbers equal those of --predict."""

import json

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.tasks.finetune.data import TaskData
from electra_tf.tasks.finetune.examples import Examples
from electra_tf.tasks.finetune.predict import outputs_of
from tests.export.conftest import TASKS, call

TEXTS = ["The old seaside (sea) who?", "sea", "", "a b c d e f g h i " * 6, "ΣΙΣ é d, e", "who ? sea! old old"]
SECONDS = ["a b c d e f g h i a b c", "old", "sea sea", "sea", "", "d " * 9]


def predicted(model, *columns):
    """The cells of the table that --predict writes, a row for each text."""
    examples = Examples(list(columns), None, [str(n) for n in range(len(columns[0]))], "a test", [])
    data = TaskData(model.config, model.tokenizer, None, {"input": examples})
    outputs = outputs_of(model, data, tf.distribute.OneDeviceStrategy("CPU:0"))
    lines = data.evaluated(outputs).table.decode().splitlines()
    return [line.split("\t")[1:] for line in lines[1:]]


@pytest.mark.parametrize("name", ["classification", "pairs", "windows"])
def test_served_classes_equal_those_of_predict(name, served, finetuned):
    columns = [TEXTS, SECONDS][: 2 if name == "pairs" else 1]
    outputs = call(served(name), "classify", *columns)
    rows = predicted(finetuned(name), *columns)
    assert [label.decode() for label in outputs["label"]] == [row[0] for row in rows]
    assert len(set(outputs["label"])) > 1
    np.testing.assert_allclose(outputs["probabilities"], [list(map(float, row[1:])) for row in rows], atol=2e-6)
    assert outputs["labels"].tolist() == [[label.encode() for label in TASKS[name]["labels"]]] * 6
    long = {"classification": [3], "pairs": [0, 3, 5], "windows": []}[name]
    assert np.flatnonzero(outputs["truncated"]).tolist() == long


def test_served_multi_labels_equal_those_of_predict(served, finetuned):
    outputs = call(served("multi_label"), "classify", TEXTS)
    rows = predicted(finetuned("multi_label"), TEXTS)
    names = [np.array(["x", "y", "z"])[row].tolist() for row in outputs["predicted"]]
    assert names == [json.loads(row[0].strip('"').replace('""', '"')) for row in rows]
    assert outputs["predicted"].any() and not outputs["predicted"].all()
    np.testing.assert_allclose(outputs["probabilities"], [list(map(float, row[1:])) for row in rows], atol=2e-6)


def test_served_numbers_equal_those_of_predict(served, finetuned):
    value = call(served("regression"), "regress", TEXTS)["value"]
    np.testing.assert_allclose(value, [float(row[0]) for row in predicted(finetuned("regression"), TEXTS)], rtol=2e-5)
    assert np.ptp(value) > 0.1


def test_ids_and_texts_give_the_same_outputs(served):
    model = served("pairs")
    of_text = call(model, "classify", ["Old sea"], ["who"])
    vocabulary = model.tokenizer.vocabulary
    tokens = ["[CLS]", "old", "sea", "[SEP]", "who", "[SEP]", "[PAD]"]
    ids = [[vocabulary.tokens.index(token) for token in tokens]]
    of_ids = model.classify_ids(tf.constant(ids), tf.constant([[1] * 6 + [0]]), tf.constant([[0] * 4 + [1, 1, 0]]))
    assert set(of_ids) == set(of_text) - {"truncated"}
    np.testing.assert_allclose(of_ids["probabilities"], of_text["probabilities"], atol=1e-6)
    assert of_ids["label"].numpy().tolist() == of_text["label"].tolist()


def test_windows_are_computed_in_blocks_of_32_rows(served):
    """A text of 34 windows alone, and beside another: the same."""
    long = "a b c d e f g h i " * 16  # 144 tokens: 1 + ceil((144 - 14) / 4) = 34 windows
    alone = call(served("windows"), "classify", [long])["probabilities"]
    beside = call(served("windows"), "classify", ["sea", long])["probabilities"]
    np.testing.assert_allclose(alone[0], beside[1], atol=1e-6)
