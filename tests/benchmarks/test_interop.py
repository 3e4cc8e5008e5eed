"""Interop with transformers: what counts as a difference and why, and the whole comparison where torch is."""

import json
import os
from collections import Counter

import numpy as np
import pytest

from benchmarks.interop import __main__ as interop
from benchmarks.interop import tokenizer
from benchmarks.interop.__main__ import Written, largest_difference, pipeline_difference

PEERS_PYTHON = os.environ.get("ELECTRA_TF_PEERS_PYTHON")  # of an environment of benchmarks/requirements-peers.txt
MASK = {"input_mask": np.array([[1, 1, 1], [1, 0, 0]])}


def test_padding_and_places_outside_the_context_are_not_compared():
    expected = np.array([[0.5, -1000.0, 2.0], [1.0, 7.0, 7.0]])
    found = np.array([[0.5, 3.0, 2.25], [1.0, 9.0, 9.0]])
    assert largest_difference(found, expected, MASK) == 0.25
    assert largest_difference(found[:, :2], expected, MASK) == np.inf


def test_every_logit_of_a_token_is_compared():
    expected = np.zeros([2, 3, 4])
    found = expected.copy()
    found[0, 2, 3], found[1, 1] = 0.125, 9.0  # a real token, and padding
    assert largest_difference(found, expected, MASK) == 0.125


@pytest.fixture
def written(tmp_path):
    def build(logits, **config) -> Written:
        (tmp_path / "config.json").write_text(json.dumps(config))
        (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"[MASK]": 4}}}))
        batch = {"input_ids": np.array([[2, 6, 3], [2, 4, 3]])}
        return Written("a test", tmp_path, batch, {"logits": np.array(logits)}, is_shifted=False)

    return build


def test_the_answer_of_fill_mask_is_the_likeliest_token_there(written):
    logits = np.zeros([2, 3, 3])
    logits[1, 1] = [0.0, np.log(2.0), 0.0]  # a half
    answer = {"kind": "fill-mask", "token": 1, "score": 0.5}
    assert pipeline_difference(answer, written(logits)) == pytest.approx(0.0, abs=1e-12)
    assert pipeline_difference({**answer, "token": 2}, written(logits)) == np.inf


@pytest.mark.parametrize(
    ("problem_type", "score"),
    [("single_label_classification", 0.75), ("multi_label_classification", 0.75), ("regression", np.log(3.0))],
)
def test_the_answer_of_text_classification_is_the_best_label_of_the_first_text(written, problem_type, score):
    logits = [[0.0, np.log(3.0)], [9.0, 0.0]]
    config = {"problem_type": problem_type, "label2id": {"no": 0, "yes": 1}}
    answer = {"kind": "text-classification", "label": "yes", "score": score}
    assert pipeline_difference(answer, written(logits, **config)) == pytest.approx(0.0, abs=1e-12)


class _Tokenizers:
    """Two that differ in special tokens, a final sigma, and "é" and "ü" anywhere."""

    def differing(self, texts: list[str]) -> list[int]:
        return [index for index, text in enumerate(texts) if self._differs(text)]

    def _differs(self, text: str) -> bool:
        return "[MASK]" in text or text.endswith("Σ") or bool({"é", "ü", "?"} & set(text.replace("a?b", "")))


def test_a_line_has_the_first_cause_that_explains_it():
    texts = ["a [MASK] b", "aéb ü", "aΣ", "aéΣ", "?" + "x" * 101, "?"]
    found = [tokenizer.cause_of(text, _Tokenizers()) for text in texts]
    causes = ["special token written out", "version of Unicode", "final sigma", "final sigma", "long word", "other"]
    assert found == causes


def test_differences_are_counted_by_cause_and_those_of_real_text_apart(monkeypatch, tmp_path):
    monkeypatch.setattr(tokenizer, "_Tokenizers", lambda *arguments: _Tokenizers())
    lines = [{"text": "aΣ", "kind": "novel"}, {"text": "é", "kind": "cjk"}, {"text": "aΣa", "kind": "novel"}]
    causes, real = tokenizer.differences(lines, tmp_path, lower_case=True, strip_accents=True)
    assert (causes, real) == (Counter({"final sigma": 1, "version of Unicode": 1}), 1)


def test_sentences_come_alone_and_in_pairs_and_one_has_a_mask():
    rows = interop.sentences()
    assert {len(row) for row in rows} == {1, 2}
    assert [row for row in rows if "[MASK]" in row[0]] == rows[-1:]


@pytest.mark.slow
@pytest.mark.skipif(not PEERS_PYTHON, reason="ELECTRA_TF_PEERS_PYTHON is not set")
def test_transformers_gives_our_logits_for_every_class():
    assert interop.main([f"--peers_python={PEERS_PYTHON}", "--sizes", "tiny"]) == 0


@pytest.mark.slow
def test_an_interpreter_without_torch_is_refused_in_one_line(capsys, tmp_path):
    assert interop.main([f"--peers_python={tmp_path}/python", "--sizes", "tiny"]) == 2
    assert "cannot be run: No such file or directory" in capsys.readouterr().err
