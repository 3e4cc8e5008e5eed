"""The cost of runs with stages and phases, and runs with a FLOPs budget in place of a number of steps."""

import pytest
import yaml

from electra_tf.config.errors import UserError
from electra_tf.config.loader import config_to_yaml
from electra_tf.flops.budget import RunCost, Spent
from electra_tf.flops.passes import Phase
from electra_tf.tasks.pretrain.config import parse_config


@pytest.fixture
def in_phases(tiny_config, monkeypatch):
    """A run of 5 generator and 3 discriminator steps, in stages of 3 steps with 4 x 10 and 5 with 6 x 8 tokens."""
    stages = [
        {"num_steps": 3, "batch_size": 4, "max_seq_length": 10},
        {"num_steps": 5, "batch_size": 6, "max_seq_length": 8},
    ]
    config = tiny_config(stages=stages, train={"batch_size": 6}, data={"max_seq_length": 8})
    (phase,) = config.objective.phases(config)
    generator, discriminator = phase.passes
    phases = (Phase(5, (generator,)), Phase(3, (discriminator,)))
    monkeypatch.setattr(type(config.objective), "phases", lambda self, run: phases)
    return RunCost(config), generator, discriminator


def test_a_run_is_split_at_the_ends_of_phases_and_stages(in_phases):
    cost, generator, discriminator = in_phases
    assert [
        (r.first_step, r.last_step, r.phase, r.passes, r.batch_size, r.seq_length, r.max_predictions)
        for r in cost.ranges
    ] == [
        (0, 3, 0, (generator,), 4, 10, 3),
        (3, 5, 0, (generator,), 6, 8, 2),
        (5, 8, 1, (discriminator,), 6, 8, 2),
    ]


def test_the_cost_of_a_run_is_the_sum_of_its_steps(in_phases):
    cost, *_ = in_phases
    for step in range(8):
        assert cost.spent(step + 1) == cost.spent(step) + cost.of_step(step + 1)
    assert cost.spent(0) == Spent()
    assert (cost.spent(4).examples, cost.spent(4).token_slots) == (3 * 4 + 6, 3 * 4 * 10 + 6 * 8)


@pytest.mark.parametrize("convention", ["paper", "hardware"])
def test_a_budget_equal_to_the_cost_of_some_steps_pays_for_these_steps(in_phases, convention):
    cost, *_ = in_phases
    for step in range(1, 9):
        budget = cost.spent(step).flops(convention)
        assert cost.steps_within(budget, convention) == step
        assert cost.steps_within(budget - 1, convention) == step - 1


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
def test_a_budget_determines_the_number_of_steps(tiny_config, cost_of_eight, convention):
    budget = cost_of_eight[convention]
    for share, num_steps in ((1, 8), (0.999, 7), (100, 800)):
        assert budgeted(tiny_config, share * budget, flops_convention=convention).train.num_steps == num_steps


def test_two_objectives_with_equal_budgets_cost_the_same_within_one_step(tiny_config):
    budget = 1e9
    for name in ("electra", "bert_mlm"):
        config = tiny_config(objective={"name": name}, train={"num_steps": None, "flops_budget": budget})
        cost, num_steps = RunCost(config), config.train.num_steps
        assert cost.spent(num_steps).paper <= budget < cost.spent(num_steps).paper + cost.of_step(1).paper


def test_the_resolved_configuration_has_the_number_of_steps_and_reads_back_equal(tiny_config, cost_of_eight):
    config = budgeted(tiny_config, 3 * cost_of_eight["paper"])
    text = config_to_yaml(config)
    assert yaml.safe_load(text)["train"]["num_steps"] == 24
    assert parse_config(yaml.safe_load(text), source="resolved") == config


def test_the_last_stage_gets_the_remaining_steps(tiny_config):
    config = tiny_config(stages=STAGES, train={"num_steps": None, "flops_budget": 1e8})
    first, last = (stage.num_steps for stage in config.stages)
    assert (first, last) == (3, config.train.num_steps - 3)
    assert RunCost(config).steps_within(1e8, "paper") == config.train.num_steps > 3
    assert parse_config(config.model_dump(mode="json"), source="resolved") == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": {"num_steps": 9}}, r"train\.num_steps is 9, .* pays for 8"),
        ({"train": {"flops_budget": 9.0}}, r"train\.flops_budget 9"),
        ({"train": {"flops_budget": 1e40}}, r"train\.flops_budget 1e\+40"),
        ({"train": {"flops_budget": 1e40, "num_steps": 2**31 - 1}}, r"train\.flops_budget 1e\+40"),
        ({"train": {"flops_budget": float("inf")}}, r"train\.flops_budget is inf; input should be"),
        ({"stages": [STAGES[0], {**STAGES[1], "num_steps": 5}]}, r"stages\.1\.num_steps is 5"),
        ({"stages": STAGES, "train": {"flops_budget": 1e5}}, r"train\.flops_budget 100000 is too small: 4 steps"),
        ({"train": {"flops_budget": None}}, r"train\.num_steps is None"),
        ({"train": {"batch_size": 0}}, r"train\.batch_size is 0"),
    ],
)
def test_a_budget_that_contradicts_other_settings_or_is_out_of_range_is_refused(
    tiny_config, cost_of_eight, changes, message
):
    train = {"num_steps": None, "flops_budget": cost_of_eight["paper"], **changes.get("train", {})}
    with pytest.raises(UserError, match=message):
        tiny_config(**{**changes, "train": train})
