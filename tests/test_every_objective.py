"""One training step of every objective, traced once; each test checks one property of it. And an objective of a user.

The tests in tests/tasks/pretrain check the values that an objective computes.
"""

import functools
import math
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf
import yaml

from benchmarks.stablehlo_step.static_step import unfit_operations
from electra_tf.cli.configuration import load_module
from electra_tf.config.errors import UserError
from electra_tf.data.batch import batch_specs
from electra_tf.flops.budget import RunCost
from electra_tf.models.layers import ForwardContext
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import OBJECTIVES, Objective, build_objective, register_objective
from electra_tf.tasks.pretrain.config import OBJECTIVE_SETTINGS, PretrainingConfig
from electra_tf.train.checkpoints import Checkpoints
from electra_tf.train.run_directory import RunDirectory
from electra_tf.train.step import compile_task, evaluation_step
from tests.flops.traced import by_part, traced_products
from tests.flops.traced_step import expected_products
from tests.toy import MODERN, evaluation_values, training_values

PROJECT = Path(__file__).resolve().parents[1]
EXAMPLE = "random_token_detection"
# (objective, which of its phases, the encoder's block)
STEPS = [(name, phase, "bert") for name in OBJECTIVES for phase in range(2 if name == "two_stage" else 1)]
STEPS.append(("electra", 0, "modern"))
FAST = (("electra", 0, "bert"), ("bert_mlm", 0, "bert"))

TABLES, GENERATOR, ENCODER = "shared embeddings", "generator_network", "electra"
HEAD, ENCODER_HEAD = "discriminator_predictions", "encoder_predictions"
# The layers to which each loss sends a gradient; a loss sends none to the other layers.
GENERATOR_LOSS = {"masked_lm": {TABLES, GENERATOR}}
ELECTRA_LOSSES = {**GENERATOR_LOSS, "replaced_token": {TABLES, ENCODER, HEAD}}
TRAINED_LAYERS = {
    **{(name, 0): ELECTRA_LOSSES for name in ("electra", "electra_15", "electric")},
    ("contrastive", 0): {**ELECTRA_LOSSES, "corrupted_input": {TABLES, ENCODER, "corrupted_input_predictions"}},
    ("adversarial", 0): {
        "policy": {TABLES, GENERATOR},
        "baseline": {"baseline"},
        "replaced_token": {TABLES, ENCODER, HEAD},
    },
    ("replace_mlm", 0): {**GENERATOR_LOSS, "encoder_masked_lm": {TABLES, ENCODER, ENCODER_HEAD}},
    ("all_tokens_mlm", 0): {**GENERATOR_LOSS, "all_tokens_lm": {TABLES, ENCODER, ENCODER_HEAD, "copy_predictions"}},
    ("bert_mlm", 0): {"masked_lm": {"masked_lm_network"}},
    ("hard_mlm", 0): {"masked_lm": {"masked_lm_network"}, "difficulty": {"difficulty_network"}},
    # The second of the encoder's two layers is the selection's alone.
    ("teams", 0): {
        **GENERATOR_LOSS,
        "replaced_token": {TABLES, HEAD},
        "word_selection": {TABLES, ENCODER, "word_selection_predictions"},
    },
    ("fast_electra", 0): {"masked_lm": set(), "replaced_token": {ENCODER, HEAD}},
    ("two_stage", 0): {"masked_lm": {GENERATOR}},
    ("two_stage", 1): {"replaced_token": {ENCODER, HEAD}},
}


class TracedStep(NamedTuple):
    """The training step of one phase of an objective, traced and executed once."""

    objective: Objective
    phase: int
    task: Objective  # the phase of `objective` of that index
    batch: dict[str, tf.Tensor]
    function: tf.types.experimental.ConcreteFunction  # the step, of the tensors of `batch`
    metrics: dict[str, float]  # of the first execution
    moved: dict[int, bool]  # by the id of a variable, whether that changed it


