"""The text of profile_flops.py about a configuration, and the speeds for its budgets."""

import json
from pathlib import Path

import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.loader import config_to_yaml
from electra_tf.flops.budget import RunCost
from electra_tf.reports import speed
from electra_tf.reports.costs import budget_lines, cost_lines, cost_values
from electra_tf.runs.directory import RunDirectory
from electra_tf.tasks.pretrain.config import ObjectiveSettings

STAGES = [
    {"num_steps": 6, "batch_size": 4, "max_seq_length": 8},
    {"num_steps": 2, "batch_size": 4, "max_seq_length": 10},
]
TWO_STAGE = {
    "name": "two_stage",
    "generator": {"size_fraction": 1.0, "num_heads": None, "intermediate_size": None},
}


def paper_flops(config, num_steps: int) -> float:
    return float(RunCost(config).spent(num_steps).paper)


def test_every_network_and_part_has_its_line_and_the_run_its_totals(tiny_config):
    lines = cost_lines(tiny_config())
    assert sum(line.startswith("| generator | ") for line in lines) == 6
    assert sum(line.startswith("| discriminator | ") for line in lines) == 6
    assert lines[-1].startswith(f"| the run: 8 steps, 32 examples | {paper_flops(tiny_config(), 8):.4g} |")


def test_the_totals_of_the_run_are_those_of_its_steps_and_examples(tiny_config):
    values = cost_values(tiny_config())
    (steps,) = values["stretches"]
    assert (steps["first_step"], steps["last_step"]) == (0, values["num_steps"]) == (0, 8)
    for name, total in values["run"].items():
        assert total == pytest.approx(8 * steps["step"][name]) == pytest.approx(32 * steps["example"][name])


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(5, "5.0 s"), (600, "10.0 minutes"), (7200, "2.0 hours"), (864_000, "10.0 days")],
)
def test_a_budget_is_turned_into_steps_and_a_speed_into_time(tiny_config, seconds, shown):
    config = tiny_config()
    products = 24 * RunCost(config).of_step(1).hardware.products
    lines = budget_lines(config, 3 * paper_flops(config, 8), "paper", speed=products / seconds)
    assert "pay for 24 steps of this configuration, 3 times its train.num_steps: 96 examples, 960 token" in lines[0]
    assert lines[-1].endswith(f": {shown}")


@pytest.mark.parametrize(
    ("changes", "last_line"),
    [
        ({"objective": {"name": "bert_mlm"}}, "the speed is that of another configuration, whose examples cost other"),
        # Its examples cost the same.
        ({"train": {"num_steps": 80, "batch_size": 8}}, "at 1e+09 FLOP/s in matrix products of the model"),
    ],
)
def test_a_speed_of_other_examples_is_said_to_be_of_another_configuration(tiny_config, changes, last_line):
    run, budget = RunCost(tiny_config(**changes)), paper_flops(tiny_config(), 8)
    assert budget_lines(tiny_config(), budget, "paper", 1e9, measured_in=run)[-1].startswith(last_line)


@pytest.mark.parametrize(
    ("changes", "paid", "num_steps", "parts"),
    [
        ({"stages": STAGES}, 2, 2, "2 of 6, 0 of 2"),
        ({"stages": STAGES}, 7, 7, "6 of 6, 1 of 2"),
        # A run of several stages is not lengthened.
        ({"stages": STAGES}, 80, 8, "6 of 6, 2 of 2; the whole run, what is left pays for no more"),
        # The first four of eight steps train the generator alone; a run of four would do so for two.
        ({"objective": TWO_STAGE}, 4, 4, "4 of 4, 0 of 4"),
    ],
)
def test_a_budget_ends_in_the_stage_or_phase_that_it_reaches(tiny_config, changes, paid, num_steps, parts):
    config = tiny_config(**changes)
    budget = 1.001 * paper_flops(config, paid) if paid <= 8 else 10 * paper_flops(config, 8)
    lines = budget_lines(config, budget, "paper")
    assert f"pay for {num_steps} steps of this configuration, {num_steps / 8:.4g} times" in lines[0]
    assert lines[1] == f"of the steps of its stages and phases, in their order: {parts}"


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        *((budget, f"--budget is {budget:g}; expected a positive number") for budget in (float("nan"), -5.0, 0.0)),
        *((budget, r"pays for 2,147,483,647 steps or more, .* give less") for budget in (float("inf"), 1e40)),
        (10.0, "--budget 10 is too small"),
    ],
)
def test_a_budget_for_no_or_too_many_steps_is_refused(tiny_config, budget, message):
    with pytest.raises(UserError, match=message):
        budget_lines(tiny_config(), budget, "hardware")


def test_an_objective_that_does_not_describe_its_steps_is_named(tiny_config, monkeypatch):
    config = tiny_config()
    monkeypatch.setattr(type(config.objective), "phases", ObjectiveSettings.phases)
    with pytest.raises(UserError, match="objective 'electra' does not say what a step computes"):
        cost_lines(config)


@pytest.mark.slow
def test_the_measured_speed_is_the_products_of_a_step_over_the_median_time_of_steps_that_train(
    tiny_config, monkeypatch
):
    clock = iter([0.0, 9.0, 10.0, 15.0, 20.0, 22.0, 30.0, 33.0, 40.0, 48.0])  # steps of 9, 5, 2, 3 and 8 seconds
    monkeypatch.setattr(speed.time, "perf_counter", lambda: next(clock))
    objectives, build = [], speed.build_objective
    monkeypatch.setattr(speed, "build_objective", lambda config: objectives.append(build(config)) or objectives[0])
    rate = speed.measured_speed(tiny_config(), tf.distribute.OneDeviceStrategy("CPU:0"), num_steps=3)
    assert rate == pytest.approx(RunCost(tiny_config()).of_step(1).hardware.products / 3.0)
    assert int(objectives[0].optimizer.iterations) == 5


@pytest.fixture
def run_with(tmp_path, tiny_config):
    """`run_with(10.0, 30.0)`: a directory of the tiny run with reports of these speeds, in examples a second."""

    def write(*speeds: float):
        directory = RunDirectory(tmp_path / "run")
        directory.create()
        Path(directory.config_file).write_text(config_to_yaml(tiny_config()), encoding="utf-8")
        lines = [{"step": step, "split": "train", "examples_per_second": s} for step, s in enumerate(speeds, start=1)]
        Path(directory.metrics_file).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return directory.path

    return write


def test_the_reported_speed_is_the_median_without_the_first_report(run_with, tiny_config):
    products_of_an_example = RunCost(tiny_config()).of_step(1).hardware.products / 4
    flops_per_second, cost = speed.reported_speed(run_with(1.0, 20.0, 40.0, 30.0))
    assert flops_per_second == pytest.approx(30.0 * products_of_an_example)
    assert cost.of_step(1).hardware.products / 4 == products_of_an_example


def test_a_run_without_a_second_report_is_refused(run_with):
    with pytest.raises(UserError, match="holds no second report"):
        speed.reported_speed(run_with(1.0))
