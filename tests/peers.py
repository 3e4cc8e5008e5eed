"""The environment with PyTorch and transformers, whose programs ours are compared with."""

import os

import pytest

# python -m venv PEERS && PEERS/bin/pip install -r benchmarks/requirements-peers.txt
PEERS_PYTHON = os.environ.get("ELECTRA_TF_PEERS_PYTHON")
needs_peers = pytest.mark.skipif(
    not PEERS_PYTHON, reason="ELECTRA_TF_PEERS_PYTHON is not set: nothing is compared with PyTorch"
)
