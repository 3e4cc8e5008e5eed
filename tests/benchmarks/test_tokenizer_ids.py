from pathlib import Path

import pytest

from benchmarks import tokenizer_ids
from data_prep.settings import VocabularySettings
from data_prep.vocabulary import build_vocabulary
from tests.markdown import cells
from tests.peers import PEERS_PYTHON

LANGUAGES = Path(__file__).resolve().parents[1] / "fixtures" / "languages.txt"
PEERS = [f"--peers_python={PEERS_PYTHON}"] if PEERS_PYTHON else []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "byte_fallback", "vocab_size"), [("bpe", False, 650), ("bpe", True, 906), ("unigram", False, 380)]
)
def test_all_implementations_give_the_same_ids(tmp_path, model, byte_fallback, vocab_size, capfd):
    vocab_file = f"{tmp_path}/spm.model"
    settings = {"model": model, "byte_fallback": byte_fallback, "vocab_size": vocab_size}
    build_vocabulary(VocabularySettings(inputs=(f"text:{LANGUAGES}",), output=vocab_file, **settings))
    flags = [f"--vocab_file={vocab_file}", f"--input={LANGUAGES}", "--num_odd_lines=200", *PEERS]
    assert tokenizer_ids.main(flags) == 0
    names = [row[0].partition(" ")[0] for row in cells(capfd.readouterr().out)[1:]]
    assert names == ["SavedModel", "builder", "transformers", *(["transformers"] if PEERS else [])]


@pytest.mark.parametrize(
    ("scores", "ties"),
    [([0.0, -1.5, -2.5, -4.0], "1"), ([0.0, -1.0, -2.0, -3.0], "0")],
    ids=["unigram: of two cuts with equal scores either is right", "bpe: one is"],
)
def test_a_difference_that_is_no_tie_is_counted(scores, ties):
    row = tokenizer_ids.row_of("a", ["x", "y", "z"], [[1, 2], [1], [3]], [[2, 1], [2], [3]], scores)
    assert row == ["a", "3", "2", ties]
