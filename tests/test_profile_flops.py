"""The flags of profile_flops.py, and its output."""

import json
from pathlib import Path

import pytest

import profile_flops

PRESETS = Path(__file__).resolve().parents[1] / "configs" / "pretrain"
SMALL, BASE = f"--config={PRESETS / 'small.yaml'}", f"--config={PRESETS / 'base.yaml'}"
BASE_TWO_PHASES = f"--config={PRESETS / 'base_two_phases.yaml'}"


@pytest.fixture
def printed(capsys):
    """`printed("--flag", ...)`: the output of the command when it succeeds."""

    def run(*flags: str) -> str:
        assert profile_flops.main(list(flags)) == 0
        return capsys.readouterr().out

    return run


def test_totals_and_the_published_numbers_are_printed_as_one_json_object(printed):
    assert json.loads(printed(SMALL, "--json"))["run"]["paper_flops"] == 1.293743798272e18
    assert json.loads(printed("--paper_flops"))["electra_small"] == 1.293743798272e18


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--paper_table"], "table 7: small models, GLUE test; x against ELECTRA-Small"),
        ([SMALL], "| the run: 1,000,000 steps, 128,000,000 examples | 1.294e+18 |"),
        ([SMALL, "--budget=1e18"], "pay for 772,950 steps"),
        ([SMALL, "--budget=1e18", "--convention=hardware"], "pay for 856,813 steps"),
        ([BASE_TWO_PHASES, "--budget=1e19"], "pay for 510,067 steps of this configuration"),
        # 2 * 128 * (12 * (4 * 256**2 + 2 * 256 * 128 + 2 * 256 * 1024) + 128 * 256 + 2 * 128) + 2 * 256 * 2 = 2.626e9
        (
            [SMALL, "--finetuning", "--set=data.max_seq_length=128"],
            "| classification, 2 classes, on [CLS] | 2.658e+09 | 2.626e+09 | 7.973e+09 | 7.877e+09 |",
        ),
        # 766,000 steps of 256 x 3.422e11 FLOPs over 4 x 275e12 FLOP/s
        ([BASE, "--hours", "--device=v4-8", "--set=train.precision=bfloat16"], "| 0.4 | 42.4 | 1.77 |"),
        # Table 1: 3.7e9.
        ([SMALL, "--finetuning"], "counts 3.677e+09 FLOPs in inference"),
    ],
)
def test_what_is_asked_for_is_printed(printed, flags, line):
    assert line in printed(*flags)


@pytest.mark.slow
def test_the_measured_table_is_printed(printed, tmp_path, tiny_config):
    from electra_tf.config.loader import config_to_yaml

    config_file = tmp_path / "tiny.yaml"
    config_file.write_text(config_to_yaml(tiny_config()), encoding="utf-8")
    table = printed(f"--config={config_file}", "--measured")
    assert "| all | " in table and "| XLA | " in table


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "nothing to count; give --config=FILE"),
        ([SMALL, "--budget=1"], "--budget 1 is too small"),
        ([SMALL, "--budget=1e18", "--model_dir=nowhere"], "holds no config.yaml; give the directory of a run"),
        ([SMALL, "--set=train.batchsize=1"], "did you mean batch_size?"),
        ([SMALL, "--model_dir=run"], "--model_dir goes with --budget"),
        ([SMALL, "--measure_speed"], "--measure_speed goes with --budget"),
        ([SMALL, "--convention=hardware"], "--convention goes with --budget"),
        ([SMALL, "--budget=1e18", "--measure_speed=0"], "--measure_speed is 0; expected a positive"),
        ([SMALL, "--measured", "--logical_cpu_devices=0"], "--logical_cpu_devices is 0; expected"),
        ([SMALL, "--strategy=mirrored"], "--strategy goes with --measured and --measure_speed"),
        ([SMALL, "--json", "--logical_cpu_devices=2"], "--logical_cpu_devices goes with --measured"),
        ([SMALL, "--hours"], "--hours needs --device; give one of t4, "),
        ([SMALL, "--hours", "--device=gpu"], "--device=gpu is not known; expected one of t4, "),
        ([SMALL, "--hours", "--device=a100", "--device_count=0"], "--device_count is 0; expected a positive"),
        ([SMALL, "--device=a100"], "--device goes with --hours"),
        ([SMALL, "--json", "--utilization=0.3"], "--utilization goes with --hours"),
        ([SMALL, "--budget=1e18", "--price_per_hour=2"], "--price_per_hour goes with --hours"),
        ([SMALL, "--paper_table"], "--config has no part in the paper's figures"),
        (["--set=train.seed=1", "--paper_flops"], "--set has no part in the paper's figures"),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_2(capsys, flags, message):
    assert profile_flops.main(flags) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and message in line
