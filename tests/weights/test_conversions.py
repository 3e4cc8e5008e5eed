"""Runs to other formats and back: every weight to the bit, with the step, the vocabulary and the sizes."""

import dataclasses
import json
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
import tokenizers

from electra_tf.config.errors import UserError
from electra_tf.tasks.pretrain import build_objective
from electra_tf.train.checkpoints import Checkpoints
from electra_tf.train.run_directory import RunDirectory
from electra_tf.train.step import compile_task
from electra_tf.weights.hugging_face.writer import write_hugging_face
from electra_tf.weights.names import encoder_variables, named_variables
from electra_tf.weights.run import load_objective
from electra_tf.weights.run_writer import write_run
from electra_tf.weights.source import load_finetuned, load_pretrained, read_stored_model
from electra_tf.weights.stored_model import NO_OVERRIDES, SourceOverrides, StoredModel
from electra_tf.weights.tf1 import write_tf1
from electra_tf.weights.warm_start import initialize_from
from tests.toy import EQUAL_SIZES
from tests.weights.conftest import assert_same_weights, random_objective, write_run_of

HEADS = SourceOverrides(num_heads=2, generator_num_heads=3)  # of the tiny configuration
WAYS = {"tf1": (write_tf1, HEADS), "hugging_face": (write_hugging_face, NO_OVERRIDES)}


@pytest.fixture(scope="module")
def model(tiny_pretrained) -> StoredModel:
    return read_stored_model(tiny_pretrained)


@pytest.fixture(scope="module")
def pair(model, tmp_path_factory) -> str:
    """The model as a directory with Hugging Face's `discriminator/` and `generator/`."""
    directory = str(tmp_path_factory.mktemp("pair"))
    write_hugging_face(model, directory)
    return directory


@pytest.fixture
def run_of(tiny_config, tmp_path) -> Callable[..., str]:
    """`run_of(objective={...})`: the directory of a run with random weights."""
    return lambda **changes: write_run_of(random_objective(tiny_config(**changes), seed=4), tmp_path / "source").path


def assert_same(found: StoredModel, expected: StoredModel) -> None:
    assert_same_weights(found.weights, expected.weights)
    for name in ("stored_tokenizer", "step", "objective", "encoder", "generator"):
        assert getattr(found, name) == getattr(expected, name), name


@pytest.mark.parametrize("way", WAYS)
def test_a_run_converted_to_another_format_and_back_is_the_same(model, tmp_path, way):
    write, given = WAYS[way]
    write(model, str(tmp_path / way))
    between = read_stored_model(tmp_path / way, given)
    assert_same(between, model)
    lines = write_run(between, str(tmp_path / "run"))
    assert lines == [f"wrote {tmp_path}/run/checkpoints/step-3: 50 variables, no state of an optimizer"]
    assert_same(read_stored_model(tmp_path / "run"), model)


def test_an_authors_checkpoint_converted_to_hugging_face_and_back_is_the_same(model, tmp_path):
    write_tf1(model, str(tmp_path / "first"))
    write_hugging_face(read_stored_model(tmp_path / "first", HEADS), str(tmp_path / "folder"))
    write_tf1(read_stored_model(tmp_path / "folder"), str(tmp_path / "second"))
    first, second = (tf.train.load_checkpoint(str(tmp_path / name)) for name in ("first", "second"))
    assert first.get_variable_to_shape_map() == second.get_variable_to_shape_map()
    for name in first.get_variable_to_shape_map():
        assert first.get_tensor(name).tobytes() == second.get_tensor(name).tobytes()


