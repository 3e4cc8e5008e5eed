"""The authors' checkpoints: what is written reads back to the bit, and what does not fit is named."""

import dataclasses
import re

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.weights.stored_model import SourceOverrides
from electra_tf.weights.tf1 import read_tf1, write_tf1

HEADS = SourceOverrides(num_heads=3, generator_num_heads=2)


def checkpoint_of(directory, tensors: dict) -> str:
    prefix = str(directory / "model.ckpt")
    names, values = list(tensors), [tf.convert_to_tensor(value) for value in tensors.values()]
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=values)
    return prefix


def assert_same_weights(found: dict, expected: dict) -> None:
    assert found.keys() == expected.keys()
    assert [name for name, value in expected.items() if value.tobytes() != found[name].tobytes()] == []


@pytest.mark.parametrize(
    ("without", "objective"),
    [
        ((), "electra"),
        (("generator/", "generator_predictions/"), "electra"),
        (("generator/", "generator_predictions/", "discriminator_predictions/"), ""),
    ],
)
def test_what_is_written_reads_back_to_the_bit(stored_electra, tmp_path, without, objective):
    model = stored_electra(without, generator=None) if without else stored_electra()
    lines = write_tf1(model, str(tmp_path / "out"))
    flags = "--num_heads=3" if without else "--num_heads=3 --generator_num_heads=2"
    count = len(model.weights)
    assert lines[0] == f"wrote {tmp_path}/out/model.ckpt-7: {count} variables"
    assert lines[1].endswith(f"reads it with {flags}") and len(lines) == 2
    prefix = tf.train.latest_checkpoint(str(tmp_path / "out"))
    found, notes = read_tf1(prefix, HEADS)
    assert_same_weights(found.weights, model.weights)
    sizes = {"hidden_dropout": 0.1, "attention_dropout": 0.1}
    assert (found.encoder, found.step, found.objective) == (model.encoder.model_copy(update=sizes), 7, objective)
    assert found.generator == model.generator and notes == []
    assert (tmp_path / "out/vocab.txt").read_bytes() == model.vocabulary_file


def test_the_step_is_stored_as_the_authors_code_stores_it(stored_electra, tmp_path):
    write_tf1(stored_electra(), str(tmp_path))
    step = tf.train.load_checkpoint(str(tmp_path)).get_tensor("global_step")
    assert (step, step.dtype) == (7, np.int64)


def test_a_checkpoint_in_a_relative_directory_is_found_there_and_after_a_move(stored_electra, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_tf1(stored_electra(), "out")
    assert tf.train.latest_checkpoint("out") == "out/model.ckpt-7"
    (tmp_path / "out").rename(tmp_path / "moved")
    assert tf.train.latest_checkpoint("moved") == "moved/model.ckpt-7"


@pytest.mark.parametrize(("name", "theirs"), [("sst2", "sst"), ("stsb", "sts"), ("mrpc", "mrpc")])
def test_a_head_stands_under_the_name_of_the_authors_task(stored_finetuned, tmp_path, name, theirs):
    kind = {"kind": "regression"} if name == "stsb" else {"kind": "classification", "labels": ["0", "1"]}
    write_tf1(stored_finetuned(kind, name=name), str(tmp_path))
    names = {each for each, _ in tf.train.list_variables(str(tmp_path)) if each.startswith("task_specific/")}
    assert names == {f"task_specific/{theirs}/dense/kernel", f"task_specific/{theirs}/dense/bias"}


def test_labels_of_mnli_are_in_the_authors_order(stored_finetuned, tmp_path):
    labels = ["entailment", "neutral", "contradiction"]
    model = stored_finetuned({"kind": "classification", "labels": labels}, name="mnli")
    write_tf1(model, str(tmp_path))
    reader = tf.train.load_checkpoint(str(tmp_path))
    for part in ("kernel", "bias"):
        entailment, neutral, contradiction = np.moveaxis(model.weights[f"task_specific/mnli/dense/{part}"], -1, 0)
        found = np.moveaxis(reader.get_tensor(f"task_specific/mnli/dense/{part}"), -1, 0)
        np.testing.assert_array_equal(found, [contradiction, entailment, neutral])


def test_one_encoder_in_both_roles_has_two_heads(stored_electra, tmp_path):
    model = stored_electra(("generator/",))
    head = {name: value for name, value in model.weights.items() if name.startswith("generator_predictions/dense/")}
    wide = {name: np.ones([12, 6] if value.ndim == 2 else [6], np.float32) for name, value in head.items()}
    found, _ = read_tf1(checkpoint_of(tmp_path, {**model.weights, **wide}), SourceOverrides(num_heads=3))
    assert found.generator == found.encoder


def test_slots_of_optimizers_are_no_weights(stored_electra, tmp_path):
    weights = stored_electra().weights
    slots = {f"{name}/{slot}": value for name, value in weights.items() for slot in ("adam_m", "adam_v")}
    found, _ = read_tf1(checkpoint_of(tmp_path, weights | slots), HEADS)
    assert_same_weights(found.weights, weights)
    assert found.step == 0


def test_of_a_fine_tuned_checkpoint_the_encoder_is_read(stored_electra, tmp_path):
    encoder = stored_electra(("generator", "discriminator")).weights
    head = {"task_specific/cola/dense/bias": np.ones([2], np.float32)}
    found, notes = read_tf1(checkpoint_of(tmp_path, encoder | head), SourceOverrides(num_heads=3))
    assert_same_weights(found.weights, encoder)
    assert notes[0].endswith(": not read: task_specific/cola/dense/bias")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"electra/encoder/layer_1/output/dense/bias": None}, "there is no electra/encoder/layer_1/output/dense/bias"),
        (
            {"generator_predictions/output_bias": np.ones([9], np.float32)},
            r"generator_predictions/output_bias has shape \[9\], expected \[8\]",
        ),
        ({"electra/embeddings/word_embeddings": None}, "holds no matrix electra/embeddings/word_embeddings"),
        ({"electra/embeddings/word_embeddings": np.ones([3])}, "holds no matrix electra/embeddings/word_embeddings"),
    ],
)
def test_what_does_not_fit_is_named(stored_electra, tmp_path, change, message):
    tensors = {name: value for name, value in (stored_electra().weights | change).items() if value is not None}
    with pytest.raises(UserError, match=message):
        read_tf1(checkpoint_of(tmp_path, tensors), HEADS)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    tensors = {"bert/embeddings/word_embeddings": np.ones([8, 6], np.float32)}
    with pytest.raises(UserError, match="holds no matrix electra/embeddings/word_embeddings"):
        read_tf1(checkpoint_of(tmp_path, tensors))


