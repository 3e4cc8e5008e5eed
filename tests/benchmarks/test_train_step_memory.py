import pytest

from benchmarks import train_step_memory
from benchmarks.train_step_memory import Measured, Setting

MIB = 2**20


def peaks(accumulated: int):
    """A step of 100 MiB and 7 more for each example; a batch in micro-batches holds what it is told."""

    def run_setting(setting: Setting, flags) -> Measured:
        if setting.accumulation_steps > 1:
            return Measured(accumulated * MIB, 2.5)
        return Measured((100 + 7 * setting.batch_size) * MIB, 1.25)

    return run_setting


def test_the_bytes_of_an_example_are_the_slope_between_two_batch_sizes(monkeypatch, capsys):
    monkeypatch.setattr(train_step_memory, "run_setting", peaks(accumulated=115))
    assert train_step_memory.main(["--micro_batch=2", "--accumulation_steps=5"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("7 MiB for each example and 0.10 GiB whatever the batch") == 2
    assert "PASS  10 examples in micro-batches over 2, memory, rematerialised: 1.01" in printed


def test_micro_batches_that_are_all_held_at_once_fail(monkeypatch, capsys):
    monkeypatch.setattr(train_step_memory, "run_setting", peaks(accumulated=170))
    assert train_step_memory.main(["--micro_batch=2", "--accumulation_steps=5"]) == 1
    assert "FAIL" in capsys.readouterr().out


def test_a_row_is_a_batch_its_micro_batches_and_whether_all_is_kept():
    assert Setting(24, 8, rematerialize=True).overrides == [
        "train.batch_size=24",
        "train.gradient_accumulation_steps=8",
        "train.rematerialize=true",
    ]


def test_a_step_is_measured_in_a_process_of_its_own(tmp_path, tiny_config):
    from electra_tf.config.loader import config_to_yaml

    path = tmp_path / "tiny.yaml"
    path.write_text(config_to_yaml(tiny_config()), encoding="utf-8")
    flags = train_step_memory.parse_flags([f"--config={path}", "--threads=1"])
    measured = train_step_memory.run_setting(Setting(6, 3, rematerialize=False), flags)
    assert measured.peak_bytes > 64 * MIB and measured.seconds > 0


def test_no_micro_batch_is_refused():
    with pytest.raises(SystemExit) as refused:
        train_step_memory.parse_flags(["--micro_batch=0"])
    assert refused.value.code == 2
