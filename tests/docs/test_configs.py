"""docs/configs.md: its file is a configuration, and its commands run with it."""

import json

import pytest

from electra_tf.config.loader import config_to_yaml
from tests.docs.commands import PROJECT, blocks_of, run_page


@pytest.mark.slow
def test_the_commands_of_the_page_read_its_file(tmp_path, tiny_config, write_data):
    write_data(tmp_path / "DATA")
    (tmp_path / "tiny.yaml").write_text(config_to_yaml(tiny_config(objective={"generator": {"num_heads": None}})))
    ((_, text),) = blocks_of(PROJECT / "docs/configs.md", "yaml")
    (tmp_path / "mine.yaml").write_text(text.replace("base: small", "base: tiny.yaml"))
    printed = run_page("configs", tmp_path, {})
    plan = json.loads(printed[: printed.index("\n}") + 2])
    assert plan["config"]["train"]["num_steps"] == 200000 and plan["config"]["train"]["seed"] == 1
    assert plan["config"]["objective"]["generator"]["size_fraction"] == 0.5
    assert "hardware" in printed[len(str(plan)) // 2 :]
