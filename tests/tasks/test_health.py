"""Alarms of any task's checks, and signs that a pre-training run learns nothing."""

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

GOOD, BAD = {"loss": 1.0}, {"loss": 3.0}


def check(metrics: dict[str, float]) -> str | None:
    return f"the loss is {metrics['loss']:g}" if metrics.get("loss", 0.0) > 2.0 else None


def alarms(reports: list[dict], after: int = 30, checks=(check,)) -> list[tuple[int, str]]:
    """(step, message) of the alarms of reports at every tenth step."""
    monitor = HealthMonitor(after, checks)
    return [(step, line) for step, report in enumerate(reports, 1) for line in monitor.observe(10 * step, report)]


@pytest.mark.parametrize(
    ("reports", "found"),
    [
        ([GOOD] * 9, []),
        ([BAD] * 9, [(3, "since step 1 the loss is 3")]),  # once
        ([BAD, BAD, GOOD, *[BAD] * 4], [(6, "since step 31 the loss is 3")]),  # the count starts anew
        ([*[BAD] * 4, GOOD, *[BAD] * 4], [(3, "since step 1 the loss is 3"), (8, "since step 51 the loss is 3")]),
        # A report without a finite value says nothing: it ends what lasted.
        ([BAD, BAD, {"loss": None}, {"loss": math.nan}, BAD], []),
    ],
)
def test_an_alarm_is_raised_once_for_each_time_a_check_fails_for_long_enough(reports, found):
    assert alarms(reports) == found


@pytest.mark.parametrize(
    ("alarm_after_steps", "num_steps", "after"),
    [(5000, 10**6, 5000), (5000, 1600, 800), (5000, 150, 500), (300, 1600, 300), (0, 1600, 0)],
)
def test_a_short_run_is_warned_after_half_of_its_steps_but_not_in_the_first_hundreds(
    alarm_after_steps, num_steps, after
):
    train = toy_config(train={"alarm_after_steps": alarm_after_steps, "num_steps": num_steps}).train
    assert alarm_after(train) == after


def test_zero_steps_is_never_and_each_check_counts_for_itself():
    assert alarms([BAD] * 9, after=0) == []
    assert [line for _, line in alarms([BAD] * 3, checks=(check, lambda metrics: "always"))] == [
        "since step 1 the loss is 3",
        "since step 1 always",
    ]


def test_a_monitor_that_read_the_reports_of_before_raises_the_same_alarms():
    reports = [GOOD, *[BAD] * 4, GOOD, *[BAD] * 4]
    whole = HealthMonitor(30, [check])
    expected = [whole.observe(10 * step, report) for step, report in enumerate(reports, 1)]
    for stop in range(len(reports)):
        continued = HealthMonitor(30, [check])
        for step, report in enumerate(reports[:stop], 1):
            continued.observe(10 * step, json.loads(json.dumps({"step": 10 * step, "split": "train", **report})))
        assert [continued.observe(10 * step, reports[step - 1]) for step in range(stop + 1, 11)] == expected[stop:]


# Of eight tokens one is [CLS] and one [SEP]. One answer for words gives 0.75 H(0.1 / 0.75) = 0.2945, and 2 % less is
# 0.2886; one for all tokens H(0.1) = 0.3251 and 0.3186.
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
def test_a_discriminator_within_two_percent_of_one_answer_for_all_words_has_learnt_nothing(
    loss, fraction, specials, fails
):
    problem = check_discriminator({"replaced_token": loss, "replaced_fraction": fraction}, specials)
    assert (problem is not None) == fails
    assert check_discriminator({"replaced_token": loss}, specials) is None


def test_what_is_wrong_with_a_discriminator_is_said_with_what_to_do():
    problem = check_discriminator({"replaced_token": 0.3251, "replaced_fraction": 0.1}, 0.0)
    assert problem.startswith("the discriminator has learnt nothing: its loss is 0.3251")
    assert "10.0% of the tokens" in problem and "\n" not in problem
    for setting in ("optimizer.learning_rate", "train.batch_size", "objective.generator.size_fraction"):
        assert setting in problem


