"""The workflows and the hooks run commands of this repository, which a contributor runs too."""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((PROJECT / ".github" / "workflows").glob("*.yml"))
HOOKS = yaml.safe_load((PROJECT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]


def steps_of(workflow: Path) -> Iterator[dict]:
    for job in yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"].values():
        yield from job["steps"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_what_a_workflow_runs_is_one_executable_file_of_the_repository(workflow):
    commands = [step["run"] for step in steps_of(workflow) if "run" in step]
    assert commands
    for command in commands:
        program = PROJECT / shlex.split(command)[0]
        assert "\n" not in command.strip() and program.is_file() and os.access(program, os.X_OK), command


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_only_read(workflow):
    assert yaml.safe_load(workflow.read_text(encoding="utf-8"))["permissions"] == {"contents": "read"}


def test_every_hook_is_local_and_runs_what_the_tests_run():
    checks = (PROJECT / "test.sh").read_text(encoding="utf-8")
    assert [repo["repo"] for repo in HOOKS] == ["local"]
    for hook in HOOKS[0]["hooks"]:
        assert hook["entry"].removesuffix(" --force-exclude") in checks
