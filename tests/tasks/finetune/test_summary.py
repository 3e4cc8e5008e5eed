"""Summaries over seeds and tasks: median, spread, the best seed, GLUE's average, and the scores of milestones."""

import math

import pytest

from electra_tf.flops.budget import RunCost
from electra_tf.tasks.finetune.benchmarks import PAPER_TASKS
from electra_tf.tasks.finetune.summary import (
    best_seed,
    glue_summary,
    median_seed,
    milestone_scores,
    score_table,
    summarize,
    table,
    write_summary,
)
from tests.markdown import cells


def results(*values: float | None, tested: tuple[float, ...] = ()) -> dict[int, dict]:
    """By seed 3, 4, ...: a result with this accuracy, and perhaps one on the test file."""
    tests = [{"test": {"file": "test.csv", "data": "a hash", "metrics": {"accuracy": value}}} for value in tested]
    tests = tests or [{}] * len(values)
    return {
        seed: {"seed": seed, "step": 8, "metrics": {"accuracy": value, "loss": 0.5}, **test}
        for seed, value, test in zip(range(3, 9), values, tests, strict=False)
    }


def test_a_summary_has_median_mean_sigma_and_range():
    summary = summarize("rte", "accuracy", results(0.5, 0.75, 0.625, 0.125), "step 9 of RUN")
    sigma = pytest.approx(0.2700308)  # sqrt((0 + 0.0625 + 0.015625 + 0.140625) / 3)
    expected = {"median": 0.5625, "mean": 0.5, "sigma": sigma, "min": 0.125, "max": 0.75, "n": 4}
    assert summary["statistics"]["accuracy"] == expected and "test" not in summary
    missing = summarize("cola", "accuracy", results(0.5, None), None)["statistics"]["accuracy"]
    assert missing["median"] is None and missing["n"] == 2


def test_the_scores_of_a_test_file_have_the_same_statistics():
    test = summarize("classification", "accuracy", results(0.5, 0.5, tested=(0.25, 0.75)), None)["test"]
    expected = {"median": 0.5, "mean": 0.5, "sigma": pytest.approx(0.3535534), "min": 0.25, "max": 0.75, "n": 2}
    assert test == {"file": "test.csv", "statistics": {"accuracy": expected}}


def test_the_reports_of_classes_are_not_repeated_in_the_summary():
    (result,) = results(0.5).values()
    summary = summarize("classification", "accuracy", {3: {**result, "reports": {"validation": {}}}}, None)
    assert summary["seeds"] == [result]


def test_the_best_seed_by_an_error_has_the_lowest():
    errors = {3: 0.5, 4: 0.25, 5: None}
    scores = {seed: {"seed": seed, "step": 8, "metrics": {"mse": error}} for seed, error in errors.items()}
    assert best_seed(summarize("regression", "mse", scores, None)) == 4


@pytest.mark.parametrize(
    ("values", "best", "median"),
    [((0.75, 0.25, 0.5, 0.75), 3, 5), ((0.75, 0.25, 0.5, 0.625), 3, 5), ((None, 0.5, 0.75), 5, 4), ((0.5,), 3, 3)],
)
def test_the_best_of_equal_seeds_is_the_first_and_the_median_of_an_even_number_the_lower(values, best, median):
    summary = summarize("rte", "accuracy", results(*values), None)
    assert (best_seed(summary), median_seed(summary)) == (best, median)


def test_the_glue_average_is_the_mean_of_the_medians_of_all_eight_tasks():
    summaries = [summarize(task, "accuracy", results(0.5 + i / 16), None) for i, task in enumerate(PAPER_TASKS)]
    assert glue_summary(summaries)["glue_average"] == pytest.approx(0.5 + 3.5 / 16)
    assert glue_summary(summaries[:7])["glue_average"] is None


def test_the_table_marks_the_primary_metric_and_shows_percent_with_the_test_file_below():
    lines = cells(table([summarize("rte", "accuracy", results(0.5, 0.75, tested=(0.75, 0.75)), None)]))
    assert lines[1:] == [
        ["rte", "accuracy *", "62.50", "62.50", "17.68", "50.00", "75.00", "2"],
        ["rte", "loss", "0.50", "0.50", "0.00", "0.50", "0.50", "2"],
        ["rte", "test accuracy *", "75.00", "75.00", "0.00", "75.00", "75.00", "2"],
    ]
    lines = cells(score_table("rte", "accuracy", {"accuracy": 0.625, "f1": math.nan, "loss": 0.5}))
    assert lines[1:] == [["rte", "accuracy *", "62.50"], ["rte", "f1", "-"], ["rte", "loss", "0.50"]]


def test_squads_scores_are_percent_already_in_the_table():
    lines = cells(table([summarize("squad_v1", "f1", {0: {"seed": 0, "metrics": {"f1": 62.5}}}, None)]))
    assert lines[1] == ["squad_v1", "f1 *", "62.50", "62.50", "-", "62.50", "62.50", "1"]
    of_a_converted_model = score_table("question_answering", "f1", {"f1": 62.5})
    assert cells(of_a_converted_model)[1] == ["question_answering", "f1 *", "62.50"]


def test_a_summary_is_json_without_nan(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_summary(str(tmp_path), {"loss": float("nan")})
    assert not list(tmp_path.iterdir())


def test_a_milestone_has_flops_and_the_median_and_range_over_seeds(tiny_config):
    cost = RunCost(tiny_config())
    first, last = milestone_scores({8: {4: 0.75, 5: 0.5, 7: 0.625}, 3: {4: 0.25, 5: math.nan}}, cost)
    for row, step in ((first, 3), (last, 8)):
        spent = cost.spent(step)
        flops = {"paper_flops": float(spent.paper), "hardware_flops": spent.hardware.total}
        assert {name: row.pop(name) for name in ("step", *flops)} == {"step": step, **flops}
    assert last == {"median": 0.625, "lowest": 0.5, "highest": 0.75, "scores": {"4": 0.75, "5": 0.5, "7": 0.625}}
    assert first == {"median": None, "lowest": None, "highest": None, "scores": {"4": 0.25, "5": None}}
