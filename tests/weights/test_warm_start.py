"""Initial weights from runs, milestones and TensorFlow 1 checkpoints: all weights are copied, or none."""

import os
import re

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.tasks.pretrain import build_objective
from electra_tf.text.vocabulary import CASED_TEXT, StoredTokenizer, TextSettings
from electra_tf.train.step import compile_task
from electra_tf.weights.hugging_face.writer import write_hugging_face
from electra_tf.weights.names import named_variables
from electra_tf.weights.warm_start import initialize_from
from tests.toy import EQUAL_SIZES, VOCABULARY, randomize
from tests.weights.conftest import (
    FEWER_LAYERS,
    MODERN,
    SHALLOW,
    assert_same_weights,
    random_objective,
    write_run_of,
    write_tf1_checkpoint,
)

TABLE = "electra/embeddings/position_embeddings"


@pytest.fixture(scope="module")
def source(tiny_config):
    return random_objective(tiny_config(), seed=1)


@pytest.fixture(scope="module")
def source_run(source, tmp_path_factory) -> str:
    """A run with the source's weights at steps 5 and 7, and a milestone at 7."""
    return write_run_of(source, tmp_path_factory.mktemp("source") / "run", steps=(5, 7)).path


@pytest.fixture
def target(tiny_config):
    """`target(objective={...})`: an objective with other random weights."""
    return lambda **changes: random_objective(tiny_config(**changes), seed=2)


def weights_of(objective) -> dict[str, np.ndarray]:
    return {name: variable.numpy() for name, variable in named_variables(objective).items()}


def refusal(objective, path, **data) -> str:
    before = weights_of(objective)
    with pytest.raises(UserError) as caught:
        initialize_from(objective, path, **data)
    assert_same_weights(weights_of(objective), before)
    return str(caught.value)


@pytest.mark.parametrize("place", ["", "checkpoints/step-5"])
def test_a_run_gives_its_weights_and_not_its_optimizer(source, source_run, target, place):
    objective = target()
    lines = initialize_from(objective, os.path.join(source_run, place))
    assert_same_weights(weights_of(objective), weights_of(source))
    assert int(objective.optimizer.iterations) == 0
    step = 5 if place else 7
    (line,) = lines
    assert line.startswith(f"weights from step {step} of {source_run}: {len(weights_of(source))} variables; ")


def test_every_replica_gets_the_weights(source, source_run, tiny_config, two_replicas):
    with two_replicas.scope():
        objective = compile_task(build_objective(tiny_config()))
    initialize_from(objective, source_run)
    copies = two_replicas.experimental_local_results(objective.encoder.embeddings.word_embeddings.value)
    expected = weights_of(source)["electra/embeddings/word_embeddings"]
    assert [np.array_equal(copy.numpy(), expected) for copy in copies] == [True, True]


def test_tied_weights_serve_an_untied_generator_and_the_other_way_round(source, source_run, target, tmp_path):
    untied = target(objective={"tying": "none"})
    initialize_from(untied, source_run)
    weights, word_table = weights_of(untied), "embeddings/word_embeddings"
    assert np.array_equal(weights[f"electra/{word_table}"], weights[f"generator/{word_table}"])
    assert np.array_equal(weights[f"electra/{word_table}"], weights_of(source)[f"electra/{word_table}"])
    untied.generator.encoder.embeddings.word_embeddings.assign_add(tf.ones([47, 12]))
    tied = target()
    lines = initialize_from(tied, write_run_of(untied, tmp_path).path)
    assert_same_weights(weights_of(tied), weights_of(source))
    assert lines[1].startswith("ignored: 5 variables, generator/embeddings/")


