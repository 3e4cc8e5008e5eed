"""A loaded model: vectors of texts and tokens, detection, masked words, predictions."""

import dataclasses
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import electra_tf
from electra_tf.api.model import Model
from electra_tf.config.errors import UserError
from electra_tf.models.layers import INFERENCE
from electra_tf.tasks.finetune.kinds.similarity import SimilarityTask
from electra_tf.weights.source import load_trained

PROJECT = Path(__file__).resolve().parents[2]
TEXTS = ["w5 w6 w7 w8 w9", "w10", "w11 w12"]


def test_a_texts_vector_is_the_mean_of_its_tokens_or_that_of_cls(model):
    assert model.tokens(TEXTS)[2] == ["[CLS]", "w11", "w12", "[SEP]"]
    of_tokens = model.token_vectors(TEXTS)
    assert [vectors.shape for vectors in of_tokens] == [(7, 16), (3, 16), (4, 16)]
    np.testing.assert_allclose(model.encode(TEXTS), [vectors.mean(axis=0) for vectors in of_tokens], atol=1e-6)
    np.testing.assert_allclose(model.encode(TEXTS, pooling="cls"), [vectors[0] for vectors in of_tokens], atol=1e-6)
    largest = [vectors.max(axis=0) for vectors in of_tokens]
    np.testing.assert_allclose(model.encode(TEXTS, pooling="max"), largest, atol=1e-6)
    assert model.encode([]).shape == (0, 16)


def test_vectors_of_layers_pairs_and_one_text(model):
    vectors = model.encode(TEXTS)
    assert model.encode(TEXTS[0]).shape == (16,) and model.tokens("w10") == ["[CLS]", "w10", "[SEP]"]
    np.testing.assert_allclose(model.encode("w10"), vectors[1], atol=1e-6)  # other texts of a batch change nothing
    np.testing.assert_array_equal(model.encode(iter(TEXTS), layers=[1]), vectors)
    np.testing.assert_allclose(np.linalg.norm(model.encode(TEXTS, normalize=True), axis=1), 1.0, atol=1e-6)
    assert model.tokens([("w5", "w6 w7")]) == [["[CLS]", "w5", "[SEP]", "w6", "w7", "[SEP]"]]
    assert model.encode([("w5", "w6"), ("w7", "w8")], batch_size=1, progress=True).shape == (2, 16)


def test_numbers_may_be_numpys_and_a_path_an_object(tiny_pretrained):
    numbers = {"layers": np.int64(1), "batch_size": np.int64(2), "max_seq_length": np.int32(3)}
    model = electra_tf.load(Path(tiny_pretrained), **numbers)
    assert model.tokens(["w10 w11"] * 3) == [["[CLS]", "w10", "[SEP]"]] * 3


def test_detection_is_that_of_the_objective(model, objective):
    ids = np.array([[2, 10, 3]], np.int32)
    batch = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}
    np.testing.assert_allclose(model.detect(["w10"])[0], objective.detect(batch).numpy()[0], rtol=1e-5)


