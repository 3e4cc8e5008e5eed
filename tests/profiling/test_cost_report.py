"""What profile_flops.py says of a configuration."""

import pytest

from electra_tf.config.errors import UserError
from electra_tf.config.flops.run import RunCost
from electra_tf.config.objectives import ObjectiveSettings
from electra_tf.profiling.cost_report import budget_lines, cost_lines, cost_values


def test_every_network_and_part_has_its_line_and_the_run_its_totals(tiny_config):
    lines = cost_lines(tiny_config())
    assert sum(line.startswith("| generator | ") for line in lines) == 6
    assert sum(line.startswith("| discriminator | ") for line in lines) == 6
    spent = RunCost(tiny_config()).spent(8)
    assert lines[-1].startswith(f"| the run: 8 steps, 32 examples | {float(spent.paper):.4g} |")


def test_the_totals_are_given_for_programs(tiny_config):
    values = cost_values(tiny_config())
    (stretch,) = values["stretches"]
    assert (stretch["first_step"], stretch["last_step"]) == (0, values["num_steps"]) == (0, 8)
    for name in ("paper_flops", "hardware_flops", "examples", "token_slots"):
        assert (
            values["run"][name]
            == pytest.approx(8 * stretch["step"][name])
            == pytest.approx(32 * stretch["example"][name])
        )


def test_a_budget_is_turned_into_steps_and_a_speed_into_time(tiny_config):
    cost = RunCost(tiny_config())
    budget = 3 * float(cost.spent(8).paper)
    products = 24 * cost.of_step(1).hardware.products
    lines = budget_lines(tiny_config(), budget, "paper", speed=products / 7200.0)
    assert "pay for 24 steps of this configuration, 3 times its train.num_steps: 96 examples, 960 token" in lines[0]
    assert lines[-1].endswith(": 2.0 hours")


def test_the_speed_of_a_run_whose_examples_take_other_flops_is_said_to_be_of_another_configuration(tiny_config):
    run = RunCost(tiny_config(objective={"name": "bert_mlm"}))
    budget = float(RunCost(tiny_config()).spent(8).paper)
    lines = budget_lines(tiny_config(), budget, "paper", 1e9, measured_in=run)
    assert lines[-1].startswith("this speed is that of another configuration in FLOP/s")


def test_the_speed_of_a_longer_run_with_another_batch_is_taken_for_this_ones(tiny_config):
    run = RunCost(tiny_config(train={"num_steps": 80, "batch_size": 8}))
    budget = float(RunCost(tiny_config()).spent(8).paper)
    assert "at 1e+09 FLOP/s" in budget_lines(tiny_config(), budget, "paper", 1e9, measured_in=run)[-1]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(5, "5.0 s"), (600, "10.0 minutes"), (36_000, "10.0 hours"), (864_000, "10.0 days")]
)
def test_a_time_is_given_in_fitting_units(tiny_config, seconds, shown):
    cost = RunCost(tiny_config())
    products = 8 * cost.of_step(1).hardware.products
    lines = budget_lines(tiny_config(), float(cost.spent(8).paper), "paper", speed=products / seconds)
    assert lines[-1].endswith(f": {shown}")


def test_a_budget_for_no_step_is_refused_by_the_flags_name(tiny_config):
    with pytest.raises(UserError, match="--budget 10 is too small"):
        budget_lines(tiny_config(), 10.0, "hardware")


def test_an_objective_that_does_not_describe_its_steps_is_named(tiny_config, monkeypatch):
    config = tiny_config()
    monkeypatch.setattr(type(config.objective), "phases", ObjectiveSettings.phases)
    with pytest.raises(UserError, match="objective 'electra' does not say what a step computes"):
        cost_lines(config)
