"""Models that several tests look at and none trains."""

import dataclasses
from collections.abc import Callable

import pytest

import electra_tf
from electra_tf.tasks.finetune.config import resolve
from electra_tf.tasks.pretrain import Objective
from electra_tf.weights.source import load_trained


@pytest.fixture(scope="session")
def model(tiny_pretrained) -> electra_tf.Model:
    return electra_tf.load(tiny_pretrained, batch_size=2)


@pytest.fixture(scope="session")
def objective(tiny_pretrained) -> Objective:
    """The objective of `model`."""
    return load_trained(tiny_pretrained).build_task()


@pytest.fixture(scope="session")
def finetuned(tiny_pretrained) -> Callable[..., electra_tf.Model]:
    """`finetuned(train={...})`: a new model of the similarity of texts, with these settings."""

    def build(is_contrastive: bool = False, **settings) -> electra_tf.Model:
        stored = load_trained(tiny_pretrained).finished()
        task = {"kind": "similarity", "is_contrastive": is_contrastive, "text_columns": ["a", "b"]}
        sizes = {"num_epochs": 2, "max_seq_length": 12, "num_rows": 9}
        config = resolve(settings, "a test", name="made_up", task=task, encoder=stored.encoder, init_from=None, **sizes)
        return electra_tf.Model(dataclasses.replace(stored, finetuned=config))

    return build
