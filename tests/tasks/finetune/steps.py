"""Tasks ready to train, a batch for each form of input, and the outcome of a training step."""

from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.tasks.finetune.kinds import build_finetuning_task
from electra_tf.train.step import compile_task
from tests.toy import toy_finetuning_config

CLASSES = {"kind": "classification", "labels": ("no", "maybe", "yes")}
CHOICE = {"kind": "multiple_choice"}
SCORED = {"kind": "similarity", "is_contrastive": False, "min_value": 1.0, "max_value": 5.0}
CONTRASTIVE = {"kind": "similarity", "is_contrastive": True, "num_candidates": 2, "temperature": 0.5}
LENGTHS = (9, 4, 7, 0)
NUM_CHOICES = (3, 2, 3, 1)

Outcome = tuple[dict[str, float], list[np.ndarray]]


def build(task: dict, strategy: tf.distribute.Strategy | None = None, encoder: dict | None = None, **train):
    train = {"batch_size": 4, "num_steps": 9, "fused_ops": False, **train}
    optimizer = {"learning_rate": 1e-2, "warmup_fraction": 0}
    config = toy_finetuning_config(task, encoder=encoder or {}, optimizer=optimizer, train=train)
    keras.utils.set_random_seed(5)
    with (strategy or tf.distribute.get_strategy()).scope():
        return compile_task(build_finetuning_task(config))


def _batch(ids: np.ndarray, segments: np.ndarray, **targets) -> dict[str, tf.Tensor]:
    """Four examples, of which the last fills the batch up."""
    texts = {"input_ids": ids, "input_mask": ids > 0, "segment_ids": segments, "row_index": [0, 1, 2, -1]}
    batch = {name: tf.constant(np.int32(values)) for name, values in texts.items()}
    weights = tf.constant([1.0, 1.0, 1.0, 0.0])
    return batch | {"row_weights": weights} | {name: tf.constant(values) for name, values in targets.items()}


def text_batch(length: int = 9) -> dict[str, tf.Tensor]:
    mask = np.arange(length) < np.minimum(LENGTHS, length)[:, np.newaxis]
    ids = mask * np.random.default_rng(2).integers(5, 11, [4, length])
    return _batch(ids, np.zeros_like(ids), label_ids=[0, 2, 1, 0])


def choice_batch(num_choices: int = 3, length: int = 7) -> dict[str, tf.Tensor]:
    """Examples of one to three choices with 5 tokens each."""
    ids = np.random.default_rng(2).integers(5, 47, [4, 3, 5])
    ids *= np.arange(3)[:, np.newaxis] < np.array(NUM_CHOICES)[:, np.newaxis, np.newaxis]
    ids = np.pad(ids, [(0, 0), (0, num_choices - 3), (0, length - 5)])
    return _batch(ids, (ids > 0) & (np.arange(length) > 2), label_ids=[2, 0, 1, 0])


def pair_batch(length: int = 7) -> dict[str, tf.Tensor]:
    """The first texts have 5 tokens, the second ones 3."""
    ids = np.random.default_rng(2).integers(5, 47, [4, 2, 5])
    ids[:, 1, 3:] = 0
    ids = np.pad(ids, [(0, 0), (0, 0), (0, length - 5)])
    return _batch(ids, np.zeros_like(ids), targets=[0.0, 0.25, 1.0, 0.0])


INPUTS = {
    "classification": (CLASSES, text_batch),
    "multiple_choice": (CHOICE, choice_batch),
    "scored": (SCORED, pair_batch),
    "contrastive": (CONTRASTIVE, pair_batch),
}


def outcome(task, batch: dict[str, tf.Tensor], step: Callable | None = None, seed: int = 3) -> Outcome:
    """The metrics of a step and the weights after it. Args: step: replaces the task's own."""
    task.seed.assign(seed)
    metrics = {name: float(value) for name, value in (step or task.train_step)(batch).items()}
    return metrics, [variable.numpy() for variable in task.trainable_variables]


def assert_same_step(found: Outcome, expected: Outcome) -> None:
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
    assert max(np.abs(a - b).max() for a, b in zip(found[1], expected[1], strict=True)) < 1e-5
