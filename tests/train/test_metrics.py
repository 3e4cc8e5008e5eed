"""Means over the steps since the last report, and the best evaluation."""

import math

import tensorflow as tf

from electra_tf.train.metrics import MetricAccumulator


def accumulator(max_nonfinite_steps: int | None = None, names=("loss", "masked_lm")) -> MetricAccumulator:
    return MetricAccumulator(names, max_nonfinite_steps)


def metrics(loss: float, masked_lm: float, learning_rate: float, nonfinite: float = 0.0) -> dict[str, tf.Tensor]:
    values = {"loss": loss, "masked_lm": masked_lm, "learning_rate": learning_rate, "nonfinite": nonfinite}
    return {name: tf.constant(value) for name, value in values.items()}


def add(to: MetricAccumulator, step: dict[str, tf.Tensor]) -> bool:
    """In a replica context, as the training step does."""
    return bool(tf.distribute.OneDeviceStrategy("CPU:0").run(to.add, args=(step,)))


def test_report_has_means_and_the_last_learning_rate_and_resets_the_sums():
    ours = accumulator()
    add(ours, metrics(4.0, 1.0, 0.5))
    add(ours, metrics(8.0, 2.0, 0.25))
    assert ours.close() == {"loss": 6.0, "masked_lm": 1.5, "learning_rate": 0.25}
    add(ours, metrics(7.0, 3.0, 0.125))
    assert ours.close() == {"loss": 7.0, "masked_lm": 3.0, "learning_rate": 0.125}


def test_report_has_only_the_metrics_of_the_phase():
    ours = accumulator(names=("loss", "masked_lm", "replaced_token"))
    add(ours, metrics(4.0, 1.0, 0.5))
    assert ours.close(("loss", "masked_lm")) == {"loss": 4.0, "masked_lm": 1.0, "learning_rate": 0.5}


def test_nonfinite_step_is_counted_and_left_out_of_the_means():
    ours = accumulator(max_nonfinite_steps=2)
    steps = metrics(4.0, 1.0, 0.5), metrics(math.nan, math.inf, 0.25, nonfinite=1.0), metrics(8.0, 2.0, 0.125)
    stops = [add(ours, step) for step in steps]
    assert ours.close() == {"loss": 6.0, "masked_lm": 1.5, "learning_rate": 0.125, "nonfinite_steps": 1}
    stops += [add(ours, metrics(math.nan, 1.0, 0.5, nonfinite=1.0)) for _ in range(2)]
    report = ours.close()
    assert math.isnan(report["loss"]) and report["nonfinite_steps"] == 2
    assert ours.nonfinite_steps_of_run() == 3
    assert stops == [False, False, False, False, True]


def test_unskipped_nonfinite_step_ends_the_run_and_changes_no_sum():
    ours, without = accumulator(), accumulator()
    assert not add(ours, metrics(4.0, 1.0, 0.5))
    add(without, metrics(4.0, 1.0, 0.5))
    assert add(ours, metrics(math.nan, 1.0, 0.25, nonfinite=1.0))
    assert [v.numpy().tolist() for v in ours.variables] == [v.numpy().tolist() for v in without.variables]


def test_sums_are_restored_by_name_and_a_new_metric_begins_with_its_first_step(tmp_path):
    before, after = accumulator(), accumulator(names=("loss", "accuracy", "masked_lm"))
    add(before, metrics(4.0, 1.0, 0.5))
    tf.train.Checkpoint(metrics=before).write(str(tmp_path / "step-1"))
    tf.train.Checkpoint(metrics=after).read(str(tmp_path / "step-1")).expect_partial()
    add(after, metrics(8.0, 2.0, 0.25) | {"accuracy": tf.constant(0.75)})
    assert after.close() == {"loss": 6.0, "accuracy": 0.75, "masked_lm": 1.5, "learning_rate": 0.25}


def test_two_replicas_add_a_step_once(two_replicas):
    with two_replicas.scope():
        ours = accumulator()
    step = tf.function(lambda: two_replicas.run(ours.add, args=(metrics(4.0, 1.0, 0.5),)))
    step()
    step()
    assert ours.close() == {"loss": 4.0, "masked_lm": 1.0, "learning_rate": 0.5}
