"""Objectives by their generators: frozen, of two towers, with shared layers, without weights; impossible settings."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.corpus import open_data
from electra_tf.flops import paper
from electra_tf.models.layers import INFERENCE, ForwardContext
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import OBJECTIVES, build_objective
from electra_tf.train.step import compile_task
from tests.tasks.pretrain.conftest import MASKED, WORDS, vectors_of
from tests.toy import EQUAL_SIZES, certain, evaluation_values, gelu, log_softmax, logits_of, training_values


@pytest.fixture(scope="module")
def data(tmp_path_factory, write_data, tiny_config):
    return open_data(write_data(tmp_path_factory.mktemp("data") / "set"), tiny_config())


def with_counts(data, counts: dict[int, int]):
    """The data set with these counts by token, and no other tokens."""
    token_counts = np.zeros(47, np.int64)
    token_counts[list(counts)] = list(counts.values())
    return dataclasses.replace(data, token_counts=token_counts)


@pytest.mark.parametrize("kind", ["unigram", "uniform"])
def test_the_loss_of_a_generator_without_weights_is_reported_and_trains_nothing(build, batch, sampling, data, kind):
    objective = build("electra", generator={"kind": kind})
    objective.adopt_data(with_counts(data, {11: 1, 13: 2, 22: 5}))
    variables = [*objective.discriminator.trainable_variables, *objective.replaced_token_head.trainable_variables]
    assert {id(variable) for variable in objective.trainable_variables} == set(map(id, variables))
    with tf.GradientTape() as tape:
        masked_lm = objective.training_terms(batch, sampling)["masked_lm"].value
    assert tape.gradient(masked_lm, variables) == [None] * len(variables)
    expected = 3 * math.log(47) if kind == "uniform" else 3 * math.log(8) - math.log(1 * 2 * 5)
    assert float(masked_lm) == pytest.approx(expected, rel=1e-6)


def test_unigram_samples_are_words_of_the_training_text_and_never_special_tokens(build, batch, sampling, data):
    objective = build("electra", generator={"kind": "unigram"}, disallow_correct=True)
    objective.adopt_data(data)
    words = set(np.flatnonzero(data.token_counts)) - {2, 3}
    assert len(words) > 10 and data.token_counts[2] > 0
    many = {name: tf.repeat(rows, 40, axis=0) for name, rows in batch.items()}
    sampled = objective.corrupt(many, objective.generate(many, sampling).distribution, sampling).sampled_ids.numpy()
    used = many["masked_lm_weights"].numpy() > 0
    assert (sampled != many["masked_lm_ids"].numpy())[used].all()
    assert set(sampled[used]) <= words and len(set(sampled[used])) > 5


def test_the_counts_are_a_variable_that_is_not_trained_and_exact_also_in_bfloat16(build, batch, sampling, data):
    objective = build("electra", {"train": {"precision": "bfloat16"}}, fresh=True, generator={"kind": "unigram"})
    of_no_data = training_values(objective, batch, sampling)["masked_lm"]
    assert of_no_data == pytest.approx(math.log(47), rel=1e-6)  # all tokens are equally frequent
    objective.adopt_data(with_counts(data, {11: 257, 13: 256}))  # in bfloat16 both are 256
    losses = objective.generate(batch, ForwardContext()).distribution.losses(tf.constant([[11, 13], [11, 13]])).numpy()
    assert losses[0] == pytest.approx(-np.log([257 / 513, 256 / 513]), rel=1e-5)
    objective.adopt_data(data)
    (counts,) = objective.non_trainable_variables
    assert counts.numpy().tolist() == data.text_token_counts("a test").tolist()


def test_only_a_unigram_generator_requires_data_with_token_counts(build, batch, sampling, data):
    data_without_counts, uniform = dataclasses.replace(data, token_counts=None), {"generator": {"kind": "uniform"}}
    for name, settings in (("electra", {}), ("electra", uniform), ("all_tokens_mlm", uniform), ("bert_mlm", {})):
        build(name, **settings).adopt_data(data_without_counts)
    terms = training_values(build("all_tokens_mlm", **uniform), batch, sampling)
    assert terms["masked_lm"] == pytest.approx(math.log(47), rel=1e-6) and all(map(math.isfinite, terms.values()))
    with pytest.raises(UserError, match=data_without_counts.directory):
        build("electra", generator={"kind": "unigram"}).adopt_data(data_without_counts)


HALF_SIZE = {"size_fraction": 0.5, "num_heads": 4}


@pytest.mark.parametrize(
    ("name", "settings", "masking", "named"),
    [
        ("adversarial", {"temperature": 2.0}, {}, "objective.temperature is 2.0"),
        ("adversarial", {"tying": "all", "generator": EQUAL_SIZES}, {}, "objective.tying is 'all'"),
        ("electric", {"disallow_correct": True}, {}, "objective.disallow_correct"),
        ("electric", {"sampling": "greedy"}, {}, "objective.sampling is 'greedy'"),
        ("electric", {}, {"scheme": "rare_tokens"}, "the same share of noise"),
        ("two_stage", {"generator": HALF_SIZE}, {}, "its hidden_size is 8, the discriminator's 16; its num_heads is 4"),
        ("two_stage", {"generator_steps": 8}, {}, "objective.generator_steps 8"),
        ("fast_electra", {"tying": "embeddings"}, {}, "objective.tying is 'embeddings'"),
        ("fast_electra", {"generator": {"kind": "unigram"}}, {}, "objective.generator.kind is 'unigram'"),
        ("teams", {"generator": HALF_SIZE}, {}, "objective.shared_layers_fraction 0.5 needs a generator of the disc"),
        ("fast_electra", {"auxiliary": None}, {}, "objective.auxiliary is None"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_by_name(tiny_config, name, settings, masking, named):
    with pytest.raises(UserError) as caught:
        tiny_config(objective={"name": name, **settings}, masking=masking)
    assert named in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "phase_steps", "schedule_steps"),
    [
        ({}, (4, 5), (4, 5)),
        ({"generator_steps": 7}, (7, 2), (7, 2)),
        ({"generator_steps": 7, "schedule": "whole_run"}, (7, 2), (9,)),
    ],
)
def test_the_settings_divide_the_steps_into_phases_and_schedules(tiny_config, settings, phase_steps, schedule_steps):
    config = tiny_config(objective={"name": "two_stage", **settings}, train={"num_steps": 9})
    objective = OBJECTIVES["two_stage"](config)
    assert (objective.phase_steps, objective.schedule_steps) == (phase_steps, schedule_steps)


def test_the_discriminator_of_two_stage_begins_as_the_generator_with_a_head_of_its_own(build, batch):
    objective = build("two_stage", fresh=True)
    first, second = objective.phases()
    head = objective.replaced_token_head.get_weights()
    assert not np.allclose(vectors_of(first.encoder, batch), vectors_of(second.encoder, batch), atol=1e-2)
    for _ in range(2):  # a resumed run begins again
        second.begin()
        assert np.array_equal(vectors_of(first.encoder, batch), vectors_of(second.encoder, batch))
    assert all(map(np.array_equal, objective.replaced_token_head.get_weights(), head))
    # If configured, it keeps its own initial weights; then any size will do.
    settings = {"initialize_from_generator": False, "generator": {"size_fraction": 0.5}}
    second = build("two_stage", fresh=True, **settings).phases()[1]
    before = vectors_of(second.encoder, batch)
    second.begin()
    assert np.array_equal(vectors_of(second.encoder, batch), before)


@pytest.mark.parametrize("name", ["two_stage", "fast_electra"])
def test_the_frozen_generator_has_no_dropout(tiny_config, batch, name):
    dropout = {"hidden_dropout": 0.5, "attention_dropout": 0.5, "initializer_range": 0.3}
    objective = build_objective(tiny_config(objective={"name": name}, encoder=dropout))
    training = ForwardContext(training=True, random=RandomStream(1, 2, 3))
    frozen = objective.forward(batch, training).generated.logits.numpy()
    assert np.abs(frozen - objective.generate(batch, INFERENCE).logits.numpy()).max() < 1e-5
    assert np.abs(frozen - objective.generate(batch, training).logits.numpy()).max() > 1e-3


@pytest.mark.slow
def test_keras_fits_phase_by_phase(build, tiny_batch):
    objective = compile_task(build("two_stage", fresh=True))
    batches = tf.data.Dataset.from_tensors(tiny_batch(objective.config, [10, 7, 5, 8])).repeat(2)
    first, second = objective.phases()
    assert "masked_lm" in first.fit(batches, verbose=0).history
    second.begin()
    assert "replaced_token" in second.fit(batches, verbose=0).history
    assert int(objective.optimizer.iterations) == 4
    with pytest.raises(NotImplementedError, match="phases"):
        objective.fit(batches, verbose=0)


FALLING = {"initial_temperature": 3.0, "temperature_decay": 0.5}


def training(step: int) -> ForwardContext:
    return ForwardContext(training=True, random=RandomStream(1, step, 0))


def test_training_changes_no_bit_of_the_frozen_generator_which_has_no_moments(tiny_config, tiny_batch):
    objective = compile_task(build_objective(tiny_config(objective={"name": "fast_electra", **FALLING})))
    frozen = [variable.numpy() for variable in objective.generator.variables]
    assert len(frozen) == 5 + 2 + 16 + 5  # embeddings, projection, one layer, head
    for seed in range(2):
        objective.train_step(tiny_batch(objective.config, [10, 7, 5, 8], seed))
    assert all(map(np.array_equal, objective.generator.variables, frozen))
    trained = [*objective.discriminator.variables, *objective.replaced_token_head.variables]
    moments = sum(math.prod(variable.shape) for variable in objective.optimizer.variables)
    assert 0 < moments <= 2 * sum(math.prod(variable.shape) for variable in trained) + 1  # and the step


@pytest.mark.parametrize(
    ("settings", "temperatures"),
    [
        # 1 + 2 exp(-u / 0.5) after a share u of 0, 1/2 and 1 of eight updates.
        (FALLING, [3.0, 1.7357589, 1.2706706]),
        ({"initial_temperature": 0.5}, [0.5, 0.9966310, 0.9999773]),  # 1 - 0.5 exp(-u / 0.1)
        ({}, [1.0, 1.0, 1.0]),
    ],
)
def test_the_temperature_of_a_step_follows_the_share_of_updates_that_are_done(tiny_config, settings, temperatures):
    objective = OBJECTIVES["fast_electra"](tiny_config(objective={"name": "fast_electra", **settings}))
    computed = [float(objective.sampling_temperature(training(step))) for step in (0, 4, 8)]
    assert computed == pytest.approx(temperatures, rel=1e-6)
    evaluation = dataclasses.replace(training(0), training=False)
    assert float(objective.sampling_temperature(evaluation)) == 1.0


def test_samples_are_drawn_at_the_temperature_of_the_step(build, batch):
    objective = build("fast_electra", **FALLING)
    logits = logits_of(np.random.default_rng(0).normal(0.0, 3.0, [300, 2, 47]))
    many = {name: tf.repeat(rows, 150, axis=0) for name, rows in batch.items()}
    sampled = {step: objective.corrupt(many, logits, training(step)).sampled_ids.numpy() for step in (0, 4)}
    for step, temperature in ((0, 3.0), (4, 1.7357589)):
        expected = logits.sample(training(step), temperature=temperature).numpy()
        assert (sampled[step] == expected).mean() > 0.99  # up to rounding of the temperature
    assert (sampled[0] == logits.sample(training(0)).numpy()).mean() < 0.9


def test_the_cost_is_that_of_electra_without_the_backward_pass_of_the_generator(tiny_config):
    fast, joint = (tiny_config(objective={"name": name, "tying": "none"}) for name in ("fast_electra", "electra"))
    (of_fast,), (of_joint,) = (config.objective.phase_costs(config) for config in (fast, joint))
    assert [(each.name, each.trained) for each in of_fast.passes] == [("generator", False), ("discriminator", True)]
    # In the paper's convention the backward pass costs as much as the forward pass.
    saved = paper.example_flops(of_joint.passes, 10) - paper.example_flops(of_fast.passes, 10)
    assert saved == paper.example_flops(of_joint.passes[:1], 10) / 2 > 0


def test_a_run_whose_temperature_falls_cannot_be_extended(tiny_config):
    optimizer = {"schedule": "warmup_stable_decay", "decay_fraction": 0.25}
    for settings, steps in ({}, 6), (FALLING, 0):
        config = tiny_config(objective={"name": "fast_electra", **settings}, optimizer=optimizer)
        assert (config.stable_steps, config.varies_with_num_steps) == (steps, steps == 0)


@pytest.fixture(scope="module")
def electric(build):
    return build("electric")


@pytest.fixture(scope="module")
def log_q(electric, batch) -> np.ndarray:
    """[B, S, V]: the generator's log q of every token at every position."""
    everywhere = tf.tile(tf.range(6)[tf.newaxis], [2, 1])
    inputs = {name: batch[name] for name in ("input_ids", "input_mask", "segment_ids")}
    return log_softmax(electric.generator(**inputs, positions=everywhere).logits)


