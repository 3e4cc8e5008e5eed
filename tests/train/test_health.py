import json
import math

import pytest
import tensorflow as tf
import tf_keras

from electra_tf.tasks.pretrain import build_objective
from electra_tf.train.health import HealthMonitor, binary_entropy, explain_nonfinite
from electra_tf.train.step import compile_task

# At a vocabulary of 47 the uniform loss is 3.850 and its 95 % 3.658; 0.1 of the tokens replaced: entropy 0.3251.
HEALTHY = {"masked_lm": 2.0, "replaced_token": 0.28, "replaced_fraction": 0.1, "sampled_masked_lm_accuracy": 0.4}


@pytest.fixture
def monitor(tiny_config):
    """`monitor(train={...})`: one that says what has lasted for 30 steps."""

    def build(**changes) -> HealthMonitor:
        changes["train"] = {"alarm_after_steps": 30, **changes.get("train", {})}
        return HealthMonitor(tiny_config(**changes))

    return build


def steps_of_alarms(monitor: HealthMonitor, reports: list[dict], every: int = 10) -> list[int]:
    return [
        number * every
        for number, report in enumerate(reports, start=1)
        for _ in monitor.observe(number * every, report)
    ]


def with_values(**values) -> dict:
    return {**HEALTHY, **values}


def test_the_entropy_of_a_share_is_the_constant_predictors_loss():
    assert binary_entropy(0.5) == pytest.approx(math.log(2.0))
    assert binary_entropy(0.1) == pytest.approx(0.3250830)
    assert binary_entropy(0.0) == binary_entropy(1.0) == 0.0


def test_a_healthy_run_raises_no_alarm(monitor):
    assert steps_of_alarms(monitor(), [HEALTHY] * 50) == []


def test_a_discriminator_at_the_constant_predictors_entropy_is_said_once_after_the_allowed_steps(monitor):
    assert steps_of_alarms(monitor(), [with_values(replaced_token=0.3251)] * 20) == [30]


@pytest.mark.parametrize(("loss", "alarms"), [(0.34, [30]), (0.3187, [30]), (0.3185, []), (0.30, [])])
def test_within_two_percent_of_the_entropy_counts_as_not_below_it(monitor, loss, alarms):
    assert steps_of_alarms(monitor(), [with_values(replaced_token=loss)] * 5) == alarms


def test_one_report_below_the_entropy_starts_the_count_anew(monitor):
    dead = with_values(replaced_token=0.33)
    assert steps_of_alarms(monitor(), [dead, dead, HEALTHY, dead, dead, dead, dead]) == [60]


def test_a_second_time_is_said_again(monitor):
    dead = with_values(replaced_token=0.33)
    assert steps_of_alarms(monitor(), [dead] * 5 + [HEALTHY] + [dead] * 5) == [30, 90]


def test_the_entropy_is_that_of_the_share_in_the_report(monitor):
    # 0.28 is healthy where a tenth is replaced; where 0.08 is, the entropy is 0.2788.
    assert steps_of_alarms(monitor(), [with_values(replaced_fraction=0.08)] * 3) == [30]


def test_an_alarm_says_what_is_seen_since_when_and_what_to_do(monitor):
    watching = monitor()
    dead = with_values(replaced_token=0.3251)
    alarms = [
        line for step, report in ((20, HEALTHY), (40, dead), (60, dead)) for line in watching.observe(step, report)
    ]
    (line,) = alarms
    assert line.startswith("since step 21 the discriminator has learnt nothing: its loss is 0.3251")
    assert "10.0% of the tokens" in line
    for setting in ("optimizer.learning_rate", "train.batch_size", "objective.generator.size_fraction"):
        assert setting in line
    assert "\n" not in line


def test_a_generator_that_never_leaves_equal_chances_is_said(monitor):
    watching = monitor()
    lines = [line for step in (10, 20, 30) for line in watching.observe(step, with_values(masked_lm=3.7))]
    assert len(lines) == 1
    assert "the loss is 3.700, and 3.850 is that of equal chances" in lines[0]


