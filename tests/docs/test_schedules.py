"""docs/schedules.md: its commands run as printed, with a tiny network on tiny data."""

import json

import pytest

from electra_tf.config.loader import config_to_yaml
from tests.docs.commands import run_page


@pytest.mark.slow
def test_the_commands_of_the_page_train_each_run_to_its_end(tmp_path, tiny_config, write_data):
    for name in ("DATA", "DATA128", "DATA512", "wiki", "books"):
        write_data(tmp_path / name)
    train, no_warmup = {"num_steps": 2, "milestone_fractions": [1.0]}, {"warmup_steps": 0}
    stages = [{"num_steps": 1, "max_seq_length": 10, "batch_size": 4}] * 2
    untied = {"objective": {"name": "two_stage", "tying": "none"}}
    configs = {
        "small": tiny_config(train=train),
        "base_two_phases": tiny_config(train=train | {"batch_size": 4}, stages=stages),
        "ablations/two_stage": tiny_config(train=train, optimizer=no_warmup, **untied),
        "ablations/adversarial": tiny_config(train=train, objective={"name": "adversarial"}),
        "mine.yaml": tiny_config(train=train | {"num_steps": 10}, optimizer=no_warmup),
    }
    small = {"train.num_steps=200000": "train.num_steps=12", "step-90000": "step-9"}
    for index, (name, config) in enumerate(configs.items()):
        (tmp_path / f"{index}.yaml").write_text(config_to_yaml(config))
        small[f"--config={name} "] = f"--config={index}.yaml "
    run_page("schedules", tmp_path, small)
    ends = {path.parent.name: path.read_text().splitlines() for path in tmp_path.glob("*/metrics.jsonl")}
    assert {name: json.loads(lines[-1])["step"] for name, lines in ends.items()} == {
        **dict.fromkeys(("STAGES", "MIXTURE", "TWO", "ADVERSARIAL", "FURTHER"), 2),
        "STABLE": 10,
        "LONGER": 12,
    }
    assert json.loads((tmp_path / "LONGER/warm_start.json").read_text())["step"] == 9