def of_tokens(log_q: np.ndarray, ids) -> np.ndarray:
    return np.take_along_axis(log_q, np.array(ids)[..., np.newaxis], axis=-1)[..., 0]


def test_every_sample_counts_as_noise_also_one_equal_to_the_original(electric, batch, sampling):
    corrupted = electric.corrupt(batch, certain([[13, 33], [22, 0]]), sampling)
    assert corrupted.input_ids.numpy().tolist() == [[2, 33, 12, 3, 13, 3], [2, 21, 22, 3, 0, 0]]
    assert np.array_equal(corrupted.is_replaced, MASKED)


def test_the_losses_of_electric_equal_their_formulas(electric, batch, sampling, log_q):
    forward, terms = electric.forward(batch, sampling), training_values(electric, batch, sampling)
    ids = batch["input_ids"].numpy()
    assert terms["masked_lm"] == pytest.approx(-(of_tokens(log_q, ids) * WORDS).sum() / 5, rel=1e-5)

    corrupted_ids = forward.corrupted.input_ids.numpy()
    assert (corrupted_ids != ids).any() and not (corrupted_ids != ids)[MASKED == 0].any()
    energies = electric.energies({**batch, "input_ids": tf.constant(corrupted_ids)}).numpy()
    # The generator's probabilities of the corrupted tokens, each given the original tokens around it.
    logits = energies + of_tokens(log_q, corrupted_ids) + math.log(0.3 / 0.7)
    losses = np.log1p(np.exp(np.where(MASKED > 0, -logits, logits)))
    assert terms["replaced_token"] == pytest.approx(losses[batch["input_mask"].numpy() > 0].mean(), rel=1e-5)
    assert terms["replaced_fraction"] == pytest.approx(3 / 10)


