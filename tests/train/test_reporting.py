"""Reports: means since the last one, rates, FLOPs, terminal and files, the best evaluation, and the alarm."""

import json
import math
import sys
import time

import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import EvaluationConfig
from electra_tf.flops.budget import RunCost
from electra_tf.train.device_loop import DeviceLoop
from electra_tf.train.metrics import MetricAccumulator
from electra_tf.train.plateau_alarm import PlateauAlarm
from electra_tf.train.reporting import BestScore, JsonLines, Reporter, describe_metrics, explain_nonfinite
from electra_tf.train.run_directory import RATES, RunDirectory
from tests.toy import Regression, ToyStage, built, toy_config, toy_run

WHOLE = b'{"step": 2, "split": "train", "loss": 1.0}\n'
METRICS = {"loss": 2.5, "learning_rate": 0.1, "gradient_norm": 1.0}


def test_closed_terminal_does_not_end_a_training(tmp_path, monkeypatch):
    def fail(text: str) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(sys.stderr, "write", fail)
    Reporter(RunDirectory(tmp_path), 0, 8).evaluation(Regression(toy_config()), 1, {"loss": 0.5})
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["step"] == 1


def test_report_has_the_flops_of_all_steps_and_the_rates_since_the_last_report(
    tmp_path, tiny_config, monkeypatch, capsys
):
    """Step 5 of the tiny run, two seconds after step 3, and three seconds before the end."""
    clock, cost = [100.0], RunCost(tiny_config())
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    reporter = Reporter(RunDirectory(tmp_path), 3, 8, cost, peak=1e9)
    reporter.start_interval(3)
    clock[0] += 2.0
    with reporter.pause():  # an evaluation
        clock[0] += 10.0
    task = Regression(toy_config(train={"log_metrics": "all"}))
    reporter.train(task, 5, METRICS, batch_size=4, tokens_per_example=10)
    line, printed, spent = json.loads((tmp_path / "metrics.jsonl").read_text()), capsys.readouterr().err, cost.spent(5)
    products = spent.hardware.products - cost.spent(3).hardware.products
    assert line == pytest.approx(
        {"step": 5, **METRICS, "examples_per_second": 2 * 4 / 2.0, "tokens_per_second": 2 * 4 * 10 / 2.0}
        | {"model_flops_utilization": products / 2.0 / 1e9, "peak_flops": 1e9}
        | {"examples_seen": 5 * 4, "token_slots_seen": 5 * 4 * 10, "split": "train"}
        | {"paper_flops": float(spent.paper), "hardware_flops": spent.hardware.total}
    )
    flops, utilization = line["hardware_flops"], line["model_flops_utilization"]
    speed = f"4.0 examples/s, 0.0 k tokens/s, {flops:.3g} FLOPs, mfu {utilization:.2g}, ETA 3 s"
    assert printed == f"step 5/8 | loss 2.5 | {speed}\n"
    assert set(RATES) == {"examples_per_second", "tokens_per_second", "model_flops_utilization", "peak_flops"}


def test_short_line_has_losses_beside_their_baselines_and_is_cut_where_there_is_no_room(monkeypatch):
    monkeypatch.setattr(Regression, "headline", lambda task, metrics: {"mask_loss": 7.0, "noise": None})
    metrics = {"loss": 14.321, "mask_loss": 2.8167, "noise": 0.12345, "other": 5.0, "nonfinite_steps": 2}
    whole = "loss 14.3, nonfinite_steps 2, mask 2.82 vs 7, noise 0.123"
    short = [describe_metrics(Regression(toy_config()), metrics, room) for room in (len(whole), len(whole) - 1, 0)]
    assert short == [whole, whole.removesuffix(", noise 0.123"), "loss 14.3"]
    monkeypatch.undo()
    # Without losses all metrics that have a value.
    assert describe_metrics(Regression(toy_config()), {"accuracy": 0.25, "recall": math.nan}, 99) == "accuracy 0.25"


