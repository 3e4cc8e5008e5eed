"""The code is part of a run: the user's objective may not change, and other versions are recorded."""

import json
import sys
from pathlib import Path

import pytest

import electra_tf
from electra_tf.cli.configuration import load_module
from electra_tf.config.errors import UserError
from electra_tf.train.code import changed_versions, code_of
from electra_tf.train.run_directory import RunDirectory
from tests import toy
from tests.toy import Regression, toy_config, toy_run


@pytest.fixture
def load(tmp_path, monkeypatch):
    """`load(name, text)`: the class `name` of a module in a file, of which there is one after the other."""

    def call(name: str, more: str = "", file: str = "a_users_objective.py") -> type[Regression]:
        path = tmp_path / file
        path.write_text(f"from tests.toy import Regression\nclass {name}(Regression):\n    pass\n{more}")
        monkeypatch.delitem(sys.modules, path.stem, raising=False)
        load_module(str(path))
        monkeypatch.setitem(sys.modules, path.stem, sys.modules[path.stem])  # deleted at the end
        return getattr(sys.modules[path.stem], name)

    return call


def code_after(task: type[Regression]) -> dict:
    return code_of(task(toy_config()))


def test_another_module_of_the_objective_is_an_error_that_names_both(load, tmp_path):
    directory = RunDirectory(tmp_path)
    before = code_after(load("First"))
    assert changed_versions(directory, before) == {}  # an older version's run has no record
    Path(directory.code_file).write_text(json.dumps(before))
    assert changed_versions(directory, code_after(load("First"))) == {}
    assert changed_versions(directory, code_after(load("First", file="moved.py"))) == {}
    after = code_after(load("First", "SIGN = -1\n"))
    old, new = (code["objective_module"]["a_users_objective"] for code in (before, after))
    with pytest.raises(UserError, match=f"a_users_objective.py .*sha256 is {new[:12]}, the run's {old[:12]}"):
        changed_versions(directory, after)


def test_a_class_that_another_module_inherits_from_counts(load, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    load("Base", file="a_users_base.py")
    derived = load("Other", "from a_users_base import Base\nclass Derived(Base):\n    pass\n")
    module = sys.modules[derived.__module__]
    assert {"a_users_base", "a_users_objective"} <= set(code_after(module.Derived)["objective_module"])


def test_a_run_records_its_code_and_refuses_another_objective_without_changing_a_file(load, tmp_path):
    run = toy_run(toy_config(), tmp_path / "run")
    toy.train_toy(run, task=load("First"), stop_at_step=3)
    recorded = json.loads((tmp_path / "run/code.json").read_text())
    assert len(recorded["objective_module"]["a_users_objective"]) == 64
    assert recorded["electra_tf"] == electra_tf.__version__
    with pytest.raises(UserError, match="a_users_objective.py"):
        toy.train_toy(run, task=load("First", "SIGN = -1\n"))
    assert json.loads((tmp_path / "run/code.json").read_text()) == recorded


@pytest.mark.parametrize("package", ["electra_tf", "tensorflow"])
def test_another_version_is_a_line_in_the_log_and_in_the_reports(
    copied, train_toy, lines, monkeypatch, caplog, package
):
    before = json.loads(Path(copied, "code.json").read_text())[package]
    monkeypatch.setattr(f"{package}.__version__", "9.8.7")
    for _ in range(2):
        train_toy(copied)
    assert sum(f"{package} {before} before, 9.8.7 now" in message for message in caplog.messages) == 1
    (line,) = [line for line in lines(copied) if line["split"] == "versions"]
    assert (line["step"], line[package]) == (8, "9.8.7")
