"""Stored models of random weights, the same as Hugging Face folders, and runs and checkpoints on disk."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.networks import EncoderConfig
from electra_tf.tasks.base import Task
from electra_tf.tasks.finetune.config import resolve
from electra_tf.tasks.finetune.kinds import build_finetuning_task
from electra_tf.tasks.pretrain import Objective, build_objective
from electra_tf.tasks.pretrain.electra import Electra
from electra_tf.text.vocabulary import StoredTokenizer, TextSettings
from electra_tf.train.checkpoints import Checkpoints
from electra_tf.train.run_directory import RunDirectory
from electra_tf.train.step import compile_task
from electra_tf.weights.hugging_face.writer import Network, hugging_face_networks
from electra_tf.weights.names import named_variables
from electra_tf.weights.stored_model import StoredModel
from tests.toy import VOCABULARY, randomize

TWO_LAYERS = {"num_layers": 2}
MASKED_LM = {"name": "bert_mlm"}
BERT = {"embedding_size": 16, "family": "bert"}  # of a hidden size of 16
# The modern block, every setting away from its default; a generator as wide and less deep; all biases.
MODERN = {
    **{"block": "modern", "embedding_size": 12, "hidden_size": 12, "num_layers": 3, "num_heads": 3},
    **{"intermediate_size": 7, "layer_norm_epsilon": 1e-4, "global_attention_every_n_layers": 2},
    **{"local_attention": 6, "global_rope_theta": 900.0, "local_rope_theta": 30.0},
}
SHALLOW = {"size_fraction": 1.0, "num_layers": 2, "intermediate_size": 5}
FEWER_LAYERS = SHALLOW | {"intermediate_size": None}
BIASES = dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), True)

# The heads of transformers' classes, and the task of each.
LABELS, TAGS = ("no", "maybe", "yes"), ("O", "B-a", "I-a", "B-b", "I-b")
PLAIN_ANSWERS = {"version_2": True, "joint_prediction": False, "answerable_classifier": False}
WINDOWS = {"doc_stride": 3, "max_query_length": 5, "max_answer_length": 7, "n_best_size": 2, "null_threshold": 1.5}
TEXT_COLUMNS = ("title", "body")
HEADS = {
    "SequenceClassification": {
        "kind": "classification",
        "labels": LABELS,
        "text_columns": TEXT_COLUMNS,
        "dropout": 0.2,
    },
    "TokenClassification": {"kind": "tagging", "labels": TAGS, "scheme": "iob1", "dropout": 0.2, "stride": 3},
    "QuestionAnswering": {"kind": "question_answering", **PLAIN_ANSWERS, **WINDOWS},
    "MultipleChoice": {"kind": "multiple_choice", "dropout": 0.2},
}


def once(build: Callable) -> Callable:
    """A function that gives the same object for the same settings."""
    built = {}

    def get(**settings):
        key = json.dumps(settings, sort_keys=True)
        if key not in built:
            built[key] = build(**settings)
        return built[key]

    return get


@pytest.fixture(scope="session")
def stored(tiny_config) -> Callable[..., StoredModel]:
    """`stored(objective={...}, without=("generator",))`: a pre-trained model of the tiny configuration at step 3.

    Weights whose names begin as in `without` are left out.
    """
    pretrained = once(lambda **changes: _pretrained(tiny_config(**changes)))

    def build(without: tuple[str, ...] = (), facts: dict | None = None, **changes) -> StoredModel:
        model = pretrained(**changes)
        weights = {name: value for name, value in model.weights.items() if not name.startswith(without)}
        generator = None if "generator" in without else model.generator
        return dataclasses.replace(model, weights=weights, generator=generator, facts=facts or {})

    return build


def _pretrained(config) -> StoredModel:
    objective = build_objective(config)
    has_generator = isinstance(objective, Electra) and config.objective.has_generator_network
    return StoredModel(
        source="a test",
        encoder=config.encoder,
        generator=config.objective.generator_encoder(config) if has_generator else None,
        weights=randomize(named_variables(objective), seed=7),
        stored_tokenizer=StoredTokenizer(VOCABULARY),
        objective=config.objective.name,
        step=3,
    )


@pytest.fixture(scope="session")
def stored_finetuned(tiny_config) -> Callable[..., StoredModel]:
    """`stored_finetuned({"kind": "tagging", ...})`: a fine-tuned model at step 4 with random weights."""

    def build(task: dict, name: str = "made_up", **sizes_of_encoder) -> StoredModel:
        encoder = EncoderConfig.model_validate(tiny_config().encoder.model_dump() | sizes_of_encoder)
        sizes = {"num_epochs": 2, "max_seq_length": 12, "num_rows": 9}
        config = resolve({}, "a test", name=name, task=task, encoder=encoder, init_from=None, **sizes)
        weights = randomize(named_variables(build_finetuning_task(config)), seed=7)
        return StoredModel("a test", encoder, None, weights, StoredTokenizer(VOCABULARY), finetuned=config, step=4)

    return build


@pytest.fixture(scope="session")
def networks(stored) -> dict[str, Network]:
    """The `discriminator` and the `generator` of an ELECTRA of two layers, as Hugging Face's classes."""
    return {network.name: network for network in hugging_face_networks(stored(encoder=TWO_LAYERS))}


