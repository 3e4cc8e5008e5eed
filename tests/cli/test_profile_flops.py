"""The output of electra-tf flops, and mistakes in its flags."""

import json
from pathlib import Path

import pytest

from electra_tf.cli import profile_flops

PRESETS = Path(__file__).resolve().parents[2] / "configs" / "pretrain"
SMALL, BASE = f"--config={PRESETS / 'small.yaml'}", f"--config={PRESETS / 'base.yaml'}"
BASE_TWO_PHASES = f"--config={PRESETS / 'base_two_phases.yaml'}"


@pytest.fixture
def printed(capsys):
    """`printed("--flag", ...)`: the output of the command when it succeeds."""

    def run(*flags: str) -> str:
        assert profile_flops.main(list(flags)) == 0
        return capsys.readouterr().out

    return run


def test_totals_and_published_numbers_are_json(printed):
    assert json.loads(printed(SMALL, "--json"))["run"]["paper_flops"] == 1.293743798272e18
    assert json.loads(printed("--paper_flops"))["electra_small"] == 1.293743798272e18


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ([SMALL], "the run: 1,000,000 steps, 128,000,000 examples 1.294e+18"),
        ([SMALL, "--budget=1e18"], "pay for 772,950 steps"),
        ([SMALL, "--budget=1e18", "--convention=hardware"], "pay for 856,813 steps"),
        ([BASE_TWO_PHASES, "--budget=1e19"], "pay for 510,067 steps of this configuration"),
        # 766,000 steps of 256 x 3.422e11 FLOPs over 4 x 275e12 FLOP/s
        ([BASE, "--hours", "--device=v4-8", "--set=train.precision=bfloat16"], "0.4 42.4 1.77"),
    ],
)
def test_each_mode_prints_its_figures(printed, flags, line):
    assert line in " ".join(printed(*flags).replace("|", " ").split())