def test_the_first_phase_of_two_stage_gives_a_masked_lm_its_generator(target, tmp_path):
    objective = {"name": "two_stage", "generator": EQUAL_SIZES, "tying": "none"}
    two_stage, masked_lm = target(objective=objective), target(objective={"name": "bert_mlm"})
    path = write_run_of(two_stage, tmp_path, steps=(3,)).path  # of 8, the first phase has 4
    initialize_from(masked_lm, path)
    expected = weights_of(two_stage)
    for name, value in weights_of(masked_lm).items():
        assert np.array_equal(value, expected[name.replace("electra/", "generator/")]), name


def test_the_authors_checkpoint_gives_both_networks(source, target, tmp_path):
    objective, tensors = target(), weights_of(source)
    slots = {f"{name}/{slot}": value for name, value in tensors.items() for slot in ("adam_m", "adam_v")}
    extra = {"global_step": np.int64(8), "task_head/kernel": np.zeros([2, 3], np.float32)}
    write_tf1_checkpoint(tmp_path / "model.ckpt", tensors | slots | extra)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt"\n')
    lines = initialize_from(objective, tmp_path)
    assert_same_weights(weights_of(objective), tensors)
    assert f"model.ckpt: {len(tensors)} variables; " in lines[0]
    assumed = f"{tmp_path}/model.ckpt does not state its attention heads: 1, one for 64 units, are assumed"
    assert lines[1:] == [f"{tmp_path}/model.ckpt: not read: task_head/kernel", assumed]


def test_missing_variables_are_named(source, target, tmp_path):
    tensors = weights_of(source)
    discriminator = {name: value for name, value in tensors.items() if not name.startswith("generator")}
    message = refusal(target(), write_tf1_checkpoint(tmp_path / "model.ckpt", discriminator))
    assert "generator_predictions/output_bias, " in message and "fresh_generator" in message


def test_a_fresh_generator_is_refused_for_a_masked_lm(target, tmp_path):
    masked_lm = target(objective={"name": "bert_mlm"})
    path = write_run_of(masked_lm, tmp_path).path
    assert refusal(masked_lm, path, fresh_generator=True).startswith(
        "fresh_generator requires an objective that trains a generator"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": {"num_layers": 2}}, "holds no variable electra/encoder/layer_1/intermediate/dense/kernel"),
        ({"encoder": {"vocab_size": 48}}, "has shape [47, 12], the model's is [48, 12]: use data that"),
        (
            {"encoder": {"max_position_embeddings": 17}},
            "position_embeddings has shape [13, 12], the model's is [17, 12]: set encoder.max_",
        ),
        ({"objective": {"generator": {"num_heads": 1}}}, "is 3, objective.generator.num_heads is 1; set it to 3"),
        ({"encoder": {"layer_norm_epsilon": 1e-6}}, ": layer_norm_epsilon of its encoder is 1e-12, encoder.layer_norm"),
    ],
)
def test_a_run_with_other_sizes_or_settings_is_refused_naming_the_difference(source_run, target, changes, message):
    assert message in refusal(target(**changes), source_run)


@pytest.mark.parametrize("kind", ["ours", "authors"])
def test_the_first_rows_of_a_longer_position_table_are_taken(source, source_run, target, tmp_path, kind):
    objective, expected = target(encoder={"max_position_embeddings": 11}), weights_of(source)
    path = source_run if kind == "ours" else write_tf1_checkpoint(tmp_path / "model.ckpt", expected)
    lines = initialize_from(objective, path)
    assert_same_weights(weights_of(objective), {**expected, TABLE: expected[TABLE][:11]})
    assert lines[-1].endswith("embeddings/position_embeddings: the first 11 of 13 positions")


def test_the_vocabulary_beside_an_authors_checkpoint_is_compared(source, target, tmp_path):
    prefix = write_tf1_checkpoint(tmp_path / "model.ckpt", weights_of(source))
    (tmp_path / "vocab.txt").write_bytes(b"a\nb\n")
    assert "model.ckpt has another vocabulary" in refusal(target(), prefix, tokenizer=StoredTokenizer(b"a\nc\n"))
    initialize_from(target(), prefix, tokenizer=StoredTokenizer(b"a\r\nb"))
    (tmp_path / "vocab.txt").write_bytes(b"a\nb\nnew york\n")  # a token was added for the model
    initialize_from(target(), prefix, tokenizer=StoredTokenizer(b"a\nb\n"))
    assert "another vocabulary" in refusal(target(), prefix, tokenizer=StoredTokenizer(b"a\nnew york\n"))


