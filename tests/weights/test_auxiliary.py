"""The frozen generator of fast_electra: which sources give it its weights, and which are refused."""

import numpy as np
import pytest

from electra_tf.api.pretraining import initial_weights
from electra_tf.config.errors import UserError
from electra_tf.text.vocabulary import StoredTokenizer, TextSettings
from electra_tf.weights.names import generator_variables, named_variables
from electra_tf.weights.source import load_trained
from electra_tf.weights.warm_start import initialize_from, load_auxiliary
from tests.toy import TOKENS, VOCABULARY
from tests.weights.conftest import (
    TWO_LAYERS,
    assert_same_weights,
    random_objective,
    write_run_of,
    write_tf1_checkpoint,
)

OF_DATA = StoredTokenizer(VOCABULARY, TextSettings(strip_accents=False))
SMALL = {"hidden_size": 6, "num_heads": 3, "intermediate_size": 14}  # the tiny generator's


@pytest.fixture
def target(tiny_config):
    """`target(path, objective={...})`: a fast_electra with other random weights."""

    def build(path, objective: dict | None = None, **changes):
        settings = {"name": "fast_electra", "auxiliary": str(path), **(objective or {})}
        return random_objective(tiny_config(objective=settings, **changes), seed=2)

    return build


@pytest.fixture
def run_of(tiny_config, tmp_path):
    """`run_of(name, objective={...})`: an objective with random weights, and the directory of its run."""

    def write(name: str = "electra", objective: dict | None = None, **changes):
        source = random_objective(tiny_config(objective={"name": name, **(objective or {})}, **changes), seed=1)
        return source, write_run_of(source, tmp_path / name).path

    return write


def values(variables) -> dict[str, np.ndarray]:
    return {name: variable.numpy() for name, variable in variables.items()}


def refusal(objective, tokenizer=OF_DATA) -> str:
    before = values(generator_variables(objective.generator))
    with pytest.raises(UserError) as caught:
        load_auxiliary(objective, tokenizer)
    assert_same_weights(values(generator_variables(objective.generator)), before)
    message = str(caught.value)
    assert message.startswith(f"objective.auxiliary={objective.config.objective.auxiliary}") and "\n" not in message
    return message


def as_generator(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a generator without shared weights gets from the weights of a model."""
    encoder = {name.replace("electra/", "generator/"): each for name, each in weights.items() if "electra/" in name}
    return encoder | weights


@pytest.mark.parametrize(
    ("name", "objective", "encoder"),
    [
        ("electra", {}, {}),
        ("electra", {"tying": "none"}, {}),
        ("replace_mlm", {}, {}),
        ("bert_mlm", {}, SMALL),
        ("teams", {}, {}),
    ],
)
def test_a_run_gives_its_generator_or_its_masked_language_model(target, run_of, name, objective, encoder):
    source, path = run_of(name, objective, encoder=encoder)
    sizes = source.config.model_dump(include={"objective": {"generator"}, "encoder": {"num_layers"}})
    fast = target(path, **sizes) if name == "teams" else target(path)
    discriminator = values(named_variables(fast))
    (line,) = load_auxiliary(fast, OF_DATA)
    loaded, expected = values(generator_variables(fast.generator)), as_generator(values(named_variables(source)))
    assert_same_weights(loaded, {name: expected[name] for name in loaded})
    assert_same_weights(values(named_variables(fast)), discriminator)
    assert line == f"the frozen generator from step 7 of {path}: {len(loaded)} variables"


def test_a_hugging_face_folder_of_a_masked_lm_gives_its_weights(target, folder, stored):
    fast, expected = target(folder("generator"), encoder=TWO_LAYERS), as_generator(stored(encoder=TWO_LAYERS).weights)
    load_auxiliary(fast, StoredTokenizer(VOCABULARY))
    loaded = values(generator_variables(fast.generator))
    assert_same_weights(loaded, {name: expected[name] for name in loaded})


def test_the_authors_checkpoint_gives_its_generator(target, run_of, tmp_path):
    weights = values(named_variables(run_of()[0]))
    fast, expected = target(write_tf1_checkpoint(tmp_path / "model.ckpt", weights)), as_generator(weights)
    load_auxiliary(fast, OF_DATA)
    loaded = values(generator_variables(fast.generator))
    assert_same_weights(loaded, {name: expected[name] for name in loaded})


def test_another_vocabulary_or_casing_is_refused(target, run_of):
    fast = target(run_of()[1])
    other = "\n".join(reversed(TOKENS)).encode()
    assert "has another vocabulary than the data" in refusal(fast, StoredTokenizer(other, OF_DATA.settings))
    cased = TextSettings(lower_case=False, strip_accents=False)
    assert "was trained with lower_case True, the data with False" in refusal(fast, StoredTokenizer(VOCABULARY, cased))


def test_other_sizes_are_refused_with_the_settings_to_write(target, run_of):
    path = run_of()[1]
    message = refusal(target(path, {"generator": {"num_layers": 2, "intermediate_size": 15}}))
    assert "num_layers 1, not 2; intermediate_size 14, not 15" in message
    assert message.endswith(
        "'objective.generator={hidden_size: 6, num_layers: 1, num_heads: 3, intermediate_size: 14, embedding_size: 12}'"
    )
    assert "num_heads 3, not 2" in refusal(target(path, {"generator": {"num_heads": 2}}))


def test_a_source_without_a_masked_lm_is_refused(target, folder, run_of):
    for fast in (target(folder("discriminator"), encoder=TWO_LAYERS), target(run_of("fast_electra")[1])):
        with pytest.raises(UserError, match="has no generator or masked LM"):
            load_auxiliary(fast)


def test_init_from_gives_the_discriminator_and_auxiliary_the_generator(target, run_of, tmp_path, tiny_config):
    source, path = run_of()
    other = random_objective(tiny_config(objective={"generator": {"num_heads": 2}}), seed=3)
    init_from = write_run_of(other, tmp_path / "other").path  # its generator, of other heads, is not used
    fast = target(path)
    lines = initial_weights(fast, init_from, False, OF_DATA)
    weights = values(named_variables(other))
    assert_same_weights(values(named_variables(fast)), {name: weights[name] for name in named_variables(fast)})
    loaded, expected = values(generator_variables(fast.generator)), as_generator(values(named_variables(source)))
    assert_same_weights(loaded, {name: expected[name] for name in loaded})
    assert lines[0].startswith(f"weights from step 7 of {init_from}: ")
    assert lines[-1].startswith(f"the frozen generator from step 7 of {path}: ")
    with pytest.raises(UserError, match="fresh_generator requires an objective that trains a generator"):
        initial_weights(fast, init_from, True, OF_DATA)


def test_a_run_gives_others_its_discriminator_alone(target, run_of):
    source, path = run_of("fast_electra")
    model = load_trained(path)
    assert model.generator is None
    assert_same_weights(model.weights, values(named_variables(source)))
    assert not [name for name in model.weights if name.startswith("generator")]
    fast = target("a path")
    initialize_from(fast, path, tokenizer=OF_DATA)
    assert_same_weights(values(named_variables(fast)), model.weights)
