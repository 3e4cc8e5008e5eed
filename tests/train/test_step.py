import math

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from electra_tf.data.corpus import open_data
from electra_tf.data.pretraining_input import training_batches
from electra_tf.tasks.pretrain import build_objective
from electra_tf.train.step import compile_task

QUIET = {"hidden_dropout": 0.0, "attention_dropout": 0.0}
# The first replica gets four times as many tokens as the second, and five times as many masked ones.
UNEQUAL_LENGTHS = [10, 10, 5, 0]


def build(config, strategy=None):
    tf_keras.utils.set_random_seed(5)
    with (strategy or tf.distribute.get_strategy()).scope():
        return compile_task(build_objective(config))


def weights(objective) -> list[np.ndarray]:
    return [variable.numpy() for variable in objective.trainable_variables]


def largest_difference(first: list[np.ndarray], second: list[np.ndarray]) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(first, second, strict=True))


def as_floats(metrics) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_two_replicas_with_unequal_token_counts_train_like_one(
    tiny_config, tiny_batch, two_replicas, run_on_replicas, optimizer, dropout
):
    config = tiny_config(
        encoder={"hidden_dropout": dropout, "attention_dropout": dropout, "initializer_range": 0.2},
        optimizer={"name": optimizer, "learning_rate": 1e-3},
        train={"num_steps": 20},
    )
    single, double = build(config), build(config, two_replicas)
    one_step, two_step = tf.function(single.train_step), tf.function(double.train_step)
    start = weights(single)
    for step in range(10):
        batch = tiny_batch(config, UNEQUAL_LENGTHS if step % 2 else [7, 10, 6, 5], seed=step)
        one, two = as_floats(one_step(batch)), as_floats(run_on_replicas(two_replicas, two_step, batch))
        assert one["gradient_norm"] > config.optimizer.clip_norm
        assert two == pytest.approx(one, rel=1e-5), step
    assert largest_difference(start, weights(single)) > 5e-3
    assert largest_difference(weights(single), weights(double)) < 1e-5


def test_gradients_are_clipped_once_by_the_norm_of_their_sum(tiny_config, tiny_batch):
    """At rate zero an update only fills the moments: the first is a tenth of the clipped gradient."""
    config = tiny_config(encoder=QUIET, optimizer={"warmup_steps": 3})
    objective = build(config)
    metrics = as_floats(objective.train_step(tiny_batch(config, [10, 7, 5, 8])))
    assert metrics["learning_rate"] == 0.0
    assert metrics["gradient_norm"] > 1.5
    moments = [10 * moment.numpy() for moment in objective.optimizer._first_moments]
    assert math.sqrt(sum(float((moment.astype(np.float64) ** 2).sum()) for moment in moments)) == pytest.approx(
        1, rel=1e-5
    )


def test_small_gradients_are_left_as_they_are(tiny_config, tiny_batch):
    config = tiny_config(encoder=QUIET, optimizer={"warmup_steps": 3, "clip_norm": 1e6})
    objective = build(config)
    norm = float(objective.train_step(tiny_batch(config, [10, 7, 5, 8]))["gradient_norm"])
    moments = [10 * moment.numpy() for moment in objective.optimizer._first_moments]
    assert math.sqrt(sum(float((moment.astype(np.float64) ** 2).sum()) for moment in moments)) == pytest.approx(
        norm, rel=1e-5
    )


def test_the_loss_is_the_weighted_sum_of_its_terms(tiny_config, tiny_batch):
    config = tiny_config(objective={"masked_lm_loss_weight": 2.0, "replaced_token_loss_weight": 30.0})
    metrics = as_floats(build(config).train_step(tiny_batch(config, [10, 7, 5, 8])))
    assert metrics["loss"] == pytest.approx(2 * metrics["masked_lm"] + 30 * metrics["replaced_token"], rel=1e-6)


def test_a_batch_with_nothing_in_it_changes_nothing_but_by_decay(tiny_config, tiny_batch):
    config = tiny_config(optimizer={"weight_decay_rate": 0.0})
    objective = build(config)
    before = weights(objective)
    metrics = as_floats(objective.train_step(tiny_batch(config, [0, 0, 0, 0])))
    assert metrics["loss"] == metrics["gradient_norm"] == 0.0
    assert largest_difference(before, weights(objective)) == 0.0


def test_fit_trains_exactly_like_calling_the_step(tiny_config, tmp_path, write_data):
    config = tiny_config()
    data = open_data(write_data(tmp_path / "set"), config)
    settings = {"seed": 0, "batch_size": 4, "first_step": 0}
    batches = training_batches(data.train, config.masking, data.masking_vocabulary, **settings).take(4)
    fitted, stepped = build(config), build(config)
    history = fitted.fit(batches, epochs=1, verbose=0).history
    step = tf.function(stepped.train_step)
    metrics = [as_floats(step(batch)) for batch in batches]
    assert largest_difference(weights(fitted), weights(stepped)) == 0.0
    assert int(fitted.optimizer.iterations) == 4
    assert history["learning_rate"] == [metrics[-1]["learning_rate"]]


def test_dropout_and_samples_of_a_step_follow_the_step(tiny_config, tiny_batch):
    config = tiny_config(optimizer={"learning_rate": 1e-12})
    objective = build(config)
    batch = tiny_batch(config, [10, 7, 5, 8])
    losses = [float(objective.train_step(batch)["masked_lm"]) for _ in range(3)]
    assert len(set(losses)) == 3
    assert float(build(config).train_step(batch)["masked_lm"]) == losses[0]