def test_notebook_has_a_progress_bar_in_place_of_lines(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    task, reporter = Regression(toy_config()), Reporter(RunDirectory(tmp_path), 0, 8)
    for step in (1, 4):
        reporter.train(task, step, METRICS, batch_size=4, tokens_per_example=10)
    reporter.evaluation(task, 4, {"squared_error": 0.5})
    reporter.close()
    printed = capsys.readouterr().err
    assert "step 4 held out | squared_error 0.5\n" in printed and "step 4/8" not in printed
    assert " 4/8 [" in printed and ", loss 2.5]" in printed


def test_reports_of_a_split_leave_out_a_cut_off_last_line(tmp_path):
    directory = RunDirectory(tmp_path)
    assert directory.reports("train") == []
    content = WHOLE + b'{"step": 2, "split": "held_out", "auc": null}\n{"step": 4, "spl'
    (tmp_path / "metrics.jsonl").write_bytes(content)
    assert directory.reports("train") == [{"step": 2, "split": "train", "loss": 1.0}]
    assert str(directory.evaluation_at(2)) == "{'auc': nan}"
    assert directory.evaluation_at(4) == {}


def test_damaged_line_is_an_error_with_file_and_number(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(WHOLE + b'{"step": 4, "spl\n' + WHOLE)
    with pytest.raises(UserError, match=f"{tmp_path}/metrics.jsonl is damaged in line 2"):
        RunDirectory(tmp_path).reports("train")


@pytest.mark.parametrize(
    "before",
    [WHOLE + b'{"step": 4, "split": "train"}\n{"step": 5, "spl', WHOLE.rstrip()],
    ids=["later_lines_and_a_cut_off_one", "a_last_line_without_its_end"],
)
def test_continued_file_keeps_the_whole_lines_up_to_its_step(tmp_path, before):
    metrics_file = tmp_path / "metrics.jsonl"
    metrics_file.write_bytes(before)
    JsonLines(str(metrics_file), last_step=2).append({"step": 3})
    assert metrics_file.read_bytes() == WHOLE + b'{"step": 3}\n'


def test_remote_file_is_written_at_each_flush():
    path = "ram://reporting/metrics.jsonl"
    with tf.io.gfile.GFile(path, "w") as stream:
        stream.write('{"step": 1}\n{"step": 2}\n')
    lines = JsonLines(path, last_step=1)
    for step in (2, 3):
        lines.append({"step": step})
        assert f'"step": {step}' not in tf.io.gfile.GFile(path).read()
        lines.flush()
    assert tf.io.gfile.GFile(path).read() == '{"step": 1}\n{"step": 2}\n{"step": 3}\n'


@pytest.mark.parametrize(
    ("metric", "values", "best"),
    [
        ("f1", [0.25, 0.5, 0.5, 0.375], 2),  # the first of equal ones
        ("f1", [None, -0.5], 2),
        ("f1", [math.nan, -0.5], 2),
        ("loss", [0.75, 0.5, 0.625], 2),
        ("mse", [0.75, 0.5, 0.625], 2),
        ("masked_lm_loss", [0.75, 0.5, 0.625], 2),
        (None, [0.5], None),
    ],
)
def test_which_evaluation_is_the_best(metric, values, best):
    scores = BestScore(EvaluationConfig(best_metric=metric))
    for number, value in enumerate(values, start=1):
        scores.observe(number, {str(metric): value, "step": number, "other": 3.0})
    assert [number for number in range(1, len(values) + 1) if scores.is_best(number)] == ([best] if best else [])


@pytest.mark.parametrize(
    ("patience", "values", "stalls"),
    [(2, [0.5, 0.4], False), (2, [0.5, 0.4, 0.5], True), (2, [0.5, 0.4, 0.6], False), (0, [0.5, 0.4, 0.3], False)],
)
def test_training_stalls_after_patience_evaluations_without_a_better_one(patience, values, stalls):
    scores = BestScore(EvaluationConfig(best_metric="f1", patience=patience))
    for number, value in enumerate(values, start=1):
        scores.observe(number, {"f1": value})
    assert scores.has_stalled() is stalls


def test_unknown_best_metric_is_an_error_that_lists_the_metrics():
    with pytest.raises(UserError, match="best_metric=f1 .*accuracy, loss"):
        BestScore(EvaluationConfig(best_metric="f1")).observe(5, {"step": 5, "accuracy": 0.5, "loss": 1.0})


@pytest.mark.parametrize(
    ("replicas", "precision", "nan_steps"), [(1, "float32", (2,)), (1, "bfloat16", (2,)), (2, "float32", ())]
)
def test_a_step_that_is_not_finite_is_explained(two_replicas, tmp_path, replicas, precision, nan_steps):
    """By data that are not finite, or else by a weight."""
    config = toy_config(train={"precision": precision})
    run = toy_run(config, tmp_path, two_replicas if replicas == 2 else None)
    task, stage = built(run), ToyStage(config, nan_steps=nan_steps)
    if not nan_steps:
        task.output_layer.bias.assign([math.nan])
    loop = DeviceLoop(task, run.strategy)
    _, is_nonfinite, metrics = loop.train(task, loop.read(lambda context: stage.training_batches(0, context)), 4)
    assert is_nonfinite
    message = explain_nonfinite(task, task.completed_steps, metrics)
    assert f"step {3 if nan_steps else 1} is not finite (squared_error nan, noise " in message and "\n" not in message
    assert ("gradient_norm nan); weights not finite before it: output/bias;" in message) == (not nan_steps)
    assert ("train.on_nonfinite=skip" in message) == bool(nan_steps)
    assert "start again with a lower optimizer.learning_rate" in message
    assert ("train.precision=float32" in message) == (precision == "bfloat16")


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


GOOD, BAD = {"loss": 1.0}, {"loss": 3.0}


def problem_of(metrics: dict[str, float]) -> str | None:
    return f"the loss is {metrics['loss']:g}" if metrics.get("loss", 0.0) > 2.0 else None


def alarm_of(after: int = 600, num_steps: int = 10**6, **options) -> PlateauAlarm:
    train = toy_config(train={"alarm_after_steps": after, "num_steps": num_steps}).train
    return PlateauAlarm(train, problem_of, **options)


def alarms(alarm: PlateauAlarm, reports: list[dict], every: int = 200) -> list[tuple[int, str]]:
    """(report, message) of each alarm."""
    observed = [(number, alarm.observe(every * number, report)) for number, report in enumerate(reports, 1)]
    return [(number, message) for number, message in observed if message]


SINCE = "since step {} the loss is 3"


@pytest.mark.parametrize(
    ("reports", "every", "expected"),
    [
        ([BAD] * 9, 200, {3: 1}),  # once
        ([BAD, BAD, GOOD, *[BAD] * 4], 200, {6: 601}),  # the count starts anew
        ([*[BAD] * 4, GOOD, *[BAD] * 4], 200, {3: 1, 8: 1001}),
        # A report without a finite value ends an episode.
        ([BAD, BAD, {"loss": None}, {"loss": math.nan}, BAD], 200, {}),
        ([GOOD, BAD, BAD], 1000, {2: 1001}),  # reports are further apart
    ],
)
def test_the_alarm_is_raised_once_for_each_time_that_the_problem_lasts_long_enough(reports, every, expected):
    assert alarms(alarm_of(), reports, every) == [(report, SINCE.format(since)) for report, since in expected.items()]


@pytest.mark.parametrize(
    ("after", "num_steps", "due"),
    [(5000, 10**6, 5000), (5000, 1600, 800), (5000, 150, 500), (300, 1600, 300), (0, 1600, None)],
)
def test_the_alarm_of_a_short_run_is_due_after_half_of_its_steps_but_not_in_its_first_500(after, num_steps, due):
    found = [100 * report for report, _ in alarms(alarm_of(after, num_steps), [BAD] * 100, every=100)]
    assert found == ([] if due is None else [due])


def test_an_alarm_that_observes_the_reports_again_raises_the_same():
    reports = [GOOD, *[BAD] * 4, GOOD, *[BAD] * 4]
    stored = [json.loads(json.dumps({"step": 1, "split": "train", **report})) for report in reports]
    expected = [(4, SINCE.format(201)), (9, SINCE.format(1201))]
    for stop in range(len(reports)):
        assert alarms(alarm_of(), [*stored[:stop], *reports[stop:]]) == expected


def test_a_run_that_goes_on_from_another_has_its_own_first_step():
    alarm = alarm_of(first_step=1000)
    assert [alarm.observe(step, BAD) for step in (1200, 1400, 1600)] == [None, None, "since step 1001 the loss is 3"]