def test_the_data_say_how_the_text_of_an_authors_checkpoint_was_normalized(source, target, tmp_path):
    prefix = write_tf1_checkpoint(tmp_path / "model.ckpt", weights_of(source))
    (tmp_path / "vocab.txt").write_bytes(b"A\nB\n")
    initialize_from(target(), prefix, tokenizer=StoredTokenizer(b"A\nB\n", CASED_TEXT))
    message = refusal(target(), prefix, tokenizer=StoredTokenizer(b"A\nB\n"))
    assert f"{tmp_path}/vocab.txt: 2 of 2 tokens" in message


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (TextSettings(), "strip_accents"),
        (TextSettings(strip_accents=False, unicode=18), "unicode"),
    ],
)
def test_text_with_other_settings_is_refused(source_run, target, settings, name):
    tokenizer = StoredTokenizer(VOCABULARY, settings)
    assert f"{source_run} was trained with {name} " in refusal(target(), source_run, tokenizer=tokenizer)


def test_differences_of_embeddings_are_kept_and_go_to_other_objectives_as_sums(target, tiny_config, tmp_path):
    disentangled = target(objective={"tying": "gradient_disentangled"})
    run = write_run_of(disentangled, tmp_path)
    same, plain = (build_objective(tiny_config(objective={"tying": t})) for t in ("gradient_disentangled", "none"))
    initialize_from(same, run.path)
    assert_same_weights(weights_of(same), weights_of(disentangled))
    initialize_from(plain, run.path)
    table = disentangled.encoder.embeddings.table("word_embeddings").numpy()
    assert np.array_equal(plain.encoder.embeddings.word_embeddings.numpy(), table)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["electric", "hard_mlm", "all_tokens_mlm", "teams"]
)  # each with layers that others lack
def test_every_objective_starts_from_a_run_of_its_own(target, tiny_config, tmp_path, name):
    source, started = target(objective={"name": name}), build_objective(tiny_config(objective={"name": name}))
    assert len(initialize_from(started, write_run_of(source, tmp_path).path)) == 1
    assert_same_weights(weights_of(started), weights_of(source))


def test_electra_starts_from_a_run_with_another_head(target, tiny_config, tmp_path):
    source, started = target(objective={"name": "contrastive"}), build_objective(tiny_config())
    lines = initialize_from(started, write_run_of(source, tmp_path).path)
    named = weights_of(started)
    assert_same_weights(named, {name: value for name, value in weights_of(source).items() if name in named})
    assert lines[1:] == ["ignored: 2 variables, corrupted_input_head/bias, corrupted_input_head/kernel"]


# The modern block: from a masked language model or an encoder to ELECTRA


@pytest.fixture
def masked_lm(stored, tmp_path) -> str:
    """A folder of a masked language model of the modern block, which is not ours."""
    write_hugging_face(stored(encoder=MODERN, objective={"name": "bert_mlm"}), str(tmp_path / "masked_lm"))
    return str(tmp_path / "masked_lm")


EQUAL = {"size_fraction": 1.0, "intermediate_size": None}


@pytest.mark.parametrize("tying", ["all", "embeddings", "none"])
def test_a_masked_lm_gives_both_networks_its_weights_and_leaves_the_discriminators_head(
    stored, target, masked_lm, tying
):
    objective = target(encoder=MODERN, objective={"generator": EQUAL, "tying": tying})
    weights = stored(encoder=MODERN, objective={"name": "bert_mlm"}).weights
    before = weights_of(objective)
    lines = initialize_from(objective, masked_lm)
    assert lines[1] == "the source has no head of a discriminator: its 4 variables stay random"
    for name, value in weights_of(objective).items():
        if name.startswith("discriminator_predictions/"):
            expected = before[name]
        else:
            expected = weights[name.replace("generator/", "electra/")]
        assert np.array_equal(value, expected), name


