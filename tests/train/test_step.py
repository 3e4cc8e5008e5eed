"""The training step: replicas, micro-batches, clipping, `fit`, and steps that are not finite."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.ops.reference import ReferenceOps
from electra_tf.tasks.pretrain import build_objective
from electra_tf.train import step as training
from electra_tf.train.step import compile_task
from tests.toy import MODERN, Regression, ToyStage, step_on_replicas, toy_config

# Of six examples; as three micro-batches of two they have 3+3, 1+2 and 0+2 masked tokens.
LENGTHS = [10, 9, 5, 8, 0, 6]


@pytest.fixture
def build(tiny_config):
    """`build(strategy, **changes)`: a compiled masked LM with the same weights each time."""

    def compiled(strategy=None, **changes):
        changes["encoder"] = {"initializer_range": 0.2, **changes.get("encoder", {})}
        changes["optimizer"] = {"learning_rate": 1e-3, **changes.get("optimizer", {})}
        config = tiny_config(**{"objective": {"name": "bert_mlm"}, **changes})
        keras.utils.set_random_seed(5)
        with (strategy or tf.distribute.get_strategy()).scope():
            return compile_task(build_objective(config))

    return compiled


def weights(task) -> list[np.ndarray]:
    return [variable.numpy() for variable in task.trainable_variables]


def largest_difference(first: list[np.ndarray], second: list[np.ndarray]) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(first, second, strict=True))


def rows_of_traces(task, monkeypatch) -> list[int]:
    """The number of examples in each trace of the task's terms, which grows while it is traced."""
    traced, training_terms = [], task.training_terms

    def recorded(batch, context):
        traced.append(batch["input_ids"].shape[0])
        return training_terms(batch, context)

    monkeypatch.setattr(task, "training_terms", recorded)
    return traced


def as_floats(metrics) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}


def assert_same_steps(first, second, tiny_batch, step=None, **options) -> None:
    """Trains the tasks on the same batches: equal metrics, and in the end equal weights.

    Args: step: the second one's; None: its function `train_step` with these options of `tf.function`.
    """
    one_step, two_step = tf.function(first.train_step), step or tf.function(second.train_step, **options)
    start = weights(first)
    for number in range(3):
        batch = tiny_batch(first.config, LENGTHS, seed=number)
        expected = as_floats(one_step(batch))
        assert expected["gradient_norm"] > first.config.optimizer.clip_norm
        assert as_floats(two_step(batch)) == pytest.approx(expected, rel=1e-5), number
    assert largest_difference(start, weights(first)) > 1.5e-3
    assert largest_difference(weights(first), weights(second)) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("train", [{}, {"precision": "bfloat16", "gradient_accumulation_steps": 2}])
def test_each_gradient_is_summed_over_replicas_once_and_in_float32(build, tiny_batch, two_replicas, monkeypatch, train):
    """docs/notes/accelerators.md computes the traffic between devices from this."""
    summed, sum_over_replicas = [], training.sum_over_replicas  # both replicas call it

    def recorded(tensors):
        summed.extend(tf.nest.flatten(tensors))
        return sum_over_replicas(tensors)

    monkeypatch.setattr(training, "sum_over_replicas", recorded)
    task = build(two_replicas, train=train)
    step_on_replicas(two_replicas, tf.function(task.train_step), tiny_batch(task.config, [7, 10, 6, 5]))
    parameters = sum(variable.shape.num_elements() for variable in task.trainable_variables)
    scalars = sum(tensor.shape.rank == 0 for tensor in summed) // 2
    assert {tensor.dtype for tensor in summed} == {tf.float32}
    assert sum(tensor.shape.num_elements() for tensor in summed) == 2 * (parameters + scalars)
    assert scalars < 20


@pytest.mark.parametrize(
    ("name", "train", "encoder"),
    [
        pytest.param("bert_mlm", {}, {}, id="bert_mlm"),
        pytest.param("all_tokens_mlm", {"rematerialize": True}, {"num_layers": 2}, id="all", marks=pytest.mark.slow),
        pytest.param("electra", {"xla": True, "rematerialize": True}, MODERN, id="modern", marks=pytest.mark.slow),
    ],
)
def test_micro_batches_of_unequal_token_counts_equal_one_batch(build, tiny_batch, name, train, encoder):
    settings = {"objective": {"name": name}, "encoder": encoder}
    whole = build(**settings, train={"batch_size": 6})
    parts = build(**settings, train={"batch_size": 6, "gradient_accumulation_steps": 3, **train})
    assert_same_steps(whole, parts, tiny_batch)