def test_detect_of_electric_gives_the_probability_of_noise(electric, batch, log_q):
    logits = electric.energies(batch).numpy() + of_tokens(log_q, batch["input_ids"]) + math.log(0.3 / 0.7)
    np.testing.assert_allclose(electric.detect(batch), 1 / (1 + np.exp(-logits)), rtol=1e-5)


def test_the_three_encoders_share_their_embeddings_unless_tying_is_none(electric, build):
    def num_tables(objective) -> int:
        return len({id(v) for v in objective.trainable_variables if "word_embeddings" in v.name})

    assert num_tables(electric) == 1
    assert num_tables(build("electric", tying="none")) == 2


def test_the_verdict_can_compare_the_generator_with_token_frequencies(electric, batch, sampling, log_q):
    values = evaluation_values(electric, batch, sampling)
    originals = log_q[[0, 0, 1], [4, 1, 2], [13, 11, 22]]
    assert values["mask_token_loss"] == pytest.approx(-originals.mean(), rel=1e-5)
    assert values["unigram_loss"] == pytest.approx((2.5 + 1.5 + 4.25) / 3)


# The first layer attends to near tokens and the others to all: so does the detection's layer, as the last one.
BLOCKS = {"bert": {}, "modern": {"block": "modern", "global_attention_every_n_layers": 1}}


