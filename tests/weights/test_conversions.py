"""Models to other formats and back: every weight to the bit, with the step, the vocabulary and the sizes."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
import tokenizers

from electra_tf.config.errors import UserError
from electra_tf.finetuning.predict import data_of
from electra_tf.serving.saved_model import load_served_model
from electra_tf.tasks.pretrain import build_objective
from electra_tf.text.vocabulary import StoredTokenizer
from electra_tf.train.checkpoints import Checkpoints
from electra_tf.train.run_directory import RunDirectory
from electra_tf.train.step import compile_task
from electra_tf.weights.hugging_face.writer import write_hugging_face
from electra_tf.weights.names import named_variables
from electra_tf.weights.source import load_pretrained, load_trained
from electra_tf.weights.stored_model import NO_OVERRIDES, SourceOverrides, StoredModel
from electra_tf.weights.warm_start import initialize_from
from electra_tf.weights.write import write_model
from tests.toy import EQUAL_SIZES, VOCABULARY
from tests.weights.conftest import (
    BERT,
    BIASES,
    MASKED_LM,
    MODERN,
    PLAIN_ANSWERS,
    SHALLOW,
    assert_same_weights,
    refusal,
    weights_of,
)

HEADS = SourceOverrides(num_heads=2, generator_num_heads=3)  # of the tiny configuration
GIVEN = {"tf1": HEADS, "hugging_face": NO_OVERRIDES}
KEPT = ("stored_tokenizer", "step", "encoder", "generator", "objective")


@pytest.fixture(scope="module")
def model(tiny_pretrained) -> StoredModel:
    return load_trained(tiny_pretrained).finished()


@pytest.fixture(scope="module")
def pair(model, tmp_path_factory) -> str:
    """The model as a directory with Hugging Face's `discriminator/` and `generator/`."""
    directory = str(tmp_path_factory.mktemp("pair"))
    write_hugging_face(model, directory)
    return directory


def batch_of(*ids: int) -> dict[str, tf.Tensor]:
    ids = tf.constant([ids])
    return {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}


@pytest.mark.parametrize("way", GIVEN)
def test_a_run_in_another_format_is_the_same_model(model, tmp_path, way):
    write_model(model, way, tmp_path / way)
    found = load_trained(tmp_path / way, GIVEN[way]).finished()
    assert_same_weights(found.weights, model.weights)
    assert {name: getattr(found, name) for name in KEPT} == {name: getattr(model, name) for name in KEPT}


# 53 rows for 47 tokens: those without a token are kept in every format too.
@pytest.mark.parametrize(
    ("objective", "encoder", "num_weights"),
    [
        ({"tying": "none"}, {}, 55),
        ({"tying": "all", "generator": EQUAL_SIZES}, {}, 32),
        (MASKED_LM, {"vocab_size": 53}, 28),
        ({"name": "electra_15"}, {"vocab_size": 53}, 50),
        (MASKED_LM, BERT, 26),
        ({"generator": SHALLOW}, MODERN, 39),
        ({"generator": SHALLOW, "tying": "none"}, MODERN | BIASES, 77),
        ({"generator": {"size_fraction": 1.0, "intermediate_size": None}, "tying": "all"}, MODERN, 27),
        (MASKED_LM, MODERN | BIASES, 44),
    ],
)
def test_every_tying_block_and_row_without_a_token_are_kept(stored, tmp_path, objective, encoder, num_weights):
    model = stored(objective=objective, encoder=encoder)
    assert len(model.weights) == num_weights
    for way in ("hugging_face",) if "block" in encoder else GIVEN:
        write_model(model, way, tmp_path / way)
        given = GIVEN[way]._replace(generator_num_heads=None) if objective.get("tying") == "all" else GIVEN[way]
        found, expected = load_trained(tmp_path / way, given).finished(), model
        if way == "tf1":  # it names neither the objective nor the family
            name = "bert_mlm" if objective == MASKED_LM else "electra"
            sizes = model.encoder.model_copy(update={"family": "electra"})
            expected = dataclasses.replace(model, objective=name, encoder=sizes)
        assert_same_weights(found.weights, model.weights)
        assert {name: getattr(found, name) for name in KEPT} == {name: getattr(expected, name) for name in KEPT}


@pytest.mark.parametrize(
    ("name", "way", "left_out"),
    [("contrastive", "tf1", "corrupted_input_head"), ("all_tokens_mlm", "hugging_face", "copy_head")],
)
def test_only_the_encoder_is_converted_if_the_authors_lack_the_objective(stored, tmp_path, name, way, left_out):
    model = stored(objective={"name": name})
    lines = write_model(model, way, tmp_path / way)
    assert "other formats have no " in "".join(lines) and left_out in "".join(lines)
    assert_same_weights(load_trained(tmp_path / way, GIVEN[way]).finished().weights, model.part("electra/"))


@pytest.mark.slow
def test_the_detection_of_teams_which_needs_a_layer_of_its_own_is_not_served(run_of):
    path = run_of(objective={"name": "teams"})[1]
    assert load_served_model(path).names == ("embed", "embed_ids")
    assert not load_trained(path).finished().has_detector


