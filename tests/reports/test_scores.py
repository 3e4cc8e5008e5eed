"""Scores of fine-tuned milestones beside their FLOPs, and the file that holds them."""

import json
import math

from electra_tf.flops.budget import RunCost
from electra_tf.reports.scores import read_scores
from electra_tf.tasks.finetune.summary import milestone_scores


def test_each_step_has_its_flops_and_the_median_and_range_over_seeds(tiny_config):
    cost = RunCost(tiny_config())
    last, first = cost.spent(8), cost.spent(3)
    rows = milestone_scores({8: {4: 0.75, 5: 0.5, 7: 0.625}, 3: {4: 0.25}}, cost)
    assert rows == [
        {
            "step": 3,
            "paper_flops": float(first.paper),
            "hardware_flops": first.hardware.total,
            "median": 0.25,
            "lowest": 0.25,
            "highest": 0.25,
            "scores": {"4": 0.25},
        },
        {
            "step": 8,
            "paper_flops": float(last.paper),
            "hardware_flops": last.hardware.total,
            "median": 0.625,
            "lowest": 0.5,
            "highest": 0.75,
            "scores": {"4": 0.75, "5": 0.5, "7": 0.625},
        },
    ]


def test_unknown_flops_and_the_median_of_a_seed_without_a_score_are_null():
    (row,) = milestone_scores({3: {0: 0.25, 1: math.nan}}, None)
    assert row == {
        **{"step": 3, "paper_flops": None, "hardware_flops": None},
        **{"median": None, "lowest": None, "highest": None, "scores": {"0": 0.25, "1": None}},
    }


def test_scores_are_read_as_they_were_written(tmp_path):
    rows = milestone_scores({3: {0: 0.25, 1: math.nan}, 8: {0: 0.5, 1: 0.75}}, None)
    (tmp_path / "finetuning_rte.json").write_text(json.dumps({"results": rows}))
    scores = read_scores(tmp_path, "rte")
    assert scores[3][0] == 0.25 and math.isnan(scores[3][1]) and scores[8] == (0.5, 0.75)
    assert read_scores(tmp_path, "mrpc") == {}