@pytest.mark.parametrize(
    ("objective", "num_weights"),
    [
        ({"tying": "none"}, 55),
        ({"tying": "all", "generator": EQUAL_SIZES}, 32),
        ({"name": "bert_mlm"}, 28),
        ({"name": "electra_15"}, 50),
    ],
)
def test_every_tying_and_bert_mlm_keep_their_weights_in_other_formats(run_of, tmp_path, objective, num_weights):
    model = read_stored_model(run_of(objective=objective))
    assert len(model.weights) == num_weights
    heads = HEADS._replace(generator_num_heads=None) if objective.get("tying") == "all" else HEADS
    between = {}
    for way, (write, given) in WAYS.items():
        write(model, str(tmp_path / way))
        between[way] = read_stored_model(tmp_path / way, heads if way == "tf1" else given)
        assert_same_weights(between[way].weights, model.weights)
    # A TF1 checkpoint does not name the objective.
    assert (between["hugging_face"].objective, between["tf1"].objective) == (
        model.objective,
        "electra" if model.objective == "electra_15" else model.objective,
    )
    write_run(between["tf1"], str(tmp_path / "run"))
    assert_same_weights(read_stored_model(tmp_path / "run").weights, model.weights)


def test_differences_to_the_generators_embeddings_become_sums(run_of, tmp_path):
    path = run_of(objective={"tying": "gradient_disentangled"})
    objective = load_objective(path)
    model = read_stored_model(path)
    for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        summed = getattr(objective.encoder.embeddings, name).numpy()
        assert model.weights[f"electra/embeddings/{name}"].tobytes() == summed.tobytes()
    table = objective.generator.encoder.embeddings.word_embeddings.numpy()
    np.testing.assert_array_equal(model.weights["generator/embeddings/word_embeddings"], table)
    write_run(model, str(tmp_path / "run"))
    assert load_objective(tmp_path / "run").config.objective.tying == "none"
    assert_same_weights(read_stored_model(tmp_path / "run").weights, model.weights)


def test_only_the_encoder_is_converted_if_the_authors_lack_the_objective(run_of, tmp_path):
    model = read_stored_model(run_of(objective={"name": "contrastive"}))
    lines = write_tf1(model, str(tmp_path / "tf1"))
    assert "corrupted_input_head" in lines[1]
    assert_same_weights(read_stored_model(tmp_path / "tf1", HEADS).weights, model.part("electra/"))


def test_a_hugging_face_folder_keeps_the_hash_of_the_data(model, tmp_path):
    write_hugging_face(dataclasses.replace(model, facts={"data": ["abc", "def"]}), str(tmp_path / "folder"))
    write_run(read_stored_model(tmp_path / "folder"), str(tmp_path / "run"))
    assert read_stored_model(tmp_path / "run").facts["data"] == ["abc", "def"]


def test_a_converted_run_keeps_what_its_held_out_text_depends_on(run_of, tmp_path):
    path = run_of()
    RunDirectory(path).adopt_data(["abc"], [{"seed": 3}])
    write_run(read_stored_model(path), str(tmp_path / "run"))
    assert [hold_out for _, hold_out in RunDirectory(tmp_path / "run").hold_outs] == [{"seed": 3}]


@pytest.mark.parametrize(("setting", "value"), [("layer_norm_epsilon", 1e-6), ("type_vocab_size", 3)])
def test_a_generator_with_other_settings_than_the_discriminator_is_refused(model, tmp_path, setting, value):
    generator = model.generator.model_copy(update={setting: value})
    with pytest.raises(UserError, match=f"objective.generator.{setting} would be "):
        write_run(dataclasses.replace(model, generator=generator), str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_run_keeps_its_settings_and_other_models_get_the_papers(model, tmp_path):
    write_run(model, str(tmp_path / "same"), overrides=["encoder.hidden_dropout=0.3"])
    config = load_objective(tmp_path / "same").config
    assert (config.optimizer.learning_rate, config.encoder.hidden_dropout) == (1e-2, 0.3)
    write_tf1(model, str(tmp_path / "tf1"))
    changes = ["train.batch_size=64", "data.max_seq_length=12"]
    write_run(read_stored_model(tmp_path / "tf1", HEADS), str(tmp_path / "new"), overrides=changes)
    config = load_objective(tmp_path / "new").config
    assert (config.optimizer.learning_rate, config.train.batch_size, config.data.max_seq_length) == (5e-4, 64, 12)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("encoder.num_heads=4", "encoder.num_heads would be 4, but .* has 2"),
        ("encoder.layer_norm_epsilon=0.1", "encoder.layer_norm_epsilon would be 0.1, but .* has 1e-12"),
        ("objective.generator.num_heads=1", "objective.generator.num_heads would be 1, but .* has 3"),
        ("objective.tying=none", "holds no variable generator/embeddings/"),
    ],
)
def test_a_setting_that_does_not_fit_the_weights_is_refused(model, tmp_path, setting, message):
    with pytest.raises(UserError, match=message):
        write_run(model, str(tmp_path / "run"), overrides=[setting])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("objective", [{}, {"tying": "none"}, {"tying": "all", "generator": EQUAL_SIZES}])