def test_a_checkpoint_of_ours_without_its_run_is_refused_saying_where_it_belongs(tmp_path):
    tensors = {"task/encoder/x/.ATTRIBUTES/VARIABLE_VALUE": np.ones([3])}
    with pytest.raises(UserError, match="model.ckpt is a checkpoint of this program without its run"):
        read_tf1(checkpoint_of(tmp_path, tensors))


@pytest.mark.parametrize(
    ("epsilon", "text", "note"),
    [
        (1e-6, {}, "layer_norm_epsilon 1e-06 is lost in the TF1 format"),
        (1e-12, {"strip_accents": False}, "strip_accents false is lost in the TF1 format"),
    ],
)
def test_what_the_format_cannot_keep_is_named(stored_electra, tmp_path, epsilon, text, note):
    model = stored_electra(**text)
    model = dataclasses.replace(model, encoder=model.encoder.model_copy(update={"layer_norm_epsilon": epsilon}))
    lines = write_tf1(model, str(tmp_path))
    assert len(lines) == 3 and re.match(note, lines[2])


def test_heads_that_do_not_divide_the_width_are_refused(stored_electra, tmp_path):
    prefix = checkpoint_of(tmp_path, stored_electra().weights)
    with pytest.raises(UserError, match="hidden_size 12 does not divide into num_heads 5"):
        read_tf1(prefix, SourceOverrides(num_heads=5))


def test_a_damaged_checkpoint_is_one_line(stored_electra, tmp_path):
    prefix = checkpoint_of(tmp_path, stored_electra().weights)
    data = tmp_path / "model.ckpt.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(UserError, match="is no readable TensorFlow checkpoint: ") as caught:
        read_tf1(prefix, HEADS)
    assert "\n" not in str(caught.value)


def test_a_head_that_the_authors_do_not_have_is_left_out(stored_electra, tmp_path):
    model = stored_electra(("generator", "discriminator"), generator=None)
    model.weights["task_specific/rte/hidden/bias"] = np.ones([12], np.float32)
    model.weights["task_specific/rte/dense/bias"] = np.ones([2], np.float32)
    lines = write_tf1(model, str(tmp_path))
    assert lines[1] == "the authors' code has no head with a hidden layer on [CLS]: the encoder alone is written"
    names = {name for name, _ in tf.train.list_variables(str(tmp_path))}
    assert not any(name.startswith("task_specific/") for name in names) and "global_step" in names


def test_a_plain_head_is_written_under_the_name_of_the_task(stored_electra, tmp_path):
    model = stored_electra(("generator", "discriminator"), generator=None)
    model.weights["task_specific/rte/dense/bias"] = np.ones([2], np.float32)
    write_tf1(model, str(tmp_path))
    assert "task_specific/rte/dense/bias" in dict(tf.train.list_variables(str(tmp_path)))
