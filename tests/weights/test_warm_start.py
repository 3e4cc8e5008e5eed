"""Initial weights from runs, folders and TensorFlow 1 checkpoints: all weights are copied, or none."""

import re

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.tasks.pretrain import build_objective
from electra_tf.text.vocabulary import CASED_TEXT, StoredTokenizer, TextSettings
from electra_tf.train.step import compile_task
from electra_tf.weights.hugging_face.writer import write_hugging_face
from electra_tf.weights.names import named_variables
from electra_tf.weights.source import load_trained
from electra_tf.weights.warm_start import initialize_from
from tests.toy import EQUAL_SIZES, VOCABULARY, randomize
from tests.weights import conftest
from tests.weights.conftest import (
    FEWER_LAYERS,
    MASKED_LM,
    MODERN,
    SHALLOW,
    assert_same_weights,
    once,
    random_objective,
    weights_of,
    write_run_of,
    write_tf1_checkpoint,
)

TABLE = "electra/embeddings/position_embeddings"
EQUAL = {"size_fraction": 1.0, "intermediate_size": None}
SQUARE = {"embedding_size": 12, "hidden_size": 12, "num_layers": 3, "num_heads": 3}


@pytest.fixture(scope="session")
def target(tiny_config):
    """`target(objective={...})`: an objective with other random weights, the same one for the same settings."""
    build = once(lambda **changes: random_objective(tiny_config(**changes), seed=2))

    def get(**changes):
        randomize(named_variables(build(**changes)), seed=2)
        return build(**changes)

    return get


@pytest.fixture
def folder_of(stored, tmp_path):
    """`folder_of(encoder=MODERN)`: the weights of a stored model, and its Hugging Face folder."""

    def write(without: tuple[str, ...] = (), **changes):
        model = stored(without, **changes)
        write_hugging_face(model, str(tmp_path / "folder"))
        return model.weights, str(tmp_path / "folder")

    return write


def refusal(objective, path, **options) -> str:
    """The message. Nothing of the objective changes."""
    before = weights_of(objective)
    message = conftest.refusal(initialize_from, objective, path, **options)
    assert_same_weights(weights_of(objective), before)
    return message


def test_a_run_gives_its_weights_and_not_its_optimizer(run_of, target):
    (source, path), objective = run_of(), target()
    (line,) = initialize_from(objective, path)
    assert_same_weights(weights_of(objective), weights_of(source))
    assert all(np.any(moment) for moment in source.optimizer.variables[1:])
    assert not any(np.any(state) for state in objective.optimizer.variables)  # the steps and all moments
    assert line.startswith(f"weights from step 7 of {path}: {len(weights_of(source))} variables; ")


def test_every_replica_gets_the_weights(run_of, tiny_config, two_replicas):
    source, path = run_of()
    with two_replicas.scope():
        objective = compile_task(build_objective(tiny_config()))
    initialize_from(objective, path)
    copies = two_replicas.experimental_local_results(objective.encoder.embeddings.word_embeddings.value)
    expected = weights_of(source)["electra/embeddings/word_embeddings"]
    assert [np.array_equal(copy.numpy(), expected) for copy in copies] == [True, True]


def test_tied_weights_serve_an_untied_generator_and_the_other_way_round(run_of, target, tmp_path):
    (source, path), untied = run_of(), target(objective={"tying": "none"})
    initialize_from(untied, path)
    weights, word_table = weights_of(untied), "embeddings/word_embeddings"
    assert np.array_equal(weights[f"electra/{word_table}"], weights[f"generator/{word_table}"])
    assert np.array_equal(weights[f"electra/{word_table}"], weights_of(source)[f"electra/{word_table}"])
    untied.generator.encoder.embeddings.word_embeddings.assign_add(tf.ones([47, 12]))
    tied = target()
    lines = initialize_from(tied, write_run_of(untied, tmp_path).path)
    assert_same_weights(weights_of(tied), weights_of(source))
    assert lines[1].startswith("ignored: 5 variables, generator/embeddings/")


def test_the_first_phase_of_two_stage_gives_a_masked_lm_its_generator(run_of, target):
    objective = {"name": "two_stage", "generator": EQUAL_SIZES, "tying": "none"}
    (two_stage, path), masked_lm = run_of(step=3, objective=objective), target(objective=MASKED_LM)  # of 4 steps
    initialize_from(masked_lm, path)
    expected = weights_of(two_stage)
    for name, value in weights_of(masked_lm).items():
        assert np.array_equal(value, expected[name.replace("electra/", "generator/")]), name


@pytest.mark.parametrize("objective", [MASKED_LM, {"name": "fast_electra"}, {"tying": "gradient_disentangled"}])
def test_a_fresh_generator_is_refused_where_none_is_trained_or_differences_refer_to_it(target, objective):
    message = refusal(target(objective=objective), "a path", fresh_generator=True)
    assert message.startswith("fresh_generator requires an objective that trains a generator")


MODERN_MASKED_LM = {"encoder": MODERN, "objective": MASKED_LM}


