from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from electra_tf.config.schema import OptimizerConfig
from electra_tf.tasks.pretrain import build_objective
from electra_tf.train import optimizer as optimizers
from electra_tf.train.optimizer import build_optimizer
from electra_tf.train.schedule import WarmupTimesDecay, missed_peak
from electra_tf.train.step import compile_task
from electra_tf.weights.names import named_variables


def take_step(optimizer, gradients: list[tf.Tensor], variables: list[tf.Variable]) -> None:
    optimizer.build(variables)
    optimizer.apply(gradients, variables, factor=tf.constant(1.0), wanted=tf.constant(True))
    optimizer.iterations.assign_add(1)


LAMB_RECORD = Path(__file__).resolve().parents[1] / "fixtures" / "lamb.npz"


# At 10,000 of 1,000,000 steps warm-up ends: 5e-4 * 0.99. Half-way through it: 5e-4 * 0.5 * 0.995.
@pytest.mark.parametrize(
    ("step", "rate"), [(0, 0.0), (1, 4.99999995e-8 * 0.999999), (5000, 2.4875e-4), (10_000, 4.95e-4), (1_000_000, 0.0)]
)
def test_the_learning_rate_warms_up_and_decays_at_once(step, rate):
    schedule = WarmupTimesDecay(5e-4, [10_000], [1_000_000], 1.0)
    assert float(schedule(tf.constant(step, tf.int64))) == pytest.approx(rate, rel=1e-6, abs=1e-15)


def test_without_warm_up_the_first_rate_is_the_full_one():
    assert float(WarmupTimesDecay(0.5, [0], [10], 1.0)(tf.constant(0))) == 0.5


@pytest.mark.parametrize(("power", "rate"), [(0.0, 1.0), (0.5, 0.5), (2.0, 0.0625)])
def test_the_decay_is_a_power_of_what_remains(power, rate):
    assert float(WarmupTimesDecay(1.0, [0], [100], power)(tf.constant(75))) == pytest.approx(rate, rel=1e-6)


def test_after_the_last_step_the_rate_stays_zero():
    assert float(WarmupTimesDecay(1.0, [0], [100], 1.0)(tf.constant(140))) == 0.0


# Parts of 4 and 10 steps, 2 of warm-up in each: the second begins anew after step 3.
@pytest.mark.parametrize(
    ("step", "rate"), [(0, 0.0), (1, 0.5 * 0.75), (3, 0.25), (4, 0.0), (5, 0.5 * 0.9), (9, 0.5), (13, 0.1), (14, 0.0)]
)
def test_the_rate_begins_anew_with_each_part_of_a_training(step, rate):
    schedule = WarmupTimesDecay(1.0, [2, 2], [4, 10], 1.0)
    assert float(schedule(tf.constant(step, tf.int64))) == pytest.approx(rate, rel=1e-6, abs=1e-9)


# The rate begins anew after step 3; or goes on with 6 of its 9 steps left, where one of 0.02 * 6 / 9 over 6 begins.
@pytest.mark.parametrize(("parts", "rate_alone"), [((3, 6), 0.02), ((9,), 0.02 * 6 / 9)], ids=["anew", "goes_on"])
@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_the_second_phase_of_a_training_updates_its_variables_as_a_training_of_its_own(name, parts, rate_alone):
    settings = OptimizerConfig(name=name, learning_rate=0.02, warmup_steps=0)
    both = build_optimizer(settings, *parts, first_steps=[0, 3])
    alone = build_optimizer(settings.model_copy(update={"learning_rate": rate_alone}), 6)
    first, second = tf.Variable([[1.0, 2.0]], name="first"), tf.Variable([[0.5, -2.0]], name="second")
    expected = tf.Variable(second)
    both.build([first, second])
    for step in range(3):
        take_step(both, [tf.constant([[0.1 * step, 1.0]])], [first])
    for step in range(2):
        gradients = [tf.constant([[0.3, -0.1 * step]])]
        take_step(both, gradients, [second])
        take_step(alone, gradients, [expected])
    assert second.numpy() == pytest.approx(expected.numpy(), rel=1e-6)
    assert abs(second.numpy() - [[0.5, -2.0]]).min() > 1e-3


