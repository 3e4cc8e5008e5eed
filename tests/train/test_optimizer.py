"""The learning-rate schedule, Adam without bias correction, and LAMB."""

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import OptimizerConfig
from electra_tf.tasks.pretrain import build_objective
from electra_tf.train.optimizer import build_optimizer, require_matches
from electra_tf.train.schedule import learning_rate_at, missed_peak
from electra_tf.train.step import compile_task
from electra_tf.weights.names import named_variables

LAMB_RECORD = Path(__file__).resolve().parents[1] / "fixtures" / "lamb.npz"


def variable_of(value, path: str) -> keras.Variable:
    *scopes, name = path.split("/")
    with contextlib.ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(keras.name_scope(scope))
        return keras.Variable(value, dtype="float32", name=name)


def take_step(optimizer, gradients: list[tf.Tensor], variables: list[tf.Variable]) -> None:
    optimizer.build(variables)
    optimizer.apply(gradients, variables, clip_scale=tf.constant(1.0), apply_update=tf.constant(True))
    optimizer.iterations.assign_add(1)


def schedule_of(*part_steps: int, **settings) -> Callable[[tf.Tensor], tf.Tensor]:
    config = OptimizerConfig(**{"learning_rate": 1.0, "warmup_steps": 0} | settings)
    return functools.partial(learning_rate_at, config, part_steps)


# Warm-up ends at 10,000 of 1,000,000 steps, with 5e-4 * 0.99. After half of it: 5e-4 * 0.5 * 0.995.
@pytest.mark.parametrize(
    ("step", "rate"),
    [(0, 0.0), (1, 5e-8 * 0.999999), (5000, 2.4875e-4), (10_000, 4.95e-4), (1_000_000, 0.0), (1_400_000, 0.0)],
)
def test_warmup_and_decay_multiply(step, rate):
    schedule = schedule_of(1_000_000, learning_rate=5e-4, warmup_steps=10_000)
    assert float(schedule(tf.constant(step, tf.int64))) == pytest.approx(rate, rel=1e-6, abs=1e-15)


# A quarter of the steps is left, or all of them.
@pytest.mark.parametrize(("step", "power", "rate"), [(75, 0.0, 1.0), (75, 0.5, 0.5), (75, 2.0, 0.0625), (0, 1.0, 1.0)])
def test_decay_is_a_power_of_the_remaining_fraction(step, power, rate):
    assert float(schedule_of(100, decay_power=power)(tf.constant(step))) == pytest.approx(rate, rel=1e-6)


# Parts of 4 and 10 steps, 2 of warm-up in each: the second starts after step 3.
@pytest.mark.parametrize(
    ("step", "rate"), [(0, 0.0), (1, 0.5 * 0.75), (3, 0.25), (4, 0.0), (5, 0.5 * 0.9), (9, 0.5), (13, 0.1), (14, 0.0)]
)
def test_each_part_of_a_schedule_has_its_own_warmup_and_decay(step, rate):
    schedule = schedule_of(4, 10, warmup_steps=2)
    assert float(schedule(tf.constant(step, tf.int64))) == pytest.approx(rate, rel=1e-6, abs=1e-9)


# 10 steps of warm-up; x is the share of the other 40. cos(pi / 4) = sqrt(1 / 2).
@pytest.mark.parametrize(
    ("step", "rate"), [(0, 0.0), (5, 0.5), (10, 1.0), (20, 0.5 + 0.5 * 0.5**0.5), (30, 0.5), (50, 0.0), (60, 0.0)]
)
def test_a_cosine_begins_after_the_warmup(step, rate):
    schedule = schedule_of(50, warmup_steps=10, schedule="cosine")
    assert float(schedule(tf.constant(step, tf.int64))) == pytest.approx(rate, rel=1e-6, abs=1e-7)


