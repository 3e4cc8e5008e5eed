"""docs/tutorial.md: its commands run as printed, from text to an answer of the server."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from electra_tf.cli.commands import SUBCOMMANDS

PROJECT = Path(__file__).resolve().parents[2]
TUTORIAL = PROJECT / "docs" / "tutorial.md"


def commands() -> str:
    """Every block that is marked as `sh`."""
    return "\n".join(re.findall(r"^```sh\n(.*?)^```$", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def test_every_command_of_the_tutorial_is_a_program_of_the_project():
    programs = re.findall(r"^(?:python (\S+\.py)|electra-tf (\S+))", commands(), re.MULTILINE)
    assert len(programs) == 10
    assert all((PROJECT / script).is_file() if script else name in SUBCOMMANDS for script, name in programs)


@pytest.mark.slow
def test_the_commands_of_the_tutorial_run_and_the_server_agrees_with_predict(tmp_path):
    rest, grpc = free_port(), free_port()
    directory = tmp_path / "runs" / "tutorial"
    script = commands().replace("runs/tutorial", str(directory))
    script = script.replace("serve_locally.py ", f"serve_locally.py --port={grpc} --rest_api_port={rest} ")
    script = script.replace("rest_client.py ", f"rest_client.py --server=http://127.0.0.1:{rest} ")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    answer = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=PROJECT, env=environment, capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr[-4000:]
    predicted = (directory / "predicted.tsv").read_text(encoding="utf-8").splitlines()[-1].split("\t")[1]
    assert f'"label": "{predicted}"' in answer.stdout
    assert (directory / "hugging_face" / "model.safetensors").is_file()
