"""docs/configs.md: its file is a configuration, and its commands run with it."""

import json

import pytest

from tests.docs.commands import PROJECT, blocks_of, run_page
from tests.markdown import cells


@pytest.mark.slow
def test_the_commands_of_the_page_read_its_file(tmp_path):
    ((_, text),) = blocks_of(PROJECT / "docs/configs.md", "yaml")
    (tmp_path / "mine.yaml").write_text(text)
    printed = run_page("configs", tmp_path, {})
    plan, end = json.JSONDecoder().raw_decode(printed)
    train, generator = plan["config"]["train"], plan["config"]["objective"]["generator"]
    assert (train["num_steps"], train["seed"], generator["size_fraction"]) == (200_000, 1, 0.5)
    assert "the run: 200,000 steps, 25,600,000 examples" in [row[0] for row in cells(printed[end:])]
