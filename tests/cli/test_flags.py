"""The flag parser that every command uses."""

import pytest

from electra_tf.cli.flags import flag_parser


@pytest.mark.parametrize(
    ("arguments", "name"), [(["--output_dir="], "--output_dir"), (["--seeds", "1", ""], "--seeds")]
)
def test_an_empty_value_is_refused(capsys, arguments, name):
    parser = flag_parser("what it does")
    parser.add_argument("--output_dir")
    parser.add_argument("--seeds", nargs="*")
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(arguments)
    assert caught.value.code == 2
    assert f"error: {name} is empty" in capsys.readouterr().err


def test_a_default_may_be_empty():
    parser = flag_parser("what it does")
    parser.add_argument("--work_dir", default="")
    assert parser.parse_args([]).work_dir == ""
