"""The script's flags, and what it prints."""

import json
from pathlib import Path

import pytest

import profile_flops

PRESETS = Path(__file__).resolve().parents[1] / "configs" / "pretrain"
SMALL, BASE_TWO_PHASES = str(PRESETS / "small.yaml"), str(PRESETS / "base_two_phases.yaml")


@pytest.fixture
def printed(capsys):
    """`printed("--flag", ...)`: what the script prints when it succeeds."""

    def run(*flags: str) -> str:
        assert profile_flops.main(list(flags)) == 0
        return capsys.readouterr().out

    return run


def test_the_published_numbers_are_one_json_object(printed):
    found = json.loads(printed("--paper_flops"))
    assert len(found) == 13
    assert (found["electra_small"], found["t5_11b"]) == (1.293743798272e18, 4.581900124212429e22)


def test_the_four_tables_are_printed(printed):
    assert [line[:7] for line in printed("--paper_table").splitlines() if line.startswith("table ")] == [
        "table 1",
        "table 2",
        "table 3",
        "table 7",
    ]


def test_the_cost_of_a_configuration_is_printed(printed):
    assert "| the run: 1,000,000 steps, 128,000,000 examples | 1.294e+18 |" in printed(f"--config={SMALL}")
    assert json.loads(printed(f"--config={SMALL}", "--json"))["run"]["paper_flops"] == 1.293743798272e18


def test_a_budget_is_answered_in_either_convention(printed):
    flags = (f"--config={SMALL}", "--budget=1e18")
    assert "pay for 772,950 steps" in printed(*flags)
    assert "pay for 856,813 steps" in printed(*flags, "--convention=hardware")


def test_a_budget_below_the_first_stage_of_two_is_answered_in_its_steps(printed):
    found = printed(f"--config={BASE_TWO_PHASES}", "--budget=1e19")
    assert "pay for 510,067 steps of this configuration" in found


def test_the_cost_of_fine_tuning_and_inference_is_printed(printed):
    found = printed(f"--config={SMALL}", "--finetuning", "--set=data.max_seq_length=128")
    assert "counts 3.677e+09 FLOPs in inference" in found  # table 1: 3.7e9
    # 2 * 128 * (12 * (4 * 256**2 + 2 * 256 * 128 + 2 * 256 * 1024) + 128 * 256 + 2 * 128) + 2 * 256 * 2 = 2.626e9
    assert "| classification, 2 classes, on [CLS] | 2.658e+09 | 2.626e+09 | 7.973e+09 | 7.877e+09 |" in found


def test_the_measured_table_is_printed(printed, tmp_path, tiny_config):
    from electra_tf.config.loader import config_to_yaml

    config_file = tmp_path / "tiny.yaml"
    config_file.write_text(config_to_yaml(tiny_config()), encoding="utf-8")
    found = printed(f"--config={config_file}", "--measured")
    assert "| all | " in found and "| XLA | " in found


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "nothing to count; give --config=FILE"),
        ((f"--config={SMALL}", "--budget=1"), "--budget 1 is too small"),
        ((f"--config={SMALL}", "--budget=nan"), "--budget is nan; expected a positive number"),
        (
            (f"--config={SMALL}", "--budget=1e18", "--model_dir=nowhere"),
            "holds no config.yaml; give the directory of a run",
        ),
        ((f"--config={SMALL}", "--set=train.batchsize=1"), "did you mean batch_size?"),
        ((f"--config={SMALL}", "--model_dir=run"), "--model_dir goes with --budget"),
        ((f"--config={SMALL}", "--measure_speed"), "--measure_speed goes with --budget"),
        ((f"--config={SMALL}", "--convention=hardware"), "--convention goes with --budget"),
        ((f"--config={SMALL}", "--budget=1e18", "--measure_speed=0"), "--measure_speed is 0; expected a positive"),
        ((f"--config={SMALL}", "--budget=1e18", "--measure_speed=-3"), "--measure_speed is -3; expected a positive"),
        ((f"--config={SMALL}", "--measured", "--logical_cpu_devices=0"), "--logical_cpu_devices is 0; expected"),
        ((f"--config={SMALL}", "--strategy=mirrored"), "--strategy goes with --measured and --measure_speed"),
        ((f"--config={SMALL}", "--json", "--logical_cpu_devices=2"), "--logical_cpu_devices goes with --measured"),
        ((f"--config={SMALL}", "--paper_table"), "--config has no part in the paper's figures"),
        (("--set=train.seed=1", "--paper_flops"), "--set has no part in the paper's figures"),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_2(capsys, flags, message):
    assert profile_flops.main(list(flags)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and message in line


@pytest.mark.parametrize(
    "flags",
    [
        (f"--config={SMALL}", "--budget=1e18", "--json"),
        (f"--config={SMALL}", "--budget=1e18", "--measured"),
        (f"--config={SMALL}", "--json", "--measured"),
        ("--paper_table", "--budget=1e18"),
        ("--paper_flops", "--measured"),
    ],
)
def test_of_what_can_be_printed_one_is_chosen(capsys, flags):
    with pytest.raises(SystemExit) as ended:
        profile_flops.main(list(flags))
    assert ended.value.code == 2
    assert "not allowed with argument" in capsys.readouterr().err