def test_the_selection_equals_its_formula_over_the_masked_tokens(build, batch, sampling):
    objective = build("teams", num_candidates=3)
    forward = objective.forward(batch, sampling)
    candidates = objective.candidates(batch, forward.generated, sampling.fold_in("candidates")).numpy()
    assert candidates.shape == (2, 2, 3) and candidates[..., 0].tolist() == batch["masked_lm_ids"].numpy().tolist()
    head = objective.word_selection_head
    kernel, bias = (value.numpy().astype(np.float64) for value in head.transform.weights)
    hidden = forward.discriminator_output.sequence_output.numpy()[[0, 0, 1], [4, 1, 2]]  # where 13, 11 and 22 were
    inner = gelu(hidden @ kernel + bias)
    inner = (inner - inner.mean(-1, keepdims=True)) / inner.std(-1, keepdims=True)  # gamma is 1, beta 0
    rows = objective.discriminator.embeddings.word_embeddings.numpy()[candidates[[0, 0, 1], [0, 1, 0]]]  # [3, 3, E]
    logits = np.einsum("nke,ne->nk", rows, inner)
    terms = training_values(objective, batch, sampling)
    assert terms["word_selection"] == pytest.approx(-log_softmax(logits)[:, 0].mean(), rel=1e-5)
    assert terms["word_selection_accuracy"] == pytest.approx((logits.argmax(-1) == 0).mean())
    assert objective.loss_weights == {"masked_lm": 1.0, "replaced_token": 5.0, "word_selection": 2.0}


