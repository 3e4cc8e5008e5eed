import math

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from electra_tf.models.context import ForwardContext
from electra_tf.models.vocabulary_logits import VocabularyLogits
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import OBJECTIVES, build_objective

CLS, SEP, MASK = 2, 3, 4
LENGTHS = [10, 7, 5, 8]
# An objective, and which of its phases.
PHASES = [(name, phase) for name in sorted(OBJECTIVES) for phase in range(2 if name == "two_stage" else 1)]
SAMPLING = ForwardContext(random=RandomStream(4, 0, 0))


@pytest.fixture(scope="module")
def build(tiny_config):
    """`build(**objective_settings)`: a tiny ELECTRA without dropout and with weights large enough to matter."""

    def electra(encoder: dict | None = None, **settings):
        tf_keras.utils.set_random_seed(2)
        quiet = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.3, **(encoder or {})}
        return build_objective(tiny_config(encoder=quiet, objective=settings))

    return electra


@pytest.fixture(scope="module")
def greedy(build):
    return build(sampling="greedy")


@pytest.fixture(scope="module")
def batch(tiny_config, tiny_batch):
    return tiny_batch(tiny_config(), LENGTHS)


def selected(batch) -> np.ndarray:
    """[B, S] int32: 1 at the masked positions in use."""
    found = np.zeros(batch["input_ids"].shape, np.int32)
    for row, slot in np.argwhere(batch["masked_lm_weights"].numpy() > 0):
        found[row, batch["masked_lm_positions"].numpy()[row, slot]] = 1
    return found


def scores_of(logits: tf.Tensor) -> VocabularyLogits:
    return VocabularyLogits(logits, tf.eye(47), tf.zeros([47]))


def sure_of(token_ids: tf.Tensor) -> VocabularyLogits:
    return scores_of(100.0 * tf.one_hot(token_ids, 47))


def test_a_sample_equal_to_the_original_counts_as_original(greedy, batch):
    corrupted = greedy.corrupt(batch, sure_of(batch["masked_lm_ids"]), SAMPLING)
    assert not corrupted.is_replaced.numpy().any()
    assert np.array_equal(corrupted.input_ids, batch["input_ids"])


def test_every_selected_token_is_replaced_where_the_generator_is_always_wrong(greedy, batch):
    wrong = (batch["masked_lm_ids"] + 1) % 40 + 5
    corrupted = greedy.corrupt(batch, sure_of(wrong), SAMPLING)
    assert np.array_equal(corrupted.is_replaced, selected(batch))
    assert selected(batch).sum() == 3 + 2 + 2 + 2


def test_cls_sep_and_padding_are_never_replaced(greedy, batch):
    corrupted = greedy.corrupt(batch, sure_of(tf.fill([4, 3], 33)), SAMPLING)
    ids = batch["input_ids"].numpy()
    special = np.isin(ids, [0, CLS, SEP])
    assert not corrupted.is_replaced.numpy()[special].any()
    assert np.array_equal(corrupted.input_ids.numpy()[special], ids[special])


def test_samples_are_written_into_the_original_and_not_into_the_masked_input(build, batch):
    # 200 draws of a generator that never proposes [MASK]: so the discriminator must never see one.
    objective = build()
    scores = scores_of(-1e9 * tf.one_hot(tf.fill([4, 3], MASK), 47))
    off_selection = selected(batch) == 0
    assert (batch["masked_input_ids"].numpy() == MASK).any()
    for step in range(50):
        ids = objective.corrupt(batch, scores, ForwardContext(random=RandomStream(0, step, 0))).input_ids.numpy()
        assert not (ids == MASK).any()
        assert np.array_equal(ids[off_selection], batch["input_ids"].numpy()[off_selection])


def test_a_sampled_mask_token_is_shown_to_the_discriminator(greedy, batch):
    ids = greedy.corrupt(batch, sure_of(tf.fill([4, 3], MASK)), SAMPLING).input_ids.numpy()
    assert np.array_equal(ids == MASK, selected(batch) == 1)


def test_selected_tokens_that_the_generator_saw_unmasked_are_sampled_anew(build, tiny_config, tiny_batch):
    objective = build()
    unmasked = tiny_batch(tiny_config(masking={"mask_token_fraction": 0.0}), LENGTHS * 30)
    assert np.array_equal(unmasked["masked_input_ids"], unmasked["input_ids"])
    uniform = scores_of(tf.zeros([120, 3, 47]))
    replaced = objective.corrupt(unmasked, uniform, SAMPLING).is_replaced.numpy()
    n = int(selected(unmasked).sum())
    # A uniform draw is the original in one of 47 cases.
    assert n == 30 * 9
    assert abs(replaced.sum() - n * 46 / 47) < 4 * math.sqrt(n * (46 / 47) * (1 / 47))


def test_the_networks_read_what_they_should(greedy, batch):
    def vectors(encoder, ids):
        output = encoder(ids, input_mask=batch["input_mask"], segment_ids=batch["segment_ids"])
        return output.sequence_output.numpy()

    forward = greedy.forward(batch, SAMPLING)
    generated = forward.generated.encoder_output.sequence_output.numpy()
    assert np.array_equal(generated, vectors(greedy.generator.encoder, batch["masked_input_ids"]))
    corrupted = forward.corrupted.input_ids
    assert (corrupted != batch["input_ids"]).numpy().any()
    assert np.array_equal(forward.discriminator_output.sequence_output, vectors(greedy.discriminator, corrupted))


