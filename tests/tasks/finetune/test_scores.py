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
from electra_tf.tasks.finetune.scores import (
    OWN_METRICS,
    class_report,
    class_table,
    multi_label_report,
    sentence_scores,
    span_report,
    tagging_scores,
)


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


LABELS = ("cat", "dog", "eel")


def scores(precision: float, recall: float, f1: float, support: int) -> dict:
    return {"precision": precision, "recall": recall, "f1": f1, "support": support}


def as_ours(theirs: dict, names) -> dict:
    """The classes in a report of scikit-learn's or seqeval's."""
    rows = {name: theirs[name] for name in names}
    return {
        name: scores(row["precision"], row["recall"], row["f1-score"], row["support"]) for name, row in rows.items()
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


def test_the_report_of_classes_equals_scikit_learns():
    random = np.random.default_rng(3)
    names = np.array([f"class {number}" for number in range(7)])
    targets, predictions = (names[random.integers(0, 7, 50) // step] for step in (1, 2))
    report = class_report(names, predictions.tolist(), targets.tolist())
    theirs = classification_report(targets, predictions, output_dict=True, zero_division=0)
    assert report["classes"] == as_ours(theirs, names)
    matrix = [[report["confusion_matrix"][row].get(column, 0) for column in names] for row in names]
    assert matrix == confusion_matrix(targets, predictions, labels=names).tolist()
    support = [each["support"] for each in report["classes"].values()]
    assert [sum(row.values()) for row in report["confusion_matrix"].values()] == support


def test_a_word_without_a_prediction_is_counted_in_the_row_of_its_class():
    report = class_report(LABELS, ["cat", "", ""], ["cat", "cat", "eel"])
    assert report["confusion_matrix"] == {"cat": {"cat": 1, "": 1}, "dog": {}, "eel": {"": 1}}
    assert report["classes"]["cat"] == scores(1.0, 0.5, pytest.approx(2 / 3), 2)


def test_the_report_of_several_labels_equals_scikit_learns():
    targets, predictions = np.random.default_rng(3).integers(0, 2, (2, 20, 3)).astype(np.int32)
    targets[:, 1] = predictions[:, 2] = 0
    theirs = classification_report(targets, predictions, target_names=LABELS, output_dict=True, zero_division=0)
    report = multi_label_report(LABELS, predictions, targets)
    assert report == {"classes": {name: pytest.approx(row) for name, row in as_ours(theirs, LABELS).items()}}


def test_the_report_of_spans_has_their_types_and_equals_seqevals():
    tags = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O"]]
    predictions = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "B-ORG"]]
    report = span_report(predictions, tags)
    assert report["classes"]["PER"] == scores(0.5, 1.0, pytest.approx(2 / 3), 1)
    assert report["classes"] == as_ours(
        seqeval_report(tags, predictions, output_dict=True, zero_division=0), ("LOC", "ORG", "PER")
    )


def test_spans_of_bilou_are_counted_as_in_the_scores():
    report = span_report([["U-A", "B-B", "L-B"]], [["U-A", "O", "O"]])
    assert report["classes"] == {"A": scores(1.0, 1.0, 1.0, 1), "B": scores(0.0, 0.0, 0.0, 0)}


def test_sentences_without_spans_have_no_classes():
    assert span_report([["O", "O"]], [["O", "O"]]) == {"classes": {}}
    assert class_table({"classes": {}}, "dev").startswith("dev: 0 classes")


def test_the_table_begins_with_the_worst_class_and_ends_with_those_without_examples():
    targets = ["cat"] * 2 + ["dog"] * 4 + ["fly"] * 3
    predictions = ["dog", "fly", "cat", "fly", "cat", "dog", "fly", "fly", ""]
    lines = class_table(class_report(("cat", "dog", "eel", "fly"), predictions, targets), "dev").splitlines()
    assert lines[0] == "dev: 4 classes, the lowest F1 first"
    assert [line.split() for line in lines[1:]] == [
        ["class", "precision", "recall", "F1", "support", "mistaken", "for"],
        ["cat", "0.00", "0.00", "0.00", "2", "dog", "1,", "fly", "1"],
        ["dog", "50.00", "25.00", "33.33", "4", "cat", "2,", "fly", "1"],
        ["fly", "50.00", "66.67", "57.14", "3", "(truncated)", "1"],
        ["eel", "0.00", "0.00", "0.00", "0"],
    ]


def test_the_larger_of_two_classes_with_equal_f1_is_first():
    report = class_report(LABELS, ["eel"] * 3, ["cat", "dog", "dog"])
    assert [line.split()[0] for line in class_table(report, "dev").splitlines()[2:4]] == ["dog", "cat"]


def test_a_table_that_names_the_file_with_all_classes_has_ten_of_them():
    names = [f"class {number:02}" for number in range(12)]
    report = class_report(names, names[:3] + names[:1] * 9, names)
    title, heading, *rows = class_table(report, "dev", "out/result.json").splitlines()
    assert title == "dev: the 10 of 12 classes with the lowest F1; all: out/result.json"
    assert len(rows) == 10 and not any("class 01" in row[:8] for row in rows)
    assert len(class_table(report, "dev").splitlines()) == 14


def test_long_names_are_cut_and_the_columns_stay_aligned():
    report = multi_label_report(("a" * 40, "b"), np.ones([2, 2], int), np.ones([2, 2], int))
    _, heading, first, second = class_table(report, "dev").splitlines()
    assert first.startswith("a" * 27 + "… ") and len(heading) == len(first) == len(second)
