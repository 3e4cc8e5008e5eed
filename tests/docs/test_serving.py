"""docs/serving.md: its commands run on the tiny network, from an export to the answers of a local server."""

import pytest

from tests.docs.commands import PROJECT, run_page
from tests.docs.conftest import on_free_ports


@pytest.mark.slow
def test_the_commands_export_and_both_clients_get_answers(finetuned_inputs):
    (finetuned_inputs / "examples").symlink_to(PROJECT / "examples")
    printed = run_page("serving", finetuned_inputs, on_free_ports())
    assert printed.count('"label": "sport"') + printed.count('"label": "art"') == 2
    assert "pooled_output [1, 16]" in printed