BERT = {"embedding_size": 12, "hidden_size": 12, "num_layers": 3, "num_heads": 3}


@pytest.mark.parametrize("tying", ["embeddings", "none"])
@pytest.mark.parametrize("family", ["modern", "bert", "run"])
def test_a_generator_of_fewer_layers_gets_the_first_ones_of_a_masked_lm(stored, target, tmp_path, family, tying):
    encoder = {"modern": MODERN, "bert": BERT | {"family": "bert"}, "run": BERT}[family]
    objective = target(encoder=encoder, objective={"generator": FEWER_LAYERS, "tying": tying})
    if family == "run":
        source = target(encoder=encoder, objective={"name": "bert_mlm"})
        randomize(named_variables(source), seed=5)
        weights, path = weights_of(source), write_run_of(source, tmp_path / "run").path
    else:
        source, path = stored(encoder=encoder, objective={"name": "bert_mlm"}), str(tmp_path / "folder")
        weights = source.weights
        write_hugging_face(source, path)
    before = weights_of(objective)
    lines = initialize_from(objective, path)
    assert "the generator: the first 2 of the source's 3 layers" in lines
    assert not any(line.startswith("ignored: ") for line in lines)
    after = weights_of(objective)
    assert {name.split("/")[2] for name in after if name.startswith("generator/encoder/")} == {"layer_0", "layer_1"}
    for name, value in after.items():
        is_head = name.startswith("discriminator_predictions/")
        expected = before[name] if is_head else weights[name.replace("generator/", "electra/")]
        assert np.array_equal(value, expected), name


def test_a_folder_of_an_electra_that_may_be_a_generator_starts_no_discriminator(stored, target, tmp_path):
    write_hugging_face(stored(encoder=BERT, objective={"name": "bert_mlm"}), str(tmp_path / "folder"))
    objective = target(encoder=BERT, objective={"generator": FEWER_LAYERS})
    assert "such as ELECTRA's generator" in refusal(objective, tmp_path / "folder")


@pytest.mark.parametrize("without", [(), ("generator_predictions/",)], ids=["masked_lm", "encoder"])
def test_a_generator_of_other_sizes_must_be_fresh(stored, target, tmp_path, without):
    source = stored(without, encoder=MODERN, objective={"name": "bert_mlm"})
    write_hugging_face(source, str(tmp_path / "folder"))
    objective = target(encoder=MODERN, objective={"generator": SHALLOW})
    assert "fresh_generator" in refusal(objective, tmp_path / "folder")
    before = weights_of(objective)
    initialize_from(objective, tmp_path / "folder", fresh_generator=True)
    weights = stored(encoder=MODERN, objective={"name": "bert_mlm"}).weights
    for name, value in weights_of(objective).items():
        assert np.array_equal(value, (weights if name.startswith("electra/") else before)[name]), name


@pytest.mark.parametrize(
    ("setting", "value", "theirs"),
    [
        ("block", "bert", "modern"),
        ("local_attention", 8, 6),
        ("mlp_bias", True, False),
    ],
)
def test_a_setting_of_the_block_that_differs_is_named_with_its_value(tiny_config, masked_lm, setting, value, theirs):
    modern = MODERN if setting != "block" else {}
    objective = build_objective(tiny_config(encoder=modern | {setting: value}, objective={"name": "bert_mlm"}))
    expected = f"{setting} of its encoder is {theirs}, encoder.{setting} is {value}; set it to {theirs}"
    assert expected in refusal(objective, masked_lm)


