"""A ModernBERT with a tokenizer.json."""

import dataclasses

import numpy as np
import pytest

import electra_tf
from electra_tf.text.vocabulary import StoredTokenizer, TextSettings
from tests.byte_level import byte_level
from tests.weights.conftest import FEWER_LAYERS, MODERN, stored  # noqa: F401


@pytest.mark.slow
def test_a_model_fills_masks_and_is_saved_and_exported_with_its_tokenizer(stored, tmp_path):  # noqa: F811
    source = stored(encoder=MODERN | {"vocab_size": 273}, objective={"generator": FEWER_LAYERS})
    tokenizer = StoredTokenizer(byte_level(), TextSettings(False, False, False))
    model = electra_tf.Model(dataclasses.replace(source, stored_tokenizer=tokenizer))
    assert model.tokens("the cat [MASK]")[:3] == ["[CLS]", "the", "Ġcat"]
    model.save(tmp_path / "out")
    assert (tmp_path / "out" / "discriminator" / "tokenizer.json").read_bytes() == byte_level()
    again = electra_tf.load(tmp_path / "out")
    np.testing.assert_allclose(again.encode(["the cat", "日"]), model.encode(["the cat", "日"]), atol=1e-6)
    assert [len(each) for each in again.fill_mask(["the [MASK]", "[MASK] on [MASK]"], top_k=2)] == [1, 2]
    assert "they take ids" in electra_tf.export(tmp_path / "out", tmp_path / "served")