@pytest.fixture(
    scope="module",
    params=[pytest.param(step, marks=() if step in FAST else pytest.mark.slow) for step in STEPS],
    ids=lambda step: f"{step[0]}-{step[1]}-{step[2]}",
)
def step(request, tiny_config, tiny_batch) -> TracedStep:
    name, phase, block = request.param
    preset = PROJECT / "configs/pretrain/ablations" / f"{name}.yaml"
    masking = yaml.safe_load(preset.read_text(encoding="utf-8")).get("masking", {}) if preset.exists() else {}
    encoder = {"initializer_range": 0.2, **(MODERN if block == "modern" else {})}
    config = tiny_config(objective={"name": name}, masking=masking, encoder=encoder, optimizer={"learning_rate": 1e-3})
    keras.utils.set_random_seed(2)
    objective, batch = compile_task(build_objective(config)), tiny_batch(config, (10, 10, 5, 0))
    specs = batch_specs(config, 4)
    assert {key: (each.shape, each.dtype) for key, each in batch.items()} == {
        key: (each.shape, each.dtype) for key, each in specs.items()
    }
    task = objective.phases()[phase]
    function = tf.function(task.train_step).get_concrete_function(specs)
    before = [(variable, variable.numpy()) for variable in objective.variables]
    metrics = {key: float(value) for key, value in function(**batch).items()}
    moved = {id(variable): not np.array_equal(variable, old) for variable, old in before}
    return TracedStep(objective, phase, task, batch, function, metrics, moved)


def test_metrics_and_gradients_are_finite_and_the_loss_is_the_weighted_sum_of_the_losses(step):
    assert set(step.metrics) == {"loss", "gradient_norm", "learning_rate", "nonfinite", *step.task.term_names}
    assert all(map(math.isfinite, step.metrics.values()))
    assert step.metrics["nonfinite"] == 0.0 and step.metrics["gradient_norm"] > 0.0
    weighted = sum(weight * step.metrics[name] for name, weight in step.task.loss_weights.items())
    assert step.metrics["loss"] == pytest.approx(weighted, rel=1e-6)


def owners(objective: Objective) -> dict[int, str]:
    """The layer that holds each trainable variable, by its id."""
    layers: dict[int, list[str]] = {}
    for layer in objective.layers:
        for variable in layer.trainable_variables:
            layers.setdefault(id(variable), []).append(layer.name)
    return {key: names[0] if len(names) == 1 else TABLES for key, names in layers.items()}


def has_gradient(variable: tf.Variable) -> bool:
    """False for a key's bias: it shifts all scores of a query equally, so its gradient is zero up to rounding."""
    return "key/bias" not in variable.path


def test_the_step_changes_the_variables_of_its_phase_and_no_others(step):
    trained = {id(variable) for variable in step.task.trained_variables}
    checked = [variable for variable in step.objective.variables if has_gradient(variable)]
    assert [variable.path for variable in checked if step.moved[id(variable)] != (id(variable) in trained)] == []


def test_each_loss_sends_gradients_to_its_own_layers_and_to_no_others(step):
    expected = TRAINED_LAYERS.get((step.objective.name, step.phase))
    if expected is None:
        assert not type(step.objective).__module__.startswith("electra_tf."), "TRAINED_LAYERS has no entry for it"
        pytest.skip("an objective from outside of the project")
    variables, layer_of = step.objective.trainable_variables, owners(step.objective)
    with tf.GradientTape(persistent=True) as tape:
        terms = step.task.training_terms(step.batch, ForwardContext(training=True, random=RandomStream(0, 0, 0)))
    assert set(step.task.loss_weights) == set(expected)
    for loss, layers in expected.items():
        gradients = tape.gradient(terms[loss].value, [each.value for each in variables], unconnected_gradients="zero")
        wrong = [
            variable.path
            for variable, gradient in zip(variables, gradients, strict=True)
            if has_gradient(variable)
            and tf.convert_to_tensor(gradient).numpy().any() != (layer_of[id(variable)] in layers)
        ]
        assert wrong == [], loss


def test_the_matrix_products_of_the_step_are_those_of_the_flops_formula(step):
    steps = RunCost(step.objective.config).ranges[step.phase]
    traced, formula = by_part(traced_products(step.function)), expected_products(steps)
    if step.objective.name in ("all_tokens_mlm", "electric"):
        # They compute the gradient of the logits in the forward pass, to keep less in memory.
        traced, formula = (
            sum((Counter({part: flops}) for (part, _), flops in products.items()), Counter())
            for products in (traced, formula)
        )
    assert +traced == formula


def test_the_step_has_only_operations_that_a_tpu_supports(step):
    assert unfit_operations(step.function) == []


def test_evaluation_computes_the_terms_of_training(step):
    context = ForwardContext(random=RandomStream(4, 0, 0))
    evaluated = evaluation_values(step.task, step.batch, context)
    for name, value in training_values(step.task, step.batch, context).items():
        reported = f"{name}_loss" if f"{name}_loss" in evaluated else name
        assert evaluated[reported] == pytest.approx(value, rel=1e-6), name
    # With few tokens no token, or every one, may be replaced or be predicted to be.
    undefined = {name for name, value in evaluated.items() if not math.isfinite(value)}
    assert undefined <= {"replaced_token_precision", "replaced_token_auc", "copy_probability_replaced"}


