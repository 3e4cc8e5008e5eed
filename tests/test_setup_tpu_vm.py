"""setup_tpu_vm.sh: what it refuses, and the order of its steps, with stand-ins for the chips and for all it calls."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def vm(tmp_path) -> Path:
    """A project on a machine with a TPU chip. Its setup.sh makes a .venv whose Python writes down what it is to do."""
    script = (
        (PROJECT / "setup_tpu_vm.sh").read_text(encoding="utf-8").replace("(/dev/", "(dev/").replace(" /dev/", " dev/")
    )
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "accel0").touch()
    (tmp_path / "setup_tpu_vm.sh").write_text(script)
    write_program(tmp_path / "new" / "python", 'case "$*" in -I*) exit 0 ;; esac\necho "python $1 $2 $3" >> calls')
    write_program(tmp_path / "setup.sh", 'echo "setup.sh $PYTHON" >> calls\nmkdir -p .venv\ncp -r new .venv/bin')
    return tmp_path


def set_up(vm: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    variables = {**os.environ, "PYTHON": sys.executable, **environment}
    command = ["bash", vm / "setup_tpu_vm.sh", *arguments]
    return subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd="/")


def python_of_version(folder: Path, version: str) -> Path:
    code = f"import sys; sys.version_info = ({version.replace('.', ', ')}); "
    return write_program(folder / "python", f'exec "{sys.executable}" -I -c "{code}$3"')


def test_a_machine_without_a_chip_is_refused_in_one_line(vm):
    (vm / "dev" / "accel0").unlink()
    refused = set_up(vm)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: no TPU chip in") and refused.stderr.count("\n") == 1
    assert not (vm / "calls").exists()


@pytest.mark.parametrize("version", ["3.10", "3.14"])
def test_a_python_without_libtpu_is_refused_in_one_line(vm, version):
    python = python_of_version(vm / "other", version)
    refused = set_up(vm, PYTHON=str(python))
    assert refused.returncode == 2
    assert refused.stderr == f"error: PYTHON={python} is not a Python 3.11 to 3.13, for which alone libtpu exists\n"
    assert not (vm / "calls").exists()


def test_an_argument_is_refused(vm):
    refused = set_up(vm, "--dev")
    assert refused.returncode == 2 and "error: unknown argument --dev" in refused.stderr


def test_the_tpu_packages_come_after_all_others_and_then_the_check(vm):
    python = python_of_version(vm / "other", "3.12")
    assert set_up(vm, PYTHON=str(python)).returncode == 0
    calls = (vm / "calls").read_text().splitlines()
    assert calls[:2] == [f"setup.sh {python}", "python -m pip install"]
    assert calls[2].startswith("python -c ")


def test_a_suitable_environment_keeps_its_python(vm):
    write_program(vm / ".venv" / "bin" / "python", (vm / "new" / "python").read_text().partition("\n")[2])
    assert set_up(vm, PYTHON="").returncode == 0
    assert (vm / "calls").read_text().splitlines()[0] == "setup.sh "
