"""Served choices equal those of --predict."""

import numpy as np
import pytest
import tensorflow as tf

from tests.serving.conftest import call, predicted_cells

CONTEXTS = ["The old seaside (sea) who?", "", "a b c d e f g h i " * 6]
CHOICES = [["sea", "a b c", "who ? old"], ["ΣΙΣ é d, e"], ["old", "a b c d e f g h i a"]]
PADDED = [each + [""] * (3 - len(each)) for each in CHOICES]


@pytest.mark.slow
def test_served_probabilities_equal_those_of_predict(served, finetuned):
    outputs = call(served("choices"), "choose", CONTEXTS, PADDED)
    predicted = predicted_cells(finetuned("choices"), CONTEXTS, CHOICES, values=[1, 2, 3])
    assert outputs["choice"].tolist() == [int(row[0]) for row in predicted]
    expected = [[float(cell or 0) for cell in row[1:]] for row in predicted]
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=2e-6)
    assert outputs["truncated"].tolist() == [False, False, True]
    lowest = outputs["scores"] == np.finfo(np.float32).min
    assert lowest.tolist() == [[text == "" for text in row] for row in PADDED]


def test_a_context_alone_has_the_scores_that_it_has_in_a_batch(served):
    batch = call(served("choices"), "choose", CONTEXTS, PADDED)["scores"]
    for context, choices, scores in zip(CONTEXTS, CHOICES, batch, strict=True):
        alone = call(served("choices"), "choose", [context], [choices])["scores"]
        np.testing.assert_allclose(alone[0], scores[: len(choices)], atol=1e-5)


def test_a_choice_that_does_not_fit_is_cut_and_marked(served):
    for longest, is_cut in (("a b c d e f g h i a b c d e", True), ("a b c d e f g h i a b c d", False)):  # 13 fit
        assert call(served("choices"), "choose", [""], [[longest, "sea"]])["truncated"].tolist() == [is_cut]


def test_ids_and_texts_give_the_same_scores(served):
    model = served("choices")
    index = model.tokenizer.vocabulary.tokens.index
    rows = ["[CLS] old sea [SEP] who [SEP] [PAD]", "[CLS] old sea [SEP] a b [SEP]"]
    ids = [[[index(token) for token in row.split()] for row in rows]]
    mask, segments = [[[1] * 6 + [0], [1] * 7]], [[[0] * 4 + [1, 1, 0], [0] * 4 + [1] * 3]]
    of_ids = model.choose_ids(*map(tf.constant, (ids, mask, segments)))
    of_text = call(model, "choose", ["Old sea"], [["who", "a b"]])
    assert set(of_ids) == set(of_text) - {"truncated"}
    np.testing.assert_allclose(of_ids["scores"], of_text["scores"], atol=1e-5)


def test_another_number_of_rows_than_of_contexts_is_refused(served):
    with pytest.raises(tf.errors.InvalidArgumentError, match="expected a row of choices for each context"):
        call(served("choices"), "choose", ["a", "b"], [["c", "d"]])
