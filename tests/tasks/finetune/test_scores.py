"""Scores of a few predictions by hand; scores of each class, equal to scikit-learn's and seqeval's, and as a table."""

import ast
import math
from pathlib import Path

import numpy as np
import pytest
from seqeval.metrics import classification_report as seqeval_report
from sklearn.metrics import classification_report, confusion_matrix

import electra_tf
from electra_tf.tasks.finetune.benchmarks import GLUE_TASKS
from electra_tf.tasks.finetune.kinds import KINDS
from electra_tf.tasks.finetune.scores import (
    class_report,
    class_table,
    multi_label_report,
    sentence_scores,
    span_report,
    tagging_scores,
)
from tests.markdown import cells

PEARSON = 30 / math.sqrt(14 / 3 * 200)
SQUARES = (81 + 324 + 676) / 3


@pytest.mark.parametrize(
    ("kind", "predictions", "targets", "expected"),
    [
        ("classification", [0, 1, 1, 2], [0, 1, 2, 2], (0.75, (1 + 2 / 3 + 2 / 3) / 3, None)),
        ("classification", [0, 0, 0], [0, 1, 1], (1 / 3, 0.25, 0.0)),
        ("multi_label", [[1, 0, 1], [0, 0, 0]], [[1, 1, 0], [0, 0, 0]], (0.5, 1 / 3, 0.5)),
        # Of one label alone: precision 1, recall 1/2. Its absence does not count.
        ("multi_label", [[1], [0], [0], [0]], [[1], [1], [0], [0]], (2 / 3, 2 / 3, 0.75)),
        ("regression", [1.0, 2.0, 4.0], [10.0, 20.0, 30.0], (1.0, PEARSON, SQUARES)),
        ("regression", [3.0, 3.0, 3.0], [1.0, 2.0, 3.0], (math.nan, math.nan, 5 / 3)),  # equal predictions
        ("regression", [1.0], [2.0], (math.nan, math.nan, 1.0)),
    ],
)
def test_scores_of_each_kind(kind, predictions, targets, expected):
    with np.errstate(all="raise"):
        scores = sentence_scores(KINDS[kind].metrics, np.array(predictions), np.array(targets))
    assert tuple(scores) == KINDS[kind].metrics
    found = [score for score, value in zip(scores.values(), expected, strict=True) if value is not None]
    assert found == pytest.approx([value for value in expected if value is not None], nan_ok=True)


def test_the_combined_score_of_glue_is_the_mean_of_the_others():
    scores = sentence_scores(GLUE_TASKS["mrpc"].metrics, np.array([1, 1, 0]), np.array([1, 0, 0]))
    assert scores == pytest.approx({"accuracy": 2 / 3, "f1": 2 / 3, "combined_score": 2 / 3})


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
    assert tagging_scores([predicted.split()], [tags.split()], "iob2")["f1"] == 1
    assert tagging_scores([["NN", "VB"], ["NN"]], [["NN", "NN"], ["NN"]], "plain") == {"accuracy": 2 / 3}


