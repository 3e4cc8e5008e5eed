"""docs/serving.md: its commands run on the tiny network, from an export to the answers of a local server."""

import socket

import pytest

from tests.docs.commands import PROJECT, run_page


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.mark.slow
def test_the_commands_export_and_both_clients_get_answers(finetuned_inputs):
    (finetuned_inputs / "examples").symlink_to(PROJECT / "examples")
    rest, grpc = free_port(), free_port()
    small = {
        "serve_locally.py": f"serve_locally.py --port={grpc} --rest_api_port={rest}",
        "rest_client.py": f"rest_client.py --server=http://127.0.0.1:{rest}",
        "grpc_client.py": f"grpc_client.py --server=127.0.0.1:{grpc}",
    }
    printed = run_page("serving", finetuned_inputs, small)
    assert printed.count('"label": "sport"') + printed.count('"label": "art"') == 2
    assert "pooled_output [1, 16]" in printed and (finetuned_inputs / "export/batching.config").is_file()
