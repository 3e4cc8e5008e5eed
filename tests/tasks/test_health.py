"""Alarms while a run trains, and the verdict at its end."""

import json
import math

import pytest

from electra_tf.tasks.health import (
    HealthMonitor,
    MaskedLmCheck,
    alarm_after,
    check_discriminator,
    plateau_verdict,
    pretraining_health_checks,
)
from tests.toy import toy_config

# --- alarms of any checks

GOOD, BAD = {"loss": 1.0}, {"loss": 3.0}


def check(metrics: dict[str, float]) -> str | None:
    return f"the loss is {metrics['loss']:g}" if metrics.get("loss", 0.0) > 2.0 else None


def alarms(reports: list[dict], after: int = 30, checks=(check,)) -> list[tuple[int, str]]:
    """(report, message) of each alarm, for reports at every tenth step."""
    monitor = HealthMonitor(after, checks)
    return [(number, line) for number, report in enumerate(reports, 1) for line in monitor.observe(10 * number, report)]


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([GOOD] * 9, []),
        ([BAD] * 9, [(3, "since step 1 the loss is 3")]),  # once
        ([BAD, BAD, GOOD, *[BAD] * 4], [(6, "since step 31 the loss is 3")]),  # the count starts anew
        ([*[BAD] * 4, GOOD, *[BAD] * 4], [(3, "since step 1 the loss is 3"), (8, "since step 51 the loss is 3")]),
        # A report without a finite value ends an episode.
        ([BAD, BAD, {"loss": None}, {"loss": math.nan}, BAD], []),
    ],
)
def test_an_alarm_is_raised_once_for_each_time_that_a_check_fails_for_long_enough(reports, expected):
    assert alarms(reports) == expected


def test_an_alarm_is_raised_also_if_reports_are_further_apart_than_its_steps():
    assert alarms([GOOD, BAD, BAD], after=4) == [(2, "since step 11 the loss is 3")]


@pytest.mark.parametrize(
    ("alarm_after_steps", "num_steps", "expected"),
    [(5000, 10**6, 5000), (5000, 1600, 800), (5000, 150, 500), (300, 1600, 300), (0, 1600, 0)],
)
def test_alarms_of_a_short_run_are_due_after_half_of_its_steps_but_not_in_its_first_500(
    alarm_after_steps, num_steps, expected
):
    train = toy_config(train={"alarm_after_steps": alarm_after_steps, "num_steps": num_steps}).train
    assert alarm_after(train) == expected


def test_alarm_after_steps_0_switches_alarms_off():
    assert alarms([BAD] * 9, after=0) == []


def test_each_check_raises_its_own_alarm():
    lines = [line for _, line in alarms([BAD] * 3, checks=(check, lambda metrics: "always"))]
    assert lines == ["since step 1 the loss is 3", "since step 1 always"]


def test_a_monitor_that_observes_the_reports_again_raises_the_same_alarms():
    reports = [GOOD, *[BAD] * 4, GOOD, *[BAD] * 4]
    whole = HealthMonitor(30, [check])
    expected = [whole.observe(10 * number, report) for number, report in enumerate(reports, 1)]
    for stop in range(len(reports)):
        continued = HealthMonitor(30, [check])
        for number, report in enumerate(reports[:stop], 1):
            continued.observe(10 * number, json.loads(json.dumps({"step": 10 * number, "split": "train", **report})))
        assert [continued.observe(10 * n, reports[n - 1]) for n in range(stop + 1, 11)] == expected[stop:]


# --- checks of pre-training


def test_a_run_that_goes_on_from_another_has_its_own_first_step():
    monitor = HealthMonitor(30, [check], first_step=100)
    assert [monitor.observe(step, BAD) for step in (110, 120, 130)] == [[], [], ["since step 101 the loss is 3"]]


# The loss of the same answer for every token is H(0.1) = 0.3251, and 2 % less is 0.3186. If two of eight tokens are
# [CLS] and [SEP], the same answer for every word gives 0.75 H(0.1 / 0.75) = 0.2945, and 2 % less is 0.2886.
@pytest.mark.parametrize(
    ("loss", "fraction", "specials", "fails"),
    [
        (0.3187, 0.1, 0.0, True),
        (0.3185, 0.1, 0.0, False),
        (0.2887, 0.1, 0.25, True),
        (0.2885, 0.1, 0.25, False),
        (0.28, 0.08, 0.0, True),
    ],
)
def test_a_discriminator_fails_within_two_percent_of_the_same_answer_for_every_word(loss, fraction, specials, fails):
    problem = check_discriminator({"replaced_token": loss, "replaced_fraction": fraction}, specials)
    assert (problem is not None) == fails
    assert check_discriminator({"replaced_token": loss}, specials) is None


