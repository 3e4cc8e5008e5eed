"""Two-stage training and Fast-ELECTRA: phases, what is copied, the frozen generator, temperatures, the cost."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.flops import paper
from electra_tf.models.layers import INFERENCE, ForwardContext
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import OBJECTIVES, build_objective
from electra_tf.train.step import compile_task
from tests.toy import logits_of


def outputs(encoder, batch) -> np.ndarray:
    inputs = (batch[name] for name in ("input_ids", "input_mask", "segment_ids"))
    return encoder(*inputs, context=INFERENCE).sequence_output.numpy()


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


def test_the_discriminator_begins_as_the_generator_with_a_head_of_its_own(build, batch):
    objective = build("two_stage", fresh=True)
    first, second = objective.phases()
    head = objective.replaced_token_head.get_weights()
    assert not np.allclose(outputs(first.encoder, batch), outputs(second.encoder, batch), atol=1e-2)
    for _ in range(2):  # a resumed run begins again
        second.begin()
        assert np.array_equal(outputs(first.encoder, batch), outputs(second.encoder, batch))
    assert all(map(np.array_equal, objective.replaced_token_head.get_weights(), head))
    # If configured, it keeps its own initial weights; then any size will do.
    settings = {"initialize_from_generator": False, "generator": {"size_fraction": 0.5}}
    second = build("two_stage", fresh=True, **settings).phases()[1]
    before = outputs(second.encoder, batch)
    second.begin()
    assert np.array_equal(outputs(second.encoder, batch), before)


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
