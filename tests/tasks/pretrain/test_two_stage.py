"""Two-stage training: who learns in which stage, what is taken over between them, and which settings go together."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from electra_tf.config.errors import UserError
from electra_tf.data.batch import batch_specs
from electra_tf.models.context import INFERENCE, ForwardContext
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import build_objective
from electra_tf.train.phases import phase_after, phase_at, phases_of
from electra_tf.train.step import compile_task

SAME_SIZE = {"size_fraction": 1.0, "num_heads": None, "intermediate_size": None}
LENGTHS = [10, 7, 5, 8]


@pytest.fixture(scope="module")
def two_stage_config(tiny_config):
    def build(objective=None, **changes):
        settings = {"name": "two_stage", "generator": SAME_SIZE, **(objective or {})}
        return tiny_config(objective=settings, **changes)

    return build


def build(config, strategy=None):
    tf_keras.utils.set_random_seed(5)
    with (strategy or tf.distribute.get_strategy()).scope():
        return compile_task(build_objective(config))


def state_of(objective, variables) -> list[np.ndarray]:
    """The weights and both their moments."""
    optimizer = objective.optimizer
    if hasattr(optimizer, "get_slot"):
        slots = [optimizer.get_slot(variable, name) for name in ("m", "v") for variable in variables]
    else:
        places = [optimizer._index_dict[optimizer._var_key(variable)] for variable in variables]
        slots = [moments[at] for moments in (optimizer._first_moments, optimizer._second_moments) for at in places]
    return [variable.numpy() for variable in (*variables, *slots)]


def equal(first, second) -> list[bool]:
    return [np.array_equal(a, b) for a, b in zip(first, second, strict=True)]


def largest_difference(first, second) -> float:
    return max(float(np.abs(a.numpy() - b.numpy()).max()) for a, b in zip(first, second, strict=True))


def refusal(two_stage_config, **settings) -> str:
    with pytest.raises(UserError) as caught:
        two_stage_config(settings.pop("objective", None), **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_half_of_the_steps_are_the_generators_unless_it_is_said(two_stage_config):
    half, said = two_stage_config(train={"num_steps": 9}), two_stage_config({"generator_steps": 7})
    assert [phase.num_steps for phase in half.objective.phases(half)] == [4, 5]
    assert [phase.num_steps for phase in said.objective.phases(said)] == [7, 1]


def test_the_cost_of_the_first_stage_has_no_discriminator_and_that_of_the_second_a_generator_that_only_runs_forward(
    two_stage_config,
):
    config = two_stage_config()
    passes = [[(entry.name, entry.trained) for entry in phase.passes] for phase in config.objective.phases(config)]
    assert passes == [[("generator", True)], [("generator", False), ("discriminator", True)]]


def test_each_stage_has_a_schedule_of_its_own_or_all_have_one(two_stage_config):
    each, whole = two_stage_config({"generator_steps": 3}), two_stage_config({"schedule": "whole_run"})
    assert each.objective.schedule_steps(each) == (3, 5)
    assert whole.objective.schedule_steps(whole) == (8,)


@pytest.mark.parametrize("tying", ["embeddings", "all"])
def test_shared_weights_are_refused_as_the_generator_would_not_stay_frozen(two_stage_config, tying):
    assert f"objective.tying '{tying}' shares weights with the generator" in refusal(
        two_stage_config, objective={"tying": tying}
    )


def test_a_generator_of_another_size_is_refused_and_its_sizes_are_named(two_stage_config):
    message = refusal(two_stage_config, objective={"generator": {**SAME_SIZE, "size_fraction": 0.5, "num_heads": 4}})
    assert "its hidden_size is 8, the discriminator's 16; its num_heads is 4, the discriminator's 2" in message
    assert "set objective.generator.size_fraction to 1.0" in message


def test_without_taking_over_weights_the_generator_may_have_any_size(two_stage_config):
    settings = {"initialize_from_generator": False, "generator": {**SAME_SIZE, "size_fraction": 0.5}}
    assert two_stage_config(settings).objective.generator.size_fraction == 0.5


def test_the_discriminator_must_have_steps_of_its_own(two_stage_config):
    assert "generator_steps 8 leaves nothing of train.num_steps 8" in refusal(
        two_stage_config, objective={"generator_steps": 8}
    )


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_a_stage_changes_its_own_network_alone_not_even_by_weight_decay(two_stage_config, tiny_batch, optimizer):
    config = two_stage_config(optimizer={"name": optimizer, "weight_decay_rate": 0.5})
    objective = build(config)
    first, second = objective.phases
    batch = tiny_batch(config, LENGTHS)
    names = {"generator": first.trained_variables, "discriminator": second.trained_variables}
    assert {id(v) for variables in names.values() for v in variables} == {id(v) for v in objective.trainable_variables}

    def changed_by(step) -> dict[str, list[bool]]:
        before = {name: state_of(objective, variables) for name, variables in names.items()}
        step(batch)
        return {name: equal(before[name], state_of(objective, variables)) for name, variables in names.items()}

    found = changed_by(tf.function(first.train_step))
    assert all(found["discriminator"]) and not any(found["generator"][: len(names["generator"])])
    found = changed_by(tf.function(second.train_step))
    assert all(found["generator"]) and not any(found["discriminator"][: len(names["discriminator"])])
    assert int(objective.optimizer.iterations) == 2


def test_the_discriminator_begins_as_the_generator_with_a_head_of_its_own(two_stage_config, tiny_batch):
    config = two_stage_config()
    objective = build(config)
    first, second = objective.phases
    batch = tiny_batch(config, LENGTHS)
    first.train_step(batch)
    head = [variable.numpy() for variable in objective.replaced_token_head.weights]

    def outputs(encoder):
        inputs = (batch[name] for name in ("input_ids", "input_mask", "segment_ids"))
        return encoder(*inputs, context=INFERENCE).sequence_output.numpy()

    assert not np.allclose(outputs(first.encoder), outputs(second.encoder), atol=1e-2)
    second.begin()
    assert np.array_equal(outputs(first.encoder), outputs(second.encoder))
    begun = [variable.numpy() for variable in objective.discriminator.weights]
    second.begin()
    assert all(equal(begun, [variable.numpy() for variable in objective.discriminator.weights]))
    assert all(equal(head, [variable.numpy() for variable in objective.replaced_token_head.weights]))


def test_the_discriminator_keeps_its_own_initial_weights_if_that_is_asked_for(two_stage_config):
    objective = build(two_stage_config({"initialize_from_generator": False}))
    before = [variable.numpy() for variable in objective.discriminator.weights]
    objective.phases[1].begin()
    assert all(equal(before, [variable.numpy() for variable in objective.discriminator.weights]))


def captured(objective, phase) -> tuple[set[str], set[str]]:
    """The networks whose variables a phase's traced step reads, and those whose variables it sets."""
    specs = batch_specs(objective.config, 4)

    @tf.function
    def step(*tensors):
        return phase.train_step(dict(zip(specs, tensors, strict=True)))

    graph = step.get_concrete_function(*specs.values()).graph
    owners = {"generator": objective.phases[0], "discriminator": objective.phases[1]}
    owners = {id(v): name for name, part in owners.items() for v in part.trained_variables}
    inputs = {id(inner): owners.get(id(v)) for v in graph.variables for inner in [graph.capture(v.handle)]}
    read, set_ = set(inputs.values()) - {None}, set()
    for operation in graph.get_operations():
        if operation.type.startswith("Assign"):
            set_.add(inputs.get(id(operation.inputs[0])))
    return read, set_ - {None}


