"""docs/tutorial.md: its commands run, with two steps, from text to an answer of the server."""

import re

import pytest

from tests.docs.commands import PROJECT, run_page
from tests.docs.conftest import on_free_ports


@pytest.mark.slow
def test_the_commands_run_and_the_server_agrees_with_predict(tmp_path):
    for name in ("sample", "examples"):
        (tmp_path / name).symlink_to(PROJECT / name)
    small = on_free_ports() | {
        "train.num_steps=200": "train.num_steps=2",
        "--seeds 0 1": "--seeds 0 --set train.num_steps=2 --set data.max_seq_length=16",
    }
    del small["grpc_client.py --"]
    printed = run_page("tutorial", tmp_path, small)
    predicted = (tmp_path / "runs/tutorial/predicted.tsv").read_text(encoding="utf-8").splitlines()[-1].split("\t")
    (answer,) = re.findall(r'"label": "(\w+)"', printed)
    assert answer == predicted[1]
    assert (tmp_path / "runs/tutorial/hugging_face/model.safetensors").is_file()
