"""build_vocab.py: its output, its reproducibility, and the mistakes in its flags."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from data_prep.settings import VocabularySettings
from data_prep.vocabulary_builder import build_vocabulary
from electra_tf.config.errors import UserError
from electra_tf.text.vocabulary import Vocabulary

ROOT = Path(__file__).parents[2]
WORDS = "the lost world theirs worlds lost there three wor"


def run(*flags, **environment):
    return subprocess.run(
        [sys.executable, str(ROOT / "build_vocab.py"), *map(str, flags)],
        cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "a.txt").write_text(f"{WORDS.upper()} él\n")
    (tmp_path / "b.txt").write_text(f"{WORDS} ÉL\n")
    return tmp_path / "*.txt"


@pytest.mark.slow
def test_special_tokens_come_first_then_characters_then_pieces(tmp_path, corpus):
    result = run("--input", corpus, "--vocab_size", 40, "--output", tmp_path / "vocab.out")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        f"{tmp_path}/vocab.out: 40 tokens from 2 files, 20 words",
        "on the training text: 0.000 % of the tokens are [UNK], 1.200 tokens a word, 80.0 % of the words are one piece",
    ]
    tokens = Vocabulary.load(tmp_path / "vocab.out").tokens
    inner = [f"##{character}" for character in "dehilorst"]
    assert list(tokens[:24]) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"dehilorstw", *inner]
    assert {"lost", "the", "wor"} < set(tokens[24:])


@pytest.mark.parametrize(
    ("inputs", "output", "message"),
    [
        ("absent*.txt", "v", "no file matches"),
        ("*.txt", "a.txt", "a.txt exists"),
        ("*.txt", "absent/v", "absent/v cannot be written"),
        ("*.txt", "", "is a directory"),
    ],
)
def test_a_wrong_path_is_a_user_error_and_nothing_is_written(tmp_path, corpus, inputs, output, message):
    settings = VocabularySettings(inputs=(str(tmp_path / inputs),), output=str(tmp_path / output))
    with pytest.raises(UserError, match=message):
        build_vocabulary(settings)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt"]


def test_help_does_not_load_tensorflow():
    code = "import runpy, sys; sys.argv = ['build_vocab.py', '--help']\n"
    code += "try: runpy.run_path('build_vocab.py', run_name='__main__')\n"
    code += "except SystemExit: sys.exit('tensorflow' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "--vocab_size" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("number", ["1", "2"])
def test_the_vocabulary_of_the_sample_does_not_depend_on_hash_seed_and_threads(tmp_path, number):
    result = run(
        "--input=sample/wikipedia/wiki_*", "--input=sample/novel/*.txt", "--vocab_size=4000",
        "--max_num_characters=100", f"--output={tmp_path / 'vocab.txt'}",
        PYTHONHASHSEED=number, RAYON_NUM_THREADS=number,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "vocab.txt").read_bytes() == (ROOT / "sample" / "vocab.txt").read_bytes()
