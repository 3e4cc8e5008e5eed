import sys

import pytest

from benchmarks.builder_runs import head_of_text, interleaved, peak_memory_of, ratio_of_medians, run
from electra_tf.config.errors import UserError

MIB = 2**20


def python(*lines: str) -> list[str]:
    return [sys.executable, "-c", "\n".join(lines)]


def test_a_run_is_timed_from_start_to_end_and_its_output_kept():
    done = run(python("import time", "time.sleep(0.3)", "print('done')"))
    assert done.output == "done\n"
    assert done.seconds >= 0.3


def test_a_helper_process_that_ends_later_is_not_waited_for():
    helper = "import time; time.sleep(5)"
    assert run(python("import subprocess, sys", f"subprocess.Popen([sys.executable, '-c', {helper!r}])")).seconds < 3


def test_a_program_that_fails_is_named_with_the_last_line_it_said():
    with pytest.raises(UserError, match="exit status 3 .*: cannot go on"):
        run(python("import sys", "print('first\\ncannot go on', file=sys.stderr)", "sys.exit(3)"))


def test_memory_is_that_of_a_process_and_its_descendants_at_once():
    child = "import time; held = b'x' * (70 * 2**20); time.sleep(0.6)"
    peak = peak_memory_of(
        python(
            "import subprocess, sys", "held = b'x' * (50 * 2**20)", f"subprocess.run([sys.executable, '-c', {child!r}])"
        )
    )
    # Two interpreters hold about 10 MiB each.
    assert 120 * MIB <= peak.pss <= 170 * MIB
    assert peak.rss >= peak.pss
    assert peak.num_samples >= 5


def test_a_program_that_fails_while_its_memory_is_watched_is_an_error():
    with pytest.raises(UserError, match="exit status 1 .*ValueError: bad"):
        peak_memory_of(python("raise ValueError('bad')"))


def test_measurements_take_turns():
    order = []
    values = interleaved(
        {"first": lambda: order.append("first") or 2.0, "second": lambda: order.append("second") or 8.0}, rounds=3
    )
    assert order == ["first", "second"] * 3
    assert values == {"first": [2.0] * 3, "second": [8.0] * 3}


def test_a_ratio_is_that_of_the_medians():
    assert ratio_of_medians({"a": [6.0, 900.0, 1.0], "b": [5.0, 2.0, 3.0]}, over="a", under="b") == 2.0


@pytest.mark.parametrize(
    ("num_bytes", "expected"),
    [(100, b"one\nline\n\ntwo\n\nthree\n"), (16, b"one\nline\n\ntwo\n\n"), (14, b"one\nline\n\n"), (6, b"one\nli")],
)
def test_the_head_of_a_text_ends_with_a_document(tmp_path, num_bytes, expected):
    whole = tmp_path / "whole.txt"
    whole.write_bytes(b"one\nline\n\ntwo\n\nthree\n")
    assert head_of_text(whole, num_bytes, tmp_path / "head.txt").read_bytes() == expected
