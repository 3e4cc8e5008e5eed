"""`build_vocab` and `build_dataset`: the program that calls them, and mistakes. (tests/test_wheel.py: their files.)"""

import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

import electra_tf

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> str:
    place = tmp_path_factory.mktemp("text") / "a.txt"
    lines = [f"The {number}th sentence of this text has more than fifty characters in it." for number in range(40)]
    place.write_text("\n\n".join(lines))
    return f"text:{place}"


@pytest.fixture(scope="module")
def vocab_file(source, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    report = electra_tf.build_vocab(source, path, vocab_size=60, lower_case=False)
    assert (report["vocab_size"], report["lower_case"]) == (60, False)
    return path


def test_a_build_leaves_the_devices_and_threads_of_the_program(source, vocab_file, tmp_path):
    before = tf.config.get_visible_devices(), tf.config.threading.get_intra_op_parallelism_threads()
    path, main = list(sys.path), sys.modules["__main__"]
    manifest = electra_tf.build_dataset([source], vocab_file, tmp_path / "data", max_seq_length=16, seed=3)
    assert (manifest["counts"]["num_documents"], manifest["seed"]) == (40, 3)
    assert (tf.config.get_visible_devices(), tf.config.threading.get_intra_op_parallelism_threads()) == before
    assert sys.path == path and sys.modules["__main__"] is main


@pytest.mark.slow
def test_a_script_with_processes_needs_no_guard(source, vocab_file, tmp_path):
    call = f"electra_tf.build_dataset({source!r}, {str(vocab_file)!r}, 'data', max_seq_length=16, num_processes=2)"
    (tmp_path / "script.py").write_text(f"import electra_tf\nprint('once')\nprint({call}['max_seq_length'])\n")
    options = {"cwd": tmp_path, "env": {"PYTHONPATH": str(PROJECT), "PATH": "/usr/bin:/bin"}}
    answer = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, **options)
    assert (answer.returncode, answer.stdout) == (0, "once\n16\n"), answer.stderr[-2000:]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_seq_lengt": 9}, "max_seq_lengt is not a setting; did you mean max_seq_length"),
        ({"max_seq_length": "128"}, "max_seq_length='128'; input should be a valid integer"),
        ({"inputs": "text:/none/*.txt"}, "inputs?='?text:/none/\\*.txt"),
    ],
)
def test_a_mistake_is_one_line_that_names_arguments(source, vocab_file, tmp_path, settings, message):
    arguments = {"inputs": source, "vocab_file": vocab_file, "output_dir": tmp_path / "data", **settings}
    with pytest.raises(electra_tf.UserError, match=f"^{message}") as caught:
        electra_tf.build_dataset(**arguments)
    assert "\n" not in str(caught.value)
