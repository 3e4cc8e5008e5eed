"""The learning-rate schedule, Adam without bias correction, and LAMB."""

import contextlib
import functools
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
from tests.toy import MODERN

LAMB_RECORD = Path(__file__).resolve().parents[1] / "fixtures" / "lamb.npz"


def variable_of(value, path: str) -> keras.Variable:
    *scopes, name = path.split("/")
    with contextlib.ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(keras.name_scope(scope))
        return keras.Variable(value, dtype="float32", name=name)


def take_step(optimizer, gradients: list[tf.Tensor], variables: list[tf.Variable]) -> None:
    optimizer.build(variables)
    optimizer.apply(gradients, variables, apply_update=tf.constant(True))
    optimizer.iterations.assign_add(1)


LONG, QUARTER = 1_000_000, {"schedule": "warmup_stable_decay", "decay_fraction": 0.25}
# Relative and absolute. A stable rate's decay subtracts two numbers close to 1 in float32.
EXACT, LINEAR, COSINE, STABLE = (0.0, 0.0), (1e-6, 1e-15), (1e-6, 1e-7), (1e-5, 1e-7)
# Settings, steps of each part, tolerance, the rate at some steps.
SCHEDULES = {
    # Warm-up ends at 10,000 of 1,000,000 steps, with 5e-4 * 0.99. After half of it: 5e-4 * 0.5 * 0.995.
    "warmup_and_decay_multiply": (
        {"learning_rate": 5e-4, "warmup_steps": 10_000},
        [LONG],
        LINEAR,
        {0: 0.0, 1: 5e-8 * 0.999999, 5000: 2.4875e-4, 10_000: 4.95e-4, LONG: 0.0, 1_400_000: 0.0},
    ),
    "a_constant": ({"decay_power": 0.0}, [100], LINEAR, {75: 1.0}),
    "a_root": ({"decay_power": 0.5}, [100], LINEAR, {0: 1.0, 75: 0.5}),
    "a_square": ({"decay_power": 2.0}, [100], LINEAR, {75: 0.0625}),
    # Parts of 4 and 10 steps, 2 of warm-up in each.
    "parts": (
        {"warmup_steps": 2},
        [4, 10],
        LINEAR,
        {0: 0.0, 1: 0.5 * 0.75, 3: 0.25, 4: 0.0, 5: 0.5 * 0.9, 9: 0.5, 13: 0.1, 14: 0.0},
    ),
    # 3 of 10 steps of warm-up, 37 of 40 left; then 20 of 40 left; 5 of 20 steps in the second part, 75 of 80 left.
    "warmup_of_a_fraction_of_each_part": (
        {"learning_rate": 0.5, "warmup_fraction": 0.25},
        [40, 80],
        LINEAR,
        {3: 0.5 * 0.3 * 37 / 40, 20: 0.5 * 20 / 40, 45: 0.5 * 0.25 * 75 / 80},
    ),
    # 10 steps of warm-up; x is the share of the other 40. cos(pi / 4) = sqrt(1 / 2).
    "a_cosine_after_the_warmup": (
        {"schedule": "cosine", "warmup_steps": 10},
        [50],
        COSINE,
        {0: 0.0, 5: 0.5, 10: 1.0, 20: 0.5 + 0.5 * 0.5**0.5, 30: 0.5, 50: 0.0, 60: 0.0},
    ),
    # sin(pi / 2 / 10^6) ** 2; in float32 the cosine of this step is -1.
    "the_last_step_of_a_cosine": ({"schedule": "cosine"}, [LONG], (0.1, 0.0), {999_999: 2.467e-12}),
    "a_warmup_longer_than_a_cosine": ({"schedule": "cosine", "warmup_steps": 40}, [6], LINEAR, {1: 1 / 40, 5: 5 / 40}),
    # 10 steps of warm-up; the last 20 of 80 steps decay.
    "one_minus_sqrt": (
        QUARTER | {"warmup_steps": 10, "decay_shape": "one_minus_sqrt"},
        [80],
        STABLE,
        {0: 0.0, 5: 0.5, 10: 1.0, 60: 1.0, 65: 0.5, 79: 1 - 0.95**0.5, 80: 0.0, 90: 0.0},
    ),
    "stable_and_linear": (
        QUARTER | {"warmup_steps": 10, "decay_shape": "linear"},
        [80],
        STABLE,
        {5: 0.5, 60: 1.0, 65: 0.75, 79: 0.05, 80: 0.0, 90: 0.0},
    ),
    "no_decay": (QUARTER | {"decay_fraction": 0.0}, [80], EXACT, {0: 1.0, 79: 1.0, 80: 1.0}),
}