@pytest.mark.parametrize("room", ["data", "tasks/finetune"])
def test_no_scoring_library_is_imported_at_the_start(room):
    libraries = {"sklearn", "scipy", "seqeval", "pandas"}
    statements = [
        (path.name, node)
        for path in (Path(electra_tf.__file__).parent / room).glob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    imports = {(name, getattr(node, "module", None) or node.names[0].name) for name, node in statements}
    assert {each for each in imports if each[1].partition(".")[0] in libraries} == set()


LABELS = ("cat", "dog", "eel")


def scores(precision: float, recall: float, f1: float, support: int) -> dict:
    return {"precision": precision, "recall": recall, "f1": f1, "support": support}


def as_ours(theirs: dict, names) -> dict:
    """The classes in a report of scikit-learn's or seqeval's."""
    return {
        name: scores(*(theirs[name][key] for key in ("precision", "recall", "f1-score", "support"))) for name in names
    }


def test_scores_and_confusions_of_five_examples():
    report = class_report(LABELS, ["cat", "cat", "dog", "dog", "cat"], ["cat", "dog", "dog", "dog", "dog"])
    assert report == {
        "classes": {
            "cat": scores(pytest.approx(1 / 3), 1.0, 0.5, 1),
            "dog": scores(1.0, 0.5, pytest.approx(2 / 3), 4),
            "eel": scores(0.0, 0.0, 0.0, 0),
        },
        "confusion_matrix": {"cat": {"cat": 1}, "dog": {"cat": 2, "dog": 2}, "eel": {}},
    }
    # A word without a prediction is counted in the row of its class.
    report = class_report(LABELS, ["cat", "", ""], ["cat", "cat", "eel"])
    assert report["confusion_matrix"] == {"cat": {"cat": 1, "": 1}, "dog": {}, "eel": {"": 1}}
    assert report["classes"]["cat"] == scores(1.0, 0.5, pytest.approx(2 / 3), 2)


def test_the_report_of_classes_equals_scikit_learns():
    random = np.random.default_rng(3)
    names = np.array([f"class {number}" for number in range(7)])
    targets, predictions = (names[random.integers(0, 7, 50) // step] for step in (1, 2))
    report = class_report(names, predictions.tolist(), targets.tolist())
    theirs = classification_report(targets, predictions, output_dict=True, zero_division=0)
    assert report["classes"] == as_ours(theirs, names)
    matrix = [[report["confusion_matrix"][row].get(column, 0) for column in names] for row in names]
    assert matrix == confusion_matrix(targets, predictions, labels=names).tolist()


def test_the_report_of_several_labels_equals_scikit_learns():
    targets, predictions = np.random.default_rng(3).integers(0, 2, (2, 20, 3)).astype(np.int32)
    targets[:, 1] = predictions[:, 2] = 0
    theirs = classification_report(targets, predictions, target_names=LABELS, output_dict=True, zero_division=0)
    report = multi_label_report(LABELS, predictions, targets)
    assert report == {"classes": {name: pytest.approx(row) for name, row in as_ours(theirs, LABELS).items()}}


def test_the_report_of_spans_has_their_types_and_equals_seqevals():
    tags = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O"]]
    predictions = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "B-ORG"]]
    classes = span_report(predictions, tags)["classes"]
    assert classes["PER"] == scores(0.5, 1.0, pytest.approx(2 / 3), 1)
    theirs = seqeval_report(tags, predictions, output_dict=True, zero_division=0)
    assert classes == as_ours(theirs, ("LOC", "ORG", "PER"))
    # As in the scores, U and L are spans too.
    classes = span_report([["U-A", "B-B", "L-B"]], [["U-A", "O", "O"]])["classes"]
    assert classes == {"A": scores(1.0, 1.0, 1.0, 1), "B": scores(0.0, 0.0, 0.0, 0)}
    assert span_report([["O", "O"]], [["O", "O"]]) == {"classes": {}}
    assert class_table({"classes": {}}, "dev").startswith("dev: 0 classes")


def test_the_table_begins_with_the_worst_class_and_ends_with_those_without_examples():
    targets = ["cat"] * 2 + ["dog"] * 4 + ["fly"] * 3
    predictions = ["dog", "fly", "cat", "fly", "cat", "dog", "fly", "fly", ""]
    text = class_table(class_report(("cat", "dog", "eel", "fly"), predictions, targets), "dev")
    assert text.startswith("dev: 4 classes, the lowest F1 first\n")
    assert cells(text) == [
        ["class", "precision", "recall", "F1", "support", "mistaken for"],
        ["cat", "0.00", "0.00", "0.00", "2", "dog 1, fly 1"],
        ["dog", "50.00", "25.00", "33.33", "4", "cat 2, fly 1"],
        ["fly", "50.00", "66.67", "57.14", "3", "(truncated) 1"],
        ["eel", "0.00", "0.00", "0.00", "0", ""],
    ]


def test_a_table_that_names_the_file_with_all_classes_has_ten_of_them():
    names = [f"class {number:02}" for number in range(12)]
    report = class_report(names, names[:3] + names[:1] * 9, names)
    text = class_table(report, "dev", "out/result.json")
    assert text.startswith("dev: the 10 of 12 classes with the lowest F1; all: out/result.json\n")
    rows = cells(text)[1:]
    assert len(rows) == 10 and not any(row[0] == "class 01" for row in rows)
    assert len(cells(class_table(report, "dev"))) == 13
