"""The flag parser of the commands: refused values, and defaults in the help."""

import argparse
import re

import pytest

from electra_tf.cli.flags import add_strategy_flags, flag_parser, positive_int
from electra_tf.train.distribution import STRATEGIES


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--output_dir="], "--output_dir is empty"),
        (["--seeds", "1", ""], "--seeds is empty"),
        (["--steps=0"], "--steps: found '0'"),
        (["--steps=1.5"], "--steps: found '1.5'"),
    ],
)
def test_empty_values_and_numbers_that_are_not_positive_are_refused(capsys, arguments, named):
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
    assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argument", "line"),
    [
        ("--outputdir=a=b c", "error: unrecognized arguments: --outputdir=a=b c; did you mean --output_dir? See "),
        ("--zzz", "error: unrecognized arguments: --zzz; see "),
        ("--steps=x", "error: argument --steps: found 'x'; expected a positive integer; see "),
    ],
)
def test_a_mistake_in_a_flag_gets_one_line(capsys, argument, line):
    parser = flag_parser("what it does")
    parser.add_argument("--output_dir")
    parser.add_argument("--steps", type=positive_int)
    with pytest.raises(SystemExit) as caught:
        parser.parse_args([argument])
    assert caught.value.code == 2
    assert capsys.readouterr().err == f"{line}{parser.prog} --help\n"


def test_the_help_shows_defaults_except_empty_ones():
    parser = flag_parser("what it does")
    parser.add_argument("--seed", default=0, help="of the draw")
    parser.add_argument("--name", help="of the run (default: the model's)")
    parser.add_argument("--force", action="store_true", help="replace it")
    parser.add_argument("--cased", action=argparse.BooleanOptionalAction, default=False, help="keep capitals")
    defaults = re.findall(r"(\S+) \(default: (.*)\)", parser.format_help())
    assert defaults == [("draw", "0"), ("run", "the model's"), ("capitals", "False")]


def test_the_strategies_of_the_flag_are_those_that_can_be_started():
    parser = flag_parser("what it does")
    add_strategy_flags(parser)
    assert f"--strategy {{{','.join(STRATEGIES)}}}" in parser.format_help()