def test_a_fresh_generator_has_no_weights_of_the_old_one(run_of, tmp_path, objective):
    model = read_stored_model(run_of(objective=objective))
    lines = write_run(model, str(tmp_path / "run"), fresh_generator=True)
    assert lines[1].startswith("random, from seed 0 (--fresh_generator): ")
    weights = read_stored_model(tmp_path / "run").weights
    same = {name for name, value in weights.items() if np.array_equal(value, model.weights.get(name))}
    assert same == {name for name in model.weights if not name.startswith("generator")}


@pytest.mark.parametrize("objective", [{"name": "bert_mlm"}, {"generator": {"kind": "uniform"}}])
def test_a_fresh_generator_of_an_objective_without_one_is_refused(run_of, tmp_path, objective):
    model = read_stored_model(run_of(objective=objective))
    with pytest.raises(UserError, match="--fresh_generator: this objective trains no generator"):
        write_run(model, str(tmp_path / "run"), fresh_generator=True)


def test_every_command_takes_a_written_run(model, tiny_config, tmp_path):
    write_run(model, str(tmp_path / "run"))
    assert load_pretrained(tmp_path / "run").source == f"{tmp_path}/run/checkpoints/step-3"
    lines = initialize_from(build_objective(tiny_config()), tmp_path / "run")
    assert lines[0].startswith(f"weights from step 3 of {tmp_path}/run: 50 variables")
    task = compile_task(build_objective(load_objective(tmp_path / "run").config))
    with pytest.raises(UserError, match="--init_from"):  # it has no optimizer's state to continue with
        run = RunDirectory(tmp_path / "run")
        Checkpoints(task, run, chief=True, keep=1, metrics=tf.Module()).restore_latest()


@pytest.mark.parametrize("left", ["discriminator", "encoder"])
def test_a_discriminator_or_encoder_alone_requires_a_fresh_generator(model, tmp_path, left):
    scopes = ("electra/", "discriminator_predictions/") if left == "discriminator" else ("electra/",)
    weights = {name: value for name, value in model.weights.items() if name.startswith(scopes)}
    part = StoredModel("there", model.encoder, None, weights, model.stored_tokenizer, objective="electra", step=3)
    with pytest.raises(UserError, match=f"there is an? {left} alone.*--fresh_generator"):
        write_run(part, str(tmp_path / "refused"))
    assert not (tmp_path / "refused").exists()
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        lines = write_run(part, str(tmp_path / name), fresh_generator=True, overrides=[f"train.seed={seed}"])
        assert lines[1].startswith(f"random, from seed {seed} (--fresh_generator): ")
    one, two, three = (read_stored_model(tmp_path / name) for name in ("one", "two", "three"))
    assert_same_weights(one.weights, two.weights)
    assert_same_weights({name: one.weights[name] for name in weights}, weights)
    assert one.generator.hidden_size == 4 and one.has_discriminator_head  # a quarter of the discriminator's 16
    kernel = "generator_predictions/dense/kernel"
    assert not np.array_equal(three.weights[kernel], one.weights[kernel])


