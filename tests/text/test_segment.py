"""Programs that cut text into words: what they read, what they must write, and whose word makes them run."""

import pytest

from electra_tf.config.errors import UserError
from electra_tf.text.segment import SegmentFault, program_to_run, segmented
from tests.segmenter import program


def test_one_run_reads_a_line_for_each_text_that_is_not_blank(tmp_path):
    note = f"text = sys.stdin.read(); open({str(tmp_path / 'runs')!r}, 'a').write(text + 'end')"
    command = program(f"import sys; {note}; print(text.replace('文', ' 文 '), end='')")
    assert segmented(command, ["日\0文の", " ", "", "文\r\na\u2028b "]) == ["日 文 の", "", "", "文  a b"]
    assert (tmp_path / "runs").read_text("utf-8") == "日文の\n文 a b\nend"


def test_the_first_text_without_one_line_is_named_with_the_programs_message():
    doubled = "if 'x' in line: print(line + 'x is long', file=sys.stderr); print()"
    command = program(f"import sys\nfor line in sys.stdin:\n print(line, end='')\n {doubled}")
    with pytest.raises(SegmentFault, match="'bxb': x is long$") as fault:
        segmented(command, ["a", "", "bxb", "c", "x", "d"])
    assert fault.value.index == 2
    with pytest.raises(SegmentFault, match="for the text 'a'"):
        segmented("true", ["a"])


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("no_such_program -a", "segment=no_such_program -a: .*No such file"),
        ("mecab 'a", "No closing quotation"),
        (" ", "segment= "),
        (program("import sys; sys.exit('a\\nno dictionary')"), "status 1: no dictionary$"),
        (program("import sys; sys.stdout.buffer.write(b'\\xc6\\xfc\\n')"), "program that writes UTF-8"),
    ],
)
def test_a_program_that_fails_is_one_line(command, message):
    with pytest.raises(UserError, match=message) as error:
        segmented(command, ["w1"])
    assert not isinstance(error.value, SegmentFault) and "\n" not in str(error.value).replace(command, "")


@pytest.mark.parametrize(
    ("stated", "given", "command"), [("", None, ""), ("", "none", ""), ("m -o", "m -o", "m -o"), ("m -o", "none", "")]
)
def test_a_program_runs_if_the_user_gives_it(stated, given, command):
    assert program_to_run(stated, given) == command


@pytest.mark.parametrize(
    ("stated", "given", "message"),
    [
        ("m -o", None, "^the .* by segment='m -o'; give this .*segment=none"),
        ("m -o", "m", "^segment=m: the .* by segment='m -o'; give this"),
        ("", "m", "^segment=m: .*remove it"),
    ],
)
def test_a_program_that_only_a_file_or_only_the_user_names_is_refused(stated, given, message):
    with pytest.raises(UserError, match=message):
        program_to_run(stated, given)
