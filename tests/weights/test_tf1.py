"""The authors' checkpoints: what is written reads back to the bit, and what does not fit is named."""

import dataclasses
import re

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.text.vocabulary import BERT_TEXT, CASED_TEXT, StoredTokenizer, TextSettings
from electra_tf.weights.stored_model import SourceOverrides
from electra_tf.weights.tf1 import read_tf1, write_tf1
from tests.sentence_pieces import train
from tests.weights.conftest import TWO_LAYERS, assert_same_weights, refusal, write_tf1_checkpoint

HEADS = SourceOverrides(num_heads=2, generator_num_heads=3)


@pytest.fixture
def model(stored):
    return stored(encoder=TWO_LAYERS)


@pytest.mark.parametrize(
    ("without", "objective"),
    [((), "electra"), (("generator",), "electra"), (("generator", "discriminator"), "")],
)
def test_a_written_checkpoint_reads_back_to_the_bit(stored, tmp_path, without, objective):
    model = stored(without, encoder=TWO_LAYERS)
    lines = write_tf1(model, str(tmp_path / "out"))
    flags = "num_heads=2" if without else "num_heads=2 generator_num_heads=3"
    assert lines[0] == f"wrote {tmp_path}/out/model.ckpt-3: {len(model.weights)} variables"
    assert f" give {flags};" in lines[1] and len(lines) == 2
    prefix = tf.train.latest_checkpoint(str(tmp_path / "out"))
    read = read_tf1(prefix, HEADS)
    assert_same_weights(read.weights, model.weights)
    assert (read.encoder, read.generator, read.objective) == (model.encoder, model.generator, objective)
    assert (read.step, read.stored_tokenizer.content, read.notes) == (3, model.stored_tokenizer.content, ())
    step = tf.train.load_checkpoint(prefix).get_tensor("global_step")
    assert (step, step.dtype) == (3, np.int64)  # as in the authors' code


def test_a_sentence_piece_model_beside_a_checkpoint_is_read_with_its_own_settings(model, tmp_path):
    tokenizer = StoredTokenizer.of(train("bpe"), BERT_TEXT)
    lines = write_tf1(dataclasses.replace(model, stored_tokenizer=tokenizer), str(tmp_path))
    assert lines[-1] == "the authors' code reads no spm.model"
    expected = tokenizer.content, TextSettings(False, False, False)
    assert read_tf1(f"{tmp_path}/model.ckpt-3", HEADS).stored_tokenizer == expected


def test_a_checkpoint_in_a_relative_directory_is_found_there_and_after_a_move(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_tf1(model, "out")
    assert tf.train.latest_checkpoint("out") == "out/model.ckpt-3"
    (tmp_path / "out").rename(tmp_path / "moved")
    assert tf.train.latest_checkpoint("moved") == "moved/model.ckpt-3"


def test_the_head_of_a_fine_tuned_model_is_left_out(stored_finetuned, tmp_path):
    lines = write_tf1(stored_finetuned({"kind": "classification", "labels": ["b", "a"]}, name="mnli"), str(tmp_path))
    assert "head" in lines[1]
    names = {name for name, _ in tf.train.list_variables(str(tmp_path))}
    assert not any(name.startswith("task_specific/") for name in names) and "global_step" in names


def test_the_encoder_of_a_fine_tuned_checkpoint_is_read_without_its_head_and_training_state(stored, tmp_path):
    encoder = stored(("generator", "discriminator")).weights
    slots = {f"{name}/{slot}": value for name, value in encoder.items() for slot in ("adam_m", "adam_v")}
    others = {"task_specific/cola/dense/bias": np.ones([2], np.float32), "other/bias": np.ones([3], np.float32)}
    read = read_tf1(write_tf1_checkpoint(tmp_path / "model.ckpt", encoder | slots | others))
    assert_same_weights(read.weights, encoder)
    assert read.notes[0].endswith(": not read: other/bias, task_specific/cola/dense/bias")
    assert read.notes[1].endswith("does not state its attention heads: 1, one for 64 units, are assumed")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("electra/encoder/layer_1/output/dense/bias", None, "there is no "),
        ("generator_predictions/output_bias", np.ones([9], np.float32), " has shape [9], expected [47]"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_naming_the_weight(model, tmp_path, name, value, message):
    tensors = {each: tensor for each, tensor in (model.weights | {name: value}).items() if tensor is not None}
    found = refusal(read_tf1, write_tf1_checkpoint(tmp_path / "model.ckpt", tensors), HEADS)
    assert name in found and message in found


@pytest.mark.parametrize("ending", ["data-00000-of-00001", "index"])
def test_a_damaged_checkpoint_is_named(model, tmp_path, ending):
    prefix = write_tf1_checkpoint(tmp_path / "model.ckpt", model.weights)
    file = tmp_path / f"model.ckpt.{ending}"
    file.write_bytes(file.read_bytes()[:-20])
    assert refusal(read_tf1, prefix, HEADS).startswith(f"{tmp_path}/model.ckpt is damaged: ")


@pytest.mark.parametrize(("settings", "note"), [(CASED_TEXT, ".*cased"), (TextSettings(unicode=18), ".* unicode=18")])
def test_settings_that_the_format_does_not_keep_are_named(model, tmp_path, settings, note):
    tokenizer = model.stored_tokenizer._replace(settings=settings)
    lines = write_tf1(dataclasses.replace(model, stored_tokenizer=tokenizer), str(tmp_path))
    assert len(lines) == 3 and re.match(note, lines[2])
