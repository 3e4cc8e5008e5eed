"""One run to a directory."""

import json
import os
import subprocess
import sys

import pytest

from electra_tf.config.errors import UserError
from electra_tf.runs.directory_lock import LOCK_FILE, locked

_HOLD = """
import sys, pathlib
from electra_tf.runs.directory_lock import locked
with locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other_process(tmp_path):
    """Another process that holds `tmp_path`."""
    command = [sys.executable, "-c", _HOLD, str(tmp_path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_process_is_refused_and_told_who_holds_the_directory(tmp_path, other_process):
    with (
        pytest.raises(UserError, match=rf"is in use by process {other_process.pid} on \S+; wait for it"),
        locked(tmp_path),
    ):
        pass


def test_a_holder_without_a_name_is_refused_too(tmp_path, other_process):
    (tmp_path / LOCK_FILE).write_text("{")
    with pytest.raises(UserError, match="is in use by another process"), locked(tmp_path):
        pass


def test_the_lock_goes_with_a_process_that_is_killed(tmp_path, other_process):
    other_process.kill()
    other_process.wait()
    with locked(tmp_path):
        assert json.loads((tmp_path / LOCK_FILE).read_text())["process"] == os.getpid()


def test_the_lock_ends_with_its_block(tmp_path):
    with locked(tmp_path):
        pass
    with locked(tmp_path):
        pass
