"""`build_vocab` and `build_dataset`: the files of the commands, and the program that calls them."""

import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

import electra_tf
from data_prep.cli import build_pretraining_dataset, build_vocab

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


@pytest.mark.slow
def test_the_files_are_those_of_the_commands(source, vocab_file, tmp_path):
    flags = [f"--input={source}", f"--output={tmp_path}/vocab.txt", "--vocab_size=60", "--no-lower_case"]
    build_vocab.build_vocab(build_vocab.parse_flags(flags))
    assert (tmp_path / "vocab.txt").read_bytes() == vocab_file.read_bytes()
    manifest = electra_tf.build_dataset([source], vocab_file, tmp_path / "python", max_seq_length=16, seed=3)
    assert manifest["counts"]["num_documents"] == 40 and manifest["seed"] == 3
    flags = [f"--input={source}", f"--vocab_file={vocab_file}", f"--output_dir={tmp_path}/command"]
    build_pretraining_dataset.run(build_pretraining_dataset.parse_flags([*flags, "--max_seq_length=16", "--seed=3"]))
    files = [path.name for path in (tmp_path / "command").iterdir() if path.is_file()]
    assert len(files) == 3
    for name in files:
        assert (tmp_path / "command" / name).read_bytes() == (tmp_path / "python" / name).read_bytes()


def test_a_build_leaves_the_devices_and_threads_of_the_program(source, vocab_file, tmp_path):
    before = tf.config.get_visible_devices(), tf.config.threading.get_intra_op_parallelism_threads()
    path, main = list(sys.path), sys.modules["__main__"]
    electra_tf.build_dataset(source, vocab_file, tmp_path / "data", max_seq_length=16)
    assert (tf.config.get_visible_devices(), tf.config.threading.get_intra_op_parallelism_threads()) == before
    assert sys.path == path and sys.modules["__main__"] is main


@pytest.mark.slow
def test_a_script_with_processes_needs_no_guard(source, vocab_file, tmp_path):
    call = f"electra_tf.build_dataset({source!r}, {str(vocab_file)!r}, 'data', max_seq_length=16, num_processes=2)"
    (tmp_path / "script.py").write_text(f"import electra_tf\nprint('once')\nprint({call}['max_seq_length'])\n")
    command = [sys.executable, "script.py"]
    answer = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(PROJECT), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert (answer.returncode, answer.stdout) == (0, "once\n16\n"), answer.stderr[-2000:]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_seq_lengt": 9}, "max_seq_lengt is not a setting; did you mean max_seq_length"),
        ({"max_seq_length": 5}, "max_seq_length=5; .* 8"),
        ({"max_seq_length": "128"}, "max_seq_length='128'; input should be a valid integer"),
        ({"language": "English"}, "language='English'; string should match pattern"),
        ({"inputs": "text:/none/*.txt"}, "inputs?='?text:/none/\\*.txt"),
    ],
)
def test_a_mistake_is_one_line_that_names_arguments(source, vocab_file, tmp_path, settings, message):
    arguments = {"inputs": source, "vocab_file": vocab_file, "output_dir": tmp_path / "data", **settings}
    with pytest.raises(electra_tf.UserError, match=f"^{message}") as caught:
        electra_tf.build_dataset(**arguments)
    assert "\n" not in str(caught.value)