def test_the_alarm_of_a_discriminator_names_its_numbers_and_the_settings_to_change():
    problem = check_discriminator({"replaced_token": 0.3251, "replaced_fraction": 0.1}, 0.0)
    for part in ("0.3251", "10.0%", "optimizer.learning_rate", "train.batch_size", "generator.size_fraction"):
        assert part in problem and "\n" not in problem


def test_the_share_of_special_tokens_is_that_of_the_shortest_sequences(tiny_config):
    stages = [{"num_steps": steps, "max_seq_length": length, "batch_size": 4} for steps, length in ((3, 8), (4, 10))]
    config = tiny_config(stages=stages, train={"num_steps": 7, "batch_size": 4})
    assert config.objective.specials_fraction(config) == 0.25


# At a vocabulary of 47 the uniform loss is 3.850, and 95 % of it 3.658.
@pytest.mark.parametrize(
    ("reports", "problem"),
    [
        ([{"masked_lm": 3.7}], "the loss is 3.700, and equal probabilities for all tokens give 3.850"),
        ([{"masked_lm": 3.6}], None),
        # Half of the best gain of 1.85 is lost at 2.925.
        ([{"masked_lm": 2.0}, {"masked_lm": 2.93}], "the loss is 2.930 and was 2.000 at its best"),
        ([{"masked_lm": 2.0}, {"masked_lm": 2.92}], None),
        (
            [{"masked_lm": 2.0, "sampled_masked_lm_accuracy": accuracy} for accuracy in (0.4, 0.19)],
            "19.0% of the sampled tokens are right, and 40.0% were at best",
        ),
        ([{"masked_lm": 2.0, "sampled_masked_lm_accuracy": accuracy} for accuracy in (0.4, 0.21)], None),
        # An accuracy below 5 % is chance.
        ([{"masked_lm": 2.0, "sampled_masked_lm_accuracy": accuracy} for accuracy in (0.04, 0.001)], None),
        # 98 % of the loss of token frequencies is 2.94.
        (
            [{"masked_lm": 2.5, "mask_token_loss": 2.95, "unigram_loss": 3.0}],
            "the loss on [MASK] is 2.950, and token frequencies alone give 3.000",
        ),
        ([{"masked_lm": 2.5, "mask_token_loss": 2.93, "unigram_loss": 3.0}], None),
        ([{"masked_lm": 2.5, "mask_token_loss": 2.95}], None),
        # No token is shown as [MASK].
        ([{"masked_lm": 2.5, "mask_token_loss": 0.0, "unigram_loss": 0.0}], None),
    ],
)
def test_a_masked_lm_fails_at_chance_at_token_frequencies_and_far_from_its_best(reports, problem):
    check = MaskedLmCheck(vocab_size=47)
    *_, last = map(check, reports)
    assert (last is None) if problem is None else (problem in last)


@pytest.mark.parametrize(
    ("objective", "count"),
    [
        ({}, 2),
        ({"replaced_token_loss_weight": 0.0}, 1),
        ({"masked_lm_loss_weight": 0.0}, 1),
        ({"name": "bert_mlm"}, 1),
        ({"name": "electra_15", "loss_positions": "random"}, 2),
        # No counted token is ever replaced.
        ({"name": "electra_15", "loss_positions": "random_unmasked"}, 1),
    ],
)
def test_only_losses_that_are_minimised_are_checked(tiny_config, objective, count):
    assert len(pretraining_health_checks(tiny_config(objective=objective))) == count


# --- the verdict

# The constant predictor's loss is H(0.1) = 0.3251, and of the tiny configuration's ten tokens two are [CLS] and [SEP].
LEFT = {
    "replaced_token_loss": 0.2601,
    "replaced_fraction": 0.1,
    "constant_predictor_loss": 0.3251,
    "replaced_token_auc": 0.778,
    "mask_token_loss": 5.5,
    "unigram_loss": 6.6,
}
PLATEAU = "the plateau of token frequencies"
BELOW, ABOVE = "discriminator loss 20.0% below the constant predictor, AUC 0.78", "discriminator loss 20.0% above"


@pytest.mark.parametrize(
    ("changes", "reached", "shown"),
    [
        ({}, "has left", [BELOW, "masked-LM loss 1.10 nat below unigram"]),
        ({"mask_token_loss": 6.59}, "has left", ["in part", BELOW, "masked-LM loss 0.01 nat below unigram"]),
        # A discriminator that detects nothing has learnt nothing, whatever the generator.
        ({"replaced_token_loss": 0.3251, "mask_token_loss": 6.7}, "is still on", ["0.0% below", "0.10 nat above"]),
        ({"replaced_token_loss": 0.3251, "mask_token_loss": 6.5}, "is still on", ["0.0% below", "0.10 nat below"]),
        ({"replaced_token_loss": 0.3901, "mask_token_loss": 8.1}, "has not reached", [ABOVE, "1.50 nat above"]),
        ({"unigram_loss": math.nan, "mask_token_loss": 3.6}, "has left", [BELOW]),
        # With every sample another token than the original there is no loss to be below.
        ({"constant_predictor_loss": 0.0, "replaced_fraction": 1.0}, "has left", ["masked-LM loss 1.10 nat below"]),
    ],
)
def test_the_verdict_describes_how_far_each_network_has_come(tiny_config, changes, reached, shown):
    verdict = plateau_verdict(tiny_config(), {**LEFT, **changes})
    assert verdict.startswith(f"the run {reached} {PLATEAU}")
    assert all(part in verdict for part in shown)
    assert ("AUC" in verdict) + ("unigram on [MASK]" in verdict) == (1 if len(shown) == 1 else 2)


