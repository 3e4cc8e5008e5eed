import subprocess
import sys

import pytest

from electra_tf.cli.flags import flag_parser, run_command
from electra_tf.config.errors import TrainingStopped, UserError


def raising(error: BaseException):
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (UserError("no such\nfile"), 2, "error: no such file\n"),
        (TrainingStopped("the loss is\nnot finite"), 1, "training stopped: the loss is not finite\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_what_ends_a_command_is_one_line_and_a_status(capsys, error, status, line):
    assert run_command(raising(error)) == status
    assert capsys.readouterr().err == line


def test_a_command_that_succeeds_has_status_zero(capsys):
    assert run_command(lambda: None) == 0
    assert capsys.readouterr().err == ""


def test_output_that_nobody_reads_any_more_ends_a_command_without_a_stack_trace():
    print_much = "lambda: print('x' * 2**20)"  # more than a pipe holds
    code = f"import sys; from electra_tf.cli.flags import run_command; sys.exit(run_command({print_much}))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 141


def test_another_pipe_that_breaks_keeps_its_stack_trace():
    with pytest.raises(BrokenPipeError):
        run_command(raising(BrokenPipeError()))


def test_what_only_a_programmer_can_mend_keeps_its_stack_trace():
    with pytest.raises(ZeroDivisionError):
        run_command(raising(ZeroDivisionError()))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--output_dir="], "--output_dir is empty; give a value, or leave the flag out"),
        (["--seeds", "1", ""], "--seeds is empty; give a value, or leave the flag out"),
        (["--output_dir=a\udcff"], r"--output_dir is 'a\udcff', which is no UTF-8; rename the file"),
    ],
)
def test_a_value_that_is_none_is_refused(capsys, arguments, line):
    """An empty path would be the current directory."""
    parser = flag_parser("what it does")
    parser.add_argument("--output_dir")
    parser.add_argument("--seeds", nargs="*")
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"error: {line}")


def test_a_default_may_be_empty():
    parser = flag_parser("what it does")
    parser.add_argument("--work_dir", default="")
    assert parser.parse_args([]).work_dir == ""
