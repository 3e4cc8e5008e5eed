"""What profile_flops.py says of a configuration."""

import pytest

from electra_tf.config.errors import UserError
from electra_tf.flops.budget import RunCost
from electra_tf.flops.cost_report import budget_lines, cost_lines, cost_values
from electra_tf.tasks.pretrain.config import ObjectiveSettings


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
    assert lines[-1].startswith("the speed is that of another configuration, whose examples take other FLOPs")


def test_the_speed_of_a_longer_run_with_another_batch_is_taken_for_this_ones(tiny_config):
    run = RunCost(tiny_config(train={"num_steps": 80, "batch_size": 8}))
    budget = float(RunCost(tiny_config()).spent(8).paper)
    assert "at 1e+09 FLOP/s" in budget_lines(tiny_config(), budget, "paper", 1e9, measured_in=run)[-1]


STAGES = [
    {"num_steps": 6, "batch_size": 4, "max_seq_length": 8},
    {"num_steps": 2, "batch_size": 4, "max_seq_length": 10},
]


def test_a_budget_for_a_part_of_a_staged_run_ends_in_the_stage_that_it_reaches(tiny_config):
    config = tiny_config(stages=STAGES)
    cost = RunCost(config)
    within_first, within_last = (float(cost.spent(step).paper) * 1.001 for step in (2, 7))
    lines = budget_lines(config, within_first, "paper")
    assert "pay for 2 steps of this configuration, 0.25 times its train.num_steps: 8 examples, 64 token" in lines[0]
    assert lines[1] == "of the steps of its parts, one after the other: 2 of 6, 0 of 2"
    assert "pay for 7 steps of this configuration" in budget_lines(config, within_last, "paper")[0]


def test_a_staged_run_is_not_lengthened(tiny_config):
    config = tiny_config(stages=STAGES)
    lines = budget_lines(config, 10 * float(RunCost(config).spent(8).paper), "paper")
    assert "pay for 8 steps of this configuration, 1 times its train.num_steps" in lines[0]
    assert lines[1].endswith(": 6 of 6, 2 of 2; the whole run, what is left pays for no more")


def test_the_phases_of_two_stages_stay_where_they_are_in_the_run(tiny_config):
    generator = {"size_fraction": 1.0, "num_heads": None, "intermediate_size": None}
    config = tiny_config(objective={"name": "two_stage", "generator": generator})
    # The first four of eight steps train the generator alone; a run of four would do so for two.
    lines = budget_lines(config, float(RunCost(config).spent(4).paper), "paper")
    assert "pay for 4 steps" in lines[0]
    assert lines[1] == "of the steps of its parts, one after the other: 4 of 4, 0 of 4"


@pytest.mark.parametrize("budget", [float("nan"), -5.0, 0.0])
def test_a_budget_that_is_no_positive_number_is_refused(tiny_config, budget):
    with pytest.raises(UserError, match=f"--budget is {budget:g}; expected a positive number"):
        budget_lines(tiny_config(), budget, "paper")


@pytest.mark.parametrize("budget", [float("inf"), 1e40])
def test_a_budget_for_more_steps_than_a_run_can_have_is_refused(tiny_config, budget):
    with pytest.raises(UserError, match=r"pays for 2,147,483,647 steps or more, .* give less"):
        budget_lines(tiny_config(), budget, "paper")


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