# 10 steps of warm-up; the last 20 of 80 steps decay.
@pytest.mark.parametrize(
    ("step", "one_minus_sqrt", "linear"),
    [(0, 0.0, 0.0), (5, 0.5, 0.5), (10, 1.0, 1.0), (60, 1.0, 1.0), (65, 0.5, 0.75), (79, 1 - 0.95**0.5, 0.05)]
    + [(80, 0.0, 0.0), (90, 0.0, 0.0)],
)
def test_a_stable_rate_decays_in_the_last_steps(step, one_minus_sqrt, linear):
    for shape, rate in {"one_minus_sqrt": one_minus_sqrt, "linear": linear}.items():
        options = {"schedule": "warmup_stable_decay", "decay_fraction": 0.25, "decay_shape": shape}
        schedule = schedule_of(80, warmup_steps=10, **options)
        assert float(schedule(tf.constant(step, tf.int64))) == pytest.approx(rate, rel=1e-5, abs=1e-7)


def test_without_a_decay_the_rate_stays():
    schedule = schedule_of(80, schedule="warmup_stable_decay", decay_fraction=0.0)
    assert [float(schedule(tf.constant(step))) for step in (0, 79, 80)] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("schedule", "setting", "message"),
    [
        ("cosine", {"decay_power": 2.0}, "decay_power 2.0 is of the schedule linear, not of cosine"),
        ("linear", {"decay_fraction": 0.5}, "decay_fraction 0.5 is of the schedule warmup_stable_decay, not of linear"),
        ("cosine", {"decay_shape": "linear"}, "decay_shape linear is of the schedule warmup_stable_decay"),
    ],
)
def test_a_setting_of_another_schedule_is_refused(schedule, setting, message):
    with pytest.raises(ValueError, match=message):
        OptimizerConfig(learning_rate=1.0, schedule=schedule, **setting)


def test_a_cosine_is_0_only_after_its_last_step():
    schedule = schedule_of(1_000_000, schedule="cosine")
    # sin(pi / 2 / 10^6) ** 2; in float32 the cosine of this step is -1.
    assert float(schedule(tf.constant(999_999, tf.int64))) == pytest.approx(2.467e-12, rel=0.1)


def test_a_warmup_that_is_longer_than_a_cosine_still_trains():
    schedule = schedule_of(6, warmup_steps=40, schedule="cosine")
    assert [float(schedule(tf.constant(step, tf.int64))) for step in (1, 5)] == pytest.approx([1 / 40, 5 / 40])


def test_a_multiplier_that_matches_no_variable_is_refused():
    config = OptimizerConfig(learning_rate=0.1, learning_rate_multipliers={"kernel": 0.5, "^generator/": 0.5})
    variables = [variable_of([1.0], name) for name in ("generator_network/kernel", "electra/bias")]
    message = r"'\^generator/' matches no variable; names begin with electra, generator_network"
    with pytest.raises(UserError, match=message):
        require_matches(config, variables)


def test_all_multipliers_that_match_a_name_scale_its_rate():
    names = ("generator/embeddings/word", "electra/embeddings/word", "electra/layer_0/kernel")
    variables = [variable_of([1.0], name) for name in names]
    multipliers = {"^generator/": 0.5, "embeddings": 0.25}
    config = OptimizerConfig(
        learning_rate=0.1, warmup_steps=0, weight_decay_rate=0.0, learning_rate_multipliers=multipliers
    )
    optimizer = build_optimizer(config, 10, learning_rate_multiplier=lambda variable: 2.0)
    take_step(optimizer, [tf.constant([1.0])] * 3, variables)
    changes = [1.0 - float(variable[0]) for variable in variables]
    assert changes[0] / changes[2] == pytest.approx(0.5 * 0.25, rel=1e-5)
    assert changes[1] / changes[2] == pytest.approx(0.25, rel=1e-5)


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_patterns_on_the_end_of_a_name_hold_for_every_replica(name, two_replicas):
    def changes(**settings) -> np.ndarray:
        """Of kernel and bias, by each replica: variable, replica, entry."""
        config = OptimizerConfig(name=name, learning_rate=0.1, warmup_steps=0, **settings)
        with two_replicas.scope():
            variables = [variable_of([1.0, 3.0], f"electra/{part}") for part in ("kernel", "bias")]
            optimizer = build_optimizer(config, 10)
            optimizer.build(variables)
        require_matches(config, variables)
        gradients = [tf.constant([0.5, -4.0])] * 2

        @tf.function
        def step():
            two_replicas.run(
                lambda: optimizer.apply(gradients, variables, tf.constant(1.0), apply_update=tf.constant(True))
            )

        step()
        return np.array([[copy.numpy() - [1.0, 3.0] for copy in variable.value.values] for variable in variables])

    both = changes(exclude_from_weight_decay=("/bias$",))
    slow = changes(exclude_from_weight_decay=("/bias$",), learning_rate_multipliers={"/kernel$": 0.25})
    undecayed = changes(exclude_from_weight_decay=("electra",))
    for change in (both, slow, undecayed):
        np.testing.assert_array_equal(change[:, 0], change[:, 1])
    np.testing.assert_allclose(slow[0], 0.25 * both[0], rtol=1e-5)
    np.testing.assert_array_equal(slow[1], both[1])
    np.testing.assert_array_equal(both[1], undecayed[1])
    assert not np.array_equal(both[0], undecayed[0])