def test_a_masked_lm_loss_that_loses_half_of_what_was_gained_is_said(monitor):
    # From 3.850 to 2.0 and back to 2.93: a little more than half.
    watching = monitor()
    reports = [HEALTHY, *[with_values(masked_lm=2.93)] * 3]
    lines = [line for number, report in enumerate(reports, 1) for line in watching.observe(10 * number, report)]
    assert len(lines) == 1
    assert lines[0].startswith("since step 11 the masked-LM predictions are no use: the loss is 2.930 and was 2.000")
    assert steps_of_alarms(monitor(), [HEALTHY, *[with_values(masked_lm=2.92)] * 9]) == []


def test_a_sampled_accuracy_below_half_of_its_best_is_said(monitor):
    assert steps_of_alarms(monitor(), [HEALTHY, *[with_values(sampled_masked_lm_accuracy=0.19)] * 4]) == [40]
    assert steps_of_alarms(monitor(), [HEALTHY, *[with_values(sampled_masked_lm_accuracy=0.21)] * 4]) == []


def test_accuracies_that_were_never_more_than_chance_are_not_judged(monitor):
    reports = [with_values(sampled_masked_lm_accuracy=value) for value in (0.04, 0.001, 0.0, 0.0, 0.0)]
    assert steps_of_alarms(monitor(), reports) == []


@pytest.mark.parametrize(("name", "dead"), [("replaced_token", 0.33), ("masked_lm", 3.8)])
def test_a_loss_that_is_not_trained_is_not_judged(monitor, name, dead):
    reports = [HEALTHY, *[with_values(**{name: dead})] * 4]
    assert steps_of_alarms(monitor(), reports) == [40]
    assert steps_of_alarms(monitor(objective={f"{name}_loss_weight": 0.0}), reports) == []


def test_the_masked_lm_baseline_is_judged_by_its_loss_alone(tiny_config):
    config = tiny_config(train={"alarm_after_steps": 30}, objective={"name": "bert_mlm"})
    reports = [{"masked_lm": 3.0}, {"masked_lm": 3.8}, {"masked_lm": 3.8}, {"masked_lm": 3.8}]
    assert steps_of_alarms(HealthMonitor(config), reports) == [40]


def test_zero_steps_is_never(monitor):
    dead = with_values(replaced_token=0.33, masked_lm=3.8)
    assert steps_of_alarms(monitor(train={"alarm_after_steps": 0}), [dead] * 9) == []


def test_reports_without_a_value_change_nothing(monitor):
    dead, empty = with_values(replaced_token=0.33), dict.fromkeys(HEALTHY)
    not_finite = dict.fromkeys(HEALTHY, float("nan"))
    assert steps_of_alarms(monitor(), [dead, empty, not_finite, dead]) == [40]


def test_a_run_that_continues_raises_the_same_alarms(monitor):
    reports = [HEALTHY] * 2 + [with_values(replaced_token=0.33)] * 4 + [HEALTHY] + [with_values(masked_lm=3.2)] * 4
    whole = monitor()
    expected = [(step, whole.observe(10 * step, report)) for step, report in enumerate(reports, 1)]
    assert sum(len(alarms) for _, alarms in expected) == 2
    # The reports before go through metrics.jsonl, where they have a step and a split too.
    for stopped_after in range(len(reports)):
        continued = monitor()
        for step, report in enumerate(reports[:stopped_after], 1):
            line = json.dumps({"step": 10 * step, "split": "train", **report})
            continued.observe(10 * step, json.loads(line))
        found = [(step, continued.observe(10 * step, reports[step - 1])) for step in range(stopped_after + 1, 12)]
        assert found == expected[stopped_after:]


# Real held-out reports: (replaced-token loss, replaced fraction, masked-LM loss) of a run of 5,000 steps that learnt,
# every 500 steps, and of one killed by a learning rate 60 times too high, every 30.
LEARNT = [
    (0.4007, 0.1404, 6.542),
    (0.3920, 0.1357, 6.220),
    (0.3848, 0.1328, 6.110),
    (0.3780, 0.1315, 6.048),
    (0.3764, 0.1310, 6.002),
    (0.3708, 0.1306, 5.976),
    (0.3679, 0.1301, 5.963),
    (0.3647, 0.1300, 5.953),
    (0.3629, 0.1298, 5.948),
    (0.3614, 0.1297, 5.944),
]
KILLED = [(0.4238, 0.1483, 7.463), (0.4358, 0.1484, 7.394), (0.4204, 0.1484, 7.185), (0.4198, 0.1483, 7.040)]