def test_training_starts_from_a_pair_or_from_a_discriminator_with_a_fresh_generator(model, pair, tiny_config):
    config = tiny_config(encoder={"max_position_embeddings": 20})
    tf_keras.utils.set_random_seed(8)
    whole, alone = build_objective(config), build_objective(config)
    assert initialize_from(whole, pair)[0].startswith(f"weights from {pair}: 50 variables; ")
    named = {name: variable.numpy() for name, variable in encoder_variables(whole.encoder).items()}
    assert_same_weights(named, model.part("electra/"))
    before = alone.generator.head.transform.kernel.numpy()
    with pytest.raises(UserError, match="holds no variable generator.*--fresh_generator"):
        initialize_from(alone, f"{pair}/discriminator")
    lines = initialize_from(alone, f"{pair}/discriminator", fresh_generator=True)
    assert lines[1].startswith("a fresh generator: 23 variables stay random (--fresh_generator). ")
    np.testing.assert_array_equal(alone.generator.head.transform.kernel, before)
    score = alone.replaced_token_head.score.kernel.numpy()
    assert score.tobytes() == model.weights["discriminator_predictions/dense_1/kernel"].tobytes()


@pytest.mark.parametrize("place", ["", "/discriminator"])
def test_fine_tuning_starts_from_a_folder(pair, tiny_pretrained, place):
    found = load_pretrained(pair + place)
    assert (found.source, found.config) == (pair + place, load_pretrained(tiny_pretrained).config)


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        ("", {"objective": {"generator": {"num_heads": 1}}}, "num_heads of its generator is 3"),
        ("", {"encoder": {"hidden_size": 24}}, "embeddings_project/kernel has shape"),
        ("/generator", {}, "pair.*/generator is a masked language model alone"),
    ],
)
def test_a_folder_that_does_not_fit_an_objective_is_refused(pair, tiny_config, place, change, message):
    with pytest.raises(UserError, match=message):
        initialize_from(build_objective(tiny_config(**change)), pair + place)


LABELS = {"labels": ["a", "b", "c"]}
PLAIN_ANSWERS = {"joint_prediction": False, "answerable_classifier": False}


@pytest.mark.parametrize(
    "task",
    [
        {"kind": "classification", "head": "huggingface", "text_columns": ["title", "body"], **LABELS},
        {"kind": "tagging", **LABELS},
        {
            "kind": "question_answering",
            "version_2": True,
            "doc_stride": 3,
            "max_query_length": 5,
            "max_answer_length": 7,
            "n_best_size": 2,
            "null_threshold": 1.5,
            **PLAIN_ANSWERS,
        },
    ],
)
def test_a_fine_tuned_model_converted_to_hugging_face_and_back_is_the_same(stored_finetuned, tmp_path, task):
    expected = stored_finetuned(task)
    write_hugging_face(expected, str(tmp_path / "folder"))
    write_run(read_stored_model(tmp_path / "folder"), str(tmp_path / "seed_0"))
    found = read_stored_model(tmp_path / "seed_0")
    assert_same_weights(found.weights, expected.weights)
    for name, value in task.items():
        assert getattr(found.finetuned.task, name) == (tuple(value) if isinstance(value, list) else value)
    assert (found.finetuned.name, found.finetuned.data.max_seq_length, found.step) == ("made_up", 12, 4)


def test_the_threshold_that_the_dev_set_chose_goes_with_a_converted_model(stored_finetuned, tmp_path):
    write_run(stored_finetuned({"kind": "question_answering", "version_2": True}), str(tmp_path / "seed_0"))
    (tmp_path / "seed_0" / "null_threshold.json").write_text('{"null_threshold": 2.25}', encoding="utf-8")
    write_run(read_stored_model(tmp_path / "seed_0"), str(tmp_path / "copy"))
    assert load_finetuned(tmp_path / "copy").config.task.null_threshold == 2.25


def test_the_threshold_that_the_dev_set_chose_holds_for_each_checkpoint(stored_finetuned, tmp_path):
    stored = stored_finetuned({"kind": "question_answering", "version_2": True})
    write_run(stored, str(tmp_path / "seed_0"))
    (tmp_path / "seed_0" / "null_threshold.json").write_text('{"null_threshold": 2.25}', encoding="utf-8")
    for path in (tmp_path / "seed_0", tmp_path / "seed_0/checkpoints/step-4"):
        assert load_finetuned(path).config.task.null_threshold == 2.25


