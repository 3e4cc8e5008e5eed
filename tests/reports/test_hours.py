"""Hours of a run by published peaks."""

from pathlib import Path

import pytest

from electra_tf.config.errors import UserError
from electra_tf.flops.budget import RunCost
from electra_tf.reports.hours import hours_text
from electra_tf.tasks.pretrain.config import load_config

SMALL = Path(__file__).resolve().parents[2] / "configs" / "pretrain" / "small.yaml"
DOCS = SMALL.parents[2] / "docs"


@pytest.fixture(scope="module")
def small():
    """1e6 steps of 128 examples of 8.984e9 FLOPs in matrix products: 1.15e18."""
    return load_config(SMALL)


@pytest.fixture(scope="module")
def small_in_bfloat16():
    return load_config(SMALL, ("train.precision=bfloat16",))


def test_the_hours_are_the_products_over_the_peak_times_the_utilisation(small, small_in_bfloat16):
    # 1.15e18 / (156e12 * 0.5 * 3600), and in bfloat16 twice the peak.
    assert hours_text(small, "a100", utilization=0.5).splitlines()[-2] == "| 0.5 | 4.1 | 0.171 |"
    assert hours_text(small_in_bfloat16, "a100", utilization=0.5).splitlines()[-1] == "| 0.5 | 2.05 | 0.0853 |"


def test_the_peaks_of_all_chips_and_devices_are_added(small_in_bfloat16):
    # 1.15e18 / (2 * 4 * 275e12 * 0.5 * 3600)
    lines = hours_text(small_in_bfloat16, "v4-8", device_count=2, utilization=0.5).splitlines()
    assert lines[0].endswith("; 2 x v4-8, bfloat16: 2.2e+15 FLOP/s published")
    assert lines[-1] == "| 0.5 | 0.29 | 0.0121 |"


def test_two_assumed_utilisations_are_the_default_and_noted(small_in_bfloat16):
    *_, low, high, note = hours_text(small_in_bfloat16, "rtx4090").splitlines()
    # 1.15e18 / (165.2e12 * 3600) = 1.934
    assert (low, high) == ("| 0.2 | 9.67 | 0.403 |", "| 0.4 | 4.83 | 0.201 |")
    assert note.startswith("the utilisations are assumed, not measured")


def test_the_price_is_for_each_device(small_in_bfloat16):
    # 8 devices for 1.15e18 / (8 * 8.1e12 * 0.5 * 3600) = 9.86 hours
    lines = hours_text(small_in_bfloat16, "t4", 8, 0.5, price_per_hour=0.75).splitlines()
    assert lines[-1] == "| 0.5 | 9.86 | 0.411 | 59 |"


def test_the_faster_precision_is_recommended_for_a_run_in_float32(small, small_in_bfloat16):
    assert "bfloat16 has 2 times the peak here" in hours_text(small, "h100")
    assert "times the peak" not in hours_text(small_in_bfloat16, "h100")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": "a100", "utilization": 40.0}, "--utilization is 40"),
        ({"device": "a100", "utilization": float("nan")}, "--utilization is nan"),
        ({"device": "a100", "price_per_hour": 0.0}, "--price_per_hour is 0"),
        ({"device": "v4-8", "device_count": 3}, "train.batch_size is 128, .* 12 replicas"),
    ],
)
def test_a_number_out_of_range_is_refused(small, arguments, message):
    with pytest.raises(UserError, match=message):
        hours_text(small, **arguments)


def in_bfloat16(name: str):
    return load_config(SMALL.with_name(f"{name}.yaml"), ("train.precision=bfloat16",))


@pytest.mark.parametrize("name", ["small", "base_two_phases", "base", "large"])
def test_the_recipes_have_the_hours_and_tokens_of_the_presets(name):
    config, cells = in_bfloat16(name), []
    for device in ("rtx3090", "rtx4090", "a100", "h100", "v4-8"):
        low, high = (
            line.split(" | ")[1] for line in hours_text(config, device).splitlines() if line.startswith("| 0.")
        )
        cells.append(f"{high} to {low}")
    text = (DOCS / "recipes.md").read_text(encoding="utf-8")
    assert f"| {name} | {' | '.join(cells)} |" in text
    tokens = RunCost(config).spent(config.train.num_steps).token_slots
    assert f"| `{name}` | {tokens / 1e9:.3g} billion |" in text
