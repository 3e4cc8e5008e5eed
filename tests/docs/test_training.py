"""docs/training.md: its commands run as printed, with a tiny network on tiny data."""

import json

import pytest

from electra_tf.config.loader import config_to_yaml
from tests.docs.commands import run_page
from tests.markdown import cells


@pytest.mark.slow
def test_the_commands_of_the_page_train_evaluate_and_report(tmp_path, tiny_config, write_data):
    write_data(tmp_path / "DATA")
    (tmp_path / "tiny.yaml").write_text(config_to_yaml(tiny_config(train={"num_steps": 2})))
    printed = run_page("training", tmp_path, {"--config=small": "--config=tiny.yaml"})
    reports = [json.loads(line) for line in (tmp_path / "RUN/metrics.jsonl").read_text().splitlines()]
    held_out = next(report for report in reports if report["split"] != "train")
    assert held_out["step"] == 2
    assert f'"replaced_token_auc": {held_out["replaced_token_auc"]}' in printed  # of --evaluate
    heading, row = cells(printed)[-2:]  # of the report
    assert row[heading.index("replaced-token AUC")] == f"{held_out['replaced_token_auc']:.3f}"
