"""The shell scripts with stand-ins for what they call, the images of docker/, the workflows and the hooks."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from electra_tf.config.loader import read_values

PROJECT = Path(__file__).resolve().parents[1]
# Builds a package of nothing but its metadata, as setuptools would: that one would have to be downloaded.
BACKEND = """
import zipfile

def build_editable(directory, config_settings=None, metadata_directory=None):
    files = {"METADATA": "Metadata-Version: 2.1\\nName: nothing\\nVersion: 1\\n", "RECORD": ""}
    files["WHEEL"] = "Wheel-Version: 1.0\\nGenerator: test\\nTag: py3-none-any\\n"
    with zipfile.ZipFile(f"{directory}/nothing-1-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(f"nothing-1.dist-info/{name}", text)
    return "nothing-1-py3-none-any.whl"
"""


@pytest.fixture
def project(tmp_path) -> Path:
    """A project with the shell scripts and nothing to install, in a directory with a space in its name."""
    project = tmp_path / "my project"
    project.mkdir()
    for script in ("setup.sh", "setup_tpu_vm.sh", "quickstart.sh"):
        shutil.copy(PROJECT / script, project)
    for name in ("requirements.txt", "constraints.txt"):
        (project / name).write_text("# nothing\n")
    build = "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
    (project / "pyproject.toml").write_text(build)
    (project / "backend.py").write_text(BACKEND)
    return project


def run(script: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    """Runs a script from another directory."""
    variables = {**os.environ, "PYTHON": sys.executable, **environment}
    command = [script, *arguments]
    return subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd="/")


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    return path


def python_of_version(version: str, folder: Path) -> str:
    code = f"import sys; sys.version_info = ({version.replace('.', ', ')})"
    return str(write_program(folder / version / "python", f'exec "{sys.executable}" -I -c "{code}; $3"'))


def require_refused_pythons(script: Path, folder: Path) -> None:
    for python in (python_of_version(version, folder) for version in ("3.10", "3.14")):
        refused = run(script, PYTHON=python)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert refused.stderr.startswith(f"error: PYTHON={python} is not a Python 3.11 to 3.13")


@pytest.mark.slow
def test_a_set_up_installs_what_has_changed_and_begins_again_after_an_interruption(project, tmp_path):
    def set_up(*arguments: str, **environment: str) -> str:
        done = run(project / "setup.sh", *arguments, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    require_refused_pythons(project / "setup.sh", tmp_path)
    venv = project / ".venv"
    assert "Making .venv" in set_up()
    added = set_up("--dev")
    assert "Installing " in added and "Making .venv" not in added
    assert set_up("--dev") == set_up() == ""
    (project / "constraints.txt").write_text("# something else\n")
    assert "Installing " in set_up()
    (venv / "installed-requirements").unlink()
    (venv / "left-over").touch()
    # Without PYTHON it keeps its own.
    assert f"Making .venv with Python {'.'.join(map(str, sys.version_info[:3]))} ..." in set_up(PYTHON="")
    assert not (venv / "left-over").exists()

    (project / "backend.py").write_text("raise SystemExit('no backend')\n")
    (project / "requirements.txt").write_text("# something else\n")
    failed = run(project / "setup.sh")
    assert failed.returncode == 2 and "error: pip could not install the requirements" in failed.stderr
    assert not list(venv.glob("installed-requirements*"))
    venv.rename(tmp_path / "of another project")
    venv.symlink_to(tmp_path / "of another project")
    refused = run(project / "setup.sh")
    assert refused.returncode == 2 and "error: .venv links to an environment" in refused.stderr
    assert (tmp_path / "of another project" / "bin" / "python").exists()


def test_on_a_machine_with_a_chip_the_tpu_packages_come_after_all_others_and_then_the_check(project, tmp_path):
    script = project / "setup_tpu_vm.sh"
    script.write_text(re.sub(r"(?<=[( ])/dev/", f"'{project}'/dev/", script.read_text()))
    write_program(project / "new" / "python", 'case "$*" in -I*) exit 0 ;; esac\necho "python $1 $2 $3" >> calls')
    write_program(project / "setup.sh", 'echo "setup.sh $PYTHON" >> calls\nmkdir .venv && cp -r new .venv/bin')
    refused = run(script)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert refused.stderr.startswith("error: no TPU chip in")
    (project / "dev").mkdir()
    (project / "dev" / "accel0").touch()
    require_refused_pythons(script, tmp_path)
    assert not (project / "calls").exists()
    python = python_of_version("3.12", tmp_path)
    assert run(script, PYTHON=python).returncode == 0
    first, second, third = (project / "calls").read_text().splitlines()[:3]
    assert (first, second) == (f"setup.sh {python}", "python -m pip install") and third.startswith("python -c ")


def test_the_quickstart_continues_an_interrupted_run_and_begins_the_next_after_a_whole_one(project):
    def calls(status: int) -> tuple[list[str], str]:
        (project / "calls").write_text("")
        done = run(project / "quickstart.sh")
        assert done.returncode == status, done.stderr
        return (project / "calls").read_text().splitlines(), done.stdout

    # Records the call, and writes the data set's manifest; export fails while there is a file of its name.
    record = 'echo "$@" >> calls; for each; do case "$each" in --output_dir=*/data)'
    record += ' mkdir -p "${each#*=}"; touch "${each#*=}/manifest.json" ;; esac; done; [ ! -e "$1" ]'
    for program in (".venv/bin/python", ".venv/bin/electra-tf"):
        write_program(project / program, record)
    write_program(project / "setup.sh", "")
    (project / "export").touch()
    interrupted, _ = calls(1)
    (project / "export").unlink()
    continued, printed = calls(0)
    programs = [line.split()[0] for line in interrupted[:2] + continued[1:]]
    assert programs == ["build-data", "pretrain", "export", "examples/detect_replaced_tokens.py"]
    config, _ = read_values(PROJECT / "configs/pretrain/tiny.yaml")
    assert f"--max_seq_length={config['data']['max_seq_length']}" in interrupted[0].split()
    assert "Continuing the unfinished run in runs/quickstart" in printed
    assert "tensorboard --logdir runs/quickstart/model" in printed.split("== Done in ")[1]
    text = "\n".join(calls(0)[0])
    assert (text.count("runs/quickstart-2/"), text.count("runs/quickstart/")) == (6, 0)


def test_what_the_images_copy_exists_and_reaches_the_builder_and_they_differ_in_cuda_alone():
    lines = (PROJECT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = [line.removeprefix("!") for line in lines if line.startswith("!")]
    assert [pattern for pattern in sent if not list(PROJECT.glob(pattern))] == []
    cpu, gpu = ((PROJECT / "docker" / f"{name}.Dockerfile").read_text(encoding="utf-8") for name in ("cpu", "gpu"))
    copied = set(re.findall(r"^COPY (?!--from)(.+) \S+$", cpu + gpu, re.MULTILINE)) - {"."}
    files = [file for each in copied for file in each.split()]
    assert "constraints.txt" in files
    assert [file for file in files if not (PROJECT / file).exists()] == []
    assert [file for file in files if not any(fnmatch(file, pattern) for pattern in sent)] == []
    ours, theirs = (
        [line.removesuffix(" \\") for line in text.splitlines() if not line.startswith("#")] for text in (cpu, gpu)
    )
    assert [line for line in ours if line not in theirs] == []
    assert [line.strip() for line in theirs if line not in ours] == [
        '"tensorflow[and-cuda]~=2.20.0"',
        "ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ]


@pytest.mark.parametrize("workflow", sorted(PROJECT.glob(".github/workflows/*.yml")), ids=lambda path: path.stem)
def test_a_workflow_may_only_read_and_runs_executable_files_of_the_repository(workflow):
    content = yaml.safe_load(workflow.read_text(encoding="utf-8"))
    assert content["permissions"] == {"contents": "read"}
    commands = [step["run"] for job in content["jobs"].values() for step in job["steps"] if "run" in step]
    assert commands
    for command in commands:
        program = PROJECT / shlex.split(command)[0]
        assert "\n" not in command.strip() and program.is_file() and os.access(program, os.X_OK), command


def test_every_hook_is_local_and_runs_what_the_tests_run():
    (hooks,) = yaml.safe_load((PROJECT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert hooks["repo"] == "local"
    for hook in hooks["hooks"]:
        assert hook["entry"].removesuffix(" --force-exclude") in (PROJECT / "test.sh").read_text(encoding="utf-8")
