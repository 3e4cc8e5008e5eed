"""The numbers that docs/flops.md states of the presets are the library's."""

from pathlib import Path

import pytest

from electra_tf.flops.budget import RunCost
from electra_tf.tasks.pretrain.config import load_config

PROJECT = Path(__file__).resolve().parents[2]
ROWS = {
    "an example, paper": lambda cost, run: cost.stretches[0].example().paper,
    "an example, hardware": lambda cost, run: cost.stretches[0].example().hardware.total,
    "of that, matrix products": lambda cost, run: cost.stretches[0].example().hardware.products,
    "the run, paper": lambda cost, run: cost.spent(run.train.num_steps).paper,
}


def shown(number) -> str:
    return f"{float(number):.3e}".replace("e+0", "e").replace("e+", "e")


@pytest.mark.parametrize("row", ROWS)
def test_the_table_of_flops_has_the_numbers_of_the_presets(row):
    runs = [load_config(PROJECT / "configs" / "pretrain" / f"{size}.yaml") for size in ("small", "base", "large")]
    cells = [row, *(shown(ROWS[row](RunCost(run), run)) for run in runs)]
    assert f"| {' | '.join(cells)} |" in (PROJECT / "docs" / "flops.md").read_text(encoding="utf-8")