def test_gradients_of_one_shape_are_one_tensor(build, tiny_batch):
    """Which is what keeps tracing short: some 30 operations in place of 400."""
    task, step = build(), tf.constant(0, tf.int64)
    stacks = training.summed_gradients(task, tiny_batch(task.config, LENGTHS), step, ReferenceOps())[1]
    assert len(stacks) == len({tuple(variable.shape) for variable in task.trained_variables})
    shapes = [tuple(gradient.shape) for gradient in training.unstacked(task, stacks)]
    assert shapes == [tuple(variable.shape) for variable in task.trained_variables]


class SplittingOps(ReferenceOps):
    splits_batch = True


@pytest.mark.parametrize(("cpu_parts", "rows"), [(2, 3), (3, 2)])
def test_parts_of_unequal_token_counts_equal_one_batch(build, tiny_batch, monkeypatch, cpu_parts, rows):
    """All parts are traced as one function."""
    encoder, train = {"hidden_dropout": 0.2}, {"batch_size": 6, "cpu_parts": cpu_parts}
    whole, parts = build(encoder=encoder, train=train), build(encoder=encoder, train=train)
    traced = rows_of_traces(parts, monkeypatch)
    step = tf.function(lambda batch: training.training_step(parts, batch, SplittingOps()), autograph=False)
    assert_same_steps(whole, parts, tiny_batch, step)
    assert traced == [rows]


@pytest.mark.parametrize("encoder", [{}, MODERN], ids=["bert", "modern"])
def test_the_function_of_parts_leaves_products_to_functions_that_one_dnn_computes(build, tiny_batch, encoder):
    """Its own would be rounded more often in bfloat16: the norm of Small's gradients was 0.4 % smaller."""
    train = {"batch_size": 6, "fused_ops": True, "precision": "bfloat16"}
    task = build(objective={"name": "electra"}, encoder=encoder, train=train)
    step = tf.function(task.train_step, autograph=False).get_concrete_function(tiny_batch(task.config, LENGTHS, seed=1))
    graph = step.graph.as_graph_def()
    [of_parts] = (node.attr["f"].func.name for node in graph.node if node.op == "MapDefun")
    [function] = (each for each in graph.library.function if each.signature.name == of_parts)
    assert "PartitionedCall" in {node.op for node in function.node_def}
    assert not [node.name for node in function.node_def if "MatMul" in node.op]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "options"),
    [({"objective": {"name": "electra"}}, {}), ({"optimizer": {"name": "lamb"}}, {"jit_compile": True})],
    ids=["losses", "update"],
)
def test_steps_with_xla_equal_steps_without(build, tiny_batch, settings, options):
    compiled = build(**settings, train={} if options else {"xla": True})
    assert_same_steps(build(**settings), compiled, tiny_batch, **options)


def toy(**changes) -> tuple[Regression, ToyStage]:
    config = toy_config(**changes)
    keras.utils.set_random_seed(5)
    task = Regression(config)
    task.create_variables()
    return compile_task(task), ToyStage(config)