def losses(objective, batch) -> dict[str, float]:
    terms = objective.loss_terms(batch, SAMPLING)
    return {name: terms[name].value() for name in objective.loss_weights}


# Sums of at most 40 float32 terms of one sign.
SAME = {"rel": 40 * 2**-24}


def test_more_padding_leaves_the_losses_as_they_are(greedy, batch):
    columns = ("input_ids", "input_mask", "segment_ids", "masked_input_ids")
    wider = {name: tf.pad(values, [[0, 0], [0, 3 if name in columns else 2]]) for name, values in batch.items()}
    assert wider["input_ids"].shape == (4, 13) and wider["masked_lm_ids"].shape == (4, 5)
    assert losses(greedy, wider) == pytest.approx(losses(greedy, batch), **SAME)


def test_the_batch_twice_leaves_the_losses_as_they_are(greedy, batch):
    twice = {name: tf.concat([values, values], axis=0) for name, values in batch.items()}
    assert losses(greedy, twice) == pytest.approx(losses(greedy, batch), **SAME)


def test_an_empty_row_leaves_the_losses_as_they_are(greedy, batch):
    filled = {name: tf.pad(values, [[0, 1], [0, 0]]) for name, values in batch.items()}
    assert losses(greedy, filled) == pytest.approx(losses(greedy, batch), **SAME)


def total_loss(objective, batch) -> float:
    return sum(objective.loss_weights[name] * value for name, value in losses(objective, batch).items())


def test_a_model_that_knows_nothing_loses_ln_v_plus_50_ln_2(build, batch):
    objective = build()
    for variable in (objective.generator.head.layer_norm.gamma, objective.replaced_token_head.score.kernel):
        variable.assign(tf.zeros_like(variable))
    assert total_loss(objective, batch) == pytest.approx(math.log(47) + 50 * math.log(2), rel=1e-6)


def test_an_untrained_model_loses_about_that_much(build, tiny_config, tiny_batch):
    objective = build(encoder={"initializer_range": 0.02})
    total = total_loss(objective, tiny_batch(tiny_config(), LENGTHS * 20))
    # Vectors after LayerNorm have length sqrt(12) and 4; weights deviate by 0.0176, those of the last layer, uniform in
    # +-sqrt(6 / 17), by 0.343. So masked-LM logits deviate by 0.061. The hidden units are gelu(u), about u / 2, u of
    # 0.0704: a logit z of the discriminator deviates by 4 * 0.0353 * 0.343 = 0.048, its loss from ln 2 by at most
    # |z| / 2 + z^2 / 8.
    masked_lm, z = 5 * 0.061, 5 * 0.048
    assert abs(total - math.log(47) - 50 * math.log(2)) < masked_lm + 50 * (z / 2 + z * z / 8)


def build_phase(tiny_config, name: str, phase: int):
    # Two stages need a generator of the discriminator's size.
    sizes = {"size_fraction": 1.0, "num_heads": None, "intermediate_size": None}
    settings = {"generator": sizes} if name == "two_stage" else {}
    return build_objective(tiny_config(objective={"name": name, **settings})).phases[phase]


@pytest.mark.parametrize(("name", "phase"), PHASES)
def test_the_weights_known_from_the_batch_are_those_of_the_terms(tiny_config, batch, name, phase):
    objective = build_phase(tiny_config, name, phase)
    expected = objective.term_weights(batch)
    terms = objective.loss_terms(batch, SAMPLING)
    assert set(terms) == set(expected) >= set(objective.loss_weights)
    assert {key: float(term.weight) for key, term in terms.items()} == {key: float(w) for key, w in expected.items()}


def test_the_weights_of_the_losses_are_the_masked_and_the_real_tokens(greedy, batch):
    terms = greedy.loss_terms(batch, SAMPLING)
    assert float(terms["masked_lm"].weight) == 9
    assert float(terms["replaced_token"].weight) == sum(LENGTHS)


@pytest.mark.parametrize(("name", "phase"), PHASES)
def test_evaluation_has_the_losses_and_every_term_is_finite(tiny_config, batch, name, phase):
    objective = build_phase(tiny_config, name, phase)
    terms = objective.evaluation_terms(batch, SAMPLING)
    training_terms = objective.loss_terms(batch, SAMPLING)
    for key, training_term in training_terms.items():
        reported = f"{key}_loss" if f"{key}_loss" in terms else key
        assert terms[reported].value() == pytest.approx(training_term.value(), rel=1e-6)
    finite = {key for key, term in terms.items() if math.isfinite(term.value())}
    # Of an untrained discriminator nothing may be called replaced, and of nine masked tokens all may be replaced.
    assert set(terms) - finite <= {"replaced_token_precision", "replaced_token_auc"}


def test_the_sampled_accuracy_counts_draws_that_hit_the_original(greedy, batch):
    terms = greedy.evaluation_terms(batch, SAMPLING)
    assert terms["sampled_masked_lm_accuracy"].value() == terms["masked_lm_accuracy"].value()
    replaced = terms["replaced_fraction"]
    hits = terms["sampled_masked_lm_accuracy"]
    assert float(replaced.total) == float(hits.weight) - float(hits.total)


def test_detection_reads_the_input_as_it_is(greedy, batch):
    output = greedy.discriminator(
        batch["input_ids"], input_mask=batch["input_mask"], segment_ids=batch["segment_ids"]
    ).sequence_output
    expected = tf.sigmoid(greedy.replaced_token_head(output)).numpy()
    assert np.array_equal(greedy.detect(batch), expected)
    assert expected.std() > 0.01
