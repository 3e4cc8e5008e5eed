"""What the tests of conversions share: stored models of random weights, and the same as Hugging Face's folders."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from electra_tf.config.schema import EncoderConfig
from electra_tf.tasks.finetune import build_finetuning_task
from electra_tf.tasks.finetune.config import resolve
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.electra import Electra
from electra_tf.weights.hugging_face.tensors import tensor_name
from electra_tf.weights.names import encoder_shapes, masked_lm_shapes, named_variables, replaced_token_shapes
from electra_tf.weights.stored_model import StoredModel

VOCABULARY = "".join(f"{token}\n" for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "der", "##s", "Wald"))
TINY_VOCABULARY = VOCABULARY.replace("der\n##s\nWald\n", "".join(f"w{index}\n" for index in range(5, 47))).encode()
SIZES = EncoderConfig(
    vocab_size=8,
    embedding_size=6,
    hidden_size=12,
    num_layers=2,
    num_heads=3,
    intermediate_size=10,
    max_position_embeddings=9,
)
GENERATOR = SIZES.model_copy(update={"hidden_size": 4, "num_heads": 2, "intermediate_size": 5, "num_layers": 1})
# As a folder calls the sizes of a network.
NAMES_IN_CONFIG = {
    "vocab_size": "vocab_size",
    "embedding_size": "embedding_size",
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "intermediate_size": "intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
    "type_vocab_size": "type_vocab_size",
}


@pytest.fixture(scope="session")
def stored_electra() -> Callable[..., StoredModel]:
    """`stored_electra(without=("generator",))`: an ELECTRA at step 7 without the weights whose names begin so."""

    def build(without: tuple[str, ...] = (), **changes) -> StoredModel:
        shapes = {
            **encoder_shapes(SIZES, "electra"),
            **encoder_shapes(GENERATOR, "generator", with_embeddings=False),
            **replaced_token_shapes(SIZES),
            **masked_lm_shapes(GENERATOR),
        }
        random = np.random.default_rng(3)
        weights = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
        weights = {name: value for name, value in weights.items() if not without or not name.startswith(without)}
        settings = {"encoder": SIZES, "generator": GENERATOR, "objective": "electra", "step": 7, **changes}
        return StoredModel("source", weights=weights, vocabulary_file=VOCABULARY.encode(), **settings)

    return build


@pytest.fixture(scope="session")
def networks(stored_electra) -> dict[str, dict[str, np.ndarray]]:
    """The tensors of `discriminator` and `generator` as Hugging Face's classes name them."""
    weights = stored_electra().weights
    scopes = {
        "discriminator": ("electra/", "discriminator_predictions/"),
        "generator": ("electra/embeddings/", "generator/", "generator_predictions/"),
    }
    return {
        network: {
            tensor.name: np.ascontiguousarray(value.T if tensor.transposed else value)
            for name, value in weights.items()
            if name.startswith(scope)
            for tensor in [tensor_name(name)]
        }
        for network, scope in scopes.items()
    }


@pytest.fixture
def folder(networks, tmp_path) -> Callable[..., Path]:
    """`folder("generator", config={"hidden_act": "relu"})`: a folder of one network, its tensors and config changed.

    A change to None takes something away.
    """

    def write(network: str, config: dict | None = None, tensors: dict | None = None, name: str = "") -> Path:
        place = tmp_path / (name or network)
        place.mkdir()
        sizes = SIZES if network == "discriminator" else GENERATOR
        values = {theirs: getattr(sizes, ours) for theirs, ours in NAMES_IN_CONFIG.items()} | (config or {})
        (place / "config.json").write_text(json.dumps({"model_type": "electra"} | _given(values)))
        (place / "vocab.txt").write_text(VOCABULARY)
        safetensors.numpy.save_file(_given(networks[network] | (tensors or {})), place / "model.safetensors")
        return place

    return write


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
        has_generator = isinstance(objective, Electra) and config.objective.has_generator_network
        return StoredModel(
            source="a test",
            encoder=config.encoder,
            generator=config.objective.generator_encoder(config) if has_generator else None,
            weights=_random(named_variables(objective)),
            vocabulary_file=TINY_VOCABULARY,
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
            weights=_random(named_variables(build_finetuning_task(config))),
            vocabulary_file=TINY_VOCABULARY,
            finetuned=config,
            step=4,
            facts=facts or {},
        )

    return build


def _random(named) -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)
    return {name: random.normal(size=variable.shape).astype(np.float32) for name, variable in named.items()}


def _given(values: dict) -> dict:
    return {name: value for name, value in values.items() if value is not None}