def test_warmup_fraction_is_relative_to_each_part():
    optimizer = build_optimizer(OptimizerConfig(learning_rate=0.5, warmup_fraction=0.25), 40, 80)
    # 3 of 10 steps of warm-up, 37 of 40 left; then 20 of 40 left; 5 of 20 steps in the second part, 75 of 80 left.
    expected = {3: 0.5 * 0.3 * 37 / 40, 20: 0.5 * 20 / 40, 45: 0.5 * 0.25 * 75 / 80}
    for step, rate in expected.items():
        assert float(optimizer.schedule(tf.constant(step, tf.int64))) == pytest.approx(rate)


def test_a_warmup_as_long_as_a_part_gives_a_warning():
    config = OptimizerConfig(learning_rate=1.0, warmup_steps=10)
    assert missed_peak(config, [12, 11]) is None
    assert "the warm-up has 10 steps and the schedule 10" in missed_peak(config, [12, 10])
    assert missed_peak(config, [10]).endswith("lower optimizer.warmup_steps")
    fraction = OptimizerConfig(learning_rate=1.0, warmup_fraction=1.0)
    assert missed_peak(fraction, [10]).endswith("lower optimizer.warmup_fraction")


@pytest.mark.parametrize(
    ("warmup_steps", "decay_fraction", "num_steps", "stable_steps"),
    [(10, 0.5, 20, None), (10, 0.5, 18, 9), (1, 1.0, 20, 0), (0, 1.0, 20, None), (20, 0.0, 20, 20)],
)
def test_a_warmup_that_the_decay_interrupts_gives_a_warning(warmup_steps, decay_fraction, num_steps, stable_steps):
    decay = {"schedule": "warmup_stable_decay", "decay_fraction": decay_fraction}
    config = OptimizerConfig(learning_rate=1.0, warmup_steps=warmup_steps, **decay)
    warning = missed_peak(config, [num_steps])
    highest = max(
        float(learning_rate_at(config, [num_steps], tf.constant(step, tf.int64))) for step in range(num_steps)
    )
    if stable_steps is None:
        assert warning is None and highest == 1.0
    else:
        assert f"the warm-up has {warmup_steps} steps and the schedule" in warning and f" {stable_steps}:" in warning
        assert highest < 1.0


# The schedule either starts again after step 3, or continues with 6 of its 9 steps left.
@pytest.mark.parametrize(("parts", "rate_alone"), [((3, 6), 0.02), ((9,), 0.02 * 6 / 9)], ids=["again", "continued"])
@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_second_phase_updates_new_variables_like_a_separate_training(name, parts, rate_alone):
    settings = OptimizerConfig(name=name, learning_rate=0.02, warmup_steps=0)
    both = build_optimizer(settings, *parts, first_steps=[0, 3])
    alone = build_optimizer(settings.model_copy(update={"learning_rate": rate_alone}), 6)
    first, second = variable_of([[1.0, 2.0]], "first"), variable_of([[0.5, -2.0]], "second")
    expected = variable_of([[0.5, -2.0]], "second")
    both.build([first, second])
    for step in range(3):
        take_step(both, [tf.constant([[0.1 * step, 1.0]])], [first])
    for step in range(2):
        gradients = [tf.constant([[0.3, -0.1 * step]])]
        take_step(both, gradients, [second])
        take_step(alone, gradients, [expected])
    assert second.numpy() == pytest.approx(expected.numpy(), rel=1e-6)
    assert abs(second.numpy() - [[0.5, -2.0]]).min() > 1e-3


