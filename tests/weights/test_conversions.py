"""Models to other formats and back: every weight to the bit, with the step, the vocabulary and the sizes."""

import dataclasses
import json
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import tokenizers

from electra_tf.config.errors import UserError
from electra_tf.serving.saved_model import load_served_model
from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.tasks.pretrain import build_objective
from electra_tf.text.vocabulary import StoredTokenizer
from electra_tf.train.checkpoints import Checkpoints
from electra_tf.train.run_directory import RunDirectory
from electra_tf.train.step import compile_task
from electra_tf.weights.hugging_face.writer import write_hugging_face
from electra_tf.weights.names import encoder_variables, named_variables
from electra_tf.weights.source import load_pretrained, load_trained
from electra_tf.weights.stored_model import NO_OVERRIDES, SourceOverrides, StoredModel
from electra_tf.weights.tf1 import write_tf1
from electra_tf.weights.warm_start import initialize_from
from tests.toy import EQUAL_SIZES, VOCABULARY
from tests.weights.conftest import assert_same_weights, random_objective, write_run_of

HEADS = SourceOverrides(num_heads=2, generator_num_heads=3)  # of the tiny configuration
WAYS = {"tf1": (write_tf1, HEADS), "hugging_face": (write_hugging_face, NO_OVERRIDES)}


@pytest.fixture(scope="module")
def model(tiny_pretrained) -> StoredModel:
    return load_trained(tiny_pretrained).finished()


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


@pytest.mark.parametrize("way", WAYS)
def test_a_run_in_another_format_is_the_same_model(model, tmp_path, way):
    write, given = WAYS[way]
    write(model, str(tmp_path / way))
    found = load_trained(tmp_path / way, given).finished()
    assert_same_weights(found.weights, model.weights)
    for name in ("stored_tokenizer", "step", "objective", "encoder", "generator"):
        assert getattr(found, name) == getattr(model, name), name


# 53 rows for 47 tokens: those without a token are kept in every format too.
@pytest.mark.parametrize(
    ("objective", "num_weights", "vocab_size"),
    [
        ({"tying": "none"}, 55, 47),
        ({"tying": "all", "generator": EQUAL_SIZES}, 32, 47),
        ({"name": "bert_mlm"}, 28, 53),
        ({"name": "electra_15"}, 50, 53),
    ],
)
def test_every_tying_bert_mlm_and_rows_without_a_token_are_kept(run_of, tmp_path, objective, num_weights, vocab_size):
    model = load_trained(run_of(objective=objective, encoder={"vocab_size": vocab_size})).finished()
    assert len(model.weights) == num_weights and len(model.weights["electra/embeddings/word_embeddings"]) == vocab_size
    heads = HEADS._replace(generator_num_heads=None) if objective.get("tying") == "all" else HEADS
    for way, (write, given) in WAYS.items():
        write(model, str(tmp_path / way))
        between = load_trained(tmp_path / way, heads if way == "tf1" else given).finished()
        assert_same_weights(between.weights, model.weights)
        is_unstated = way == "tf1" and model.objective == "electra_15"  # a TF1 checkpoint does not name it
        assert between.objective == ("electra" if is_unstated else model.objective)


def test_differences_to_the_generators_embeddings_become_sums(run_of):
    path = run_of(objective={"tying": "gradient_disentangled"})
    objective, model = load_trained(path).build_task(), load_trained(path).finished()
    for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        summed = objective.encoder.embeddings.table(name).numpy()
        assert model.weights[f"electra/embeddings/{name}"].tobytes() == summed.tobytes()
    table = objective.generator.encoder.embeddings.word_embeddings.numpy()
    np.testing.assert_array_equal(model.weights["generator/embeddings/word_embeddings"], table)


@pytest.mark.parametrize(
    ("name", "way", "left_out"),
    [("contrastive", "tf1", "corrupted_input_head"), ("teams", "hugging_face", "word_selection_head")],
)
def test_only_the_encoder_is_converted_if_the_authors_lack_the_objective(run_of, tmp_path, name, way, left_out):
    model, (write, given) = load_trained(run_of(objective={"name": name})).finished(), WAYS[way]
    lines = write(model, str(tmp_path / way))
    assert any(line.endswith(f"other formats have no {left_out}") for line in lines)
    assert_same_weights(load_trained(tmp_path / way, given).finished().weights, model.part("electra/"))


@pytest.mark.slow
def test_the_detection_of_teams_which_needs_a_layer_of_its_own_is_not_served(run_of):
    path = run_of(objective={"name": "teams"})
    assert load_served_model(path).names == ("embed", "embed_ids")
    assert not load_trained(path).finished().has_detector