@pytest.mark.slow
@pytest.mark.parametrize("place", ["", "/discriminator", "/generator"])
def test_a_folder_is_served_as_the_run_it_was_written_from(pair, tiny_pretrained, place):
    found, run, batch = load_trained(pair + place), load_trained(tiny_pretrained).build_task(), batch_of(2, 9, 7, 3)
    served = found.build_task()
    assert found.tokenizer.vocabulary.content == VOCABULARY
    if place == "/generator":
        expected = run.generator.encoder(**batch).sequence_output
        np.testing.assert_array_equal(served(batch).sequence_output, expected)
    else:
        np.testing.assert_array_equal(served.detect(batch), run.detect(batch))
    assert found.build_task("bfloat16").config.train.precision == "bfloat16"
    if place == "/discriminator":
        assert load_served_model(pair + place).names == ("embed", "embed_ids", "detect", "detect_ids")


def test_a_tf1_checkpoint_is_not_served_as_its_number_of_heads_is_unknown(stored, tmp_path):
    write_model(stored(), "tf1", tmp_path / "out")
    with pytest.raises(UserError, match="does not state its heads and casing; .* --to=hugging_face"):
        load_served_model(tmp_path / "out")
    assert "is not fine-tuned" in refusal(data_of, load_trained(tmp_path / "out"), "a.csv")  # nor does it predict


def test_training_and_fine_tuning_start_from_a_pair_or_with_a_fresh_generator(model, pair, tiny_config):
    config = tiny_config(encoder={"max_position_embeddings": 20})
    whole, alone = build_objective(config), build_objective(config)
    assert initialize_from(whole, pair)[0].startswith(f"weights from {pair}: 50 variables; ")
    assert_same_weights(weights_of(whole), model.weights)
    found = load_pretrained(pair)
    assert (found.origin, found.encoder) == (pair, model.encoder)
    before = weights_of(alone)
    message = refusal(initialize_from, alone, f"{pair}/discriminator")
    assert "holds no variable generator" in message and "fresh_generator" in message
    lines = initialize_from(alone, f"{pair}/discriminator", fresh_generator=True)
    assert lines[1].startswith("a fresh generator: 23 variables stay random (fresh_generator). ")
    of_generator = {name: value for name, value in before.items() if name.startswith("generator")}
    assert_same_weights(weights_of(alone), model.weights | of_generator)


def write_seed(stored: StoredModel, directory, **changes) -> None:
    """Writes a fine-tuned model as a seed's directory with a checkpoint at step 4."""
    task = compile_task(stored.build_task())
    task.optimizer.iterations.assign(4)
    run = RunDirectory(directory)
    run.create()
    run.write_config(stored.finetuned.model_copy(update=changes))
    run.write_tokenizer(StoredTokenizer(VOCABULARY))
    Checkpoints(task, run, chief=True, keep=1).save(4)


@pytest.mark.slow
def test_the_threshold_that_the_dev_set_chose_goes_with_each_checkpoint(stored_finetuned, tmp_path):
    write_seed(stored_finetuned({"kind": "question_answering", **PLAIN_ANSWERS}), tmp_path / "seed_0")
    (tmp_path / "seed_0" / "result.json").write_text('{"metrics": {"null_threshold": 2.25}}', encoding="utf-8")
    write_hugging_face(load_trained(tmp_path / "seed_0").finished(), str(tmp_path / "folder"))
    for place in ("seed_0", "seed_0/checkpoints/step-4", "folder"):
        assert load_trained(tmp_path / place).finetuned.task.null_threshold == 2.25


def test_pre_training_does_not_start_from_a_fine_tuned_model(stored_finetuned, tiny_config, tmp_path):
    write_seed(stored_finetuned({"kind": "regression"}), tmp_path / "seed_0", init_from="runs/small")
    with pytest.raises(UserError, match="seed_0 is a fine-tuned model.* give runs/small$"):
        initialize_from(build_objective(tiny_config()), tmp_path / "seed_0")


def test_a_folder_with_rows_without_a_token_states_both_numbers(stored, tmp_path):
    write_hugging_face(stored(encoder={"vocab_size": 53}, objective=MASKED_LM), str(tmp_path))
    assert json.loads((tmp_path / "config.json").read_text())["vocab_size"] == 53
    assert len(json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]) == 47
    assert "vocabulary: 47 " in (tmp_path / "README.md").read_text()


@pytest.mark.parametrize(("encoder", "second"), [({"type_vocab_size": 1}, 0), ({"type_vocab_size": 2}, 1), (MODERN, 0)])
def test_a_folder_of_a_model_with_one_segment_or_none_gives_it_to_both_texts(stored, tmp_path, encoder, second):
    write_hugging_face(stored(encoder=encoder, objective=MASKED_LM), str(tmp_path))
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.encode("w5", "w6").type_ids == [0, 0, 0, second, second]
    names = json.loads((tmp_path / "tokenizer_config.json").read_text())["model_input_names"]
    assert names == ["input_ids", *["token_type_ids"] * second, "attention_mask"]


@pytest.mark.slow
def test_electric_is_built_again_with_the_towers_of_its_generator(run_of):
    stored, batch = load_trained(run_of(objective={"name": "electric"})[1]).finished(), batch_of(2, 9, 7, 3)
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