def test_a_warm_up_that_outlasts_a_part_of_the_training_is_worth_a_warning():
    assert missed_peak([9, 9], [12, 10]) is None
    assert "the warm-up has 10 steps and the schedule 10" in missed_peak([10, 10], [12, 10])


def test_a_warm_up_may_be_a_share_of_the_steps_of_each_part():
    rates = build_optimizer(OptimizerConfig(learning_rate=0.5, warmup_fraction=0.25), 40, 80)
    # 3 of 10 steps of warm-up, 37 of 40 left; then 20 of 40 left; 5 of 20 steps in the second part, 75 of 80 left.
    expected = {3: 0.5 * 0.3 * 37 / 40, 20: 0.5 * 20 / 40, 45: 0.5 * 0.25 * 75 / 80}
    for step, rate in expected.items():
        assert float(rates.schedule(tf.constant(step, tf.int64))) == pytest.approx(rate)


SETTINGS = OptimizerConfig(learning_rate=0.02, warmup_steps=5)
SHAPES = {"dense/kernel": (4, 3), "dense/bias": (3,), "LayerNorm/gamma": (5,), "word_embeddings": (7, 2)}
DECAYED = {"dense/kernel", "word_embeddings"}


def start() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def gradients(step: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(100 + step)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def reference_adam(num_steps: int) -> dict[str, np.ndarray]:
    """In double precision: m / (sqrt(v) + 1e-6), no bias correction, decay 0.01, rate 0.02 warming up over 5 of 40."""
    weights = {name: value.astype(np.float64) for name, value in start().items()}
    m, v = ({name: np.zeros(shape) for name, shape in SHAPES.items()} for _ in range(2))
    for step in range(num_steps):
        rate = 0.02 * min(1, step / 5) * (1 - step / 40)
        for name, gradient in gradients(step).items():
            m[name] = 0.9 * m[name] + 0.1 * gradient
            v[name] = 0.999 * v[name] + 0.001 * gradient.astype(np.float64) ** 2
            decay = 0.01 * weights[name] if name in DECAYED else 0.0
            weights[name] = weights[name] - rate * (m[name] / (np.sqrt(v[name]) + 1e-6) + decay)
    return weights


def test_twenty_steps_of_adam_without_bias_correction():
    variables = {name: tf.Variable(value, name=name) for name, value in start().items()}
    optimizer = build_optimizer(SETTINGS, 40)
    for step in range(20):
        found = gradients(step)
        take_step(optimizer, [tf.constant(found[name]) for name in variables], list(variables.values()))
    assert int(optimizer.iterations) == 20
    for name, expected in reference_adam(20).items():
        # Twenty updates of at most 0.02 * 3.2 / 2^24 rounding each, and as many roundings of weights of up to 4.
        assert np.abs(variables[name].numpy() - expected).max() < 20 * 2 * 4 * 2**-24, name


def test_the_reference_itself_moves_the_weights_and_decays_them():
    moved = reference_adam(20)
    assert all(np.abs(moved[name] - start()[name]).max() > 0.05 for name in SHAPES)


def test_a_step_at_rate_zero_fills_the_moments_and_leaves_the_weights():
    variable = tf.Variable([1.0, 2.0], name="kernel")
    optimizer = build_optimizer(SETTINGS, 40)
    take_step(optimizer, [tf.constant([0.5, -4.0])], [variable])
    assert variable.numpy().tolist() == [1.0, 2.0]
    first, second = (moment.numpy() for moment in optimizer.variables if moment.shape == [2])
    assert first == pytest.approx([0.05, -0.4])
    # The kernel takes 1 - beta_2 in float32.
    share = 1 - float(np.float32(0.999))
    assert second == pytest.approx([0.25 * share, 16 * share])


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_an_unwanted_step_changes_nothing_even_where_the_gradient_is_not_finite(name):
    variable = tf.Variable([1.0, 2.0], name="kernel")
    optimizer = build_optimizer(OptimizerConfig(name=name, learning_rate=0.5, warmup_steps=0), 40)
    take_step(optimizer, [tf.constant([0.5, -4.0])], [variable])
    state = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    before = [value.numpy() for value in (variable, *state)]
    bad = [tf.constant([float("nan"), float("inf")])]
    optimizer.apply(bad, [variable], factor=tf.constant(float("nan")), wanted=tf.constant(False))
    assert all(np.array_equal(old, value.numpy()) for old, value in zip(before, (variable, *state), strict=True))


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_a_multiplier_scales_the_learning_rate_of_its_variable_alone(name):
    settings = OptimizerConfig(name=name, learning_rate=0.5, warmup_steps=0)
    steps = {}
    for rate in (1.0, 0.25):
        low, high = tf.Variable([1.0, 2.0], name="low/kernel"), tf.Variable([1.0, 2.0], name="high/kernel")
        multiplier = lambda variable, rate=rate: rate if "low" in variable.name else 1.0  # noqa: E731
        optimizer = build_optimizer(settings, 40, learning_rate_multiplier=multiplier)
        take_step(optimizer, [tf.constant([0.5, -4.0])] * 2, [low, high])
        steps[rate] = low.numpy() - [1.0, 2.0], high.numpy() - [1.0, 2.0]
    assert steps[0.25][0] == pytest.approx(0.25 * steps[1.0][0], rel=1e-5)
    assert np.array_equal(steps[0.25][1], steps[1.0][1])
    assert abs(steps[1.0][0]).min() > 0.1


@pytest.mark.parametrize("strategy", ["one_device", "mirrored"])
def test_layer_norms_and_biases_are_not_decayed_and_everything_else_is(tiny_config, two_replicas, strategy):
    chosen = two_replicas if strategy == "mirrored" else tf.distribute.get_strategy()
    with chosen.scope():
        objective = compile_task(build_objective(tiny_config()))
    for name, variable in named_variables(objective).items():
        excluded = "LayerNorm" in name or name.endswith("bias")
        assert objective.optimizer.decays(variable) != excluded, name


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_the_moments_exist_before_the_first_step(name):
    optimizer = build_optimizer(OptimizerConfig(name=name, learning_rate=0.1), 5)
    variables = [tf.Variable(tf.zeros([3, 2])), tf.Variable(tf.zeros([5]))]
    optimizer.build(variables)
    all_variables = optimizer.variables() if name == "lamb" else optimizer.variables
    shapes = sorted(tuple(variable.shape) for variable in all_variables if variable.shape.rank)
    assert shapes == [(3, 2), (3, 2), (5,), (5,)]
    assert int(optimizer.iterations) == 0


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_the_rate_of_a_step_is_that_of_the_schedule(name):
    settings = OptimizerConfig(name=name, learning_rate=0.1, warmup_steps=4)
    optimizer = build_optimizer(settings, 10)
    assert float(optimizer.schedule(tf.constant(2, tf.int64))) == pytest.approx(0.1 * 0.5 * 0.8)


def test_lamb_repeats_tensorflow_addons_bit_for_bit(monkeypatch):
    with np.load(LAMB_RECORD, allow_pickle=False) as archive:
        record = {name: archive[name] for name in archive.files}

    class RecordedRates(tf_keras.optimizers.schedules.LearningRateSchedule):
        def __init__(self, *_):
            self.rates = tf.constant(record["lrs"], tf.float32)

        def __call__(self, step):
            return tf.gather(self.rates, tf.cast(step, tf.int32))

    monkeypatch.setattr(optimizers, "WarmupTimesDecay", RecordedRates)
    names = [name.removeprefix("init|") for name in record if name.startswith("init|")]
    assert len(names) == 6
    variables = [tf.Variable(record[f"init|{name}"], name=name) for name in names]
    optimizer = build_optimizer(OptimizerConfig(name="lamb", learning_rate=1.0), 40)
    for step in range(40):
        take_step(optimizer, [tf.constant(record[f"grads|{name}"][step]) for name in names], variables)
        for name, variable in zip(names, variables, strict=True):
            assert np.array_equal(variable.numpy(), record[f"after|{name}"][step]), (name, step)