@pytest.mark.slow
@pytest.mark.parametrize("place", ["", "/discriminator", "/generator"])
def test_a_folder_is_served_as_the_run_it_was_written_from(pair, tiny_pretrained, place):
    found = load_trained(pair + place)
    served = found.build_task()
    ids = tf.constant([[2, 9, 7, 3]])
    batch = {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}
    assert found.tokenizer.vocabulary.content == VOCABULARY
    if place == "/generator":
        expected = load_trained(tiny_pretrained).build_task().generator.encoder(**batch).sequence_output
        np.testing.assert_array_equal(served(batch).sequence_output, expected)
    else:
        np.testing.assert_array_equal(served.detect(batch), load_trained(tiny_pretrained).build_task().detect(batch))
    assert found.build_task("bfloat16").config.train.precision == "bfloat16"
    if place == "/discriminator":
        assert load_served_model(pair + place).names == ("embed", "embed_ids", "detect", "detect_ids")


def test_a_tf1_checkpoint_is_not_served_as_its_number_of_heads_is_unknown(run_of, tmp_path):
    write_tf1(load_trained(run_of()).finished(), str(tmp_path))
    (index,) = tmp_path.glob("*.index")
    for path in (tmp_path, index.with_suffix("")):
        with pytest.raises(UserError, match="does not state its heads and casing; .* --to=hugging_face"):
            load_served_model(path)


def test_training_starts_from_a_pair_or_from_a_discriminator_with_a_fresh_generator(model, pair, tiny_config):
    config = tiny_config(encoder={"max_position_embeddings": 20})
    whole, alone = build_objective(config), build_objective(config)
    assert initialize_from(whole, pair)[0].startswith(f"weights from {pair}: 50 variables; ")
    named = {name: variable.numpy() for name, variable in encoder_variables(whole.encoder).items()}
    assert_same_weights(named, model.part("electra/"))
    before = alone.generator.head.transform.kernel.numpy()
    with pytest.raises(UserError, match="holds no variable generator.*fresh_generator"):
        initialize_from(alone, f"{pair}/discriminator")
    lines = initialize_from(alone, f"{pair}/discriminator", fresh_generator=True)
    assert lines[1].startswith("a fresh generator: 23 variables stay random (fresh_generator). ")
    np.testing.assert_array_equal(alone.generator.head.transform.kernel, before)
    score = alone.replaced_token_head.score.kernel.numpy()
    assert score.tobytes() == model.weights["discriminator_predictions/dense_1/kernel"].tobytes()


@pytest.mark.parametrize("place", ["", "/discriminator"])
def test_fine_tuning_starts_from_a_folder(pair, tiny_pretrained, place):
    found = load_pretrained(pair + place)
    assert (found.origin, found.encoder) == (pair + place, load_pretrained(tiny_pretrained).encoder)


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        ("", {"objective": {"generator": {"num_heads": 1}}}, "num_heads of its generator is 3"),
        ("/generator", {}, "pair.*/generator is a masked language model alone"),
    ],
)
def test_a_folder_that_does_not_fit_an_objective_is_refused(pair, tiny_config, place, change, message):
    with pytest.raises(UserError, match=message):
        initialize_from(build_objective(tiny_config(**change)), pair + place)


LABELS = {"labels": ["a", "b", "c"]}
ANSWERS = {"kind": "question_answering", "version_2": True}
PLAIN_ANSWERS = {"joint_prediction": False, "answerable_classifier": False}
WINDOWS = {"doc_stride": 3, "max_query_length": 5, "max_answer_length": 7, "n_best_size": 2, "null_threshold": 1.5}


@pytest.mark.parametrize(
    "task",
    [
        {"kind": "classification", "head": "huggingface", "text_columns": ["title", "body"], **LABELS},
        {"kind": "tagging", **LABELS},
        {**ANSWERS, **WINDOWS, **PLAIN_ANSWERS},
    ],
)
def test_a_fine_tuned_model_converted_to_hugging_face_and_back_is_the_same(stored_finetuned, tmp_path, task):
    expected = stored_finetuned(task)
    write_hugging_face(expected, str(tmp_path / "folder"))
    found = load_trained(tmp_path / "folder").finished()
    assert_same_weights(found.weights, expected.weights)
    for name, value in task.items():
        assert getattr(found.finetuned.task, name) == (tuple(value) if isinstance(value, list) else value)
    assert (found.finetuned.name, found.finetuned.data.max_seq_length, found.step) == ("made_up", 12, 4)


def write_seed(stored: StoredModel, config: FinetuningConfig, directory) -> None:
    """Writes a model as a seed's directory with a checkpoint at step 4."""
    task = compile_task(stored.build_task())
    task.optimizer.iterations.assign(4)
    run = RunDirectory(directory)
    run.create()
    run.write_config(config)
    run.write_tokenizer(StoredTokenizer(VOCABULARY))
    Checkpoints(task, run, chief=True, keep=1).save(4)