@pytest.mark.parametrize(
    "settings",
    [{"temperature": 2.0}, {"generator": {"kind": "uniform"}}, {"sampling": "greedy"}, {"name": "electra_15"}],
)
def test_there_is_no_verdict_on_a_discriminator_where_frequencies_reveal_replaced_tokens(tiny_config, settings):
    assert plateau_verdict(tiny_config(objective=settings), LEFT).startswith(f"the run ends with held-out {BELOW}")


FROZEN = {"name": "fast_electra", "auxiliary": "some/run", "tying": "none", "masked_lm_loss_weight": 0.0}


# In the first 20 steps, or of a generator that is not trained, frequencies alone reveal the samples.
@pytest.mark.parametrize("mask_token_loss", [6.61, 7.7, 10.3])
@pytest.mark.parametrize(
    "objective",
    [
        {},
        {"masked_lm_loss_weight": 0.0},
        FROZEN,
        {"name": "electric"},
        {"name": "contrastive"},
        {"name": "adversarial", "masked_lm_loss_weight": 0.0},
        {"name": "two_stage", "tying": "none", "generator": {"size_fraction": 1.0}},
        {"name": "electra_15", "loss_positions": "random"},
    ],
    ids=str,
)
def test_there_is_no_verdict_on_a_discriminator_of_a_generator_worse_than_frequencies(
    tiny_config, objective, mask_token_loss
):
    verdict = plateau_verdict(tiny_config(objective=objective), {**LEFT, "mask_token_loss": mask_token_loss})
    assert verdict.startswith(f"the run ends with held-out {BELOW} (on samples of a generator that is worse than")


def test_with_unknown_frequencies_a_generator_near_equal_probabilities_is_worse_than_they_are(tiny_config):
    metrics = {**LEFT, "unigram_loss": math.nan, "mask_token_loss": 3.7}  # ln 47 is 3.85
    assert plateau_verdict(tiny_config(), metrics).startswith("the run ends with")


def test_a_generator_of_frequencies_is_not_worse_than_they_are(tiny_config):
    metrics = {**LEFT, "mask_token_loss": 6.600001}
    verdict = plateau_verdict(tiny_config(objective={"generator": {"kind": "unigram"}}), metrics)
    assert verdict.startswith("the run has left")


@pytest.mark.parametrize("name", ["electra", "bert_mlm", "replace_mlm"])
def test_there_is_no_verdict_where_rare_tokens_are_masked_whose_frequencies_are_others(tiny_config, name):
    config = tiny_config(objective={"name": name}, masking={"scheme": "rare_tokens"})
    assert plateau_verdict(config, LEFT).startswith("the run ends with held-out")


@pytest.mark.parametrize(
    ("objective", "begin"),
    [
        ({"name": "bert_mlm"}, f"the run has left {PLATEAU}: held-out masked-LM loss 1.10 nat below"),
        ({"name": "replace_mlm"}, f"the generator has left {PLATEAU}: held-out generator's masked-LM loss 1.10 nat"),
        # A generator that is not trained to predict masked tokens gets no verdict.
        ({"masked_lm_loss_weight": 0.0}, f"the run has left {PLATEAU}: held-out discriminator loss"),
        ({"generator": {"kind": "unigram"}}, f"the run has left {PLATEAU}: held-out discriminator loss"),
        ({"name": "electra_15", "generator": {"kind": "unigram"}, "loss_positions": "random"}, "the run has left the"),
    ],
)
def test_the_verdict_is_on_networks_that_are_trained(tiny_config, objective, begin):
    verdict = plateau_verdict(tiny_config(objective=objective), LEFT)
    assert verdict.startswith(begin) and ("generator's" in verdict) == (objective.get("name") == "replace_mlm")


@pytest.mark.parametrize("names", [(), ("masked_lm_loss",), ("replaced_token_loss", "replaced_fraction")])
def test_without_the_metrics_there_is_no_verdict(tiny_config, names):
    assert plateau_verdict(tiny_config(), {name: 0.25 for name in names}) is None
