"""Hours of a run by published peaks."""

from pathlib import Path

import pytest

from electra_tf.config.errors import UserError
from electra_tf.flops.budget import RunCost
from electra_tf.reports.costs import hours_text
from electra_tf.tasks.pretrain.config import load_config

SMALL = Path(__file__).resolve().parents[2] / "configs" / "pretrain" / "small.yaml"
DOCS = SMALL.parents[2] / "docs"


def in_bfloat16(name: str):
    return load_config(SMALL.with_name(f"{name}.yaml"), ("train.precision=bfloat16",))


# `small` has 1e6 steps of 128 examples of 8.984e9 FLOPs in matrix products: 1.15e18.
@pytest.mark.parametrize(
    ("precision", "flags", "last_line"),
    [
        ("bfloat16", {"device": "a100"}, "| 0.5 | 2.05 | 0.0853 |"),  # 1.15e18 / (312e12 * 0.5 * 3600)
        ("float32", {"device": "a100"}, "bfloat16 has 2 times the peak here: --set train.precision=bfloat16"),
        ("bfloat16", {"device": "v4-8", "device_count": 2}, "| 0.5 | 0.29 | 0.0121 |"),  # 2 x 4 x 275e12
        # 8 devices for 1.15e18 / (8 * 8.1e12 * 0.5 * 3600) = 9.86 hours
        ("bfloat16", {"device": "t4", "device_count": 8, "price_per_hour": 0.75}, "| 0.5 | 9.86 | 0.411 | 59 |"),
    ],
)
def test_the_hours_are_the_products_over_the_peaks_of_all_devices_times_the_utilisation(precision, flags, last_line):
    config = load_config(SMALL, (f"train.precision={precision}",))
    assert hours_text(config, **flags, utilization=0.5).splitlines()[-1] == last_line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": "a100", "utilization": 40.0}, "--utilization is 40"),
        ({"device": "v4-8", "device_count": 3}, "train.batch_size is 128, .* 12 replicas"),
    ],
)
def test_a_number_out_of_range_is_refused(arguments, message):
    with pytest.raises(UserError, match=message):
        hours_text(load_config(SMALL), **arguments)


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
