import dataclasses
import json
from collections.abc import Callable

import numpy as np
import pytest

from electra_tf.convert.names import encoder_variables, finetuned_variables, tf1_variables
from electra_tf.convert.stored_model import StoredModel
from electra_tf.tasks.finetune import build_finetuning_task
from electra_tf.tasks.finetune.config import resolve
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.electra import Electra

VOCABULARY = b"".join(b"%s\n" % token for token in (b"[PAD]", b"[UNK]", b"[CLS]", b"[SEP]", b"[MASK]")) + b"".join(
    b"w%d\n" % index for index in range(5, 47)
)


@pytest.fixture(scope="session")
def stored(tiny_config) -> Callable[..., StoredModel]:
    """`stored(objective={...}, encoder={...})`: a pre-trained model of the tiny configuration with random weights."""

    models: dict[str, StoredModel] = {}

    def build(facts: dict | None = None, **changes) -> StoredModel:
        key = json.dumps(changes, sort_keys=True)
        if key not in models:
            models[key] = built(changes)
        return dataclasses.replace(models[key], facts=facts or {})

    def built(changes: dict) -> StoredModel:
        config = tiny_config(**changes)
        objective = build_objective(config)
        has_names = isinstance(objective, Electra) or config.objective.name == "bert_mlm"
        named = tf1_variables(objective) if has_names else encoder_variables(objective.encoder)
        has_generator = isinstance(objective, Electra) and config.objective.has_generator_network
        return StoredModel(
            source="a test",
            encoder=config.encoder,
            generator=config.objective.generator_encoder(config) if has_generator else None,
            weights=_random(named),
            vocabulary_file=VOCABULARY,
            objective=config.objective.name,
            step=3,
        )

    return build


@pytest.fixture(scope="session")
def stored_finetuned(tiny_config) -> Callable[..., StoredModel]:
    """`stored_finetuned({"kind": "tagging", ...})`: a fine-tuned model with random weights."""

    def build(task: dict, name: str = "made_up", facts: dict | None = None) -> StoredModel:
        encoder = tiny_config().encoder
        sizes = {"num_epochs": 2, "max_seq_length": 13, "num_rows": 9}
        config = resolve({}, "a test", name=name, task=task, encoder=encoder, init_from="runs/tiny", **sizes)
        return StoredModel(
            source="a test",
            encoder=encoder,
            generator=None,
            weights=_random(finetuned_variables(build_finetuning_task(config), name)),
            vocabulary_file=VOCABULARY,
            finetuned=config,
            step=4,
            facts=facts or {},
        )

    return build


def _random(named) -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)
    return {name: random.normal(size=variable.shape).astype(np.float32) for name, variable in named.items()}