@pytest.mark.parametrize(
    ("source", "changes", "message"),
    [
        ({}, {"encoder": {"num_layers": 2}}, "holds no variable electra/encoder/layer_1/intermediate/dense/kernel"),
        ({}, {"encoder": {"vocab_size": 48}}, "has shape [47, 12], the model's is [48, 12]: use data that"),
        (
            {},
            {"encoder": {"max_position_embeddings": 17}},
            "position_embeddings has shape [13, 12], the model's is [17, 12]: set encoder.max_",
        ),
        ({}, {"objective": {"generator": {"num_heads": 1}}}, "is 3, objective.generator.num_heads is 1; set it to 3"),
        ({}, {"encoder": {"layer_norm_epsilon": 1e-6}}, "layer_norm_epsilon of its encoder is 1e-12, encoder.layer_no"),
        (MODERN_MASKED_LM, {"objective": MASKED_LM}, "block of its encoder is modern, encoder.block is bert; set it"),
        (
            MODERN_MASKED_LM,
            {"objective": MASKED_LM, "encoder": MODERN | {"local_attention": 8}},
            "local_attention of its encoder is 6, encoder.local_attention is 8; set it to 6",
        ),
    ],
)
def test_a_run_with_other_sizes_or_settings_is_refused_naming_the_difference(run_of, target, source, changes, message):
    assert message in refusal(target(**changes), run_of(**source)[1])


def test_the_first_rows_of_a_longer_position_table_are_taken(run_of, target):
    objective, (source, path) = target(encoder={"max_position_embeddings": 11}), run_of()
    lines, expected = initialize_from(objective, path), weights_of(source)
    assert_same_weights(weights_of(objective), {**expected, TABLE: expected[TABLE][:11]})
    assert lines[-1].endswith("embeddings/position_embeddings: the first 11 of 13 positions")


def test_the_vocabulary_beside_an_authors_checkpoint_is_compared(run_of, target, tmp_path):
    prefix = write_tf1_checkpoint(tmp_path / "model.ckpt", weights_of(run_of()[0]))
    (tmp_path / "vocab.txt").write_bytes(b"a\nb\n")
    assert "model.ckpt has another vocabulary" in refusal(target(), prefix, tokenizer=StoredTokenizer(b"a\nc\n"))
    initialize_from(target(), prefix, tokenizer=StoredTokenizer(b"a\r\nb"))
    (tmp_path / "vocab.txt").write_bytes(b"a\nb\nnew york\n")  # a token was added for the model
    initialize_from(target(), prefix, tokenizer=StoredTokenizer(b"a\nb\n"))
    assert "another vocabulary" in refusal(target(), prefix, tokenizer=StoredTokenizer(b"a\nnew york\n"))


def test_the_data_say_how_the_text_of_an_authors_checkpoint_was_normalized(run_of, target, tmp_path):
    prefix = write_tf1_checkpoint(tmp_path / "model.ckpt", weights_of(run_of()[0]))
    (tmp_path / "vocab.txt").write_bytes(b"A\nB\n")
    initialize_from(target(), prefix, tokenizer=StoredTokenizer(b"A\nB\n", CASED_TEXT))
    message = refusal(target(), prefix, tokenizer=StoredTokenizer(b"A\nB\n"))
    assert f"{tmp_path}/vocab.txt: 2 of 2 tokens" in message


def test_text_with_other_settings_is_refused(run_of, target):
    path, tokenizer = run_of()[1], StoredTokenizer(VOCABULARY, TextSettings())
    assert f"{path} was trained with strip_accents False" in refusal(target(), path, tokenizer=tokenizer)


def test_differences_of_embeddings_are_kept_and_become_sums_elsewhere(run_of, target):
    disentangled, path = run_of(objective={"tying": "gradient_disentangled"})
    same, plain = target(objective={"tying": "gradient_disentangled"}), target(objective={"tying": "none"})
    initialize_from(same, path)
    assert_same_weights(weights_of(same), weights_of(disentangled))
    initialize_from(plain, path)
    weights = weights_of(plain)
    for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        assert np.array_equal(
            weights[f"electra/embeddings/{name}"], disentangled.encoder.embeddings.table(name).numpy()
        )
    assert_same_weights(load_trained(path).finished().weights, weights)


@pytest.mark.parametrize(
    ("source", "encoder", "generator", "tying"),
    [
        ("folder", MODERN, EQUAL, "all"),
        ("folder", MODERN, EQUAL, "none"),
        ("folder", MODERN, FEWER_LAYERS, "embeddings"),
        ("folder", SQUARE | {"family": "bert"}, FEWER_LAYERS, "none"),
        ("run", SQUARE, FEWER_LAYERS, "none"),
    ],
)
def test_a_masked_lm_gives_both_networks_its_first_layers_and_leaves_the_discriminators_head(
    run_of, folder_of, target, source, encoder, generator, tying
):
    if source == "run":
        masked_lm, path = run_of(encoder=encoder, objective=MASKED_LM)
        weights = weights_of(masked_lm)
    else:
        weights, path = folder_of(encoder=encoder, objective=MASKED_LM)
    objective = target(encoder=encoder, objective={"generator": generator, "tying": tying})
    before, lines = weights_of(objective), initialize_from(objective, path)
    assert "the source has no head of a discriminator: its 4 variables stay random" in lines
    assert ("the generator: the first 2 of the source's 3 layers" in lines) is (generator is FEWER_LAYERS)
    assert not any(line.startswith("ignored: ") for line in lines)
    for name, value in weights_of(objective).items():
        is_head = name.startswith("discriminator_predictions/")
        assert np.array_equal(value, before[name] if is_head else weights[name.replace("generator/", "electra/")]), name


