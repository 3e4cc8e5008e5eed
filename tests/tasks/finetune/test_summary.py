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


def results(*values: float | None) -> dict[int, dict]:
    """By seed 3, 4, ...: a result with this accuracy."""
    return {
        seed: {"seed": seed, "step": 8, "metrics": {"accuracy": v, "loss": 0.5}} for seed, v in enumerate(values, 3)
    }


def test_a_summary_has_median_mean_sigma_and_range():
    summary = summarize("rte", "accuracy", results(0.5, 0.75, 0.625, 0.125), "step 9 of RUN")
    assert summary["statistics"]["accuracy"] == {
        "median": 0.5625,
        "mean": 0.5,
        "sigma": pytest.approx(0.2700308),  # sqrt((0 + 0.0625 + 0.015625 + 0.140625) / 3)
        "min": 0.125,
        "max": 0.75,
        "n": 4,
    }


def with_test_scores(*values: float) -> dict[int, dict]:
    """By seed 3, 4, ...: a result with accuracy 0.5 on the dev set and this accuracy on the test file."""
    tests = [{"file": "test.csv", "data": "a hash", "metrics": {"accuracy": value}} for value in values]
    return {seed: {**result, "test": tests[seed - 3]} for seed, result in results(*[0.5] * len(values)).items()}


def test_the_scores_of_a_test_file_have_the_same_statistics():
    test = summarize("classification", "accuracy", with_test_scores(0.25, 0.75), None)["test"]
    assert test == {
        "file": "test.csv",
        "statistics": {
            "accuracy": {
                **{"median": 0.5, "mean": 0.5, "sigma": pytest.approx(0.3535534), "min": 0.25, "max": 0.75, "n": 2}
            }
        },
    }
    assert "test" not in summarize("classification", "accuracy", results(0.5), None)


def test_the_reports_of_classes_are_not_repeated_in_the_summary():
    (result,) = results(0.5).values()
    summary = summarize("classification", "accuracy", {3: {**result, "reports": {"validation": {}}}}, None)
    assert summary["seeds"] == [result]


def test_a_metric_with_a_missing_value_has_only_a_count():
    statistics = summarize("cola", "accuracy", results(0.5, None), None)["statistics"]["accuracy"]
    assert statistics["median"] is None and statistics["n"] == 2


def test_the_best_of_equal_seeds_is_the_first():
    assert best_seed(summarize("rte", "accuracy", results(None, 0.5, 0.75, 0.75), None)) == 5


@pytest.mark.parametrize(
    ("values", "seed"), [((0.75, 0.25, 0.5), 5), ((0.75, 0.25, 0.5, 0.625), 5), ((None, 0.5), 3), ((0.5,), 3)]
)
def test_the_median_seed_of_an_even_number_is_the_lower_of_the_two(values, seed):
    assert median_seed(summarize("rte", "accuracy", results(*values), None)) == seed


def test_the_glue_average_is_the_mean_of_the_medians_of_all_eight_tasks():
    summaries = [summarize(task, "accuracy", results(0.5 + i / 16), None) for i, task in enumerate(PAPER_TASKS)]
    assert glue_summary(summaries)["glue_average"] == pytest.approx(0.5 + 3.5 / 16)
    assert glue_summary(summaries[:7])["glue_average"] is None


def test_the_table_marks_the_primary_metric_and_shows_percent():
    lines = table([summarize("rte", "accuracy", results(0.5, 0.75), None)]).splitlines()
    assert lines[1].split() == ["rte", "accuracy", "*", "62.50", "62.50", "17.68", "50.00", "75.00", "2"]
    assert lines[2].split() == ["rte", "loss", "0.50", "0.50", "0.00", "0.50", "0.50", "2"]


def test_the_table_has_the_scores_of_the_test_file_below_those_of_the_dev_set():
    lines = table([summarize("classification", "accuracy", with_test_scores(0.75), None)]).splitlines()
    assert [line.split()[1:-6] for line in lines[1:]] == [["accuracy", "*"], ["loss"], ["test", "accuracy", "*"]]
    assert lines[3].split()[4] == "75.00"


def test_the_scores_of_one_model_are_shown_in_percent():
    lines = score_table("rte", "accuracy", {"accuracy": 0.625, "f1": math.nan, "loss": 0.5}).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["rte", "accuracy", "*", "62.50"],
        ["rte", "f1", "-"],
        ["rte", "loss", "0.50"],
    ]


def test_squads_scores_are_percent_already_in_the_table():
    lines = table([summarize("squad_v1", "f1", {0: {"seed": 0, "metrics": {"f1": 62.5}}}, None)]).splitlines()
    assert lines[1].split() == ["squad_v1", "f1", "*", "62.50", "62.50", "-", "62.50", "62.50", "1"]
    of_a_converted_model = score_table("question_answering", "f1", {"f1": 62.5}).splitlines()
    assert of_a_converted_model[1].split() == ["question_answering", "f1", "*", "62.50"]


def test_a_summary_is_json_without_nan(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_summary(str(tmp_path), {"loss": float("nan")})
    assert not list(tmp_path.iterdir())


def test_a_milestone_has_flops_and_the_median_and_range_over_seeds(tiny_config):
    cost = RunCost(tiny_config())
    last, first = cost.spent(8), cost.spent(3)
    rows = milestone_scores({8: {4: 0.75, 5: 0.5, 7: 0.625}, 3: {4: 0.25}}, cost)
    assert rows == [
        {
            **{"step": 3, "paper_flops": float(first.paper), "hardware_flops": first.hardware.total},
            **{"median": 0.25, "lowest": 0.25, "highest": 0.25, "scores": {"4": 0.25}},
        },
        {
            **{"step": 8, "paper_flops": float(last.paper), "hardware_flops": last.hardware.total},
            **{"median": 0.625, "lowest": 0.5, "highest": 0.75, "scores": {"4": 0.75, "5": 0.5, "7": 0.625}},
        },
    ]


def test_statistics_with_a_missing_score_are_null(tiny_config):
    (row,) = milestone_scores({3: {0: 0.25, 1: math.nan}}, RunCost(tiny_config()))
    missing = {"median": None, "lowest": None, "highest": None, "scores": {"0": 0.25, "1": None}}
    assert {name: row[name] for name in missing} == missing