@pytest.mark.parametrize(
    ("train", "num_parts"),
    [
        ({"batch_size": 5}, 1),
        ({"batch_size": 6, "gradient_accumulation_steps": 3, "rematerialize": True}, 2),
        ({"batch_size": 6, "gradient_accumulation_steps": 2}, 1),
        ({"batch_size": 6, "cpu_parts": 4}, 2),
        ({"batch_size": 6, "xla": True}, 1),
        ({"batch_size": 6, "fused_ops": False}, 1),
    ],
)
def test_batches_are_split_in_the_step_as_announced_before_the_run(monkeypatch, train, num_parts):
    task, _ = toy(train=train)
    traced = rows_of_traces(task, monkeypatch)
    batch = {"input_ids": tf.zeros([train["batch_size"], 6])}
    tf.function(task.train_step, autograph=False).get_concrete_function(batch)
    rows = train["batch_size"] // train.get("gradient_accumulation_steps", 1)
    assert set(traced) == {rows // num_parts}
    assert training.parts_at_once(task.config.train, task.config.rows_together) == num_parts


def batches(stage: ToyStage) -> tf.data.Dataset:
    return stage.training_batches(0, tf.distribute.InputContext())


@pytest.mark.parametrize(("clip_norm", "clips"), [(0.5, True), (1e6, False)])
def test_gradients_are_clipped_by_their_joint_norm(clip_norm, clips):
    """At learning rate zero an update only sets the moments: the first one to a tenth of the clipped gradient."""
    task, stage = toy(optimizer={"warmup_steps": 3, "clip_norm": clip_norm})
    metrics = as_floats(task.train_step(next(iter(batches(stage)))))
    assert metrics["learning_rate"] == 0.0 and metrics["gradient_norm"] > 1.5
    moments = [10 * moment.numpy().astype(np.float64) for moment in task.optimizer._first_moments]
    norm = math.sqrt(sum(float((moment**2).sum()) for moment in moments))
    assert norm == pytest.approx(clip_norm if clips else metrics["gradient_norm"], rel=1e-5)


def test_training_refuses_an_environment_that_freezes_weights(monkeypatch):
    task = Regression(toy_config())
    monkeypatch.setenv("TF_ONEDNN_ASSUME_FROZEN_WEIGHTS", "1")
    with pytest.raises(UserError, match="unset TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"):
        compile_task(task)


def test_fit_equals_calls_of_train_step():
    (fitted, stage), (stepped, _) = toy(), toy()
    history = fitted.fit(batches(stage).take(4), epochs=1, verbose=0).history
    step = tf.function(stepped.train_step)
    metrics = [as_floats(step(batch)) for batch in batches(stage).take(4)]
    assert largest_difference(weights(fitted), weights(stepped)) == 0.0
    assert int(fitted.optimizer.iterations) == 4
    assert history["learning_rate"] == [metrics[-1]["learning_rate"]]


@pytest.mark.parametrize("num_replicas", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_evaluate_gives_the_mean_loss_of_the_batches_and_changes_nothing(two_replicas, num_replicas, tmp_path):
    with (two_replicas if num_replicas == 2 else tf.distribute.get_strategy()).scope():
        task, stage = toy()
    losses = []
    for number, batch in batches(stage).take(3).enumerate():
        inputs = batch["input_ids"]
        noise = task.random_stream(number, tf.constant(0, tf.int64), "evaluation").fold_in("noise").uniform(4, (6,))
        outputs = task.output_layer(task.hidden(inputs + 0.1 * noise))[:, 0]
        losses.append(np.mean((outputs - tf.reduce_sum(inputs, axis=1)).numpy() ** 2))
    before = weights(task)
    found = [task.evaluate(batches(stage).take(3), verbose=0, return_dict=True) for _ in range(2)]
    assert found[0] == found[1]
    assert found[0]["loss"] == found[0]["squared_error"] == pytest.approx(np.mean(losses), rel=1e-6)
    assert largest_difference(weights(task), before) == 0.0 and int(task.optimizer.iterations.numpy()) == 0
    saved = tf.train.list_variables(tf.train.Checkpoint(task=task).write(str(tmp_path / "checkpoint")))
    assert not [name for name, _ in saved if "metrics" in name or "total" in name]


def test_random_numbers_depend_on_the_step_alone():
    (task, stage), (again, _) = toy(), toy()
    batch = next(iter(batches(stage)))
    noises = [float(task.train_step(batch)["noise"]) for _ in range(3)]
    assert len(set(noises)) == 3
    assert float(again.train_step(batch)["noise"]) == noises[0]


@pytest.mark.parametrize(("policy", "optimizer"), [("stop", "adamw"), ("skip", "lamb")])
def test_nonfinite_step_changes_neither_weights_nor_moments(policy, optimizer):
    task, stage = toy(optimizer={"name": optimizer}, train={"on_nonfinite": policy})
    step, batch = tf.function(task.train_step), next(iter(batches(stage)))
    step(batch)
    state = [*task.trainable_variables, *(each for each in task.optimizer.variables if each.shape.rank)]
    before = [variable.numpy() for variable in state]
    assert as_floats(step({"input_ids": tf.fill([4, 6], np.inf)}))["nonfinite"] == 1.0
    assert all(np.array_equal(old, new.numpy()) for old, new in zip(before, state, strict=True))
    assert int(task.optimizer.iterations) == (1 if policy == "stop" else 2)
    assert as_floats(step(batch))["nonfinite"] == 0.0