def test_a_folder_of_an_electra_that_may_be_a_generator_starts_no_discriminator(folder_of, target):
    _, path = folder_of(encoder=SQUARE, objective=MASKED_LM)
    objective = target(encoder=SQUARE, objective={"generator": FEWER_LAYERS})
    assert "such as ELECTRA's generator" in refusal(objective, path)


@pytest.mark.parametrize(
    ("without", "encoder", "generator"),
    [
        ((), MODERN, SHALLOW),
        (("generator_predictions/",), MODERN, SHALLOW),
        ((), SQUARE | {"family": "bert"}, {"size_fraction": 0.5}),
    ],
)
def test_a_generator_of_other_sizes_must_be_fresh(folder_of, target, without, encoder, generator):
    weights, path = folder_of(without, encoder=encoder, objective=MASKED_LM)
    objective = target(encoder=encoder | {"family": "electra"}, objective={"generator": generator})
    assert "fresh_generator" in refusal(objective, path)
    before = weights_of(objective)
    lines = initialize_from(objective, path, fresh_generator=True)
    for name, value in weights_of(objective).items():
        assert np.array_equal(value, (weights if name.startswith("electra/") else before)[name]), name
    assert "the source has no head of a discriminator: its 4 variables stay random" in lines
    assert not any("encoder.family" in line for line in lines)


def test_stacking_repeats_the_layers_of_both_networks(run_of, target):
    generator = {"generator": {"size_fraction": 0.375, "num_heads": 3}}
    shallow, path = run_of(encoder={"num_layers": 2}, objective=generator)
    deep = target(encoder={"num_layers": 4}, objective=generator)
    _, *notes = initialize_from(deep, path, stacks=True)
    assert notes == [
        f"{scope}/encoder/layer_2 to 3 are copies of the 2 layers below (grow=stack)"
        for scope in ("electra", "generator")
    ]
    weights = weights_of(shallow)
    for name, value in weights_of(deep).items():
        source = re.sub(r"layer_(\d+)", lambda match: f"layer_{int(match[1]) % 2}", name)
        assert np.array_equal(value, weights[source]), name


@pytest.mark.slow
def test_layers_that_networks_share_are_stacked_and_serve_a_generator_that_shares_none(run_of, target):
    of_layers = [
        {"encoder": {"num_layers": layers}, "objective": {"name": "teams", "shared_layers_fraction": fraction}}
        for layers, fraction in ((4, 0.5), (8, 0.5), (4, 0.0))
    ]
    (shallow, path), deep, other = run_of(**of_layers[0]), *(target(**each) for each in of_layers[1:])
    weights = weights_of(shallow)
    initialize_from(deep, path, stacks=True)
    initialize_from(other, path)
    layer = "{}/encoder/layer_{}/intermediate/dense/kernel"
    sources = [("electra", 0), ("electra", 1), ("generator", 2), ("generator", 3)]
    for started, first in ((deep, 4), (other, 0)):
        for index, source in enumerate(sources):
            name = layer.format("generator", first + index)
            assert np.array_equal(weights_of(started)[name], weights[layer.format(*source)]), name


def test_a_stacked_modern_layer_has_a_new_norm_where_its_source_has_none(run_of, target):
    path = run_of(encoder=MODERN | {"num_layers": 2}, objective=MASKED_LM)[1]
    deep = target(encoder=MODERN | {"num_layers": 4}, objective=MASKED_LM)
    before = weights_of(deep)
    initialize_from(deep, path, stacks=True)
    weights, norm = weights_of(deep), "electra/encoder/layer_2/attention_norm/gamma"
    assert np.array_equal(weights[norm], before[norm])
    for name in (name for name in weights if "/layer_3/" in name):
        assert np.array_equal(weights[name], weights[name.replace("layer_3", "layer_1")])


@pytest.mark.parametrize(
    ("num_layers", "message"),
    [
        (3, "no fewer layers than this run; remove grow"),
        (6, "3 layers are no multiple of encoder.global_attention_every_n_layers 2"),
    ],
)
def test_stacking_that_repeats_nothing_or_makes_local_layers_global_is_refused(run_of, target, num_layers, message):
    path = run_of(**MODERN_MASKED_LM)[1]
    deep = target(encoder=MODERN | {"num_layers": num_layers}, objective=MASKED_LM)
    assert message in refusal(deep, path, stacks=True)