def test_the_step_of_a_stage_holds_nothing_of_the_other_but_the_frozen_generators_weights(two_stage_config):
    objective = build(two_stage_config())
    assert captured(objective, objective.phases[0]) == ({"generator"}, {"generator"})
    assert captured(objective, objective.phases[1]) == ({"generator", "discriminator"}, {"discriminator"})


def test_the_frozen_generator_draws_no_dropout_and_sends_no_gradient_back(two_stage_config, tiny_batch):
    config = two_stage_config(encoder={"hidden_dropout": 0.5, "attention_dropout": 0.5})
    objective = build(config)
    batch = tiny_batch(config, LENGTHS)
    context = ForwardContext(training=True, random=RandomStream(1, 2, 3))
    with tf.GradientTape() as tape:
        forward = objective.forward(batch, context)
        terms = objective.phases[1].loss_terms(batch, context)
    scores = objective.generate(batch, ForwardContext(training=False)).logits.numpy()
    assert np.abs(forward.generated.logits.numpy() - scores).max() < 1e-5
    generator = objective.phases[0].trained_variables
    assert all(gradient is None for gradient in tape.gradient(terms["replaced_token"].total, generator))


def test_the_first_stages_loss_is_the_mean_of_minus_the_log_probabilities(two_stage_config, tiny_batch):
    config = two_stage_config(encoder={"hidden_dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.3})
    objective = build(config)
    batch = tiny_batch(config, [10, 7])
    found = objective.phases[0].train_step(batch)
    objective = build(config)
    logits = objective.generate(batch, INFERENCE).logits.numpy().astype(np.float64)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    ids, weights = batch["masked_lm_ids"].numpy(), batch["masked_lm_weights"].numpy()
    losses = -np.take_along_axis(log_probs, ids[..., np.newaxis], axis=-1)[..., 0]
    assert weights.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert float(found["masked_lm"]) == pytest.approx((losses * weights).sum() / 5, rel=1e-5)
    assert set(found) == {"loss", "masked_lm", "gradient_norm", "learning_rate", "nonfinite"}


@pytest.mark.parametrize("phase", [0, 1])
def test_micro_batches_on_two_replicas_train_a_stage_like_one_batch(
    two_stage_config, tiny_batch, two_replicas, run_on_replicas, phase
):
    settings = {"encoder": {"initializer_range": 0.2}, "optimizer": {"learning_rate": 1e-3}}
    whole = build(two_stage_config(**settings))
    parts = build(two_stage_config(**settings, train={"gradient_accumulation_steps": 2}), two_replicas)
    batch = tiny_batch(whole.config, [10, 10, 5, 0])
    with two_replicas.scope():
        parts.phases[phase].begin()
    whole.phases[phase].begin()
    one = {name: float(value) for name, value in tf.function(whole.phases[phase].train_step)(batch).items()}
    two = run_on_replicas(two_replicas, tf.function(parts.phases[phase].train_step), batch)
    assert {name: float(value) for name, value in two.items()} == pytest.approx(one, rel=1e-5)
    assert largest_difference(whole.trainable_variables, parts.trainable_variables) < 1e-5


def test_a_step_belongs_to_the_phase_that_trained_it(two_stage_config):
    objective = build(two_stage_config({"generator_steps": 3}))
    phases = phases_of(objective)
    assert [(phase.first_step, phase.last_step) for phase in phases] == [(0, 3), (3, 8)]
    assert [phases.index(phase_after(phases, step)) for step in (0, 2, 3, 8)] == [0, 0, 1, 1]
    assert [phases.index(phase_at(phases, step)) for step in (1, 3, 4, 8)] == [0, 0, 1, 1]


def test_keras_fits_phase_by_phase(two_stage_config, tiny_batch):
    objective = build(two_stage_config())
    batches = tf.data.Dataset.from_tensors(tiny_batch(objective.config, LENGTHS)).repeat(2)
    first, second = objective.phases
    assert "masked_lm" in first.fit(batches, verbose=0).history
    second.begin()
    assert "replaced_token" in second.fit(batches, verbose=0).history
    assert int(objective.optimizer.iterations) == 4
    with pytest.raises(NotImplementedError, match="phase by phase"):
        objective.fit(batches, verbose=0)
