"""What the ablations' runs are and how their reports are judged; no run is made here."""

import json
import math

import pytest

from benchmarks import ablations
from benchmarks.ablations import ABLATIONS, PhaseResult, reduced, results
from electra_tf.tasks.pretrain.reduction import ReducedSizes

SIZES = ReducedSizes(vocab_size=97, hidden_size=64, max_seq_length=24, batch_size=6, num_steps=40)


@pytest.fixture
def write_reports(tmp_path):
    def build(*reports: dict):
        lines = [{"step": step, "split": "train", **report} for step, report in enumerate(reports, start=1)]
        (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return tmp_path

    return build


def test_a_run_keeps_its_kind_and_reports_ten_times():
    config = reduced(ABLATIONS / "two_stage.yaml", SIZES)
    assert (config.objective.name, config.objective.generator.size_fraction) == ("two_stage", 1.0)
    assert (config.encoder.vocab_size, config.data.max_seq_length, config.train.batch_size) == (97, 24, 6)
    assert (config.train.num_steps, config.train.log_every_steps) == (40, 4)


def test_phases_are_told_apart_by_what_they_report(write_reports):
    run = write_reports(
        {"loss": 9.0, "masked_lm": 9.0, "tokens_per_second": 5.0},
        {"loss": 7.0, "masked_lm": 7.0, "tokens_per_second": 6.0},
        {"loss": 30.0, "replaced_token": 0.6, "paper_flops": 1e9},
        {"loss": 20.0, "replaced_token": 0.4, "paper_flops": 2e9},
    )
    assert results(run) == [PhaseResult(9.0, 7.0, {"masked_lm": 7.0}), PhaseResult(30.0, 20.0, {"replaced_token": 0.4})]


def test_what_has_no_value_is_not_finite(write_reports):
    (found,) = results(write_reports({"loss": 9.0, "masked_lm": 9.0}, {"loss": 8.0, "masked_lm": None}))
    assert math.isnan(found.terms["masked_lm"]) and not found.is_finite


@pytest.mark.parametrize(
    ("name", "last", "verdict"),
    [("electra_15", 8.0, "PASS"), ("electra_15", 10.0, "FAIL"), ("adversarial", 10.0, "PASS")],
)
def test_a_loss_has_to_fall_where_one_is_minimised(name, last, verdict, capsys):
    config = reduced(ABLATIONS / f"{name}.yaml", SIZES)
    learns = ablations._print_row(name, config, [PhaseResult(9.0, last, {"masked_lm": 1.25})])
    assert learns == (verdict == "PASS")
    assert capsys.readouterr().out == f"| {name} | 9.00 to {last:.2f} | masked_lm 1.25 | {verdict} |\n"


def test_an_unknown_ablation_is_one_line(tmp_path, capsys):
    assert ablations.main([f"--data_dir={tmp_path}", f"--output_dir={tmp_path}", "--only", "electra_16"]) == 2
    assert "--only: there is no electra_16; there are adversarial" in capsys.readouterr().err