def test_stacking_repeats_the_layers_of_both_networks(target, tmp_path):
    shallow = target(encoder={"num_layers": 2}, objective={"generator": {"size_fraction": 0.375, "num_heads": 3}})
    randomize(named_variables(shallow), seed=5)
    deep = target(encoder={"num_layers": 4}, objective={"generator": {"size_fraction": 0.375, "num_heads": 3}})
    _, *notes = initialize_from(deep, write_run_of(shallow, tmp_path).path, stacks=True)
    assert notes == [
        f"{scope}/encoder/layer_2 to 3 are copies of the 2 layers below (grow=stack)"
        for scope in ("electra", "generator")
    ]
    weights = weights_of(shallow)
    for name, value in weights_of(deep).items():
        source = re.sub(r"layer_(\d+)", lambda match: f"layer_{int(match[1]) % 2}", name)
        assert np.array_equal(value, weights[source]), name


@pytest.mark.slow
def test_layers_that_networks_share_are_stacked_and_serve_a_generator_that_shares_none(target, tmp_path):
    shallow, deep, other = (
        target(encoder={"num_layers": layers}, objective={"name": "teams", "shared_layers_fraction": fraction})
        for layers, fraction in ((4, 0.5), (8, 0.5), (4, 0.0))
    )
    randomize(named_variables(shallow), seed=5)
    path, weights = write_run_of(shallow, tmp_path).path, weights_of(shallow)
    initialize_from(deep, path, stacks=True)
    initialize_from(other, path)
    layer = "{}/encoder/layer_{}/intermediate/dense/kernel"
    sources = [("electra", 0), ("electra", 1), ("generator", 2), ("generator", 3)]
    for started, first in ((deep, 4), (other, 0)):
        for index, source in enumerate(sources):
            name = layer.format("generator", first + index)
            assert np.array_equal(weights_of(started)[name], weights[layer.format(*source)]), name


def test_a_stacked_encoder_of_twice_the_layers_applies_those_of_its_source_twice(target, tiny_batch, tmp_path):
    """The function of Gong et al. 2019, section 4.1."""
    shallow, deep = (target(encoder={"num_layers": layers}, objective={"name": "bert_mlm"}) for layers in (2, 4))
    initialize_from(deep, write_run_of(shallow, tmp_path).path, stacks=True)
    batch = tiny_batch(deep.config, [9, 6])
    inputs = {name: batch[name] for name in ("input_ids", "input_mask", "segment_ids")}
    hidden = shallow.encoder(**inputs).sequence_output
    for layer in shallow.encoder.transformer_layers:
        hidden, _ = layer(hidden, inputs["input_mask"])
    np.testing.assert_allclose(deep.encoder(**inputs).sequence_output, hidden, rtol=1e-6, atol=1e-6)


def test_a_stacked_modern_layer_has_a_new_norm_where_its_source_has_none(target, tmp_path):
    changes = {"objective": {"name": "bert_mlm"}}
    shallow, deep = (target(encoder=MODERN | {"num_layers": layers}, **changes) for layers in (2, 4))
    before, path = weights_of(deep), write_run_of(shallow, tmp_path).path
    initialize_from(deep, path, stacks=True)
    weights, norm = weights_of(deep), "electra/encoder/layer_2/attention_norm/gamma"
    assert np.array_equal(weights[norm], before[norm])
    for name in (name for name in weights if "/layer_3/" in name):
        assert np.array_equal(weights[name], weights[name.replace("layer_3", "layer_1")])


def test_stacking_that_repeats_nothing_or_turns_local_layers_into_global_ones_is_refused(target, tmp_path):
    changes = {"objective": {"name": "bert_mlm"}}
    three, six = (target(encoder=MODERN | {"num_layers": layers}, **changes) for layers in (3, 6))
    path = write_run_of(three, tmp_path).path
    assert "no fewer layers than this run; remove grow" in refusal(three, path, stacks=True)
    assert "3 layers are no multiple of encoder.global_attention_every_n_layers 2" in refusal(six, path, stacks=True)