@pytest.mark.parametrize(("settings", "parts", "tolerance", "rates"), SCHEDULES.values(), ids=SCHEDULES)
def test_the_learning_rate_at_each_step(settings, parts, tolerance, rates):
    config = OptimizerConfig(**{"learning_rate": 1.0, "warmup_steps": 0} | settings)
    found = {step: float(learning_rate_at(config, parts, tf.constant(step, tf.int64))) for step in rates}
    assert found == pytest.approx(rates, rel=tolerance[0], abs=tolerance[1])


@pytest.mark.parametrize(
    ("schedule", "setting"),
    [("cosine", {"decay_power": 2.0}), ("linear", {"decay_fraction": 0.5}), ("cosine", {"decay_shape": "linear"})],
)
def test_a_setting_of_another_schedule_is_refused(schedule, setting):
    (name,) = setting
    with pytest.raises(ValueError, match=f"{name} .* not of {schedule}"):
        OptimizerConfig(learning_rate=1.0, schedule=schedule, **setting)


def test_a_multiplier_that_matches_no_variable_is_refused():
    config = OptimizerConfig(learning_rate=0.1, learning_rate_multipliers={"kernel": 0.5, "^generator/": 0.5})
    variables = [variable_of([1.0], name) for name in ("generator_network/kernel", "electra/bias")]
    with pytest.raises(UserError, match=r"'\^generator/' .* electra, generator_network"):
        require_matches(config, variables)


def test_all_multipliers_that_match_a_name_scale_its_rate():
    names = ("generator/embeddings/word", "electra/embeddings/word", "electra/layer_0/kernel")
    variables = [variable_of([1.0], name) for name in names]
    multipliers = {"^generator/": 0.5, "embeddings": 0.25}
    config = OptimizerConfig(
        learning_rate=0.1, warmup_steps=0, weight_decay_rate=0.0, learning_rate_multipliers=multipliers
    )
    of_task = lambda variable: 2.0 if "electra" in variable.path else 1.0  # noqa: E731
    take_step(build_optimizer(config, 10, learning_rate_multiplier=of_task), [tf.constant([1.0])] * 3, variables)
    changes = [1.0 - float(variable[0]) for variable in variables]
    assert changes[0] / changes[2] == pytest.approx(0.5 * 0.25 / 2.0, rel=1e-5)
    assert changes[1] / changes[2] == pytest.approx(0.25, rel=1e-5)


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_patterns_on_the_end_of_a_name_hold_for_every_replica(name, two_replicas):
    gradients = [tf.constant([0.5, -4.0])] * 2

    def changes(**settings) -> np.ndarray:
        """Of kernel and bias, by each replica: variable, replica, entry."""
        config = OptimizerConfig(name=name, learning_rate=0.1, warmup_steps=0, **settings)
        with two_replicas.scope():
            variables = [variable_of([1.0, 3.0], f"electra/{part}") for part in ("kernel", "bias")]
            optimizer = build_optimizer(config, 10)
            optimizer.build(variables)
        require_matches(config, variables)
        step = functools.partial(optimizer.apply, gradients, variables, tf.constant(True))
        tf.function(lambda: two_replicas.run(step), autograph=False)()
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