def test_a_short_report_shows_every_minimised_loss_in_training_and_evaluation(step):
    losses = [name for name, weight in step.task.loss_weights.items() if weight]
    evaluated = evaluation_values(step.task, step.batch, ForwardContext(random=RandomStream(4, 0, 0)))
    for metrics in (step.metrics, evaluated):
        shown = [name for name in step.task.headline(metrics) if not name.endswith("_auc")]
        assert len(shown) == len(losses) and set(shown) <= metrics.keys()


def test_an_example_that_is_all_padding_changes_no_term(step):
    context = ForwardContext(random=RandomStream(4, 0, 0))
    padded = {name: tf.pad(values, [[0, 1], [0, 0]]) for name, values in step.batch.items()}
    expected = training_values(step.task, step.batch, context)
    assert training_values(step.task, padded, context) == pytest.approx(expected, rel=1e-5)


def test_a_checkpoint_restores_every_variable_and_moment(step, tmp_path):
    optimizer, run = step.objective.optimizer, RunDirectory(tmp_path)
    moments = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    state = [*step.objective.variables, *moments]
    saved = [variable.numpy() for variable in state]
    Checkpoints(step.objective, run, chief=True, keep=1).save(1)
    for variable in state:
        variable.assign(tf.zeros_like(variable))
    assert Checkpoints(step.objective, run, chief=True, keep=1).restore_latest() == 1
    assert all(np.array_equal(variable, old) for variable, old in zip(state, saved, strict=True))


def test_the_error_for_an_unknown_objective_names_the_flag_objective_module(tiny_config):
    with pytest.raises(UserError, match=f"objective.name is '{EXAMPLE}'.* objective_module.*@register_objective"):
        tiny_config(objective={"name": EXAMPLE})


@pytest.fixture(scope="module")
def example(tiny_config) -> Callable[..., PretrainingConfig]:
    """`example(masking={...})`: a configuration of the objective in examples/, which is forgotten afterwards."""
    load_module(str(PROJECT / "examples" / f"{EXAMPLE}.py"))
    yield functools.partial(tiny_config, objective={"name": EXAMPLE, "replaced_token_loss_weight": 10.0})
    for names in (OBJECTIVES, OBJECTIVE_SETTINGS, sys.modules):
        names.pop(EXAMPLE)


def test_a_user_defined_objective_is_trained_and_evaluated(example, tiny_batch):
    config = example(masking={"mask_token_fraction": 0.0, "random_token_fraction": 1.0})
    task, batch = compile_task(build_objective(config)), tiny_batch(config, [10, 7, 5, 8])
    step = tf.function(task.train_step)
    metrics = {name: float(value) for name, value in step(batch).items()}
    assert metrics["loss"] == pytest.approx(10 * metrics["replaced_token"], rel=1e-6)
    # One binary decision per token: ln 2, changed by the initial weights of the last layer.
    assert 0.4 < metrics["replaced_token"] < 1.2
    # Three of ten tokens are random, and one random token in 47 is the original.
    assert 0.1 < metrics["replaced_fraction"] < 0.4
    assert unfit_operations(step.get_concrete_function(batch)) == []
    assert RunCost(config).spent(4).hardware.total > 0
    terms, _ = evaluation_step(task, batch, tf.constant(0, tf.int64))
    assert {"replaced_token_loss", "replaced_token_auc", "constant_predictor_loss"} <= set(terms)
    assert math.isfinite(terms["replaced_token_loss"].value())


def test_the_error_of_an_objectives_own_check_is_reported(example):
    with pytest.raises(UserError, match=r"a \[MASK\] is always a replaced token"):
        example(masking={"mask_token_fraction": 0.2, "random_token_fraction": 0.5})


def test_a_second_module_file_with_the_same_name_is_refused(example, tmp_path):
    (tmp_path / f"{EXAMPLE}.py").write_text("raise AssertionError", encoding="utf-8")
    with pytest.raises(UserError, match=f"a module named {EXAMPLE} is already imported"):
        load_module(str(tmp_path / f"{EXAMPLE}.py"))


def test_a_name_of_an_objective_is_registered_once():
    with pytest.raises(ValueError, match="'electra' is already registered, by Electra"):
        register_objective(OBJECTIVE_SETTINGS["electra"])(Objective)
