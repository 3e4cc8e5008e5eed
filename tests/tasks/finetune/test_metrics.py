"""Scores, by hand on a few predictions, under the names that Hugging Face prints."""

import ast
import math
from pathlib import Path

import numpy as np
import pytest

import electra_tf
from electra_tf.tasks.finetune.glue import GLUE_TASKS
from electra_tf.tasks.finetune.metrics import (
    classification_metrics,
    glue_metrics,
    multi_label_metrics,
    regression_metrics,
    tagging_metrics,
)


def test_scores_of_classes():
    scores = classification_metrics(np.array([0, 1, 1, 2]), np.array([0, 1, 2, 2]))
    assert scores["accuracy"] == 0.75
    assert scores["f1_macro"] == pytest.approx((1 + 2 / 3 + 2 / 3) / 3)
    assert set(scores) == {"accuracy", "f1_macro", "matthews_correlation"}


def test_scores_of_several_labels():
    scores = multi_label_metrics(np.array([[1, 0, 1], [0, 0, 0]]), np.array([[1, 1, 0], [0, 0, 0]]))
    assert scores == pytest.approx({"f1": 0.5, "f1_macro": 1 / 3, "accuracy": 0.5})


def test_scores_of_numbers():
    scores = regression_metrics(np.float32([1, 2, 4]), np.float32([10, 20, 30]))
    assert scores["spearmanr"] == pytest.approx(1.0)
    assert scores["pearson"] == pytest.approx(30 / math.sqrt(14 / 3 * 200))
    assert scores["mse"] == pytest.approx((81 + 324 + 676) / 3)


@pytest.mark.parametrize(
    ("task", "names"),
    [
        ("cola", {"matthews_correlation"}),
        ("mrpc", {"accuracy", "f1", "combined_score"}),
        ("stsb", {"pearson", "spearmanr", "combined_score"}),
        ("rte", {"accuracy"}),
    ],
)
def test_a_glue_task_has_the_scores_of_the_leaderboard(task, names):
    scores = glue_metrics(GLUE_TASKS[task], np.array([1, 1, 0]), np.array([1, 0, 0]))
    assert set(scores) == names
    assert GLUE_TASKS[task].paper_metric in scores


def test_the_combined_score_is_the_mean():
    scores = glue_metrics(GLUE_TASKS["qqp"], np.array([1, 1, 0]), np.array([1, 0, 0]))
    assert scores == pytest.approx({"accuracy": 2 / 3, "f1": 2 / 3, "combined_score": 2 / 3})


def test_equal_predictions_have_no_correlation_and_matthews_zero():
    constant, targets = np.float32([3, 3, 3]), np.float32([1, 2, 3])
    with np.errstate(all="raise"):
        scores = regression_metrics(constant, targets)
    assert math.isnan(scores["spearmanr"]) and math.isnan(scores["pearson"]) and scores["mse"] == pytest.approx(5 / 3)
    assert classification_metrics(np.zeros(3, int), np.array([0, 1, 1]))["matthews_correlation"] == 0


def test_no_predictions_have_no_score():
    nothing = np.zeros(0, np.int32)
    for scores in (
        classification_metrics(nothing, nothing),
        regression_metrics(nothing, nothing),
        multi_label_metrics(np.zeros((0, 2)), np.zeros((0, 2))),
        tagging_metrics([], [], "bioes"),
        glue_metrics(GLUE_TASKS["mrpc"], nothing, nothing),
    ):
        assert scores and all(map(math.isnan, scores.values()))


def test_one_prediction_has_no_correlation():
    assert math.isnan(regression_metrics(np.float32([1]), np.float32([2]))["pearson"])


@pytest.mark.parametrize("tags", ["S-A O B-B E-B", "U-A O B-B L-B", "B-A O B-B I-B"])
def test_spans_count_and_not_their_tags(tags):
    scheme = {"S": "bioes", "U": "bilou", "B": "iob2"}[tags[0]]
    predicted = {"bioes": "S-A O B-B I-B", "bilou": "U-A O B-B I-B", "iob2": "B-A O B-B I-B"}[scheme]
    scores = tagging_metrics([predicted.split(), ["B-A"]], [tags.split(), ["O"]], scheme)
    # 2 of 3 predicted spans are right, and both that there are were found.
    assert scores["precision"] == pytest.approx(2 / 3) and scores["recall"] == 1 and scores["f1"] == pytest.approx(0.8)
    assert scores["accuracy"] == (4 if scheme == "iob2" else 3) / 5


def test_plain_tags_have_accuracy_alone():
    assert tagging_metrics([["NN", "VB"], ["NN"]], [["NN", "NN"], ["NN"]], "plain") == {"accuracy": 2 / 3}


@pytest.mark.parametrize("room", ["data", "tasks/finetune"])
def test_no_library_of_scores_is_imported_at_the_start(room):
    libraries = {"sklearn", "scipy", "seqeval", "pandas"}
    imports = {
        (path.name, name.partition(".")[0])
        for path in (Path(electra_tf.__file__).parent / room).glob("*.py")
        for node in ast.parse(path.read_text()).body
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [_module(node)])
    }
    assert {found for found in imports if found[1] in libraries} == set()


def _module(node: ast.stmt) -> str:
    return (node.module or "") if isinstance(node, ast.ImportFrom) else ""