# The warm-up, share of the decay (None: linear), steps of each part, what the warning names.
@pytest.mark.parametrize(
    ("warmup", "decay_fraction", "parts", "named"),
    [
        ({"warmup_steps": 10}, None, [12, 11], None),
        ({"warmup_steps": 10}, None, [12, 10], "10 steps and the schedule 10:"),
        ({"warmup_steps": 10}, 0.5, [20], None),
        ({"warmup_steps": 10}, 0.5, [18], "10 steps and the schedule before its decay 9:"),
        ({"warmup_steps": 1}, 1.0, [20], "1 steps and the schedule before its decay 0:"),
        ({"warmup_steps": 0}, 1.0, [20], None),
        ({"warmup_fraction": 1.0}, 0.0, [20], "20 steps and the schedule 20:"),
    ],
)
def test_a_warmup_that_the_decay_or_the_end_interrupts_gives_a_warning(warmup, decay_fraction, parts, named):
    decay = {} if decay_fraction is None else QUARTER | {"decay_fraction": decay_fraction}
    config, (setting,) = OptimizerConfig(learning_rate=1.0, **warmup, **decay), warmup
    warning = missed_peak(config, parts)
    assert warning is None if named is None else named in warning and warning.endswith(f"lower optimizer.{setting}")
    if decay:
        rates = [float(learning_rate_at(config, parts, tf.constant(step, tf.int64))) for step in range(parts[0])]
        assert (max(rates) == 1.0) == (named is None)


# The schedule either starts again after step 3, or continues with 6 of its 9 steps left.
@pytest.mark.parametrize(
    ("name", "parts", "rate_alone"), [("adamw", (3, 6), 0.02), ("lamb", (9,), 0.02 * 6 / 9)], ids=["again", "continued"]
)
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


def test_twenty_adam_steps_match_the_formula():
    """m / (sqrt(v) + 1e-6) in double precision, no bias correction, decay 0.01, rate 0.02 after 5 of 40 steps."""
    draw = np.random.default_rng(0)
    variables = {name: variable_of(draw.normal(size=shape), name) for name, shape in SHAPES.items()}
    weights = {name: variable.numpy().astype(np.float64) for name, variable in variables.items()}
    m, v = ({name: np.zeros(shape) for name, shape in SHAPES.items()} for _ in range(2))
    optimizer = build_optimizer(OptimizerConfig(learning_rate=0.02, warmup_steps=5), 40)
    for step in range(20):
        gradients = {name: draw.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
        take_step(optimizer, [tf.constant(each) for each in gradients.values()], list(variables.values()))
        rate = 0.02 * min(1, step / 5) * (1 - step / 40)
        for name, gradient in gradients.items():
            m[name] = 0.9 * m[name] + 0.1 * gradient
            v[name] = 0.999 * v[name] + 0.001 * gradient.astype(np.float64) ** 2
            decay = 0.01 * weights[name] if name in DECAYED else 0.0
            weights[name] = weights[name] - rate * (m[name] / (np.sqrt(v[name]) + 1e-6) + decay)
    assert int(optimizer.iterations) == 20
    for name, expected in weights.items():
        # Each update of at most 0.02 * 3.2 is rounded to 2^-24 of it, and each weight of up to 4 likewise.
        assert np.abs(variables[name].numpy() - expected).max() < 20 * 2 * 4 * 2**-24, name


@pytest.mark.parametrize("encoder", [{}, MODERN], ids=["bert", "modern"])
def test_all_variables_but_layer_norms_and_biases_decay(tiny_config, encoder):
    objective = compile_task(build_objective(tiny_config(encoder=encoder)))
    for name, variable in named_variables(objective).items():
        assert objective.optimizer.decays(variable) == (variable.shape.rank == 2), name


def test_lamb_equals_tensorflow_addons_bit_for_bit():
    with np.load(LAMB_RECORD, allow_pickle=False) as archive:
        record = dict(archive)
    names = [name.removeprefix("init|") for name in record if name.startswith("init|")]
    assert len(names) == 6
    variables = [variable_of(record[f"init|{name}"], name) for name in names]
    optimizer = build_optimizer(OptimizerConfig(name="lamb", learning_rate=1.0), 40)
    optimizer.schedule = lambda step: tf.gather(tf.constant(record["lrs"], tf.float32), tf.cast(step, tf.int32))
    for step in range(40):
        take_step(optimizer, [tf.constant(record[f"grads|{name}"][step]) for name in names], variables)
        for name, variable in zip(names, variables, strict=True):
            assert np.array_equal(variable.numpy(), record[f"after|{name}"][step]), (name, step)
