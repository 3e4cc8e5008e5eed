"""setup.sh: when it installs and which environments it refuses, with empty requirement files."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
REQUIREMENT_FILES = ["requirements.txt", "constraints.txt"]
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
# Builds a package of nothing but its metadata, as setuptools would: that one would have to be downloaded.
BACKEND = """
import zipfile

def build_editable(directory, config_settings=None, metadata_directory=None):
    folder, requires = "nothing-1.dist-info", open("requirements.txt").read().splitlines()
    metadata = ["Metadata-Version: 2.1", "Name: nothing", "Version: 1"]
    metadata += ["Provides-Extra: dev", "Provides-Extra: serving"]
    metadata += [f"Requires-Dist: {line}" for line in requires if not line.startswith("#")]
    with zipfile.ZipFile(f"{directory}/nothing-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{folder}/METADATA", "\\n".join(metadata) + "\\n")
        wheel.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\\nGenerator: test\\nTag: py3-none-any\\n")
        wheel.writestr(f"{folder}/RECORD", "")
    return "nothing-1-py3-none-any.whl"
"""


def make_project(parent: Path) -> Path:
    """A project with nothing to install, in a directory with a space in its name."""
    project = parent / "my project"
    project.mkdir()
    shutil.copy(PROJECT / "setup.sh", project)
    for name in REQUIREMENT_FILES:
        (project / name).write_text("# nothing\n")
    (project / "pyproject.toml").write_text(PYPROJECT)
    (project / "backend.py").write_text(BACKEND)
    return project


def set_up(project: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    variables = {**os.environ, "PYTHON": sys.executable, **environment}
    command = [project / "setup.sh", *arguments]
    return subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd="/")


def output_of(result: subprocess.CompletedProcess) -> str:
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture
def project(tmp_path) -> Path:
    return make_project(tmp_path)


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """A project with an environment, for copies: making an environment takes seconds."""
    project = make_project(tmp_path_factory.mktemp("template"))
    assert "Making .venv" in output_of(set_up(project))
    return project


@pytest.fixture
def installed(template, tmp_path) -> Path:
    return shutil.copytree(template, tmp_path / "my project", symlinks=True)


@pytest.mark.slow
def test_dev_adds_to_the_plain_set_up_and_a_repeated_set_up_ends_at_once(installed):
    added = output_of(set_up(installed, "--dev"))
    assert "Installing " in added and "Making .venv" not in added
    started = time.monotonic()
    assert set_up(installed, "--dev").stdout == ""
    assert set_up(installed).stdout == ""
    assert time.monotonic() - started < 4.0


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["requirements.txt", "constraints.txt"])
def test_a_changed_requirement_file_is_installed(installed, changed):
    (installed / changed).write_text("# something else\n")
    assert "Installing " in output_of(set_up(installed))
    assert set_up(installed).stdout == ""


@pytest.mark.slow
def test_an_interrupted_set_up_is_redone_from_scratch(installed):
    (installed / ".venv" / "installed-requirements").unlink()
    (installed / ".venv" / "left-over").touch()
    assert "Making .venv" in output_of(set_up(installed))
    assert not (installed / ".venv" / "left-over").exists()


@pytest.mark.slow
def test_an_environment_behind_a_link_is_not_emptied(installed, tmp_path):
    (installed / "requirements.txt").write_text("# something else\n")
    (installed / ".venv").rename(tmp_path / "of another project")
    (installed / ".venv").symlink_to(tmp_path / "of another project")
    refused = set_up(installed)
    assert refused.returncode == 2
    assert "error: .venv links to an environment" in refused.stderr
    assert (tmp_path / "of another project" / "bin" / "python").exists()


def test_a_remade_environment_keeps_its_python(project, tmp_path):
    own, link = tmp_path / "3.12" / "python", project / ".venv" / "bin" / "python"
    answers = {own: 'case "$*" in --version) echo "its own";; *venv*--clear*) exit 3;; esac', link: f'echo "{own}"'}
    for script, answer in answers.items():
        script.parent.mkdir(parents=True)
        script.write_text(f"#!/bin/sh\n{answer}\n")
        script.chmod(0o755)
    assert set_up(project, PYTHON="").stdout == "Making .venv with its own ...\n"


@pytest.mark.slow
def test_a_failed_install_is_an_error_and_leaves_no_stamp(installed):
    (installed / "backend.py").write_text("raise SystemExit('no backend')\n")
    (installed / "requirements.txt").write_text("# something else\n")
    failed = set_up(installed)
    assert failed.returncode == 2
    assert "error: pip could not install the requirements" in failed.stderr
    assert not list((installed / ".venv").glob("installed-requirements*"))


@pytest.mark.parametrize("version", ["3.10", "3.14"])
def test_an_unsupported_python_is_refused_in_one_line(project, tmp_path, version):
    python = tmp_path / "python"
    pretend = f"import sys; sys.version_info = ({version.replace('.', ', ')})"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -c "{pretend}; $3"\n')
    python.chmod(0o755)
    refused = set_up(project, PYTHON=str(python))
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"error: PYTHON={python} is not a Python 3.11 to 3.13")
    assert refused.stderr.count("\n") == 1


def test_a_path_without_a_supported_python_is_an_error_with_a_remedy(project, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "dirname", "cat", "flock", "rm"):
        (tools / name).symlink_to(shutil.which(name))
    old_python = tools / "python3"
    old_python.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.2"\nexit 1\n')
    old_python.chmod(0o755)
    refused = set_up(project, PYTHON="", PATH=str(tools))
    assert refused.returncode == 2
    assert "no Python 3.11 to 3.13 with the venv module on the PATH (python3 is: Python 3.9.2)" in refused.stderr
