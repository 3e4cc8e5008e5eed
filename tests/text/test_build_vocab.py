"""build_vocab.py: what comes out, that it is the same each time, and what it refuses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--input=absent*.txt", "--output=v"], "error: --input=absent*.txt: no file matches absent*.txt; "),
        (["--input={corpus}", "--output={tmp}/a.txt"], "a.txt exists; give another --output or --overwrite"),
        (["--input={corpus}", "--output={tmp}/absent/v"], "absent, which does not exist; create it first"),
        (
            ["--input={corpus}", "--vocab_size=40", "--output={tmp}/" + "v" * 300],
            "File name too long; give another file",
        ),
        (["--input={corpus}", "--output={tmp}", "--overwrite"], " is a directory, expected a file; add a file name"),
    ],
)
def test_a_mistake_is_named_in_one_line_and_nothing_is_written(tmp_path, corpus, flags, message):
    result = run(*[flag.format(corpus=corpus, tmp=tmp_path) for flag in flags])
    assert result.returncode == 2
    assert message in result.stderr.splitlines()[-1]
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
def test_the_sample_gives_its_vocabulary_again_for_any_hash_seed_and_thread_count(tmp_path, number):
    result = run(
        "--input=sample/wikipedia/wiki_*", "--input=sample/novel/*.txt", "--vocab_size=4000",
        "--max_num_characters=100", f"--output={tmp_path / 'vocab.txt'}",
        PYTHONHASHSEED=number, RAYON_NUM_THREADS=number,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "vocab.txt").read_bytes() == (ROOT / "sample" / "vocab.txt").read_bytes()
