"""Training steps of each kind of input: on replicas, in micro-batches, dropout by seed and step, precision."""

import functools

import pytest
import tensorflow as tf

from electra_tf.models.layers import INFERENCE, ForwardContext
from electra_tf.train.step import parts_at_once
from tests.tasks.finetune.steps import CLASSES, INPUTS, assert_same_step, build, outcome, text_batch
from tests.toy import step_on_replicas


@functools.cache
def step_of_one_device(name: str):
    task, batch = INPUTS[name]
    return outcome(build(task), batch())


@pytest.mark.parametrize(
    "name", ["classification", "multiple_choice", pytest.param("scored", marks=pytest.mark.slow), "contrastive"]
)
def test_micro_batches_train_like_one_batch_dropout_included(name):
    task, batch = INPUTS[name]
    assert_same_step(outcome(build(task, gradient_accumulation_steps=2), batch()), step_of_one_device(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", INPUTS)
def test_two_replicas_train_like_one_dropout_included(two_replicas, name):
    settings, batch = INPUTS[name]
    task = build(settings, two_replicas)
    step = tf.function(task.train_step)
    found = outcome(task, batch(), lambda batch: step_on_replicas(two_replicas, step, batch))
    assert_same_step(found, step_of_one_device(name))


@pytest.mark.slow
@pytest.mark.parametrize(("num_candidates", "num_parts"), [(2, 2), (4, 1)])
def test_a_group_of_candidates_is_not_split(num_candidates, num_parts):
    settings, batch = INPUTS["contrastive"]
    settings = settings | {"num_candidates": num_candidates}
    whole, fused = build(settings), build(settings, fused_ops=True)
    assert parts_at_once(fused.config.train, fused.config.rows_together) == num_parts
    assert_same_step(outcome(fused, batch()), outcome(whole, batch()))


def test_the_loss_of_a_batch_is_the_sum_over_its_real_rows_and_a_step_reports_the_mean():
    task, batch = build(CLASSES), text_batch()
    losses = task.row_losses(batch, task.forward(batch, INFERENCE)).numpy()
    (term,) = task.training_terms(batch, INFERENCE).values()
    assert float(term.value) == pytest.approx(losses[:3].sum(), rel=1e-6)
    (other,) = task.training_terms({**batch, "label_ids": tf.constant([0, 2, 1, 2])}, INFERENCE).values()
    assert float(other.value) == float(term.value)
    metrics, _ = step_of_one_device("classification")
    assert metrics["loss"] == pytest.approx(4 * metrics["classification"])


def test_dropout_is_determined_by_seed_and_step():
    task, batch = build(CLASSES, seed=3), text_batch()
    assert int(task.seed) == 3 and all(variable is not task.seed for variable in task.trainable_variables)

    def losses(seed: int, step: int) -> tuple[float, ...]:
        task.seed.assign(seed)
        random = task.random_stream(tf.constant(step, tf.int64), tf.constant(0, tf.int64))
        forward = task.forward(batch, ForwardContext(training=True, random=random))
        return tuple(task.row_losses(batch, forward).numpy().tolist())

    assert losses(3, 1) == losses(3, 1)
    assert len({losses(3, 1), losses(4, 1), losses(3, 2)}) == 3


def test_heads_and_losses_are_float32_with_a_bfloat16_encoder():
    task, batch = build(CLASSES, precision="bfloat16"), text_batch()
    assert task.encode(batch, INFERENCE).sequence_output.dtype == tf.bfloat16
    outputs = task.example_outputs(batch, INFERENCE)
    assert {values.dtype for values in outputs.values()} <= {tf.float32, tf.int32}
    metrics, _ = outcome(task, batch)
    assert metrics["nonfinite"] == 0.0 and metrics["gradient_norm"] > 0.0
