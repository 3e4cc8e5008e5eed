"""Runs to other formats and back: every weight to the bit, with the step, the vocabulary and the sizes."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from electra_tf.config.errors import UserError
from electra_tf.runs.checkpoints import Checkpoints
from electra_tf.runs.directory import RunDirectory
from electra_tf.tasks.finetune import build_finetuning_task
from electra_tf.tasks.finetune.config import resolve
from electra_tf.tasks.pretrain import build_objective
from electra_tf.train.step import compile_task
from electra_tf.weights.hugging_face.writer import write_hugging_face
from electra_tf.weights.names import encoder_variables, finetuned_variables
from electra_tf.weights.run import load_finetuned, load_objective
from electra_tf.weights.run_writer import write_run
from electra_tf.weights.source import load_pretrained, read_stored_model
from electra_tf.weights.stored_model import NO_OVERRIDES, SourceOverrides, StoredModel
from electra_tf.weights.tf1 import write_tf1
from electra_tf.weights.warm_start import initialize_from

HEADS = SourceOverrides(num_heads=2, generator_num_heads=3)  # of the tiny configuration
EQUAL_SIZES = {"size_fraction": 1.0, "num_heads": None, "intermediate_size": None}


@pytest.fixture(scope="module")
def model(tiny_pretrained) -> StoredModel:
    return read_stored_model(tiny_pretrained)


@pytest.fixture
def run_of(tiny_config, tmp_path) -> Callable[..., str]:
    """`run_of(objective={...})`: the directory of a run at step 5 whose every variable has values of its own."""
    vocabulary = "".join(f"w{index}\n" for index in range(47))
    for index, token in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")):
        vocabulary = vocabulary.replace(f"w{index}\n", f"{token}\n", 1)

    def build(**changes) -> str:
        config = tiny_config(**changes)
        objective = compile_task(build_objective(config))
        for index, variable in enumerate(objective.trainable_variables):
            variable.assign(tf.random.stateless_uniform(variable.shape, [4, index]))
        run = RunDirectory(tmp_path / "source")
        run.create()
        run.adopt_config(config, is_started=False)
        run.adopt_tokenizer(vocabulary.encode(), True, False, is_started=False)
        Checkpoints(objective, run, chief=True, keep=1).save(5)
        return run.path

    return build


def assert_same_weights(found: dict, expected: dict) -> None:
    assert found.keys() == expected.keys()
    assert [name for name, value in expected.items() if value.tobytes() != found[name].tobytes()] == []


def assert_same(found: StoredModel, expected: StoredModel) -> None:
    assert_same_weights(found.weights, expected.weights)
    for name in ("vocabulary_file", "lower_case", "strip_accents", "step", "objective", "encoder", "generator"):
        assert getattr(found, name) == getattr(expected, name), name


WAYS = {"tf1": (write_tf1, HEADS), "hugging_face": (write_hugging_face, NO_OVERRIDES)}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_by_way_of_another_format_is_the_same_run(model, tmp_path, way):
    write, given = WAYS[way]
    write(model, str(tmp_path / way))
    between = read_stored_model(tmp_path / way, given)
    assert_same(between, model)
    lines = write_run(between, str(tmp_path / "run"))
    assert lines == [f"wrote {tmp_path}/run/checkpoints/step-3: 50 variables, no state of an optimizer"]
    assert_same(read_stored_model(tmp_path / "run"), model)


def test_an_authors_checkpoint_by_way_of_hugging_face_is_the_same(model, tmp_path):
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
def test_every_way_of_tying_and_the_baseline_come_back(run_of, tmp_path, objective, num_weights):
    model = read_stored_model(run_of(objective=objective))
    assert len(model.weights) == num_weights
    heads = HEADS._replace(generator_num_heads=None) if objective.get("tying") == "all" else HEADS
    between = {}
    for way, (write, given) in WAYS.items():
        write(model, str(tmp_path / way))
        between[way] = read_stored_model(tmp_path / way, heads if way == "tf1" else given)
        assert_same_weights(between[way].weights, model.weights)
    # An authors' checkpoint has no name of the objective.
    assert (between["hugging_face"].objective, between["tf1"].objective) == (
        model.objective,
        "electra" if model.objective == "electra_15" else model.objective,
    )
    write_run(between["tf1"], str(tmp_path / "run"))
    assert_same_weights(read_stored_model(tmp_path / "run").weights, model.weights)


def test_embeddings_that_lean_on_the_generators_are_merged(run_of, tmp_path):
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


def test_of_an_objective_that_other_formats_do_not_have_the_encoder_is_converted(run_of, tmp_path):
    path = run_of(objective={"name": "contrastive"})
    model = read_stored_model(path)
    lines = write_tf1(model, str(tmp_path / "tf1"))
    assert "only its encoder is converted; other formats have no corrupted_input_head/kernel, " in lines[1]
    assert_same_weights(read_stored_model(tmp_path / "tf1", HEADS).weights, model.part("electra/"))


def test_the_identity_of_the_data_is_kept_by_way_of_hugging_face(model, tmp_path):
    write_hugging_face(dataclasses.replace(model, facts={"data": ["abc", "def"]}), str(tmp_path / "folder"))
    write_run(read_stored_model(tmp_path / "folder"), str(tmp_path / "run"))
    assert read_stored_model(tmp_path / "run").facts["data"] == ["abc", "def"]


def test_weights_that_are_not_finite_are_refused(model, tmp_path):
    bias = "discriminator_predictions/dense/bias"
    weights = {**model.weights, bias: np.full([16], np.nan, np.float32)}
    write_tf1(dataclasses.replace(model, weights=weights), str(tmp_path))
    with pytest.raises(UserError, match=f"model.ckpt-3: {bias} holds NaN or infinity"):
        read_stored_model(tmp_path, HEADS)


def test_half_precision_of_an_authors_checkpoint_becomes_float32(model, tmp_path):
    halves = {name: value.astype(np.float16) for name, value in model.weights.items()}
    write_tf1(dataclasses.replace(model, weights=halves), str(tmp_path))
    found = read_stored_model(tmp_path, HEADS).weights
    assert_same_weights(found, {name: value.astype(np.float32) for name, value in halves.items()})


@pytest.mark.parametrize(("setting", "value"), [("layer_norm_epsilon", 1e-6), ("type_vocab_size", 3)])
def test_a_generator_that_computes_otherwise_than_the_discriminator_is_refused(model, tmp_path, setting, value):
    generator = model.generator.model_copy(update={setting: value})
    with pytest.raises(UserError, match=f"objective.generator.{setting} would be .* is {value:g}"):
        write_run(dataclasses.replace(model, generator=generator), str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_run_keeps_its_settings_and_others_get_the_papers(model, tmp_path):
    write_run(model, str(tmp_path / "same"))
    assert load_objective(tmp_path / "same").config.optimizer.learning_rate == 1e-2
    write_tf1(model, str(tmp_path / "tf1"))
    changes = ["train.batch_size=64", "data.max_seq_length=12"]
    write_run(read_stored_model(tmp_path / "tf1", HEADS), str(tmp_path / "new"), overrides=changes)
    config = load_objective(tmp_path / "new").config
    assert (config.optimizer.learning_rate, config.train.batch_size, config.data.max_seq_length) == (5e-4, 64, 12)


@pytest.mark.parametrize("way", ["run", "hugging_face"])
@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("encoder.num_heads=4", "encoder.num_heads would be 4, that of .* is 2: its weights would compute something"),
        ("encoder.layer_norm_epsilon=0.1", "encoder.layer_norm_epsilon would be 0.1, that of .* is 1e-12: its weights"),
        ("encoder.num_layers=2", "encoder.num_layers would be 2, that of .* is 1: its weights"),
        ("objective.generator.num_heads=1", "objective.generator.num_heads would be 1, that of .* is 3: its weights"),
        ("objective.tying=none", "holds no variable generator/embeddings/"),
    ],
)
def test_a_setting_that_changes_what_is_computed_is_refused(model, tmp_path, way, setting, message):
    found = model
    if way == "hugging_face":
        write_hugging_face(model, str(tmp_path / "pair"))
        found = read_stored_model(tmp_path / "pair")
    with pytest.raises(UserError, match=message):
        write_run(found, str(tmp_path / "run"), overrides=[setting])
    assert not (tmp_path / "run").exists()


def test_dropout_may_be_set(model, tmp_path):
    write_run(model, str(tmp_path / "run"), overrides=["encoder.hidden_dropout=0.3"])
    assert load_objective(tmp_path / "run").config.encoder.hidden_dropout == 0.3


@pytest.mark.parametrize("objective", [{}, {"tying": "none"}, {"tying": "all", "generator": EQUAL_SIZES}])
def test_a_fresh_generator_takes_nothing_of_the_one_there_is(run_of, tmp_path, objective):
    model = read_stored_model(run_of(objective=objective))
    lines = write_run(model, str(tmp_path / "run"), fresh_generator=True)
    assert lines[1].startswith("random, from seed 0 (--fresh_generator): ")
    found = read_stored_model(tmp_path / "run").weights
    same = {
        name for name, value in found.items() if name in model.weights and np.array_equal(value, model.weights[name])
    }
    assert same == {name for name in model.weights if not name.startswith("generator")}


@pytest.mark.parametrize("objective", [{"name": "bert_mlm"}, {"generator": {"kind": "uniform"}}])
def test_a_fresh_generator_of_an_objective_without_one_is_refused(run_of, tmp_path, objective):
    model = read_stored_model(run_of(objective=objective))
    with pytest.raises(UserError, match="--fresh_generator: this objective trains no generator"):
        write_run(model, str(tmp_path / "run"), fresh_generator=True)


def test_the_run_that_is_written_is_one_for_every_other_command(model, tiny_config, tmp_path):
    write_run(model, str(tmp_path / "run"))
    assert load_pretrained(tmp_path / "run").source == f"step 3 of {tmp_path}/run"
    objective = build_objective(tiny_config())
    lines = initialize_from(objective, tmp_path / "run")
    assert lines[0].startswith(f"weights from step 3 of {tmp_path}/run: 50 variables")
    task = compile_task(build_objective(load_objective(tmp_path / "run").config))
    with pytest.raises(UserError, match="lacks variables of the model or of the optimizer; .*--init_from"):
        run = RunDirectory(tmp_path / "run")
        Checkpoints(task, run, chief=True, keep=1, metrics=tf.Module()).restore_latest()


@pytest.mark.parametrize("left", ["discriminator", "encoder"])
def test_a_part_becomes_a_run_with_a_fresh_generator_alone(model, tmp_path, left):
    scopes = ("electra/", "discriminator_predictions/") if left == "discriminator" else ("electra/",)
    weights = {name: value for name, value in model.weights.items() if name.startswith(scopes)}
    part = StoredModel("there", model.encoder, None, weights, model.vocabulary_file, objective="electra", step=3)
    with pytest.raises(
        UserError, match=f"there is an? {left} alone: .* give --fresh_generator: what is missing is then"
    ):
        write_run(part, str(tmp_path / "refused"))
    assert not (tmp_path / "refused").exists()
    lines = [write_run(part, str(tmp_path / name), fresh_generator=True)[1] for name in ("one", "two")]
    assert lines[0].startswith("random, from seed 0 (--fresh_generator): ") and "see docs/interop.md" in lines[0]
    one, two = (read_stored_model(tmp_path / name) for name in ("one", "two"))
    assert_same_weights(one.weights, two.weights)  # the seed decides
    assert_same_weights({name: one.weights[name] for name in weights}, weights)
    assert one.generator.hidden_size == 4 and one.has_discriminator_head  # a quarter of the discriminator's 16
    write_run(part, str(tmp_path / "three"), fresh_generator=True, overrides=["train.seed=1"])
    bias = "generator_predictions/dense/kernel"
    assert not np.array_equal(read_stored_model(tmp_path / "three").weights[bias], one.weights[bias])


def test_a_fresh_generator_for_training_that_goes_on_from_a_folder(model, tiny_config, tmp_path):
    write_hugging_face(model, str(tmp_path / "pair"))
    config = tiny_config(encoder={"max_position_embeddings": 20})
    tf_keras.utils.set_random_seed(8)
    whole, alone = build_objective(config), build_objective(config)
    lines = initialize_from(whole, tmp_path / "pair")
    assert lines[0].startswith(f"weights from {tmp_path}/pair: 50 variables; ")
    named = {name: variable.numpy() for name, variable in encoder_variables(whole.encoder).items()}
    assert_same_weights(named, model.part("electra/"))
    before = alone.generator.head.transform.kernel.numpy()
    with pytest.raises(UserError, match="holds no variable generator.*--fresh_generator"):
        initialize_from(alone, tmp_path / "pair/discriminator")
    lines = initialize_from(alone, tmp_path / "pair/discriminator", fresh_generator=True)
    assert lines[1].startswith("a fresh generator: 23 variables stay random (--fresh_generator). Until it has")
    np.testing.assert_array_equal(alone.generator.head.transform.kernel, before)
    score = alone.replaced_token_head.score.kernel.numpy()
    assert score.tobytes() == model.weights["discriminator_predictions/dense_1/kernel"].tobytes()


def test_a_folder_gives_fine_tuning_its_encoder(model, tiny_pretrained, tmp_path):
    write_hugging_face(model, str(tmp_path / "pair"))
    for place in ("pair", "pair/discriminator"):
        found = load_pretrained(tmp_path / place)
        assert found.source == str(tmp_path / place)
        assert found.config == load_pretrained(tiny_pretrained).config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoder": {"num_heads": 4}}, ": num_heads of its encoder is 2, encoder.num_heads is 4; set it to 2"),
        (
            {"objective": {"generator": {"num_heads": 1}}},
            ": num_heads of its generator is 3, objective.generator.num_heads is 1; set it to 3",
        ),
        ({"encoder": {"hidden_size": 24}}, "embeddings_project/kernel has shape"),
        ({"encoder": {"layer_norm_epsilon": 1e-6}}, ": layer_norm_epsilon of its encoder is 1e-12, encoder.layer_"),
        ({"objective": {"generator": {"kind": "uniform"}}}, "trains no "),
    ],
)
def test_a_folder_that_does_not_fit_a_configuration_is_refused(model, tiny_config, tmp_path, change, message):
    write_hugging_face(model, str(tmp_path / "pair"))
    with pytest.raises(UserError, match=message):
        initialize_from(build_objective(tiny_config(**change)), tmp_path / "pair", fresh_generator="trains" in message)


def test_a_generator_alone_is_no_source_of_both_networks(model, tiny_config, tmp_path):
    write_hugging_face(model, str(tmp_path / "pair"))
    with pytest.raises(
        UserError, match="pair/generator is a masked language model alone, such as .* with discriminator/"
    ):
        initialize_from(build_objective(tiny_config()), tmp_path / "pair/generator")


def test_a_folder_of_another_vocabulary_than_the_data_is_refused(model, tiny_config, tmp_path):
    write_hugging_face(model, str(tmp_path / "pair"))
    vocab_file = tmp_path / "vocab.txt"
    vocab_file.write_bytes(model.vocabulary_file.replace(b"w30\n", b"other\n"))
    objective = build_objective(tiny_config())
    with pytest.raises(UserError, match="has another vocabulary than the data"):
        initialize_from(objective, tmp_path / "pair", vocabulary_file=vocab_file.read_bytes())
    with pytest.raises(UserError, match="pair was trained with lower_case True, the data with False"):
        initialize_from(objective, tmp_path / "pair", text={"lower_case": False})
    with pytest.raises(UserError, match="pair was trained with strip_accents True, the data with False"):
        initialize_from(
            objective, tmp_path / "pair", text={"lower_case": True, "strip_accents": not model.strip_accents}
        )


@pytest.fixture(scope="module")
def finetuned(model) -> Callable[..., StoredModel]:
    """`finetuned(kind="classification", ...)`: a fine-tuned model at step 4, every weight with values of its own."""

    def build(**task) -> StoredModel:
        settings = {"num_epochs": 2, "max_seq_length": 12, "num_rows": 9, "init_from": None}
        config = resolve({}, "test", name=task["kind"], task=task, encoder=model.encoder, **settings)
        named = finetuned_variables(build_finetuning_task(config), config.name)
        weights = {
            name: tf.random.stateless_normal(variable.shape, [6, index]).numpy()
            for index, (name, variable) in enumerate(named.items())
        }
        return StoredModel("there", model.encoder, None, weights, model.vocabulary_file, finetuned=config, step=4)

    return build


def logits_of(path) -> np.ndarray:
    """[1, 3]: of a fine-tuned model, for one text."""
    text = {"input_ids": [[2, 9, 7, 3]], "input_mask": [[1, 1, 1, 1]], "segment_ids": [[0, 0, 0, 0]]}
    return load_finetuned(path).task({name: tf.constant(values) for name, values in text.items()}).numpy()


LABELS = {"labels": ["a", "b", "c"]}


@pytest.mark.parametrize("task", [{"kind": "classification", "head": "huggingface"}, {"kind": "tagging"}])
def test_a_fine_tuned_model_by_way_of_hugging_face_is_the_same(finetuned, tmp_path, task):
    expected = finetuned(**task, **LABELS)
    write_hugging_face(expected, str(tmp_path / "folder"))
    write_run(read_stored_model(tmp_path / "folder"), str(tmp_path / "seed_0"))
    found = read_stored_model(tmp_path / "seed_0")
    assert_same_weights(found.weights, expected.weights)
    assert (found.finetuned.task.kind, found.finetuned.task.labels, found.step) == (task["kind"], ("a", "b", "c"), 4)


def test_a_fine_tuned_folder_is_no_start_of_pre_training(finetuned, tiny_config, tmp_path):
    write_hugging_face(finetuned(kind="tagging", **LABELS), str(tmp_path))
    with pytest.raises(UserError, match="is a fine-tuned model, without pre-training's heads; give a pre-trained one$"):
        initialize_from(build_objective(tiny_config()), tmp_path)


def test_a_model_of_pairs_by_way_of_hugging_face_takes_pairs(finetuned, tmp_path):
    write_hugging_face(finetuned(kind="classification", text_columns=["title", "body"], **LABELS), str(tmp_path))
    config = read_stored_model(tmp_path).finetuned
    assert (config.task.text_columns, config.data.max_seq_length) == (("title", "body"), 12)


def test_a_linear_head_by_way_of_hugging_face_gives_the_same_logits(finetuned, tmp_path):
    expected = finetuned(kind="classification", **LABELS)
    write_run(expected, str(tmp_path / "first"))
    write_hugging_face(read_stored_model(tmp_path / "first"), str(tmp_path / "folder"))
    write_run(read_stored_model(tmp_path / "folder"), str(tmp_path / "second"))
    first, second = logits_of(tmp_path / "first"), logits_of(tmp_path / "second")
    # Each logit z becomes GELU(z) - GELU(-z): three roundings of 2 ** -24, and as many in the encoder's last digits.
    np.testing.assert_allclose(second, first, rtol=0, atol=8 * 2**-24 * np.abs(first).max())


def test_a_fine_tuned_model_goes_to_the_authors_under_the_name_of_its_task(finetuned, tmp_path):
    expected = finetuned(kind="classification", **LABELS)
    write_tf1(expected, str(tmp_path))
    found = tf.train.load_checkpoint(str(tmp_path))
    kernel = expected.weights["task_specific/classification/dense/kernel"]
    assert found.get_tensor("task_specific/classification/dense/kernel").tobytes() == kernel.tobytes()
    assert_same_weights(read_stored_model(tmp_path, HEADS).weights, expected.part("electra/"))


def test_a_question_answering_model_by_way_of_hugging_face_is_the_same(finetuned, tmp_path):
    spans = {"joint_prediction": False, "answerable_classifier": False}
    expected = finetuned(kind="question_answering", version_2=True, **spans)
    write_hugging_face(expected, str(tmp_path / "folder"))
    write_run(read_stored_model(tmp_path / "folder"), str(tmp_path / "seed_0"))
    found = read_stored_model(tmp_path / "seed_0")
    assert_same_weights(found.weights, expected.weights)
    assert found.finetuned.task.version_2
    assert load_finetuned(tmp_path / "seed_0").task.end_layer is not None
