"""`electra-tf` and its subcommands, and the parser of their flags."""

import argparse
import re
import sys
import types

import pytest

import electra_tf
from data_prep.cli import build_pretraining_dataset
from electra_tf.cli.commands import main
from electra_tf.cli.flags import add_strategy_flags, flag_parser, positive_int
from electra_tf.train.distribution import STRATEGIES


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


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--output_dir="], "--output_dir is empty"),
        (["--seeds", "1", ""], "--seeds is empty"),
        (["--steps=0"], "--steps: found '0'"),
        (["--steps=1.5"], "--steps: found '1.5'"),
        (["--steps=x"], "error: argument --steps: found 'x'; expected a positive integer; see PROGRAM --help\n"),
        (
            ["--outputdir=a=b c"],
            "error: unrecognized arguments: --outputdir=a=b c; did you mean --output_dir? See PROGRAM --help\n",
        ),
        (["--zzz"], "error: unrecognized arguments: --zzz; see PROGRAM --help\n"),
    ],
)
def test_a_mistake_in_a_flag_is_one_line(capsys, arguments, line):
    parser = flag_parser("what it does")
    parser.add_argument("--output_dir", default="out")
    parser.add_argument("--work_dir", default="")
    parser.add_argument("--seeds", nargs="*")
    parser.add_argument("--steps", type=positive_int)
    allowed = vars(parser.parse_args(["--steps=3"]))
    assert allowed == {"output_dir": "out", "work_dir": "", "seeds": None, "steps": 3}
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(arguments)
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert line.replace("PROGRAM", parser.prog) in error and error.count("\n") == 1


def test_the_help_shows_defaults_except_empty_ones():
    parser = flag_parser("what it does")
    parser.add_argument("--seed", default=0, help="of the draw")
    parser.add_argument("--name", help="of the run (default: the model's)")
    parser.add_argument("--force", action="store_true", help="replace it")
    parser.add_argument("--cased", action=argparse.BooleanOptionalAction, default=False, help="keep capitals")
    defaults = re.findall(r"(\S+) \(default: (.*)\)", parser.format_help())
    assert defaults == [("draw", "0"), ("run", "the model's"), ("capitals", "False")]


def test_inputs_of_build_data_add_up_and_accents_can_be_kept():
    required = ["--input=text:a*", "--vocab_file=v", "--output_dir=d"]
    flags = build_pretraining_dataset.parse_flags([*required, "--input=book:b", "--no-strip_accents", "--unicode=18"])
    assert flags.inputs == ["text:a*", "book:b"]
    assert (flags.strip_accents, flags.unicode) == (False, 18)


def test_the_strategies_of_the_flag_are_those_that_can_be_started():
    parser = flag_parser("what it does")
    add_strategy_flags(parser)
    assert f"--strategy {{{','.join(STRATEGIES)}}}" in parser.format_help()