@pytest.mark.slow
def test_the_threshold_that_the_dev_set_chose_goes_with_each_checkpoint(stored_finetuned, tmp_path):
    stored = stored_finetuned({**ANSWERS, **PLAIN_ANSWERS})
    write_seed(stored, stored.finetuned, tmp_path / "seed_0")
    (tmp_path / "seed_0" / "result.json").write_text('{"metrics": {"null_threshold": 2.25}}', encoding="utf-8")
    write_hugging_face(load_trained(tmp_path / "seed_0").finished(), str(tmp_path / "folder"))
    for place in ("seed_0", "seed_0/checkpoints/step-4", "folder"):
        assert load_trained(tmp_path / place).finetuned.task.null_threshold == 2.25


def test_a_linear_head_converted_to_hugging_face_and_back_gives_the_same_logits(stored_finetuned, tmp_path):
    model = stored_finetuned({"kind": "classification", **LABELS})
    write_hugging_face(model, str(tmp_path / "folder"))
    text = {"input_ids": [[2, 9, 7, 3]], "input_mask": [[1, 1, 1, 1]], "segment_ids": [[0, 0, 0, 0]]}
    batch = {name: tf.constant(values) for name, values in text.items()}
    first, second = (each.build_task()(batch).numpy() for each in (model, load_trained(tmp_path / "folder")))
    # Each logit z becomes GELU(z) - GELU(-z): three roundings of 2 ** -24, and as many in the encoder's last digits.
    np.testing.assert_allclose(second, first, rtol=0, atol=8 * 2**-24 * np.abs(first).max())


def test_pre_training_does_not_start_from_a_fine_tuned_model(stored_finetuned, tiny_config, tmp_path):
    model = stored_finetuned({"kind": "tagging", **LABELS})
    config = model.finetuned.model_copy(update={"init_from": "runs/small"})
    write_seed(model, config, tmp_path / "seed_0")
    with pytest.raises(UserError, match="seed_0 is a fine-tuned model.* give runs/small$"):
        initialize_from(build_objective(tiny_config()), tmp_path / "seed_0")


def test_a_model_with_rows_without_a_token_starts_another_run(run_of, tmp_path, tiny_config):
    model = load_trained(run_of(encoder={"vocab_size": 53})).finished()
    write_hugging_face(model, str(tmp_path / "folder"))
    target = build_objective(tiny_config(encoder={"vocab_size": 53}))
    initialize_from(target, tmp_path / "folder", tokenizer=model.stored_tokenizer)
    weights = {name: variable.numpy() for name, variable in named_variables(target).items()}
    assert_same_weights(weights, model.weights)
    for network in ("discriminator", "generator"):  # a folder states the rows, its card the tokens
        place = tmp_path / "folder" / network
        assert json.loads((place / "config.json").read_text())["vocab_size"] == 53
        assert len(json.loads((place / "tokenizer.json").read_text())["model"]["vocab"]) == 47
        assert "vocabulary: 47 " in (place / "README.md").read_text()


@pytest.mark.parametrize(("num_segments", "second"), [(1, 0), (2, 1), (3, 1)])
def test_a_folder_of_a_model_with_one_segment_gives_it_to_both_texts(run_of, tmp_path, num_segments, second):
    run = run_of(encoder={"type_vocab_size": num_segments}, objective={"name": "bert_mlm"})
    write_hugging_face(load_trained(run).finished(), str(tmp_path / "folder"))
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "folder/tokenizer.json"))
    assert tokenizer.encode("w5", "w6").type_ids == [0, 0, 0, second, second]
    names = json.loads((tmp_path / "folder/tokenizer_config.json").read_text())["model_input_names"]
    assert ("token_type_ids" in names) == (num_segments > 1)


@pytest.mark.slow
def test_electric_is_built_again_with_the_towers_of_its_generator(run_of):
    stored, ids = load_trained(run_of(objective={"name": "electric"})).finished(), tf.constant([[2, 9, 7, 3]])
    batch = {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}
    again = dataclasses.replace(stored, task=None).build_task()
    np.testing.assert_array_equal(again.detect(batch), stored.build_task().detect(batch))


def test_the_model_of_a_run_is_built_once_and_its_arrays_are_the_memory_of_its_variables(tiny_pretrained):
    stored = load_trained(tiny_pretrained).finished()
    task = stored.build_task()
    assert stored.build_task("float32") is task
    name = "electra/encoder/layer_0/intermediate/dense/kernel"
    kernel, read = named_variables(task)[name], stored.weights[name].copy()
    assert np.shares_memory(stored.weights[name], np.asarray(tf.convert_to_tensor(kernel)))
    kernel.assign_add(tf.ones_like(read))
    np.testing.assert_array_equal(stored.weights[name], read)