def test_a_masked_lm_within_two_percent_of_token_frequencies_has_learnt_nothing():
    # 98 % of 3.0 is 2.94. Without the frequencies ln 47 = 3.85 counts, of which 2.95 is far enough.
    check = MaskedLmCheck(vocab_size=47)
    problem = check({"masked_lm": 2.5, "mask_token_loss": 2.95, "unigram_loss": 3.0})
    assert "the loss on [MASK] is 2.950, and token frequencies alone give 3.000" in problem
    assert check({"masked_lm": 2.5, "mask_token_loss": 2.93, "unigram_loss": 3.0}) is None
    assert check({"masked_lm": 2.5, "mask_token_loss": 2.95}) is None


# The constant's loss is H(0.1) = 0.3251, and of the tiny configuration's ten tokens two are [CLS] and [SEP].
LEFT = {
    "replaced_token_loss": 0.2601,
    "replaced_fraction": 0.1,
    "constant_predictor_loss": 0.3251,
    "replaced_token_auc": 0.778,
    "mask_token_loss": 5.5,
    "unigram_loss": 6.6,
}


PLATEAU = "the plateau of token frequencies"
OF_BOTH = (
    "held-out discriminator loss 20.0% below the constant predictor, AUC 0.78; generator's masked-LM loss 1.10 nat"
)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, f"has left {PLATEAU}: {OF_BOTH} below unigram on [MASK]"),
        ({"mask_token_loss": 7.7}, f"has left {PLATEAU} in part: {OF_BOTH} above unigram on [MASK]"),
        ({"replaced_token_loss": 0.3251, "mask_token_loss": 6.5}, f"is still on {PLATEAU}: held-out discriminator loss "
         "0.0% below the constant predictor, AUC 0.78; generator's masked-LM loss 0.10 nat below unigram on [MASK]"),
        ({"replaced_token_loss": 0.3901, "mask_token_loss": 8.1}, f"has not reached {PLATEAU} yet: held-out "
         "discriminator loss 20.0% above the constant predictor, AUC 0.78; generator's masked-LM loss 1.50 nat above "
         "unigram on [MASK]"),
        ({"unigram_loss": math.nan}, f"has left {PLATEAU}: held-out discriminator loss 20.0% below the constant "
         "predictor, AUC 0.78"),
        # All samples differ from the originals: there is nothing to be below.
        ({"constant_predictor_loss": 0.0, "replaced_fraction": 1.0}, f"has left {PLATEAU}: held-out generator's "
         "masked-LM loss 1.10 nat below unigram on [MASK]"),
    ],
)  # fmt: skip
def test_the_end_of_a_run_says_whether_it_left_the_plateau(tiny_config, changes, verdict):
    assert plateau_verdict(tiny_config(), {**LEFT, **changes}) == f"the run {verdict}"


@pytest.mark.parametrize(
    "settings",
    [{"temperature": 2.0}, {"generator": {"kind": "uniform"}}, {"sampling": "greedy"}, {"name": "electra_15"}],
)
def test_where_frequencies_tell_what_is_replaced_nothing_is_concluded(tiny_config, settings):
    verdict = plateau_verdict(tiny_config(objective=settings), LEFT)
    assert verdict.startswith("the run ends with held-out discriminator loss 20.0% below the constant predictor")


@pytest.mark.parametrize(
    ("objective", "begin"),
    [
        ({"name": "bert_mlm"}, f"the run has left {PLATEAU}: held-out masked-LM loss 1.10 nat below"),
        ({"name": "replace_mlm"}, f"the generator has left {PLATEAU}: held-out generator's masked-LM loss 1.10 nat"),
        # A generator that is not trained to predict masked tokens is not judged by that.
        ({"masked_lm_loss_weight": 0.0}, f"the run has left {PLATEAU}: held-out discriminator loss"),
        ({"generator": {"kind": "unigram"}}, f"the run has left {PLATEAU}: held-out discriminator loss"),
        ({"name": "electra_15", "generator": {"kind": "unigram"}, "loss_positions": "random"}, "the run has left the"),
    ],
)
def test_each_network_is_judged_by_what_it_is_trained_for(tiny_config, objective, begin):
    verdict = plateau_verdict(tiny_config(objective=objective), LEFT)
    assert verdict.startswith(begin) and ("generator's" in verdict) == (objective.get("name") == "replace_mlm")


