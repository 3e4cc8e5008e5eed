"""Scores by hand and of each class, equal to scikit-learn's and seqeval's; summaries over seeds and tasks."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from seqeval.metrics import classification_report as seqeval_report
from sklearn.metrics import classification_report

import electra_tf
from electra_tf.flops.budget import RunCost
from electra_tf.tasks.finetune import scores, summary
from electra_tf.tasks.finetune.benchmarks import GLUE_TASKS, PAPER_TASKS
from electra_tf.tasks.finetune.kinds import KINDS
from tests.markdown import cells

PEARSON = 30 / math.sqrt(14 / 3 * 200)
SQUARES = (81 + 324 + 676) / 3


@pytest.mark.parametrize(
    ("kind", "predictions", "targets", "expected"),
    [
        ("classification", [0, 1, 1, 2], [0, 1, 2, 2], (0.75, (1 + 2 / 3 + 2 / 3) / 3, 0.7)),
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
        found = scores.sentence_scores(KINDS[kind].metrics, np.array(predictions), np.array(targets))
    assert found == pytest.approx(dict(zip(KINDS[kind].metrics, expected, strict=True)), nan_ok=True)


def test_the_combined_score_of_glue_is_the_mean_of_the_others():
    found = scores.sentence_scores(GLUE_TASKS["mrpc"].metrics, np.array([1, 1, 0, 0]), np.array([1, 0, 0, 0]))
    assert found == pytest.approx({"accuracy": 3 / 4, "f1": 2 / 3, "combined_score": 17 / 24})


@pytest.mark.parametrize(
    ("tags", "predicted", "scheme", "num_right"),
    [
        ("S-A O B-B E-B", "S-A O B-B I-B", "bioes", 3),
        ("U-A O B-B L-B", "U-A O B-B I-B", "bilou", 3),
        ("E-A O I-B E-B", "E-A O I-B E-B", "ioe2", 4),
    ],
)
def test_spans_are_compared_and_not_their_tags(tags, predicted, scheme, num_right):
    found = scores.tagging_scores([predicted.split(), ["I-A"]], [tags.split(), ["O"]], scheme)
    # 2 of 3 predicted spans are right, and none of the 2 true spans is missing.
    assert found == pytest.approx({"precision": 2 / 3, "recall": 1.0, "f1": 0.8, "accuracy": num_right / 5})


def test_tags_that_break_the_scheme_form_spans_as_in_conlleval():
    predicted, tags = "I-A I-B E-B I-B O E-A", "B-A B-B I-B B-B O B-A"  # spans: A 0, B 1 to 2, B 3, A 5
    assert scores.tagging_scores([predicted.split()], [tags.split()], "iob2")["f1"] == 1
    assert scores.tagging_scores([["NN", "VB"], ["NN"]], [["NN", "NN"], ["NN"]], "plain") == {"accuracy": 2 / 3}
    without_spans = {"f1": 0.0, "precision": 0.0, "recall": 0.0, "accuracy": 0.5}
    assert scores.tagging_scores([["O", "O"]], [["O", "B-A"]], "iob2") == without_spans


@pytest.mark.parametrize("room", ["data", "tasks/finetune"])
def test_no_scoring_library_is_imported_at_the_start(room):
    files = (Path(electra_tf.__file__).parent / room).rglob("*.py")
    early = re.compile("^(import|from) (sklearn|scipy|seqeval|pandas)", re.MULTILINE)
    assert [path.name for path in files if early.search(path.read_text())] == []


LABELS = ("cat", "dog", "eel")


def row(precision: float, recall: float, f1: float, support: int) -> dict:
    return {"precision": precision, "recall": recall, "f1": f1, "support": support}


def as_ours(theirs: dict, names) -> dict:
    """The classes in a report of scikit-learn's or seqeval's."""
    return {name: row(*(theirs[name][key] for key in ("precision", "recall", "f1-score", "support"))) for name in names}


def test_scores_and_confusions_of_five_examples():
    report = scores.class_report(LABELS, ["cat", "cat", "dog", "dog", "cat"], ["cat", "dog", "dog", "dog", "dog"])
    assert report == {
        "classes": {
            "cat": row(pytest.approx(1 / 3), 1.0, 0.5, 1),
            "dog": row(1.0, 0.5, pytest.approx(2 / 3), 4),
            "eel": row(0.0, 0.0, 0.0, 0),
        },
        "confusion_matrix": {"cat": {"cat": 1}, "dog": {"cat": 2, "dog": 2}, "eel": {}},
    }
    report = scores.class_report(LABELS, ["cat", "", ""], ["cat", "cat", "eel"])
    assert report["confusion_matrix"] == {"cat": {"cat": 1, "": 1}, "dog": {}, "eel": {"": 1}}
    assert report["classes"]["cat"] == row(1.0, 0.5, pytest.approx(2 / 3), 2)


def test_the_report_of_several_labels_equals_scikit_learns():
    targets, predictions = np.random.default_rng(3).integers(0, 2, (2, 20, 3)).astype(np.int32)
    targets[:, 1] = predictions[:, 2] = 0
    theirs = classification_report(targets, predictions, target_names=LABELS, output_dict=True, zero_division=0)
    report = scores.multi_label_report(LABELS, predictions, targets)
    assert report == {"classes": {name: pytest.approx(row) for name, row in as_ours(theirs, LABELS).items()}}


def test_the_report_of_spans_has_their_types_and_equals_seqevals():
    tags = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O"]]
    predictions = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "B-ORG"]]
    classes = scores.span_report(predictions, tags)["classes"]
    assert classes["PER"] == row(0.5, 1.0, pytest.approx(2 / 3), 1)
    theirs = seqeval_report(tags, predictions, output_dict=True, zero_division=0)
    assert classes == as_ours(theirs, ("LOC", "ORG", "PER"))
    # As in the scores, U and L are spans too.
    classes = scores.span_report([["U-A", "B-B", "L-B"]], [["U-A", "O", "O"]])["classes"]
    assert classes == {"A": row(1.0, 1.0, 1.0, 1), "B": row(0.0, 0.0, 0.0, 0)}
    assert scores.span_report([["O", "O"]], [["O", "O"]]) == {"classes": {}}


def test_the_table_begins_with_the_worst_class_and_ends_with_those_without_examples():
    targets = ["cat"] * 2 + ["dog"] * 4 + ["fly"] * 3
    predictions = ["dog", "fly", "cat", "fly", "cat", "dog", "fly", "fly", ""]
    text = scores.class_table(scores.class_report(("cat", "dog", "eel", "fly"), predictions, targets), "dev")
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
    report = scores.class_report(names, names[:3] + names[:1] * 9, names)
    text = scores.class_table(report, "dev", "out/result.json")
    assert text.startswith("dev: the 10 of 12 classes with the lowest F1; all: out/result.json\n")
    rows = cells(text)[1:]
    assert len(rows) == 10 and not any(row[0] == "class 01" for row in rows)
    assert len(cells(scores.class_table(report, "dev"))) == 13


def results(*values: float | None, tested: tuple[float, ...] = ()) -> dict[int, dict]:
    """By seed 3, 4, ...: a result with this accuracy, and perhaps one on the test file."""
    tests = [{"test": {"file": "test.csv", "data": "a hash", "metrics": {"accuracy": value}}} for value in tested]
    tests = tests or [{}] * len(values)
    return {
        seed: {"seed": seed, "step": 8, "metrics": {"accuracy": value, "loss": 0.5}, **test}
        for seed, value, test in zip(range(3, 9), values, tests, strict=False)
    }


def test_a_summary_has_median_mean_sigma_and_range_also_of_the_test_file_but_no_reports_of_classes():
    by_seed = results(0.5, 0.75, 0.625, 0.125, tested=(0.25, 0.75, 0.25, 0.75))
    reported = {seed: {**result, "reports": {"validation": {}}} for seed, result in by_seed.items()}
    content = summary.summarize("rte", "accuracy", reported, "step 9 of RUN")
    sigma = pytest.approx(0.2700308)  # sqrt((0 + 0.0625 + 0.015625 + 0.140625) / 3)
    expected = {"median": 0.5625, "mean": 0.5, "sigma": sigma, "min": 0.125, "max": 0.75, "n": 4}
    assert content["statistics"]["accuracy"] == expected and content["seeds"] == list(by_seed.values())
    sigma = pytest.approx(0.2886751)  # sqrt(4 / 16 / 3)
    expected = {"median": 0.5, "mean": 0.5, "sigma": sigma, "min": 0.25, "max": 0.75, "n": 4}
    assert content["test"] == {"file": "test.csv", "statistics": {"accuracy": expected}}
    missing = summary.summarize("cola", "accuracy", results(0.5, None), None)
    assert missing["statistics"]["accuracy"]["median"] is None and "test" not in missing


def test_the_best_seed_by_an_error_has_the_lowest():
    errors = {3: 0.5, 4: 0.25, 5: None}
    by_seed = {seed: {"seed": seed, "step": 8, "metrics": {"mse": error}} for seed, error in errors.items()}
    assert summary.best_seed(summary.summarize("regression", "mse", by_seed, None)) == 4


@pytest.mark.parametrize(
    ("values", "best", "median"),
    [((0.75, 0.25, 0.5, 0.75), 3, 5), ((0.75, 0.25, 0.5, 0.625), 3, 5), ((None, 0.5, 0.75), 5, 4), ((0.5,), 3, 3)],
)
def test_the_best_of_equal_seeds_is_the_first_and_the_median_of_an_even_number_the_lower(values, best, median):
    content = summary.summarize("rte", "accuracy", results(*values), None)
    assert (summary.best_seed(content), summary.median_seed(content)) == (best, median)


def test_the_glue_average_is_the_mean_of_the_medians_of_all_eight_tasks():
    summaries = [summary.summarize(task, "accuracy", results(0.5 + i / 16), None) for i, task in enumerate(PAPER_TASKS)]
    assert summary.glue_summary(summaries)["glue_average"] == pytest.approx(0.5 + 3.5 / 16)
    assert summary.glue_summary(summaries[:7])["glue_average"] is None


def test_the_table_marks_the_primary_metric_and_shows_percent_with_the_test_file_below():
    lines = cells(summary.table([summary.summarize("rte", "accuracy", results(0.5, 0.75, tested=(0.75, 0.75)), None)]))
    assert lines[1:] == [
        ["rte", "accuracy *", "62.50", "62.50", "17.68", "50.00", "75.00", "2"],
        ["rte", "loss", "0.50", "0.50", "0.00", "0.50", "0.50", "2"],
        ["rte", "test accuracy *", "75.00", "75.00", "0.00", "75.00", "75.00", "2"],
    ]
    lines = cells(summary.score_table("rte", "accuracy", {"accuracy": 0.625, "f1": math.nan, "loss": 0.5}))
    assert lines[1:] == [["rte", "accuracy *", "62.50"], ["rte", "f1", "-"], ["rte", "loss", "0.50"]]


def test_squads_scores_are_percent_already_in_the_table():
    lines = cells(summary.table([summary.summarize("squad_v1", "f1", {0: {"seed": 0, "metrics": {"f1": 62.5}}}, None)]))
    assert lines[1] == ["squad_v1", "f1 *", "62.50", "62.50", "-", "62.50", "62.50", "1"]
    of_a_converted_model = summary.score_table("question_answering", "f1", {"f1": 62.5})
    assert cells(of_a_converted_model)[1] == ["question_answering", "f1 *", "62.50"]


def test_a_summary_is_json_without_nan(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        summary.write_summary(str(tmp_path), {"loss": float("nan")})
    assert not list(tmp_path.iterdir())


def test_a_milestone_has_flops_and_the_median_and_range_over_seeds(tiny_config):
    cost = RunCost(tiny_config())
    first, last = summary.milestone_scores({8: {4: 0.75, 5: 0.5, 7: 0.625}, 3: {4: 0.25, 5: math.nan}}, cost)
    for row, step in ((first, 3), (last, 8)):
        spent = cost.spent(step)
        flops = {"paper_flops": float(spent.paper), "hardware_flops": spent.hardware.total}
        assert {name: row.pop(name) for name in ("step", *flops)} == {"step": step, **flops}
    assert last == {"median": 0.625, "lowest": 0.5, "highest": 0.75, "scores": {"4": 0.75, "5": 0.5, "7": 0.625}}
    assert first == {"median": None, "lowest": None, "highest": None, "scores": {"4": 0.25, "5": None}}