@pytest.fixture(scope="session")
def shapes_of_classes() -> dict[str, dict[str, list[int]]]:
    """The shapes of each class of transformers, by the names of its tensors."""
    fixture = Path(__file__).parents[1] / "fixtures" / "hugging_face_tensors.json"
    return json.loads(fixture.read_text(encoding="utf-8"))


@pytest.fixture
def folder(networks, tmp_path) -> Callable[..., Path]:
    """`folder("generator", config={"hidden_act": "relu"})`: a folder of one network, its config and tensors changed.

    The entry of this program is not in its config.json. A change to None removes an entry or a tensor.
    """

    def write(network: str | Network, config: dict | None = None, tensors: dict | None = None, name: str = "") -> Path:
        network = networks[network] if isinstance(network, str) else network
        place = tmp_path / (name or network.name)
        place.mkdir()
        entries = network.config | {"electra_tf": None} | (config or {})
        (place / "config.json").write_text(json.dumps(_without_none(entries)))
        (place / "vocab.txt").write_bytes(VOCABULARY)
        values = _without_none(network.tensors | (tensors or {}))
        safetensors.numpy.save_file(values, place / "model.safetensors")
        return place

    return write


def _without_none(values: dict) -> dict:
    return {name: value for name, value in values.items() if value is not None}


@pytest.fixture(scope="session")
def run_of(tiny_config, tmp_path_factory) -> Callable[..., tuple[Objective, str]]:
    """`run_of(objective={...})`: an objective with random weights, and the directory of its run; each made once."""

    def write(step: int = 7, **changes) -> tuple[Objective, str]:
        objective = random_objective(tiny_config(**changes), seed=1)
        return objective, write_run_of(objective, tmp_path_factory.mktemp("run"), step).path

    return once(write)


def random_objective(config, seed: int) -> Objective:
    """A compiled objective with random weights."""
    objective = compile_task(build_objective(config))
    randomize(named_variables(objective), seed)
    return objective


def write_run_of(objective: Objective, directory: Path, step: int = 7) -> RunDirectory:
    """A run with a checkpoint."""
    run = RunDirectory(directory)
    run.create()
    run.write_config(objective.config)
    run.write_tokenizer(StoredTokenizer(VOCABULARY, TextSettings(strip_accents=False)))
    objective.optimizer.iterations.assign(step)
    for moment in objective.optimizer.variables[1:]:
        moment.assign(tf.ones_like(moment))
    Checkpoints(objective, run, chief=True, keep=1).save(step)
    return run


def weights_of(task: Task) -> dict[str, np.ndarray]:
    return {name: variable.numpy() for name, variable in named_variables(task).items()}


def shapes_of(network: Network) -> dict[str, list[int]]:
    return {name: list(tensor.shape) for name, tensor in network.tensors.items()}


def refusal(call: Callable, *arguments, **options) -> str:
    """The message of a call that is refused."""
    with pytest.raises(UserError) as caught:
        call(*arguments, **options)
    return str(caught.value)


def write_tf1_checkpoint(prefix: Path, tensors: Mapping[str, np.ndarray]) -> str:
    """Writes a checkpoint as TensorFlow 1 does. Returns: its prefix."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    values = [tf.convert_to_tensor(value) for value in tensors.values()]
    tf.raw_ops.SaveV2(
        prefix=str(prefix), tensor_names=list(tensors), shape_and_slices=[""] * len(tensors), tensors=values
    )
    return str(prefix)


def assert_same_weights(weights: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """Names, and values to the bit."""
    assert weights.keys() == expected.keys()
    assert [name for name, value in expected.items() if value.tobytes() != weights[name].tobytes()] == []