SHAPES = {"dense/kernel": (4, 3), "dense/bias": (3,), "LayerNorm/gamma": (5,), "word_embeddings": (7, 2)}
DECAYED = {"dense/kernel", "word_embeddings"}


def random_arrays(seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def reference_adam(num_steps: int) -> dict[str, np.ndarray]:
    """In double precision: m / (sqrt(v) + 1e-6), no bias correction, decay 0.01, rate 0.02 warming up over 5 of 40."""
    weights = {name: value.astype(np.float64) for name, value in random_arrays(0).items()}
    m, v = ({name: np.zeros(shape) for name, shape in SHAPES.items()} for _ in range(2))
    for step in range(num_steps):
        rate = 0.02 * min(1, step / 5) * (1 - step / 40)
        for name, gradient in random_arrays(100 + step).items():
            m[name] = 0.9 * m[name] + 0.1 * gradient
            v[name] = 0.999 * v[name] + 0.001 * gradient.astype(np.float64) ** 2
            decay = 0.01 * weights[name] if name in DECAYED else 0.0
            weights[name] = weights[name] - rate * (m[name] / (np.sqrt(v[name]) + 1e-6) + decay)
    return weights


def test_twenty_adam_steps_match_the_formula():
    variables = {name: variable_of(value, name) for name, value in random_arrays(0).items()}
    optimizer = build_optimizer(OptimizerConfig(learning_rate=0.02, warmup_steps=5), 40)
    for step in range(20):
        gradients = random_arrays(100 + step)
        take_step(optimizer, [tf.constant(gradients[name]) for name in variables], list(variables.values()))
    assert int(optimizer.iterations) == 20
    for name, expected in reference_adam(20).items():
        # Each update of at most 0.02 * 3.2 is rounded to 2^-24 of it, and each weight of up to 4 likewise.
        assert np.abs(variables[name].numpy() - expected).max() < 20 * 2 * 4 * 2**-24, name


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_multiplier_scales_the_learning_rate_of_one_variable(name):
    settings = OptimizerConfig(name=name, learning_rate=0.5, warmup_steps=0)
    steps = {}
    for rate in (1.0, 0.25):
        low, high = variable_of([1.0, 2.0], "low/kernel"), variable_of([1.0, 2.0], "high/kernel")
        multiplier = lambda variable, rate=rate: rate if "low" in variable.path else 1.0  # noqa: E731
        optimizer = build_optimizer(settings, 40, learning_rate_multiplier=multiplier)
        take_step(optimizer, [tf.constant([0.5, -4.0])] * 2, [low, high])
        steps[rate] = low.numpy() - [1.0, 2.0], high.numpy() - [1.0, 2.0]
    assert steps[0.25][0] == pytest.approx(0.25 * steps[1.0][0], rel=1e-5)
    assert np.array_equal(steps[0.25][1], steps[1.0][1])
    assert abs(steps[1.0][0]).min() > 0.1


@pytest.mark.parametrize("strategy", ["one_device", "mirrored"])
def test_all_variables_but_layer_norms_and_biases_decay(tiny_config, two_replicas, strategy):
    chosen = two_replicas if strategy == "mirrored" else tf.distribute.get_strategy()
    with chosen.scope():
        objective = compile_task(build_objective(tiny_config()))
    for name, variable in named_variables(objective).items():
        excluded = "LayerNorm" in name or name.endswith("bias")
        assert objective.optimizer.decays(variable) != excluded, name


def test_lamb_equals_tensorflow_addons_bit_for_bit():
    with np.load(LAMB_RECORD, allow_pickle=False) as archive:
        record = {name: archive[name] for name in archive.files}

    names = [name.removeprefix("init|") for name in record if name.startswith("init|")]
    assert len(names) == 6
    variables = [variable_of(record[f"init|{name}"], name) for name in names]
    optimizer = build_optimizer(OptimizerConfig(name="lamb", learning_rate=1.0), 40)
    optimizer.schedule = lambda step: tf.gather(tf.constant(record["lrs"], tf.float32), tf.cast(step, tf.int32))
    for step in range(40):
        take_step(optimizer, [tf.constant(record[f"grads|{name}"][step]) for name in names], variables)
        for name, variable in zip(names, variables, strict=True):
            assert np.array_equal(variable.numpy(), record[f"after|{name}"][step]), (name, step)
