"""`electra-tf`: which function a subcommand calls, and with which arguments."""

import sys
import types

import pytest

import electra_tf
from electra_tf.cli.commands import main


def test_a_subcommand_calls_its_script_with_the_other_arguments(monkeypatch):
    seen = []
    module = types.SimpleNamespace(main=lambda: seen.append(sys.argv) or 3)
    monkeypatch.setitem(sys.modules, "electra_tf.cli.convert_checkpoint", module)
    monkeypatch.setattr(sys, "argv", ["electra-tf", "convert", "--from=a", "--to=b"])
    assert main() == 3
    assert seen == [["electra-tf convert", "--from=a", "--to=b"]]


@pytest.mark.parametrize(
    ("arguments", "shown"), [([], "build-data"), (["help"], "build-data"), (["--version"], electra_tf.__version__)]
)
def test_help_and_version_are_printed(capsys, arguments, shown):
    assert main(arguments) == 0
    assert shown in capsys.readouterr().out


def test_an_unknown_subcommand_is_one_line_with_the_nearest_name(capsys):
    assert main(["pretrian", "--config=small"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "pretrian" in error and "pretrain?" in error