@pytest.mark.parametrize("names", [(), ("masked_lm_loss",), ("replaced_token_loss", "replaced_fraction")])
def test_the_end_of_a_run_says_nothing_without_metrics_that_tell(tiny_config, names):
    assert plateau_verdict(tiny_config(), {name: 0.25 for name in names}) is None


def test_no_token_that_is_shown_as_mask_is_no_alarm():
    assert MaskedLmCheck(vocab_size=47)({"masked_lm": 2.5, "mask_token_loss": 0.0, "unigram_loss": 0.0}) is None


def test_the_shortest_sequences_say_how_many_tokens_are_never_replaced(tiny_config):
    stages = [
        {"num_steps": 3, "max_seq_length": 8, "batch_size": 4},
        {"num_steps": 4, "max_seq_length": 10, "batch_size": 4},
    ]
    config = tiny_config(stages=stages, train={"num_steps": 7, "batch_size": 4})
    assert config.objective.specials_fraction(config) == 0.25


# At a vocabulary of 47 the uniform loss is 3.850, and 95 % of it 3.658.
@pytest.mark.parametrize(
    ("reports", "problem"),
    [
        ([(3.7, None)], "the loss is 3.700, and equal probabilities for all tokens give 3.850"),
        ([(3.6, None)], None),
        ([(2.0, None), (2.93, None)], "the loss is 2.930 and was 2.000 at its best"),  # half of the gain is 2.925
        ([(2.0, None), (2.92, None)], None),
        ([(2.0, 0.4), (2.0, 0.19)], "19.0% of the sampled tokens are right, and 40.0% were at best"),
        ([(2.0, 0.4), (2.0, 0.21)], None),
        ([(2.0, 0.04), (2.0, 0.001)], None),  # never more than chance
    ],
)
def test_a_masked_lm_at_chance_or_far_from_its_best_is_said(reports, problem):
    check, found = MaskedLmCheck(vocab_size=47), None
    for loss, accuracy in reports:
        extra = {} if accuracy is None else {"sampled_masked_lm_accuracy": accuracy}
        found = check({"masked_lm": loss, **extra})
    assert (found is None) if problem is None else (f"predictions are no use: {problem};" in found)


@pytest.mark.parametrize(
    ("objective", "count"),
    [
        ({}, 2),
        ({"replaced_token_loss_weight": 0.0}, 1),
        ({"masked_lm_loss_weight": 0.0}, 1),
        ({"name": "bert_mlm"}, 1),
    ],
)
def test_a_loss_that_is_not_trained_is_not_judged(tiny_config, objective, count):
    assert len(pretraining_health_checks(tiny_config(objective=objective))) == count


# Held-out reports (replaced-token loss, replaced fraction, masked-LM loss) of a run of 5,000 steps that learnt, every
# 500 steps, and of one broken by a learning rate 60 times too high, every 30.
LEARNT = [
    (0.4007, 0.1404, 6.542),
    (0.3920, 0.1357, 6.220),
    (0.3848, 0.1328, 6.110),
    (0.3780, 0.1315, 6.048),
    (0.3764, 0.1310, 6.002),
    (0.3708, 0.1306, 5.976),
    (0.3679, 0.1301, 5.963),
    (0.3647, 0.1300, 5.953),
]
BROKEN = [(0.4238, 0.1483, 7.463), (0.4358, 0.1484, 7.394), (0.4204, 0.1484, 7.185), (0.4198, 0.1483, 7.040)]


@pytest.mark.parametrize(
    ("rows", "vocab_size", "every", "after", "alarms"),
    [(LEARNT, 8192, 500, 2500, []), (LEARNT, 8192, 500, 1000, [1000]), (BROKEN, 4000, 30, 120, [120])],
)
def test_a_run_that_leaves_the_plateau_ends_its_alarm_and_one_that_is_broken_is_found(
    tiny_config, rows, vocab_size, every, after, alarms
):
    sizes = {"vocab_size": vocab_size, "max_position_embeddings": 128}
    config = tiny_config(encoder=sizes, data={"max_seq_length": 128})
    monitor = HealthMonitor(after, pretraining_health_checks(config))
    names = ("replaced_token", "replaced_fraction", "masked_lm")
    steps = [every * number for number in range(1, len(rows) + 1)]
    found = [
        step for step, row in zip(steps, rows, strict=True) if monitor.observe(step, dict(zip(names, row, strict=True)))
    ]
    assert found == alarms
