"""Two-stage training: its phases, what is copied between them, and the frozen generator."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.layers import INFERENCE, ForwardContext
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import build_objective
from electra_tf.train.step import compile_task


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
def test_the_settings_divide_the_steps_into_phases_and_schedules(build, settings, phase_steps, schedule_steps):
    objective = build("two_stage", {"train": {"num_steps": 9}}, **settings)
    assert (objective.phase_steps, objective.schedule_steps) == (phase_steps, schedule_steps)


def test_the_discriminator_begins_as_the_generator_with_a_head_of_its_own(build, batch):
    objective = build("two_stage")
    first, second = objective.phases()
    head = [variable.numpy() for variable in objective.replaced_token_head.weights]
    assert not np.allclose(outputs(first.encoder, batch), outputs(second.encoder, batch), atol=1e-2)
    for _ in range(2):  # a resumed run begins again
        second.begin()
        assert np.array_equal(outputs(first.encoder, batch), outputs(second.encoder, batch))
    for variable, value in zip(objective.replaced_token_head.weights, head, strict=True):
        assert np.array_equal(variable, value)
    # If configured, it keeps its own initial weights; then any size will do.
    settings = {"initialize_from_generator": False, "generator": {"size_fraction": 0.5}}
    second = build("two_stage", **settings).phases()[1]
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
    objective = compile_task(build("two_stage"))
    batches = tf.data.Dataset.from_tensors(tiny_batch(objective.config, [10, 7, 5, 8])).repeat(2)
    first, second = objective.phases()
    assert "masked_lm" in first.fit(batches, verbose=0).history
    second.begin()
    assert "replaced_token" in second.fit(batches, verbose=0).history
    assert int(objective.optimizer.iterations) == 4
    with pytest.raises(NotImplementedError, match="phases"):
        objective.fit(batches, verbose=0)