def test_a_linear_head_converted_to_hugging_face_and_back_gives_the_same_logits(stored_finetuned, tmp_path):
    write_run(stored_finetuned({"kind": "classification", **LABELS}), str(tmp_path / "first"))
    write_hugging_face(read_stored_model(tmp_path / "first"), str(tmp_path / "folder"))
    write_run(read_stored_model(tmp_path / "folder"), str(tmp_path / "second"))
    text = {"input_ids": [[2, 9, 7, 3]], "input_mask": [[1, 1, 1, 1]], "segment_ids": [[0, 0, 0, 0]]}
    batch = {name: tf.constant(values) for name, values in text.items()}
    first, second = (load_finetuned(tmp_path / name).task(batch).numpy() for name in ("first", "second"))
    # Each logit z becomes GELU(z) - GELU(-z): three roundings of 2 ** -24, and as many in the encoder's last digits.
    np.testing.assert_allclose(second, first, rtol=0, atol=8 * 2**-24 * np.abs(first).max())


def test_pre_training_does_not_start_from_a_fine_tuned_model(stored_finetuned, tiny_config, tmp_path):
    model = stored_finetuned({"kind": "tagging", **LABELS})
    config = model.finetuned.model_copy(update={"init_from": "runs/small"})
    write_run(dataclasses.replace(model, finetuned=config), str(tmp_path / "seed_0"))
    with pytest.raises(UserError, match="seed_0 is a fine-tuned model.* give runs/small$"):
        initialize_from(build_objective(tiny_config()), tmp_path / "seed_0")


@pytest.mark.parametrize(
    "objective",
    [
        {"name": "bert_mlm"},
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"tying": "none"}, marks=pytest.mark.slow),
    ],
)
def test_rows_without_a_token_are_kept_in_every_format(run_of, tmp_path, objective):
    """53 rows for 47 tokens: to both formats, back to a run, and as the start of another run."""
    model = read_stored_model(run_of(encoder={"vocab_size": 53}, objective=objective))
    tables = {name for name, value in model.weights.items() if len(value) == 53}
    assert {name.rpartition("/")[2] for name in tables} == {"word_embeddings", "output_bias"}
    for way, (write, given) in WAYS.items():
        write(model, str(tmp_path / way))
        between = read_stored_model(tmp_path / way, given)
        assert_same_weights(between.weights, model.weights)
        write_run(between, str(tmp_path / f"{way}_run"))
        assert_same_weights(read_stored_model(tmp_path / f"{way}_run").weights, model.weights)
        config = load_objective(tmp_path / f"{way}_run").config
        assert config.encoder.vocab_size == 53
        target = build_objective(config)
        initialize_from(target, tmp_path / way, tokenizer=model.stored_tokenizer)
        weights = {name: variable.numpy() for name, variable in named_variables(target).items()}
        assert_same_weights(weights, model.weights)


def test_a_folder_states_the_rows_and_the_card_the_tokens(run_of, tmp_path):
    write_hugging_face(read_stored_model(run_of(encoder={"vocab_size": 53})), str(tmp_path / "folder"))
    for network in ("discriminator", "generator"):
        place = tmp_path / "folder" / network
        assert json.loads((place / "config.json").read_text())["vocab_size"] == 53
        assert len(json.loads((place / "tokenizer.json").read_text())["model"]["vocab"]) == 47
        assert "vocabulary: 47 " in (place / "README.md").read_text()


@pytest.mark.parametrize(("num_segments", "second"), [(1, 0), (2, 1), (3, 1)])
def test_a_folder_of_a_model_with_one_segment_gives_it_to_both_texts(run_of, tmp_path, num_segments, second):
    run = run_of(encoder={"type_vocab_size": num_segments}, objective={"name": "bert_mlm"})
    write_hugging_face(read_stored_model(run), str(tmp_path / "folder"))
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "folder/tokenizer.json"))
    assert tokenizer.encode("w5", "w6").type_ids == [0, 0, 0, second, second]
    names = json.loads((tmp_path / "folder/tokenizer_config.json").read_text())["model_input_names"]
    assert ("token_type_ids" in names) == (num_segments > 1)
