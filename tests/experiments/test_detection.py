"""The tables of a comparison with a judge, compared with values computed by hand."""

import json

import pytest

from electra_tf.reports.runs import RunResults
from experiments.replication.detection import (
    StepSeconds,
    Trained,
    end_table,
    first_step,
    peer_table,
    pytorch_run,
    quarter_table,
    target_table,
    trained_of,
)


@pytest.fixture
def seconds(tmp_path):
    """Steps of length 8 take 0.25 s, those of length 10 take 0.5 s; PyTorch's are measured in two ways."""
    stages = [
        {"batch_size": 6, "max_seq_length": 8, "seconds": {"electra": [0.25, 9.0, 0.125], "pytorch_electra": [1.0]}},
        {"batch_size": 4, "max_seq_length": 10, "seconds": {"electra": [0.5], "pytorch_electra": [3.0]}},
    ]
    stages[1]["seconds"]["pytorch_electra_avx512"] = [2.0]
    (tmp_path / "seconds.json").write_text(json.dumps({"stages": stages}))
    return StepSeconds(tmp_path / "seconds.json")


@pytest.fixture
def run(tiny_config):
    """A run of 8 steps of length 8 and 4 of length 10."""
    stages = [
        {"num_steps": 8, "max_seq_length": 8, "batch_size": 6},
        {"num_steps": 4, "max_seq_length": 10, "batch_size": 4},
    ]
    config = tiny_config(stages=stages, train={"num_steps": 12, "batch_size": 4}, data={"max_seq_length": 10})
    held_out = {
        6: {"replaced_token_auc": 0.6, "replaced_token_loss": 0.45, "constant_predictor_loss": 0.5},
        12: {"replaced_token_auc": 0.75, "replaced_token_loss": 0.4, "constant_predictor_loss": 0.5},
    }
    judged = {
        str(step): {"auc": auc, "loss": loss, "constant_loss": 0.4}
        for step, auc, loss in ((3, 0.5, 0.5), (6, 0.5625, 0.42), (9, 0.59375, 0.34), (12, 0.625, 0.3))
    }
    scores = {"finetuned_truecasing": {3: (0.25,), 6: (0.375,), 12: (0.5, 0.75, 0.625)}}
    return RunResults("electra-seed0", config, held_out, scores=scores, notes={"judged": judged})


def test_seconds_are_the_median_of_rounds_of_each_stage(seconds, run):
    assert seconds.until(run.config, "electra", 12) == 8 * 0.25 + 4 * 0.5
    assert seconds.until(run.config, "electra", 9) == 8 * 0.25 + 1 * 0.5
    assert seconds.until(run.config, "electra", 3) == 3 * 0.25


def test_the_fastest_way_of_pytorch_counts(seconds, run):
    assert seconds.until(run.config, "pytorch_electra", 12) == 8 * 1.0 + 4 * 2.0


@pytest.mark.parametrize(("auc", "step"), [(0.55, 5), (0.6, 10), (0.7, 15), (0.8, 20), (0.81, None)])
def test_a_curve_is_straight_between_its_points_and_begins_at_a_half(auc, step):
    assert first_step({10: 0.6, 20: 0.8}, auc) == step


def test_both_kinds_of_samples_are_shown_at_the_end(seconds, run):
    row = end_table([trained_of(run, seconds)]).splitlines()[-1]
    assert row == "| electra | 0.750 | 20.0 % | 0.625 | 25.0 % |"


def test_a_run_without_a_discriminator_or_a_judge_has_no_row(tiny_config):
    assert trained_of(RunResults("bert_mlm-seed0", tiny_config(), {12: {"mask_token_loss": 5.0}}), None) is None
    end = {"replaced_token_auc": 0.75, "replaced_token_loss": 0.4, "constant_predictor_loss": 0.5}
    assert trained_of(RunResults("electra-seed0", tiny_config(), {12: end}), None) is None


def test_quarters_have_auc_and_loss_of_both_kinds_and_the_score(run):
    row = quarter_table([run]).splitlines()[-1]
    # Evaluated after 6 and 12 steps: the former is the nearest to 3 (25 %) and, as the first of two, to 9 (75 %).
    own = "0.600, 0.600, 0.600, 0.750 | 10.0, 10.0, 10.0, 20.0"
    judged = "0.500, 0.562, 0.594, 0.625 | -25.0, -5.0, 15.0, 25.0"
    assert row == f"| electra | {own} | {judged} | 25.0, 37.5, -, 62.5 |"


def trained(arm: str, own: dict, judged: dict, seconds: float) -> Trained:
    """A run whose steps take `seconds` each."""
    curves, below_constant = {"own": own, "judged": judged}, {"own": 0.0, "judged": 0.0}
    return Trained(arm, max(own), curves, below_constant, lambda step: seconds * step, lambda step: 10 * step)


def test_the_target_is_electras_auc_at_its_end():
    electra = [trained("electra", {100: 0.7}, {100: 0.6}, 2.0), trained("electra", {100: 0.8}, {100: 0.62}, 2.0)]
    # 0.75 by its own samples at step 25 of 40; never 0.61 by the judge's.
    faster = trained("fast_electra", {40: 0.9}, {40: 0.6}, 4.0)
    rows = target_table([*electra, faster], {"auxiliary": 50.0}).splitlines()
    assert rows[2] == "| electra | 200 | AUC 0.750 at its end | 1.00 | 1.00 | AUC 0.610 at its end | 1.00 | 1.00 |"
    assert rows[3] == (
        "| fast_electra | 160 | 100 | 0.50 (0.75 with its auxiliary model) | 0.25 | not reached by 1 of 1 |  |  |"
    )


def test_a_run_and_pytorchs_are_timed_to_the_lower_of_their_last_aucs():
    # Own samples: 0.7, which ours has at step 100 of 200. The judge's: 0.6, PyTorch's at step 50 of 100.
    ours = trained("modern", {200: 0.9}, {200: 0.6}, 2.0)
    theirs = trained("modern in PyTorch", {100: 0.7}, {100: 0.7}, 5.0)
    rows = peer_table([(ours, theirs)]).splitlines()
    assert rows[2:] == ["| own samples | 0.700 | 200 | 500 | 0.40 |", "| the judge's | 0.600 | 400 | 250 | 1.60 |"]


def test_pytorchs_run_is_read_beside_ours(seconds, run):
    evaluations = {
        str(step): {kind: {"auc": auc, "loss": 0.2, "constant_loss": 0.5} for kind in ("own", "judged")}
        for step, auc in ((6, 0.6), (12, 0.7))
    }
    theirs = pytorch_run({"num_steps": 12, "evaluations": evaluations}, run, seconds)
    assert (theirs.arm, theirs.num_steps) == ("electra in PyTorch", 12)
    assert theirs.curves == {"own": {6: 0.6, 12: 0.7}, "judged": {6: 0.6, 12: 0.7}}
    assert theirs.below_constant == pytest.approx({"own": 0.6, "judged": 0.6})
    assert theirs.seconds_until(12) == 16.0
