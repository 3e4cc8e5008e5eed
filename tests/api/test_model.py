"""A loaded model: vectors of texts and tokens, detection, predictions; and fine-tuning in Python."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pytest

import electra_tf
from electra_tf.api.model import Model
from electra_tf.config.errors import UserError
from electra_tf.tasks.finetune.config import resolve
from electra_tf.weights.run import load_objective
from electra_tf.weights.source import read_stored_model

PROJECT = Path(__file__).resolve().parents[2]
TEXTS = ["w5 w6 w7 w8 w9", "w10", "w11 w12"]


@pytest.fixture(scope="module")
def model(tiny_pretrained):
    return electra_tf.load(tiny_pretrained, batch_size=2)


def test_a_text_has_a_vector_for_each_token(model):
    assert model.tokens(TEXTS)[2] == ["[CLS]", "w11", "w12", "[SEP]"]
    assert [vectors.shape for vectors in model.token_vectors(TEXTS)] == [(7, 16), (3, 16), (4, 16)]


def test_a_texts_vector_is_the_mean_of_its_tokens_or_that_of_cls(model):
    of_tokens = model.token_vectors(TEXTS)
    np.testing.assert_allclose(model.encode(TEXTS), [vectors.mean(axis=0) for vectors in of_tokens], atol=1e-6)
    np.testing.assert_allclose(model.encode(TEXTS, pooling="cls"), [vectors[0] for vectors in of_tokens], atol=1e-6)
    largest = [vectors.max(axis=0) for vectors in of_tokens]
    np.testing.assert_allclose(model.encode(TEXTS, pooling="max"), largest, atol=1e-6)
    assert model.encode([]).shape == (0, 16)


def test_other_texts_of_a_batch_change_nothing(model):
    np.testing.assert_allclose(model.encode(TEXTS)[1], model.encode(["w10"])[0], atol=1e-6)


def test_detection_is_that_of_the_objective(model, tiny_pretrained):
    ids = np.array([[2, 10, 3]], np.int32)
    batch = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}
    expected = load_objective(tiny_pretrained).detect(batch).numpy()[0]
    np.testing.assert_allclose(model.detect(["w10"])[0], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model.encode("w5"), "expected a list of texts, found one text"),
        (lambda model: model.encode(TEXTS, pooling="sum"), "pooling is 'sum', expected mean, cls or max"),
        (lambda model: model.encode(["w5", None]), "found None as number 1"),
        (lambda model: model.encode({"text": ["w5"]}), "found a table; give one of its columns"),
        (lambda model: model.encode(pyarrow.table({"text": ["w5"]})), "found a table; give one of its columns"),
        (lambda model: model.encode(3), "expected a list of texts, found 3"),
        (lambda model: model.predict(TEXTS), "is not fine-tuned; load a seed of run_finetuning.py"),
    ],
)
def test_a_mistake_is_one_line(model, call, message):
    with pytest.raises(UserError, match=message):
        call(model)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_seq_length": 21}, "expected 3 to 20"),
        ({"layers": 2}, "--layers=2"),
        ({"layers": 0.5}, "--layers=0.5"),
        ({"max_seq_length": 16.0}, "max_seq_length is 16.0"),
        ({"batch_size": 0}, "batch_size is 0"),
    ],
)
def test_a_model_is_not_longer_or_deeper_than_it_was_trained(tiny_pretrained, options, message):
    with pytest.raises(UserError, match=message):
        electra_tf.load(tiny_pretrained, **options)


def test_a_truncated_encoder_says_why_it_has_no_discriminator(tiny_pretrained):
    with pytest.raises(UserError, match=re.escape("(layers=1: its encoder alone) has no discriminator")):
        electra_tf.load(tiny_pretrained, layers=1).detect(["w5"])


def test_a_model_reads_as_many_tokens_as_in_its_training(model):
    assert model.max_seq_length == 10


def test_electrics_probabilities_are_not_computed_without_its_generator(tiny_pretrained):
    electric = Model(dataclasses.replace(read_stored_model(tiny_pretrained), objective="electric"))
    with pytest.raises(UserError, match="`detect` of its SavedModel"):
        electric.detect(["w5"])


def test_a_model_of_bfloat16_gives_float32(tiny_pretrained):
    stored = read_stored_model(tiny_pretrained)
    task = {"kind": "similarity", "is_contrastive": False}
    sizes = {"num_epochs": 2, "max_seq_length": 12, "num_rows": 9}
    settings = {"train": {"precision": "bfloat16"}}
    config = resolve(settings, "a test", name="made_up", task=task, encoder=stored.encoder, init_from=None, **sizes)
    (vectors,) = Model(dataclasses.replace(stored, finetuned=config)).token_vectors(["w5"])
    assert vectors.dtype == np.float32


SCRIPT = """
import pandas, electra_tf
train = pandas.DataFrame({"text": ["w5 w6", "w7", "w5", "w7 w8"], "label": ["a", "b", "a", "b"]})
result = electra_tf.finetune("classification", train, train, init_from=INIT, output_dir=OUT, seeds=[0, 3])
rows = result.model(seed=3).predict(train[["text"]])
print([(row["id"], row["prediction"], f"{row['probability_a']:.6f}", f"{row['probability_b']:.6f}") for row in rows])
"""


@pytest.mark.slow
def test_five_lines_in_a_fresh_interpreter_predict_what_the_command_predicts(tiny_pretrained, tmp_path):
    script = SCRIPT.replace("INIT", repr(tiny_pretrained)).replace("OUT", repr(str(tmp_path / "ft")))
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    run = {"env": environment, "cwd": tmp_path, "check": True, "capture_output": True, "text": True}
    printed = subprocess.run([sys.executable, "-c", script], **run).stdout.splitlines()[-1]
    (tmp_path / "new.csv").write_text("text\nw5 w6\nw7\nw5\nw7 w8\n")
    flags = [f"--model_dir={tmp_path / 'ft' / 'seed_3'}", "--input_file=new.csv", "--output_file=predictions.tsv"]
    subprocess.run([sys.executable, PROJECT / "run_finetuning.py", "--predict", *flags], **run)
    lines = (tmp_path / "predictions.tsv").read_text().splitlines()[1:]
    assert printed == str([tuple(line.split("\t")) for line in lines])
    assert {path.name for path in (tmp_path / "ft").iterdir()} >= {"seed_0", "seed_3", "summary.json"}