def test_the_candidates_are_the_original_and_other_tokens_all_different(build, batch, sampling):
    objective = build("teams", num_candidates=9)
    generated = objective.generate(batch, sampling)._replace(
        distribution=logits_of(20.0 * tf.one_hot([[13, 12], [22, 5]], 47))
    )
    candidates = objective.candidates(batch, generated, sampling).numpy()
    assert candidates[..., 0].tolist() == [[13, 11], [22, 0]]
    assert {len(set(row)) for row in candidates.reshape(-1, 9).tolist()} == {9}
    # The generator's favourite is drawn first, unless it is the original.
    assert candidates[[0, 1], [1, 1], 1].tolist() == [12, 5]
    again = objective.candidates(batch, generated, ForwardContext(random=RandomStream(4, 1, 0))).numpy()
    assert (again != candidates).any()


@pytest.mark.parametrize("block", BLOCKS)
def test_the_detections_layer_takes_the_place_of_the_encoders_last(build, batch, sampling, block):
    objective = build("teams", {"encoder": BLOCKS[block]}, fresh=True, sampling="greedy")
    forward = objective.forward(batch, sampling)

    def of_last() -> np.ndarray:
        return objective.replaced_token_head.head(forward.discriminator_output.sequence_output).numpy()

    assert np.abs(forward.replaced_token_logits.numpy() - of_last()).max() > 1e-2
    objective.replaced_token_head.layer.set_weights(objective.discriminator.transformer_layers[-1].get_weights())
    logits = objective.replaced_token_logits(forward.discriminator_output, batch, sampling).numpy()
    np.testing.assert_allclose(logits, of_last(), atol=1e-5)
    inputs = {**batch, "input_ids": forward.corrupted.input_ids}
    np.testing.assert_allclose(objective.detection_logits(inputs), logits, atol=1e-5)


@pytest.mark.parametrize(("fraction", "num_shared"), [(0.0, 0), (0.4, 1), (1.0, 2)])
def test_generator_and_discriminator_share_their_lowest_layers_and_the_projection(build, fraction, num_shared):
    objective = build("teams", {"encoder": {"num_layers": 3}}, shared_layers_fraction=fraction)
    generator, discriminator = objective.generator.encoder, objective.discriminator
    pairs = zip(generator.transformer_layers, discriminator.transformer_layers, strict=True)
    assert [one is other for one, other in pairs] == [index < num_shared for index in range(3)]
    assert (generator.embeddings_project is discriminator.embeddings_project) == (num_shared > 0)
