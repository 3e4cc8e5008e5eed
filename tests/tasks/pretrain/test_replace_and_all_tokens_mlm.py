"""Replace MLM and All-Tokens MLM against numpy on 2 x 6 tokens, and where their gradients go."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from electra_tf.models.context import ForwardContext
from electra_tf.ops import vocabulary
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.losses import with_copying

# [CLS] 11 12 [SEP] 13 [SEP], and [CLS] 21 22 [SEP] with two of padding; masked out are 13, 11 and 22.
ROWS = {
    "input_ids": [[2, 11, 12, 3, 13, 3], [2, 21, 22, 3, 0, 0]],
    "masked_input_ids": [[2, 4, 12, 3, 4, 3], [2, 21, 4, 3, 0, 0]],
    "input_mask": [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]],
    "segment_ids": [[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]],
    "masked_lm_positions": [[4, 1], [2, 0]],
    "masked_lm_ids": [[13, 11], [22, 0]],
}
REAL = np.array(ROWS["input_mask"])
MASKED = np.array([[0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0]])
SAMPLING = ForwardContext(random=RandomStream(4, 0, 0))
LARGE_WEIGHTS = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.5}
NAMES = ("replace_mlm", "all_tokens_mlm")


@pytest.fixture(scope="module")
def batch() -> dict[str, tf.Tensor]:
    tensors = {name: tf.constant(rows, tf.int32) for name, rows in ROWS.items()}
    return {**tensors, "masked_lm_weights": tf.constant([[1.0, 1.0], [1.0, 0.0]])}


@pytest.fixture(scope="module")
def build(tiny_config):
    def objective(name: str, **settings):
        tf_keras.utils.set_random_seed(3)
        return build_objective(tiny_config(encoder=LARGE_WEIGHTS, objective={"name": name, **settings}))

    return objective


def softmax_of_head(objective, ids: np.ndarray) -> np.ndarray:
    """[B, S, V] float64: what the kept network's masked-LM head predicts on `ids`, by its formula."""
    head, inputs = objective.prediction_head, {name: tf.constant(ROWS[name]) for name in ("input_mask", "segment_ids")}
    hidden = objective.encoder(tf.constant(ids), **inputs).sequence_output.numpy().astype(np.float64)
    dense = hidden @ head.transform.kernel.numpy() + head.transform.bias.numpy()
    active = dense * 0.5 * (1 + np.vectorize(math.erf)(dense / math.sqrt(2)))
    centred = active - active.mean(-1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
    vectors = normal * head.layer_norm.gamma.numpy() + head.layer_norm.beta.numpy()
    logits = vectors @ objective.encoder.embeddings.word_embeddings.numpy().T + head.output_bias.numpy()
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def mixture(objective, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Copy probabilities [B, S], and p(x) = copy * [x is the input] + (1 - copy) * softmax(x), [B, S, V]."""
    inputs = {name: tf.constant(ROWS[name]) for name in ("input_mask", "segment_ids")}
    hidden = objective.encoder(tf.constant(ids), **inputs).sequence_output.numpy().astype(np.float64)
    score = objective.copy_head.score
    copy = 1 / (1 + np.exp(-(hidden @ score.kernel.numpy() + score.bias.numpy())[..., 0]))
    probs = copy[..., None] * np.eye(47)[ids] + (1 - copy)[..., None] * softmax_of_head(objective, ids)
    return copy, probs


def of_originals(probs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """-log p of the original tokens, and 1 where they are the likeliest; [B, S] each."""
    original = np.array(ROWS["input_ids"])
    losses = -np.log(np.take_along_axis(probs, original[..., None], -1)[..., 0])
    return losses, (probs.argmax(-1) == original).astype(float)


def mean(values: np.ndarray, over: np.ndarray) -> float:
    return float((values * over).sum() / over.sum())


def values(terms) -> dict[str, float]:
    return {name: term.value() for name, term in terms.items()}


def corrupted_ids(objective, batch) -> np.ndarray:
    ids = objective.forward(batch, SAMPLING).corrupted.input_ids.numpy()
    assert (ids == ROWS["input_ids"])[MASKED == 0].all()
    assert (ids != ROWS["input_ids"]).any() and not (ids == 4).any()
    return ids


def test_replace_mlm_predicts_the_masked_tokens_from_the_samples(build, batch):
    objective = build("replace_mlm")
    losses, right = of_originals(softmax_of_head(objective, corrupted_ids(objective, batch)))
    found = values(objective.evaluation_terms(batch, SAMPLING))
    assert found["encoder_masked_lm_loss"] == pytest.approx(mean(losses, MASKED), rel=1e-5)
    assert found["encoder_masked_lm_accuracy"] == pytest.approx(mean(right, MASKED))
    trained = values(objective.loss_terms(batch, SAMPLING))
    assert trained["encoder_masked_lm"] == pytest.approx(mean(losses, MASKED), rel=1e-5)
    assert trained["encoder_masked_lm_accuracy"] == pytest.approx(mean(right, MASKED))
    assert trained["replaced_fraction"] == pytest.approx(
        mean(corrupted_ids(objective, batch) != ROWS["input_ids"], REAL)
    )


@pytest.mark.parametrize("scores_at_once", [2**26, 5 * 128])
def test_all_tokens_mlm_predicts_every_real_token_by_copy_or_softmax(build, batch, monkeypatch, scores_at_once):
    monkeypatch.setattr(vocabulary, "_LOGITS_AT_ONCE", scores_at_once)
    objective = build("all_tokens_mlm")
    ids = corrupted_ids(objective, batch)
    copy, probs = mixture(objective, ids)
    losses, right = of_originals(probs)
    replaced = (ids != ROWS["input_ids"]).astype(int)
    found = values(objective.evaluation_terms(batch, SAMPLING))
    assert 0 < mean(right, REAL) < 1 and copy.std() > 0.1
    expected = {
        "all_tokens_lm_loss": mean(losses, REAL),
        "all_tokens_lm_accuracy": mean(right, REAL),
        "encoder_masked_lm_loss": mean(losses, MASKED),
        "encoder_masked_lm_accuracy": mean(right, MASKED),
        "copy_probability_replaced": mean(copy, replaced),
        "copy_probability_kept": mean(copy, REAL - replaced),
        "copy_probability_masked": mean(copy, MASKED),
        "copy_probability_unmasked": mean(copy, REAL - MASKED),
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    trained = values(objective.loss_terms(batch, SAMPLING))
    assert trained["all_tokens_lm"] == pytest.approx(expected["all_tokens_lm_loss"], rel=1e-5)


def test_without_the_copy_mechanism_every_token_is_predicted_by_the_softmax(build, batch):
    objective = build("all_tokens_mlm", copy_mechanism=False)
    losses, right = of_originals(softmax_of_head(objective, corrupted_ids(objective, batch)))
    found = values(objective.evaluation_terms(batch, SAMPLING))
    assert found["all_tokens_lm_loss"] == pytest.approx(mean(losses, REAL), rel=1e-5)
    assert found["all_tokens_lm_accuracy"] == pytest.approx(mean(right, REAL))
    assert not any("copy" in name for name in [*found, *objective.term_weights(batch)])


def test_a_sure_copy_is_right_where_the_sample_is_and_wrong_where_it_was_replaced(build, batch):
    objective = build("all_tokens_mlm")
    objective.copy_head.score.kernel.assign(tf.zeros([16, 1]))
    objective.copy_head.score.bias.assign([30.0])
    replaced = corrupted_ids(objective, batch) != ROWS["input_ids"]
    found = values(objective.evaluation_terms(batch, SAMPLING))
    assert found["all_tokens_lm_accuracy"] == pytest.approx(1 - mean(replaced, REAL))
    assert found["all_tokens_lm_loss"] == pytest.approx(
        mean(replaced * (30 + of_originals(softmax_of_head(objective, corrupted_ids(objective, batch)))[0]), REAL),
        rel=1e-5,
    )
    assert found["copy_probability_replaced"] == found["copy_probability_kept"] == 1.0


@pytest.mark.parametrize("copy_logit", [-200.0, -20.0, -1.0, 0.0, 3.0, 20.0, 200.0])
@pytest.mark.parametrize("loss", [0.0, 1e-6, 2.0, 10.3, 150.0])
def test_the_mixture_and_its_gradients_are_exact_at_all_probabilities(copy_logit, loss):
    losses, logits = tf.constant([[loss, loss]]), tf.constant([[copy_logit, copy_logit]])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([losses, logits])
        found = with_copying(losses, logits, tf.constant([[True, False]]))
    # In 64 bits and by logaddexp: the smallest probability here, exp(-350), is no number in 32.
    log_copy, log_draw = -np.logaddexp(0, -copy_logit), -np.logaddexp(0, copy_logit) - loss
    log_input = np.logaddexp(log_copy, log_draw)
    assert found.numpy() == pytest.approx(np.array([[-log_input, -log_draw]]), rel=1e-6, abs=2e-7)
    drawn, copied = np.exp(log_draw - log_input), np.exp(log_copy - log_input)
    copy = np.exp(log_copy)
    assert tape.gradient(found, losses).numpy() == pytest.approx(np.array([[drawn, 1.0]]), abs=1e-6)
    of_logits = np.array([[copy * drawn - copied * (1 - copy), copy]])
    assert tape.gradient(found, logits).numpy() == pytest.approx(of_logits, abs=1e-6)


def gradients(objective, batch, term: str) -> dict[str, np.ndarray]:
    """Of one term, by the path of the variable in the objective."""
    groups = {
        "generator": objective.generator,
        "encoder": objective.encoder,
        "prediction_head": objective.prediction_head,
        "copy_head": getattr(objective, "copy_head", None),
    }
    with tf.GradientTape() as tape:
        loss = objective.loss_terms(batch, SAMPLING)[term].total
    variables = {
        f"{group}/{variable.name}": variable
        for group, layer in groups.items()
        for variable in (layer.trainable_variables if layer is not None else ())
    }
    assert {id(v) for v in variables.values()} == {id(v) for v in objective.trainable_variables}
    found = tape.gradient(loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    # A key's bias shifts all scores of a query alike: its gradient is zero but for rounding.
    return {name: tf.convert_to_tensor(gradient).numpy() for name, gradient in found.items() if "key/bias" not in name}


@pytest.mark.parametrize(("name", "term"), zip(NAMES, ("encoder_masked_lm", "all_tokens_lm"), strict=True))
def test_the_kept_networks_loss_sends_nothing_through_the_samples_into_the_generator(build, batch, name, term):
    found = gradients(build(name, tying="none"), batch, term)
    assert all(gradient.any() != name.startswith("generator/") for name, gradient in found.items())
    assert {name.split("/")[0] for name, gradient in found.items() if gradient.any()} >= {"encoder", "prediction_head"}


@pytest.mark.parametrize("name", NAMES)
def test_the_generators_loss_sends_nothing_into_the_kept_network_and_its_heads(build, batch, name):
    found = gradients(build(name, tying="none"), batch, "masked_lm")
    assert all(gradient.any() == name.startswith("generator/") for name, gradient in found.items())


@pytest.mark.parametrize("name", NAMES)
def test_both_heads_are_tied_to_the_word_table_as_bert_s_is(build, name):
    objective = build(name)
    table = objective.encoder.embeddings.word_embeddings
    assert objective.prediction_head.embeddings.word_embeddings is table
    assert objective.generator.head.embeddings.word_embeddings is table
    assert objective.prediction_head.output_bias is not objective.generator.head.output_bias


@pytest.mark.parametrize("name", NAMES)
def test_more_padding_leaves_the_losses_as_they_are(build, batch, name):
    objective = build(name, sampling="greedy")
    columns = ("input_ids", "input_mask", "segment_ids", "masked_input_ids")
    wider = {key: tf.pad(rows, [[0, 0], [0, 3 if key in columns else 2]]) for key, rows in batch.items()}
    expected = values(objective.loss_terms(batch, SAMPLING))
    assert values(objective.loss_terms(wider, SAMPLING)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_the_samples_may_come_from_a_generator_without_weights(build, batch, name):
    objective = build(name, generator={"kind": "uniform"})
    terms = values(objective.loss_terms(batch, SAMPLING))
    assert terms["masked_lm"] == pytest.approx(math.log(47), rel=1e-6)
    assert all(map(math.isfinite, terms.values()))
