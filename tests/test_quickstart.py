"""quickstart.sh: the programs that it calls and their directories, with stand-ins for the environment's programs."""

import shutil
import subprocess
from pathlib import Path

import pytest

from electra_tf.config.loader import read_values

PROJECT = Path(__file__).resolve().parents[1]

# Records every program, and writes the data set's manifest.
STAND_IN = """#!/usr/bin/env bash
echo "$@" >> calls
data="$(cat next_run)/data"
case "$*" in *--output_dir=*/data*) mkdir -p "$data" && touch "$data/manifest.json" ;; esac
[ ! -e fail_at ] || [ "$(cat fail_at)" != "$1" ]
"""


@pytest.fixture
def project(tmp_path) -> Path:
    project = tmp_path / "my project"
    (project / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(PROJECT / "quickstart.sh", project)
    for script, text in [
        ("setup.sh", "#!/bin/sh\n"),
        (".venv/bin/python", STAND_IN),
        (".venv/bin/electra-tf", STAND_IN),
    ]:
        (project / script).write_text(text)
        (project / script).chmod(0o755)
    return project


def run(project: Path, expected_run: str) -> subprocess.CompletedProcess:
    """Runs the script from another directory; in `expected_run` the stand-in writes its manifest."""
    (project / "calls").write_text("")
    (project / "next_run").write_text(expected_run)
    command = [project / "quickstart.sh"]
    return subprocess.run(command, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True)


def programs_called(project: Path) -> list[str]:
    return [line.split()[0] for line in (project / "calls").read_text().splitlines()]


ALL_PROGRAMS = [
    "build-data",
    "pretrain",
    "export",
    "examples/detect_replaced_tokens.py",
]


def test_the_programs_run_in_order_with_the_length_of_the_configuration(project):
    assert run(project, "runs/quickstart").returncode == 0
    assert programs_called(project) == ALL_PROGRAMS
    config, _ = read_values(PROJECT / "configs/pretrain/tiny.yaml")
    assert f"--max_seq_length={config['data']['max_seq_length']}" in (project / "calls").read_text().split()


def test_a_second_run_does_not_touch_the_first(project):
    run(project, "runs/quickstart")
    assert run(project, "runs/quickstart-2").returncode == 0
    calls = (project / "calls").read_text()
    assert calls.count("runs/quickstart-2/") == 6
    assert calls.count("runs/quickstart/") == 0


def test_an_interrupted_run_is_continued_and_its_data_kept(project):
    (project / "fail_at").write_text("export")
    assert run(project, "runs/quickstart").returncode == 1
    (project / "fail_at").unlink()
    resumed = run(project, "runs/quickstart")
    assert resumed.returncode == 0
    assert programs_called(project) == ALL_PROGRAMS[1:]
    assert "Continuing the unfinished run in runs/quickstart" in resumed.stdout


def test_the_last_lines_are_the_directories_and_the_next_commands(project):
    ending = run(project, "runs/quickstart").stdout.split("== Done in ")[1]
    for place in ("runs/quickstart/data", "runs/quickstart/model", "runs/quickstart/saved_model"):
        assert place in ending
    assert "tensorboard --logdir runs/quickstart/model" in ending
