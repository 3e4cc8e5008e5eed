"""Runs whose length follows from a number of FLOPs."""

import re

import pytest
import yaml

from electra_tf.config.errors import UserError
from electra_tf.config.loader import config_to_yaml
from electra_tf.flops.budget import RunCost
from electra_tf.tasks.pretrain.config import parse_config

STAGES = [
    {"num_steps": 3, "batch_size": 6, "max_seq_length": 8},
    {"batch_size": 4, "max_seq_length": 10},
]


def budgeted(tiny_config, budget: float, **train):
    return tiny_config(train={"num_steps": None, "flops_budget": budget, **train})


@pytest.fixture
def cost_of_eight(tiny_config):
    """FLOPs of the tiny run's eight steps, by convention."""
    spent = RunCost(tiny_config()).spent(8)
    return {convention: float(spent.flops(convention)) for convention in ("paper", "hardware")}


@pytest.mark.parametrize("convention", ["paper", "hardware"])
def test_the_number_of_steps_is_what_the_budget_pays_for(tiny_config, cost_of_eight, convention):
    budget = cost_of_eight[convention]
    settings = {"flops_convention": convention}
    assert budgeted(tiny_config, budget, **settings).train.num_steps == 8
    assert budgeted(tiny_config, budget * 0.999, **settings).train.num_steps == 7
    assert budgeted(tiny_config, budget * 100, **settings).train.num_steps == 800


def test_two_objectives_of_one_budget_cost_the_same_within_a_step(tiny_config):
    budget = 1e9
    for name in ("electra", "bert_mlm"):
        config = tiny_config(objective={"name": name}, train={"num_steps": None, "flops_budget": budget})
        cost, num_steps = RunCost(config), config.train.num_steps
        assert cost.spent(num_steps).paper <= budget < cost.spent(num_steps).paper + cost.of_step(1).paper


def test_the_resolved_configuration_states_the_steps_and_reads_back_equal(tiny_config, cost_of_eight):
    config = budgeted(tiny_config, 3 * cost_of_eight["paper"])
    text = config_to_yaml(config)
    assert yaml.safe_load(text)["train"]["num_steps"] == 24
    assert parse_config(yaml.safe_load(text), source="resolved") == config


def test_another_number_of_steps_is_refused_with_the_one_that_is_paid_for(tiny_config, cost_of_eight):
    with pytest.raises(UserError, match=r"train\.num_steps is 9, but train\.flops_budget .* \(paper\) pays for 8"):
        budgeted(tiny_config, cost_of_eight["paper"], num_steps=9)


def test_the_same_number_of_steps_is_no_contradiction(tiny_config, cost_of_eight):
    assert budgeted(tiny_config, cost_of_eight["paper"], num_steps=8).train.num_steps == 8


def test_a_budget_that_pays_for_no_step_is_refused_with_what_one_costs(tiny_config, cost_of_eight):
    with pytest.raises(UserError, match="is too small: 1 steps cost"):
        budgeted(tiny_config, cost_of_eight["paper"] / 10)


@pytest.mark.parametrize("num_steps", [None, 2**31 - 1])
def test_a_budget_for_more_steps_than_a_run_can_have_is_refused(tiny_config, num_steps):
    with pytest.raises(UserError, match=r"train\.flops_budget 1e\+40 pays for 2,147,483,647 steps or more"):
        budgeted(tiny_config, 1e40, num_steps=num_steps)


@pytest.mark.parametrize("budget", [float("inf"), float("nan"), -1e18])
def test_a_budget_that_is_no_positive_number_is_refused(tiny_config, budget):
    with pytest.raises(UserError, match=rf"train\.flops_budget is {re.escape(str(budget))}; input should be"):
        budgeted(tiny_config, budget)


def test_the_last_stage_takes_what_the_others_leave(tiny_config):
    config = tiny_config(stages=STAGES, train={"num_steps": None, "flops_budget": 1e8})
    first, last = (stage.num_steps for stage in config.stages)
    assert (first, last) == (3, config.train.num_steps - 3)
    assert last > 0
    assert RunCost(config).steps_within(1e8, "paper") == config.train.num_steps
    assert parse_config(config.model_dump(mode="json"), source="resolved") == config


def test_a_last_stage_of_given_length_is_refused(tiny_config):
    stages = [STAGES[0], {**STAGES[1], "num_steps": 5}]
    with pytest.raises(
        UserError, match=r"stages\.1\.num_steps is 5, but with train\.flops_budget the last stage takes"
    ):
        tiny_config(stages=stages, train={"num_steps": None, "flops_budget": 1e8})


def test_a_budget_that_the_first_stage_uses_up_is_refused(tiny_config, cost_of_eight):
    with pytest.raises(UserError, match="is too small: 4 steps cost"):
        tiny_config(stages=STAGES, train={"num_steps": None, "flops_budget": cost_of_eight["paper"] / 8})


def test_without_a_budget_the_steps_must_be_given(tiny_config):
    with pytest.raises(UserError, match=r"train\.num_steps is None"):
        tiny_config(train={"num_steps": None})


def test_other_mistakes_are_named_as_ever(tiny_config):
    with pytest.raises(UserError, match=r"train\.batch_size is 0"):
        budgeted(tiny_config, 1e9, batch_size=0)
