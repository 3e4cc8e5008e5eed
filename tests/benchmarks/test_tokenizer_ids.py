"""The same ids of SentencePiece models in sentencepiece, the builder, a SavedModel and transformers."""

from pathlib import Path

import pytest

from benchmarks import tokenizer_ids
from data_prep.settings import VocabularySettings
from data_prep.vocabulary import build_vocabulary
from tests.markdown import cells
from tests.peers import PEERS_PYTHON, needs_peers

pytestmark = pytest.mark.slow
LANGUAGES = Path(__file__).resolve().parents[1] / "fixtures" / "languages.txt"


@pytest.mark.parametrize(
    ("model", "byte_fallback", "vocab_size"), [("bpe", False, 650), ("bpe", True, 906), ("unigram", False, 380)]
)
@pytest.mark.parametrize("peers", [[], pytest.param([PEERS_PYTHON], marks=needs_peers)], ids=["here", "peers"])
def test_all_implementations_give_the_same_ids(tmp_path, peers, model, byte_fallback, vocab_size, capfd):
    vocab_file = f"{tmp_path}/spm.model"
    settings = {"model": model, "byte_fallback": byte_fallback, "vocab_size": vocab_size}
    build_vocabulary(VocabularySettings(inputs=(f"text:{LANGUAGES}",), output=vocab_file, **settings))
    flags = [f"--vocab_file={vocab_file}", f"--input={LANGUAGES}", "--num_odd_lines=200"]
    flags += [f"--peers_python={python}" for python in peers]
    assert tokenizer_ids.main(flags) == 0
    names = [row[0] for row in cells(capfd.readouterr().out)[1:]]
    assert len([name for name in names if name.startswith(("SavedModel", "builder", "transformers"))]) == 3 + len(peers)


def test_a_difference_that_is_no_tie_fails(tmp_path):
    """Of two cuts of a unigram model with equal scores, either is right; of BPE, only one."""
    comparison = tokenizer_ids.Comparison(scores=[0.0, -1.5, -2.5, -4.0])
    comparison.add("a", ["x", "y"], [[1, 2], [1]], [[2, 1], [2]])
    assert comparison.rows == [("a", 2, 2, 1)]
    ranks = tokenizer_ids.Comparison(scores=[0.0, -1.0, -2.0, -3.0])
    ranks.add("a", ["x"], [[1, 2]], [[2, 1]])
    assert ranks.rows == [("a", 1, 1, 0)]
