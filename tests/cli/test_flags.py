"""The flag parser of the commands: refused values, and defaults in the help."""

import argparse
import re

import pytest

from electra_tf.cli.flags import add_strategy_flags, flag_parser, positive_int
from electra_tf.train.distribution import STRATEGIES


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


def test_the_strategies_of_the_flag_are_those_that_can_be_started():
    parser = flag_parser("what it does")
    add_strategy_flags(parser)
    assert f"--strategy {{{','.join(STRATEGIES)}}}" in parser.format_help()
