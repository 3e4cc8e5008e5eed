import pytest

from electra_tf.flops.budget import RunCost, Spent


@pytest.fixture
def in_phases(tiny_config):
    """A run of 4 generator and 4 discriminator steps, in stages of 3 steps with 4 x 10 and 5 with 6 x 8 tokens."""
    stages = [
        {"num_steps": 3, "batch_size": 4, "max_seq_length": 10},
        {"num_steps": 5, "batch_size": 6, "max_seq_length": 8},
    ]
    last = {"train": {"batch_size": 6}, "data": {"max_seq_length": 8}}
    return tiny_config(objective={"name": "two_stage"}, stages=stages, **last)


def test_a_run_is_split_at_the_ends_of_phases_and_stages(in_phases):
    generator, discriminator = (phase.passes for phase in in_phases.objective.phase_costs(in_phases))
    assert [
        (r.first_step, r.last_step, r.phase, r.passes, r.batch_size, r.seq_length, r.max_predictions)
        for r in RunCost(in_phases).ranges
    ] == [
        (0, 3, 0, generator, 4, 10, 3),
        (3, 4, 0, generator, 6, 8, 2),
        (4, 8, 1, discriminator, 6, 8, 2),
    ]


def test_every_stage_has_the_slots_of_its_highest_masked_fraction(tiny_config):
    stages = [{"num_steps": steps, "batch_size": 4, "max_seq_length": 10} for steps in (2, 6)]
    falling = tiny_config(stages=stages, masking={"masked_fraction": [0.8, 0.4]})
    stages[0]["masked_fraction"] = 0.9
    stepwise = tiny_config(stages=stages, masking={"masked_fraction": 0.4})
    slots = [[steps.max_predictions for steps in RunCost(config).ranges] for config in (falling, stepwise)]
    assert slots == [[8, 7], [9, 4]]


def test_the_cost_of_a_run_is_the_sum_of_its_steps(in_phases):
    cost = RunCost(in_phases)
    for step in range(8):
        assert cost.spent(step + 1) == cost.spent(step) + cost.of_step(step + 1)
    assert cost.spent(0) == Spent()
    assert (cost.spent(4).examples, cost.spent(4).token_slots) == (3 * 4 + 6, 3 * 4 * 10 + 6 * 8)


@pytest.mark.parametrize("convention", ["paper", "hardware"])
def test_a_budget_equal_to_the_cost_of_some_steps_pays_for_these_steps(in_phases, convention):
    cost = RunCost(in_phases)
    for step in range(1, 9):
        budget = cost.spent(step).flops(convention)
        assert cost.steps_within(budget, convention) == step
        assert cost.steps_within(budget - 1, convention) == step - 1