@pytest.mark.parametrize(
    ("name", "xla"),
    [
        ("electra", False),
        ("electra", True),
        ("bert_mlm", False),
        ("bert_mlm", True),
        ("electra_15", False),
        ("replace_mlm", False),
        ("all_tokens_mlm", False),
        ("all_tokens_mlm", True),
    ],
)
def test_micro_batches_of_unequal_token_counts_train_like_one_batch(tiny_config, tiny_batch, name, xla):
    """Six examples at once, and three times two; the counts of masked tokens are 3+3, 1+2 and 0+2."""
    objective = {"objective": {"name": name}} if name != "electra" else {}
    settings = {**objective, "encoder": {"initializer_range": 0.2}, "optimizer": {"learning_rate": 1e-3}}
    whole = build(tiny_config(**settings, train={"batch_size": 6}))
    train = {"batch_size": 6, "gradient_accumulation_steps": 3, "xla": xla}
    parts = build(tiny_config(**settings, train=train))
    whole_step, parts_step = tf.function(whole.train_step), tf.function(parts.train_step)
    for step in range(3):
        batch = tiny_batch(whole.config, [10, 9, 5, 8, 0, 6], seed=step)
        one = as_floats(whole_step(batch))
        assert one["gradient_norm"] > whole.config.optimizer.clip_norm
        assert as_floats(parts_step(batch)) == pytest.approx(one, rel=1e-5)
    assert largest_difference(weights(whole), weights(parts)) < 1e-5


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_micro_batches_on_two_replicas_train_like_one_batch(
    tiny_config, tiny_batch, two_replicas, run_on_replicas, optimizer, xla
):
    settings = {"encoder": {"initializer_range": 0.2}, "optimizer": {"name": optimizer, "learning_rate": 1e-3}}
    whole = build(tiny_config(**settings))
    parts = build(tiny_config(**settings, train={"gradient_accumulation_steps": 2, "xla": xla}), two_replicas)
    batch = tiny_batch(whole.config, UNEQUAL_LENGTHS)
    one = as_floats(whole.train_step(batch))
    assert as_floats(run_on_replicas(two_replicas, tf.function(parts.train_step), batch)) == pytest.approx(
        one, rel=1e-5
    )
    assert largest_difference(weights(whole), weights(parts)) < 1e-5


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_layers_that_are_computed_again_give_the_same_step(tiny_config, tiny_batch, precision):
    settings = {"encoder": {"num_layers": 3, "initializer_range": 0.2}, "optimizer": {"learning_rate": 1e-3}}
    kept = build(tiny_config(**settings, train={"precision": precision}))
    again = build(tiny_config(**settings, train={"precision": precision, "rematerialize": True}))
    batch = tiny_batch(kept.config, [10, 7, 5, 8])
    first, second = tf.function(kept.train_step), tf.function(again.train_step)
    for _ in range(2):
        assert as_floats(second(batch)) == pytest.approx(as_floats(first(batch)), rel=1e-6)
    assert largest_difference(weights(kept), weights(again)) < 1e-6


@pytest.mark.parametrize("policy", ["stop", "skip"])
@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_a_step_that_is_not_finite_leaves_weights_and_moments_alone(tiny_config, tiny_batch, policy, optimizer):
    """A table of infinities makes every score infinite; put right again, the run goes on as if nothing had been."""
    settings = {"optimizer": {"name": optimizer, "learning_rate": 1e-3}, "train": {"on_nonfinite": policy}}
    objective = build(tiny_config(**settings))
    step, batch = tf.function(objective.train_step), tiny_batch(objective.config, [10, 7, 5, 8])
    step(batch)
    table = objective.discriminator.embeddings.word_embeddings
    sound = table.numpy()
    table.assign(np.full_like(sound, np.inf))
    moments = objective.optimizer.variables
    moments = [variable for variable in (moments() if callable(moments) else moments) if variable.shape.rank]
    before = [variable.numpy() for variable in [*objective.variables, *moments]]
    assert any(values.any() for values in before[-len(moments) :])
    assert as_floats(step(batch))["nonfinite"] == 1.0
    state = [variable.numpy() for variable in [*objective.variables, *moments]]
    assert all(np.array_equal(old, new) for old, new in zip(before, state, strict=True))
    assert int(objective.optimizer.iterations) == (1 if policy == "stop" else 2)
    table.assign(sound)
    assert as_floats(step(batch))["nonfinite"] == 0.0


@pytest.mark.parametrize("sampling", ["greedy", "categorical", "gumbel"])
def test_xla_computes_the_same_steps(tiny_config, tiny_batch, sampling):
    dropout = QUIET if sampling == "greedy" else {}
    settings = {"encoder": dropout, "objective": {"sampling": sampling}, "optimizer": {"learning_rate": 1e-3}}
    plain = build(tiny_config(**settings))
    compiled = build(tiny_config(**settings, train={"xla": True}))
    plain_step, compiled_step = tf.function(plain.train_step), tf.function(compiled.train_step)
    for step in range(3):
        batch = tiny_batch(tiny_config(), [10, 7, 5, 8], seed=step)
        # Another order of the same sums, in networks of one layer.
        assert as_floats(compiled_step(batch)) == pytest.approx(as_floats(plain_step(batch)), rel=1e-5)
    assert largest_difference(weights(plain), weights(compiled)) < 1e-5


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_the_whole_step_compiles_under_xla(tiny_config, tiny_batch, optimizer):
    config = tiny_config(optimizer={"name": optimizer, "learning_rate": 1e-3})
    plain, compiled = build(config), build(config)
    batch = tiny_batch(config, [10, 7, 5, 8])
    found = as_floats(tf.function(compiled.train_step, jit_compile=True)(batch))
    assert found == pytest.approx(as_floats(plain.train_step(batch)), rel=1e-5)
    assert int(compiled.optimizer.iterations) == 1