def test_fill_mask_has_the_generators_probabilities(model, objective):
    (of_first,), of_second, of_none = model.fill_mask(["w5 [MASK] w7", "[MASK][MASK] w8", "w5"], top_k=3)
    assert [len(of_first), *map(len, of_second)] == [3, 3, 3] and of_none == []
    ids = tf.constant([[2, 5, 4, 7, 3]])
    batch = {"masked_input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}
    batch |= {"input_ids": ids, "masked_lm_positions": tf.constant([[2]])}
    shares = tf.nn.softmax(objective.generate(batch, INFERENCE).logits[0, 0]).numpy()
    assert [share for _, share in of_first] == pytest.approx(sorted(shares, reverse=True)[:3], rel=1e-5)
    assert of_first[0][0] == f"w{shares.argmax()}"
    assert model.fill_mask("w5 [MASK] w7", top_k=3) == [of_first]


@pytest.fixture(scope="module")
def comparing(finetuned) -> Model:
    return finetuned(train={"batch_size": 4})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model, _: model.encode(5), "texts: expected a text or a list of texts, found int"),
        (lambda model, _: model.encode({"text": ["w5"]}), "texts: expected a text or a list of texts, found dict"),
        (lambda model, _: model.encode(["w5", None]), "^texts:2 is None, expected a text"),
        (lambda model, _: model.detect(["w5", b"w6"]), "^texts:2 is b'w6'"),
        (lambda model, _: model.fill_mask("[MASK]" + " w5" * 11), "^texts:1 has 14 tokens, but the model reads 10"),
        (lambda model, _: model.encode(TEXTS, pooling="sum"), "pooling is 'sum', expected mean, cls or max"),
        (lambda model, _: model.save(""), "^output_dir= is not empty; give a new directory"),
        (lambda model, _: model.predict(TEXTS), "is not fine-tuned; give the directory"),
        (lambda _, model: model.predict([("w5", "w6"), None]), "^inputs:2 is None, expected 2 texts: a, b"),
        (lambda _, model: model.predict({"a": ["w5", None], "b": ["w6"] * 2}), "^inputs:2 has None in column 'a'"),
        (lambda _, model: model.predict({"a": ["w5"], "b": ["w6"], "label": ["x"]}), "give task=classification"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_row(model, comparing, call, message):
    with pytest.raises(UserError, match=message):
        call(model, comparing)


@pytest.mark.parametrize("layer", [0, 2, -2])
def test_a_layer_that_is_not_there_is_an_error(model, layer):
    with pytest.raises(ValueError, match="not in range"):
        model.encode(TEXTS, layers=[1, layer])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_seq_length": 21}, "expected 3 to 20"),
        ({"layers": 2}, "^layers=2"),
        ({"cased": True}, "remove vocab_file, cased"),
    ],
)
def test_a_model_is_not_longer_or_deeper_than_it_was_trained(tiny_pretrained, options, message):
    with pytest.raises(UserError, match=message):
        electra_tf.load(tiny_pretrained, **options)


def test_electrics_probabilities_are_not_computed_without_its_generator(tiny_pretrained):
    electric = Model(dataclasses.replace(load_trained(tiny_pretrained).finished(), objective="electric"))
    with pytest.raises(UserError, match="`detect` of its SavedModel"):
        electric.detect(["w5"])


def test_vectors_of_a_model_of_bfloat16_are_those_of_float32(finetuned, model):
    vectors = finetuned(train={"precision": "bfloat16"}).encode(TEXTS[:1])
    np.testing.assert_allclose(vectors, model.encode(TEXTS[:1]), atol=1e-6)


def test_predictions_trace_a_model_once_for_each_size_of_a_batch(comparing, monkeypatch):
    sizes = []
    outputs = SimilarityTask.example_outputs

    def example_outputs(task, batch, context):
        sizes.append(batch["row_index"].shape[0])
        return outputs(task, batch, context)

    monkeypatch.setattr(SimilarityTask, "example_outputs", example_outputs)
    pairs = [("w5", "w6"), ("w7 w8", "w9")] * 3
    one, again, three, six = (
        [row["prediction"] for row in comparing.predict(pairs[:number])] for number in (1, 1, 3, 6)
    )
    assert sizes == [1, 4]
    assert one == again == pytest.approx(six[:1], abs=2e-6)
    assert three == pytest.approx(six[:3], abs=2e-6)


def test_few_pairs_are_predicted_by_a_model_that_compares_many(finetuned):
    model = finetuned(True, task={"num_candidates": 3}, train={"batch_size": 6})
    assert len(model.predict([("w5", "w6")] * 4)) == 4


def test_loading_and_predicting_leave_random_states_as_they_were(comparing, tiny_pretrained):
    before = random.getstate(), np.random.get_state()[1].tolist()
    model = electra_tf.load(tiny_pretrained)
    assert comparing.predict([("w5", "w6")]) and model.fill_mask("[MASK]") and model.task
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


WORKERS = """
import multiprocessing, sys, electra_tf

def encode(text):
    return electra_tf.load(sys.argv[1]).encode([text]).round(4).tolist()

def encoded_by(method):
    with multiprocessing.get_context(method).Pool(1) as pool:
        return pool.apply(encode, ["w5"])

if __name__ == "__main__":
    print(encoded_by("fork"))  # this process has not loaded a model yet
    print(encode("w5"))
    print(encoded_by("spawn"))
"""


@pytest.mark.slow
def test_processes_load_a_model_after_a_spawn_or_before_this_process_does(tiny_pretrained, tmp_path):
    (tmp_path / "workers.py").write_text(WORKERS)
    options = {"env": {**os.environ, "PYTHONPATH": str(PROJECT)}, "check": True, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, tmp_path / "workers.py", tiny_pretrained], timeout=300, **options)
    forked, here, spawned = done.stdout.splitlines()
    assert forked == spawned == here
