"""Scores of a few predictions, computed by hand."""

import ast
import math
from pathlib import Path

import numpy as np
import pytest

import electra_tf
from electra_tf.tasks.finetune.benchmarks import GLUE_TASKS
from electra_tf.tasks.finetune.scores import OWN_METRICS, sentence_scores, tagging_scores


def own_scores(kind: str, predictions, targets) -> dict[str, float]:
    return sentence_scores(OWN_METRICS[kind], np.asarray(predictions), np.asarray(targets))


def test_scores_of_classification():
    scores = own_scores("classification", [0, 1, 1, 2], [0, 1, 2, 2])
    assert scores["accuracy"] == 0.75
    assert scores["f1_macro"] == pytest.approx((1 + 2 / 3 + 2 / 3) / 3)
    assert set(scores) == {"accuracy", "f1_macro", "matthews_correlation"}


def test_scores_of_multi_label():
    scores = own_scores("multi_label", [[1, 0, 1], [0, 0, 0]], [[1, 1, 0], [0, 0, 0]])
    assert scores == pytest.approx({"f1": 0.5, "f1_macro": 1 / 3, "accuracy": 0.5})


def test_f1_of_one_label_does_not_count_its_absence():
    scores = own_scores("multi_label", [[1], [0], [0], [0]], [[1], [1], [0], [0]])  # precision 1, recall 1/2
    assert scores == pytest.approx({"f1": 2 / 3, "f1_macro": 2 / 3, "accuracy": 0.75})


def test_scores_of_regression():
    scores = own_scores("regression", np.float32([1, 2, 4]), np.float32([10, 20, 30]))
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
    scores = sentence_scores(GLUE_TASKS[task].metrics, np.array([1, 1, 0]), np.array([1, 0, 0]))
    assert set(scores) == names
    assert GLUE_TASKS[task].paper_metric in scores
    if combined := scores.pop("combined_score", None):
        assert combined == pytest.approx(sum(scores.values()) / 2)


def test_equal_predictions_have_no_correlation_and_a_matthews_correlation_of_zero():
    constant, targets = np.float32([3, 3, 3]), np.float32([1, 2, 3])
    with np.errstate(all="raise"):
        scores = own_scores("regression", constant, targets)
    assert math.isnan(scores["spearmanr"]) and math.isnan(scores["pearson"]) and scores["mse"] == pytest.approx(5 / 3)
    assert own_scores("classification", [0, 0, 0], [0, 1, 1])["matthews_correlation"] == 0


def test_a_single_prediction_has_no_correlation():
    assert math.isnan(own_scores("regression", np.float32([1]), np.float32([2]))["pearson"])


@pytest.mark.parametrize(
    ("tags", "predicted", "scheme", "num_right"),
    [
        ("S-A O B-B E-B", "S-A O B-B I-B", "bioes", 3),
        ("U-A O B-B L-B", "U-A O B-B I-B", "bilou", 3),
        ("B-A O B-B I-B", "B-A O B-B I-B", "iob2", 4),
        ("I-A O I-B I-B", "I-A O I-B I-B", "iob1", 4),
        ("E-A O I-B E-B", "E-A O I-B E-B", "ioe2", 4),
    ],
)
def test_spans_are_compared_and_not_their_tags(tags, predicted, scheme, num_right):
    scores = tagging_scores([predicted.split(), ["I-A"]], [tags.split(), ["O"]], scheme)
    # 2 of 3 predicted spans are right, and none of the 2 true spans is missing.
    assert scores["precision"] == pytest.approx(2 / 3) and scores["recall"] == 1 and scores["f1"] == pytest.approx(0.8)
    assert scores["accuracy"] == num_right / 5


def test_tags_that_break_the_scheme_form_spans_as_in_conlleval():
    predicted, tags = "I-A I-B E-B I-B O E-A", "B-A B-B I-B B-B O B-A"  # spans: A 0, B 1 to 2, B 3, A 5
    scores = tagging_scores([predicted.split()], [tags.split()], "iob2")
    assert scores["f1"] == 1


def test_plain_tags_have_only_accuracy():
    assert tagging_scores([["NN", "VB"], ["NN"]], [["NN", "NN"], ["NN"]], "plain") == {"accuracy": 2 / 3}


@pytest.mark.parametrize("room", ["data", "tasks/finetune"])
def test_no_scoring_library_is_imported_at_the_start(room):
    libraries = {"sklearn", "scipy", "seqeval", "pandas"}
    imports = {
        (path.name, name.partition(".")[0])
        for path in (Path(electra_tf.__file__).parent / room).glob("*.py")
        for node in ast.parse(path.read_text()).body
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [_module(node)])
    }
    assert {each for each in imports if each[1] in libraries} == set()


def _module(node: ast.stmt) -> str:
    return (node.module or "") if isinstance(node, ast.ImportFrom) else ""
