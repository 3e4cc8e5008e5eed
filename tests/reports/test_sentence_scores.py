"""Scores of sentences by trained models. A word w11 of the tiny vocabulary has the id 11."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.models.layers import INFERENCE
from electra_tf.reports.sentence_scores import scorer_of
from electra_tf.text.vocabulary import StoredTokenizer
from tests.toy import EQUAL_SIZES, VOCAB_SIZE, VOCABULARY

CLS, SEP, MASK = 2, 3, 4
SENTENCES = ((11, 12, 13), (14,), (15, 16, 17, 18, 19, 20, 21, 22))  # padded to 8 and 12
MODERN = {"block": "modern", "num_layers": 2, "global_attention_every_n_layers": 2, "local_attention": 2}


def scores(scorer) -> list[float]:
    """The scores of `SENTENCES`, in batches of two passes."""
    features = scorer.features([" ".join(f"w{index}" for index in ids) for ids in SENTENCES])
    return scorer.scores(features, batch_size=2).tolist()


def inputs(*ids: int) -> dict[str, tf.Tensor]:
    row = [CLS, *ids, SEP]
    values = {"input_ids": row, "input_mask": [1] * len(row), "segment_ids": [0] * len(row)}
    return {name: tf.constant([value]) for name, value in values.items()}


def span_score(scorer, ids: tuple[int, ...], first: int, end: int) -> float:
    """The score of one pass; positions are counted from [CLS]."""
    span = {"first": tf.constant([[first]]), "end": tf.constant([[end]])}
    return float(scorer.span_scores({**inputs(*ids), **span})[0])


def log_prob(objective, ids: tuple[int, ...], position: int) -> float:
    """The log-probability of one token, with that token masked, by the objective itself."""
    shown = [CLS, *ids, SEP]
    shown[position] = MASK
    masked = {"masked_input_ids": tf.constant([shown]), "masked_lm_positions": tf.constant([[position]])}
    logits = objective.generate({**inputs(*ids), **masked}, INFERENCE).logits
    return float(tf.nn.log_softmax(logits)[0, 0, ids[position - 1]])


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("bert_mlm", {}),
        pytest.param("electra", {}, marks=pytest.mark.slow),
        pytest.param("electra", {"tying": "all", "generator": EQUAL_SIZES}, marks=pytest.mark.slow),
        pytest.param("electra", {"tying": "gradient_disentangled"}, marks=pytest.mark.slow),
        pytest.param("hard_mlm", {"encoder": MODERN}, marks=pytest.mark.slow),
        pytest.param("replace_mlm", {"encoder": MODERN, "tying": "none"}, marks=pytest.mark.slow),
    ],
)
def test_a_masked_language_model_sums_the_log_probabilities_of_tokens_masked_one_at_a_time(pretrained, name, settings):
    objective, model = pretrained(name, **settings)
    expected = [sum(log_prob(objective, ids, index + 1) for index in range(len(ids))) for ids in SENTENCES]
    assert scores(scorer_of(model, use_generator=name != "bert_mlm")) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("electra", {}),
        pytest.param("electra", {"tying": "gradient_disentangled"}, marks=pytest.mark.slow),
        pytest.param("fast_electra", {"encoder": MODERN}, marks=pytest.mark.slow),
        pytest.param("two_stage", {}, marks=pytest.mark.slow),
        pytest.param("electric", {}, marks=pytest.mark.slow),
    ],
)
def test_a_discriminator_gives_minus_the_sum_of_its_outputs_for_words(pretrained, name, settings):
    objective, model = pretrained(name, **settings)
    output = objective.energies if name == "electric" else objective.detection_logits
    expected = [-np.sum(output(inputs(*ids))[0, 1:-1]) for ids in SENTENCES]
    scorer = scorer_of(model)
    assert scores(scorer) == pytest.approx(expected, rel=1e-5)
    assert ("energies" in scorer.name) == (name == "electric")


@pytest.mark.parametrize(("within_word_l2r", "ends"), [(False, [2, 3, 4, 5, 2]), (True, [4, 4, 4, 5, 2])])
def test_within_word_l2r_masks_a_token_and_the_later_pieces_of_its_word(pretrained, within_word_l2r, ends):
    content = VOCABULARY.replace(b"\nw12\nw13\n", b"\n##12\n##13\n")
    model = dataclasses.replace(pretrained("bert_mlm")[1], stored_tokenizer=StoredTokenizer(content))
    scorer = scorer_of(model, within_word_l2r=within_word_l2r)
    spans = scorer.spans(scorer.features(["w111213 w14", "w15"]))
    assert [values.tolist() for values in spans] == [[0, 0, 0, 0, 1], [1, 2, 3, 4, 1], ends]


def test_all_tokens_of_a_span_are_masked(pretrained):
    objective, model = pretrained("bert_mlm")
    scorer, ids = scorer_of(model), (11, 12, 13)
    masked = log_prob(objective, (11, MASK, 13), 1), log_prob(objective, ids, 1)
    assert [span_score(scorer, ids, 1, end) for end in (3, 2)] == pytest.approx(masked, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "changes", "flags", "message"),
    [
        ("electra", {"kept_scope": "generator/"}, {}, "no discriminator or masked LM .* --generator"),
        ("electra", {"objective": "electric"}, {"use_generator": True}, "no generator .* reads masks"),
        ("electra", {}, {"within_word_l2r": True}, "a test has no masked LM .* --generator"),
        # An encoder that predicts from samples.
        pytest.param("replace_mlm", {}, {}, "no discriminator or masked LM .* --generator", marks=pytest.mark.slow),
        pytest.param("all_tokens_mlm", {}, {}, "no discriminator or masked LM .* --generator", marks=pytest.mark.slow),
        pytest.param("teams", {}, {}, "no discriminator or masked LM .* --generator", marks=pytest.mark.slow),
    ],
)
def test_a_model_that_gives_no_score_is_refused(pretrained, name, changes, flags, message):
    with pytest.raises(UserError, match=message):
        scorer_of(dataclasses.replace(pretrained(name)[1], **changes), **flags)


def test_entries_without_a_token_take_no_probability(pretrained):
    """With weights of zero, all tokens are equally likely."""
    _, model = pretrained("bert_mlm", encoder={"vocab_size": 53})
    weights = {name: np.zeros_like(weight) for name, weight in model.weights.items()}
    weights["generator_predictions/output_bias"][VOCAB_SIZE:] = 50.0
    scorer = scorer_of(dataclasses.replace(model, weights=weights))
    assert span_score(scorer, (5, 6, 5), 2, 3) == pytest.approx(-math.log(VOCAB_SIZE), rel=1e-6)
