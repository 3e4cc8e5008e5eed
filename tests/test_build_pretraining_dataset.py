import subprocess
import sys
from pathlib import Path

from data_prep.cli.build_pretraining_dataset import parse_flags

PROJECT = Path(__file__).resolve().parents[1]
REQUIRED = ["--input=text:a*", "--vocab_file=v", "--output_dir=d"]


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "build_pretraining_dataset.py", *arguments], cwd=PROJECT, capture_output=True, text=True
    )


def test_flags_are_read_without_tensorflow():
    code = "import sys, data_prep.cli.build_pretraining_dataset as command\n"
    code += f"command.parse_flags({REQUIRED}); print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_defaults_are_those_of_bert_uncased_at_length_128():
    flags = parse_flags(REQUIRED)
    assert (flags.max_seq_length, flags.lower_case, flags.strip_accents) == (128, True, True)
    assert (flags.held_out_fraction, flags.overwrite) == (0.005, False)


def test_inputs_add_up_and_accents_can_be_kept():
    flags = parse_flags([*REQUIRED, "--input=book:b", "--no-strip_accents"])
    assert flags.inputs == ["text:a*", "book:b"]
    assert not flags.strip_accents


def test_a_users_mistake_is_one_line_and_status_2(tmp_path):
    done = run(f"--input=text:{tmp_path}/none*", "--vocab_file=v", f"--output_dir={tmp_path}/data")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: --input=text:{tmp_path}/none*: no file matches")
    assert done.stderr.count("\n") == 1
