import json
from pathlib import Path

import pytest

from electra_tf.config.errors import UserError
from electra_tf.config.loader import config_to_yaml
from electra_tf.flops.budget import RunCost
from electra_tf.reports.costs import budget_text, cost_values, hours_text, reported_speed
from electra_tf.tasks.pretrain.config import load_config
from tests.markdown import cells

STAGES = [
    {"num_steps": 6, "batch_size": 4, "max_seq_length": 8},
    {"num_steps": 2, "batch_size": 4, "max_seq_length": 10},
]


def paper_flops(config, num_steps: int) -> float:
    return float(RunCost(config).spent(num_steps).paper)


def test_the_cost_of_a_run_is_a_multiple_of_a_step_and_of_an_example(tiny_config):
    values = cost_values(tiny_config())
    (steps,) = values["step_ranges"]
    assert (steps["first_step"], steps["last_step"]) == (0, values["num_steps"]) == (0, 8)
    for name, total in values["run"].items():
        assert total == pytest.approx(8 * steps["step"][name]) == pytest.approx(32 * steps["example"][name])


@pytest.mark.parametrize(("seconds", "shown"), [(5, ": 5.0 s"), (864_000, ": 10.0 days")])
def test_a_budget_gives_steps_and_a_speed_gives_their_duration(tiny_config, seconds, shown):
    config = tiny_config()
    products = 24 * RunCost(config).of_step(1).hardware.products
    lines = budget_text(config, 3 * paper_flops(config, 8), "paper", speed=products / seconds).splitlines()
    assert "pay for 24 steps of this configuration, 3 times its train.num_steps: 96 examples, 960 token" in lines[0]
    assert lines[-1].endswith(shown)


@pytest.mark.parametrize(
    ("changes", "paid", "num_steps", "parts"),
    [
        ({"stages": STAGES}, 7, 7, "6 of 6, 1 of 2"),
        # A run of several stages is not lengthened.
        ({"stages": STAGES}, 80, 8, "6 of 6, 2 of 2; this is the whole run, and the rest of the budget is unused"),
        # The first four of eight steps train the generator alone; a run of four would do so for two.
        ({"objective": {"name": "two_stage"}}, 4, 4, "4 of 4, 0 of 4"),
    ],
)
def test_a_budget_ends_in_the_stage_or_phase_that_it_reaches(tiny_config, changes, paid, num_steps, parts):
    config = tiny_config(**changes)
    budget = 1.001 * paper_flops(config, paid) if paid <= 8 else 10 * paper_flops(config, 8)
    lines = budget_text(config, budget, "paper").splitlines()
    assert f"pay for {num_steps} steps of this configuration, {num_steps / 8:.4g} times" in lines[0]
    assert lines[1] == f"steps of each stage and phase: {parts}"


def test_the_reported_speed_is_the_median_without_the_first_report(tmp_path, tiny_config):
    products_of_an_example = RunCost(tiny_config()).of_step(1).hardware.products / 4
    (tmp_path / "config.yaml").write_text(config_to_yaml(tiny_config()))
    speeds = enumerate((1.0, 20.0, 40.0, 30.0), start=1)
    lines = [{"step": step, "split": "train", "examples_per_second": each} for step, each in speeds]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert reported_speed(tmp_path) == pytest.approx(30.0 * products_of_an_example)


RECIPES = Path(__file__).resolve().parents[2] / "docs" / "recipes.md"


# `small` has 1e6 steps of 128 examples of 8.984e9 FLOPs in matrix products: 1.15e18.
@pytest.mark.parametrize(
    ("precision", "flags", "row"),
    [
        ("bfloat16", {"device": "a100"}, ["0.5", "2.05", "0.0853"]),  # 1.15e18 / (312e12 * 0.5 * 3600)
        ("float32", {"device": "a100"}, ["0.5", "4.1", "0.171"]),
        ("bfloat16", {"device": "v4-8", "device_count": 2}, ["0.5", "0.29", "0.0121"]),  # 2 x 4 x 275e12
        # 8 devices for 1.15e18 / (8 * 8.1e12 * 0.5 * 3600) = 9.86 hours
        ("bfloat16", {"device": "t4", "device_count": 8, "price_per_hour": 0.75}, ["0.5", "9.86", "0.411", "59"]),
    ],
)
def test_the_hours_are_the_products_over_the_peaks_of_all_devices_times_the_utilisation(precision, flags, row):
    config = load_config("small", (f"train.precision={precision}",))
    text = hours_text(config, **flags, utilization=0.5)
    assert cells(text)[1] == row
    assert ("bfloat16 has 2 times the peak here: --set train.precision=bfloat16" in text) == (precision == "float32")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": "a100", "utilization": 40.0}, "--utilization is 40"),
        ({"device": "v4-8", "device_count": 3}, "train.batch_size is 128, .* 12 replicas"),
    ],
)
def test_a_number_out_of_range_is_refused(arguments, message):
    with pytest.raises(UserError, match=message):
        hours_text(load_config("small"), **arguments)


@pytest.mark.parametrize("name", ["small", "base_two_phases", "base", "large"])
def test_the_recipes_have_the_hours_and_tokens_of_the_presets(name):
    config, hours = load_config(name, ("train.precision=bfloat16",)), []
    for device in ("rtx3090", "rtx4090", "a100", "h100", "v4-8"):
        (_, low, _), (_, high, _) = cells(hours_text(config, device))[1:]
        hours.append(f"{high} to {low}")
    text = RECIPES.read_text(encoding="utf-8")
    assert f"| {name} | {' | '.join(hours)} |" in text
    tokens = RunCost(config).spent(config.train.num_steps).token_slots
    assert f"| `{name}` | {tokens / 1e9:.3g} billion |" in text