def recorded(rows) -> list[dict[str, float]]:
    return [{"replaced_token": loss, "replaced_fraction": share, "masked_lm": masked} for loss, share, masked in rows]


def test_the_plateau_of_a_run_that_learnt_is_shorter_than_the_default(tiny_config):
    encoder = {"vocab_size": 8192}
    default = tiny_config(encoder=encoder)
    assert default.train.alarm_after_steps == 5000
    assert steps_of_alarms(HealthMonitor(default), recorded(LEARNT), every=500) == []
    impatient = tiny_config(encoder=encoder, train={"alarm_after_steps": 1000})
    assert steps_of_alarms(HealthMonitor(impatient), recorded(LEARNT), every=500) == [1000]


def test_a_run_that_was_killed_by_its_learning_rate_is_found(tiny_config):
    config = tiny_config(encoder={"vocab_size": 4000}, train={"alarm_after_steps": 120})
    assert steps_of_alarms(HealthMonitor(config), recorded(KILLED), every=30) == [120]


def variable_named(objective, end: str) -> tf.Variable:
    (found,) = [variable for variable in objective.trainable_variables if variable.name.endswith(end)]
    return found


@pytest.fixture
def explained(tiny_config, tiny_batch, two_replicas):
    """`explained(damage, replicas)`: the explanation for step 7, after `damage(objective)`."""

    def explain(damage, replicas: int = 1, **changes) -> str:
        config = tiny_config(**changes)
        batch = tiny_batch(config, [10, 6, 9, 7])
        strategy = two_replicas if replicas == 2 else tf.distribute.OneDeviceStrategy("CPU:0")
        tf_keras.utils.set_random_seed(5)
        with strategy.scope():
            objective = compile_task(build_objective(config))
            damage(objective)
        asked = []

        def batches_from(step: int):
            asked.append(step)
            dataset = tf.data.Dataset.from_tensors(batch).unbatch().batch(4 // replicas, drop_remainder=True).repeat()
            options = tf.data.Options()
            options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
            return strategy.distribute_datasets_from_function(lambda context: dataset.with_options(options))

        before = [variable.numpy() for variable in objective.variables]
        message = explain_nonfinite(objective, strategy, batches_from, 7)
        assert asked == [7]
        for variable, value in zip(objective.variables, before, strict=True):
            assert (variable.numpy() == value).all() or not math.isfinite(float(value.sum()))
        assert "\n" not in message
        return message

    return explain


def put(end: str, value: float):
    def damage(objective) -> None:
        variable = variable_named(objective, end)
        variable.assign(tf.fill(variable.shape, value))

    return damage


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_loss_that_is_not_finite_is_named_with_the_gradients_that_are_not(explained, replicas):
    message = explained(put("discriminator_predictions/dense/bias:0", float("nan")), replicas)
    assert message.startswith("the loss of step 8 is not finite (masked_lm 3.")
    assert "replaced_token nan" in message
    assert "weights that were not finite before: discriminator_predictions/dense/bias; " in message
    gradients = message.partition("gradients that are not: ")[2].partition("; ")[0]
    assert gradients.startswith("discriminator_predictions/")
    assert gradients.count(",") == 4
    assert gradients.endswith(" more")


def test_where_all_is_finite_again_the_five_largest_gradients_are_named(explained):
    message = explained(lambda objective: None)
    assert message.startswith(
        "the loss or a gradient of step 8 was not finite, but all are when computed again (masked_lm 3."
    )
    norms = message.partition("largest gradient norms: ")[2].partition("; ")[0].split(", ")
    assert len(norms) == 5
    values = [float(entry.split()[1]) for entry in norms]
    assert values == sorted(values, reverse=True)
    assert values[-1] > 0.0
    assert "a faulty device or memory" in message


def test_a_norm_is_given_where_its_square_overflows(explained):
    # Of 1e19 and more each, so that the squares are beyond float32.
    message = explained(lambda objective: None, objective={"replaced_token_loss_weight": 1e22})
    largest = message.partition("largest gradient norms: ")[2].split()[1].rstrip(",;")
    assert 1e19 < float(largest) < math.inf


def test_with_accumulation_the_whole_batch_is_computed_again(explained):
    whole = explained(lambda objective: None)
    parts = explained(lambda objective: None, train={"gradient_accumulation_steps": 2})
    assert whole.partition("(")[2].partition(",")[0] == parts.partition("(")[2].partition(",")[0]
