"""The frozen generator of fast_electra: which sources give it its weights, and which are refused."""

import numpy as np
import pytest

from electra_tf.api.pretraining import initial_weights
from electra_tf.text.vocabulary import StoredTokenizer, TextSettings
from electra_tf.weights.names import generator_variables
from electra_tf.weights.source import load_trained
from electra_tf.weights.warm_start import initialize_from, load_auxiliary
from tests.toy import TOKENS, VOCABULARY
from tests.weights import conftest
from tests.weights.conftest import (
    MASKED_LM,
    TWO_LAYERS,
    assert_same_weights,
    random_objective,
    weights_of,
    write_tf1_checkpoint,
)

OF_DATA = StoredTokenizer(VOCABULARY, TextSettings(strip_accents=False))
SMALL = {"hidden_size": 6, "num_heads": 3, "intermediate_size": 14}  # the tiny generator's
FAST = {"name": "fast_electra"}


@pytest.fixture
def target(tiny_config):
    """`target(path, objective={...})`: a fast_electra with other random weights."""

    def build(path, objective: dict | None = None, **changes):
        settings = {**FAST, "auxiliary": str(path), **(objective or {})}
        return random_objective(tiny_config(objective=settings, **changes), seed=2)

    return build


def of_generator(objective) -> dict[str, np.ndarray]:
    return {name: each.numpy() for name, each in generator_variables(objective.generator).items()}


def assert_loaded(fast, weights: dict[str, np.ndarray]) -> None:
    """The frozen generator has the weights of a model, shared ones too."""
    encoder = {name.replace("electra/", "generator/"): each for name, each in weights.items() if "electra/" in name}
    loaded, expected = of_generator(fast), encoder | weights
    assert_same_weights(loaded, {name: expected[name] for name in loaded})


def refusal(objective, tokenizer=OF_DATA) -> str:
    before = of_generator(objective)
    message = conftest.refusal(load_auxiliary, objective, tokenizer)
    assert_same_weights(of_generator(objective), before)
    assert message.startswith(f"objective.auxiliary={objective.config.objective.auxiliary}") and "\n" not in message
    return message


@pytest.mark.parametrize(
    ("objective", "encoder"),
    [({}, {}), ({"tying": "none"}, {}), (MASKED_LM, SMALL), ({"name": "teams"}, {})],
)
def test_a_run_gives_its_generator_or_its_masked_language_model(target, run_of, objective, encoder):
    source, path = run_of(objective=objective, encoder=encoder)
    sizes = source.config.model_dump(include={"objective": {"generator"}, "encoder": {"num_layers"}})
    fast = target(path, **sizes if objective.get("name") == "teams" else {})
    discriminator = weights_of(fast)
    (line,) = load_auxiliary(fast, OF_DATA)
    assert_loaded(fast, weights_of(source))
    assert_same_weights(weights_of(fast), discriminator)
    assert line == f"the frozen generator from step 7 of {path}: {len(of_generator(fast))} variables"


def test_the_authors_checkpoint_gives_its_generator(target, run_of, tmp_path):
    weights = weights_of(run_of()[0])
    fast = target(write_tf1_checkpoint(tmp_path / "model.ckpt", weights))
    load_auxiliary(fast, OF_DATA)
    assert_loaded(fast, weights)


def test_another_vocabulary_or_casing_is_refused(target, run_of):
    fast = target(run_of()[1])
    other = StoredTokenizer("\n".join(reversed(TOKENS)).encode(), OF_DATA.settings)
    assert "has another vocabulary than the data" in refusal(fast, other)
    cased = StoredTokenizer(VOCABULARY, TextSettings(lower_case=False, strip_accents=False))
    assert "was trained with lower_case True, the data with False" in refusal(fast, cased)


def test_other_sizes_are_refused_with_the_settings_to_write(target, run_of):
    path = run_of()[1]
    message = refusal(target(path, {"generator": {"num_layers": 2, "intermediate_size": 15}}))
    assert "num_layers 1, not 2; intermediate_size 14, not 15" in message
    assert message.endswith(
        "'objective.generator={hidden_size: 6, num_layers: 1, num_heads: 3, intermediate_size: 14, embedding_size: 12}'"
    )
    assert "num_heads 3, not 2" in refusal(target(path, {"generator": {"num_heads": 2}}))


def test_a_source_without_a_masked_lm_is_refused(target, folder):
    fast = target(folder("discriminator"), encoder=TWO_LAYERS)
    assert "has no generator or masked LM" in conftest.refusal(load_auxiliary, fast)


def test_init_from_gives_the_discriminator_and_auxiliary_the_generator(target, run_of):
    source, path = run_of()
    other, init_from = run_of(objective={"generator": {"num_heads": 2}})  # its generator, of other heads, is not used
    fast, weights = target(path), weights_of(other)
    lines = initial_weights(fast, init_from, False, OF_DATA)
    assert_same_weights(weights_of(fast), {name: weights[name] for name in weights_of(fast)})
    assert_loaded(fast, weights_of(source))
    assert lines[0].startswith(f"weights from step 7 of {init_from}: ")
    assert lines[-1].startswith(f"the frozen generator from step 7 of {path}: ")


def test_a_run_gives_others_its_discriminator_alone(target, run_of):
    source, path = run_of(objective=FAST)
    model, fast = load_trained(path), target("a path")
    assert model.generator is None
    assert_same_weights(model.weights, weights_of(source))
    initialize_from(fast, path, tokenizer=OF_DATA)
    assert_same_weights(weights_of(fast), model.weights)
