"""What of a pre-training run's reports is a sign that it learns nothing."""

import pytest

from electra_tf.tasks.pretrain.health import MaskedLmCheck, check_discriminator, pretraining_health_checks
from electra_tf.train.health import HealthMonitor


# At 10 % replaced tokens the entropy is 0.3251, and 2 % below it 0.3186.
@pytest.mark.parametrize(
    ("loss", "fraction", "fails"),
    [(0.34, 0.1, True), (0.3187, 0.1, True), (0.3185, 0.1, False), (0.28, 0.1, False), (0.28, 0.08, True)],
)
def test_a_discriminator_within_two_percent_of_the_entropy_has_learnt_nothing(loss, fraction, fails):
    problem = check_discriminator({"replaced_token": loss, "replaced_fraction": fraction})
    assert (problem is not None) == fails
    assert check_discriminator({"replaced_token": loss}) is None


def test_what_is_wrong_with_a_discriminator_is_said_with_what_to_do():
    problem = check_discriminator({"replaced_token": 0.3251, "replaced_fraction": 0.1})
    assert problem.startswith("the discriminator has learnt nothing: its loss is 0.3251")
    assert "10.0% of the tokens" in problem and "\n" not in problem
    for setting in ("optimizer.learning_rate", "train.batch_size", "objective.generator.size_fraction"):
        assert setting in problem


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
    [(LEARNT, 8192, 500, 5000, []), (LEARNT, 8192, 500, 1000, [1000]), (BROKEN, 4000, 30, 120, [120])],
)
def test_the_plateau_of_a_run_that_learnt_is_shorter_than_the_default_and_a_broken_run_is_found(
    tiny_config, rows, vocab_size, every, after, alarms
):
    monitor = HealthMonitor(after, pretraining_health_checks(tiny_config(encoder={"vocab_size": vocab_size})))
    names = ("replaced_token", "replaced_fraction", "masked_lm")
    steps = [every * number for number in range(1, len(rows) + 1)]
    found = [
        step for step, row in zip(steps, rows, strict=True) if monitor.observe(step, dict(zip(names, row, strict=True)))
    ]
    assert found == alarms
