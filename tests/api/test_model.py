"""A loaded model: vectors of texts and tokens, detection, predictions; and fine-tuning in Python."""

import dataclasses
import os
import random
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
from electra_tf.tasks.finetune.kinds.similarity import SimilarityTask
from electra_tf.weights.source import load_trained

pandas = pytest.importorskip("pandas")  # tf-models-official brings it

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


@pytest.mark.parametrize(
    "texts",
    [
        ("w10",),
        iter(["w10"]),
        np.array(["w10"]),
        pandas.Series(["w10"], index=[7]),
        pandas.Series(["w10"]).astype("category"),
        pyarrow.chunked_array([["w10"]]),
    ],
    ids=lambda texts: type(texts).__name__,
)
def test_texts_may_be_in_any_list(model, texts):
    assert model.tokens(texts) == [["[CLS]", "w10", "[SEP]"]]


def test_numbers_may_be_numpys_and_a_path_an_object(tiny_pretrained):
    model = electra_tf.load(
        Path(tiny_pretrained), layers=np.int64(1), batch_size=np.int64(2), max_seq_length=np.int32(3)
    )
    assert model.tokens(["w10 w11"] * 3) == [["[CLS]", "w10", "[SEP]"]] * 3


def test_detection_is_that_of_the_objective(model, tiny_pretrained):
    ids = np.array([[2, 10, 3]], np.int32)
    batch = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}
    expected = load_trained(tiny_pretrained).build_task().detect(batch).numpy()[0]
    np.testing.assert_allclose(model.detect(["w10"])[0], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model.encode(5), "texts: expected a text or a list of texts, found int"),
        (lambda model: model.fill_mask("[MASK]" + " w5" * 11), "^texts:1 has 14 tokens, but the model reads 10"),
        (lambda model: model.save(""), "^output_dir= is not empty; give a new directory"),
        (lambda model: model.encode(TEXTS, pooling="sum"), "pooling is 'sum', expected mean, cls or max"),
        (lambda model: model.encode(["w5", None]), "^texts:2 is None, expected a text"),
        (lambda model: model.detect(["w5", b"w6"]), "^texts:2 is b'w6'"),
        (lambda model: model.encode({"text": ["w5"]}), "texts: expected a text or a list of texts, found dict"),
        (lambda model: model.predict(TEXTS), "is not fine-tuned; give the directory"),
    ],
)
def test_a_mistake_is_one_line(model, call, message):
    with pytest.raises(UserError, match=message):
        call(model)


@pytest.mark.parametrize("layer", [0, 2, -2])
def test_a_layer_that_is_not_there_is_an_error(model, layer):
    with pytest.raises(ValueError, match="not in range"):
        model.encode(TEXTS, layers=[1, layer])


def test_a_text_without_a_mask_has_nothing_to_fill(model):
    first, second = model.fill_mask(["w5 [MASK]", "w5"])
    assert (len(first), second) == (1, [])


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


def test_a_model_reads_as_many_tokens_as_in_its_training(model):
    assert model.max_seq_length == 10


def test_electrics_probabilities_are_not_computed_without_its_generator(tiny_pretrained):
    electric = Model(dataclasses.replace(load_trained(tiny_pretrained).finished(), objective="electric"))
    with pytest.raises(UserError, match="`detect` of its SavedModel"):
        electric.detect(["w5"])


@pytest.fixture(scope="module")
def finetuned(tiny_pretrained):
    """`finetuned(train={...})`: a model of the similarity of texts, with these settings."""

    def build(is_contrastive: bool = False, **settings) -> Model:
        stored = load_trained(tiny_pretrained).finished()
        task = {"kind": "similarity", "is_contrastive": is_contrastive, "text_columns": ["a", "b"]}
        sizes = {"num_epochs": 2, "max_seq_length": 12, "num_rows": 9}
        config = resolve(settings, "a test", name="made_up", task=task, encoder=stored.encoder, init_from=None, **sizes)
        return Model(dataclasses.replace(stored, finetuned=config))

    return build


@pytest.fixture(scope="module")
def comparing(finetuned) -> Model:
    return finetuned(train={"batch_size": 4})


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


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([("w5", "w6"), None], "^inputs:2 is None, expected 2 texts: a, b"),
        (pandas.DataFrame({"a": ["w5", None], "b": "w6"}), "^inputs:2 has None in column 'a'"),
        ({"a": ["w5"], "b": ["w6"], "label": ["x"]}, "give task=classification"),
    ],
)
def test_a_wrong_input_is_named_by_its_row(comparing, inputs, message):
    with pytest.raises(UserError, match=message):
        comparing.predict(inputs)


def test_loading_and_predicting_leave_random_states_as_they_were(comparing, tiny_pretrained):
    before = random.getstate(), np.random.get_state()[1].tolist()
    electra_tf.load(tiny_pretrained)
    comparing.predict([("w5", "w6")])
    after = random.getstate(), np.random.get_state()[1].tolist()
    assert after == before


SCRIPT = """
import pandas, electra_tf
train = pandas.DataFrame({"text": ["w5 w6", "w7", "w5", "w7 w8"], "label": ["a", "b", "a", "b"]})
result = electra_tf.finetune("classification", train, train, init_from=INIT, output_dir=OUT, seeds=[0, 3])
rows = result.model(seed=3).predict(train[["text"]])
print([(row["id"], row["prediction"], f"{row['probability_a']:.6f}", f"{row['probability_b']:.6f}") for row in rows])
"""


WORKERS = """
import multiprocessing, electra_tf

def load(path):
    global model
    model = electra_tf.load(path)

def encode(text):
    return model.encode([text]).round(4).tolist()

def encoded_by(method, path):
    with multiprocessing.get_context(method).Pool(1, load, [path]) as pool:
        return pool.apply(encode, ["w5"])

if __name__ == "__main__":
    print(encoded_by("fork", INIT))  # this process has not loaded a model yet
    load(INIT)
    print(encoded_by("spawn", INIT))
    print(encode("w5"))
"""


@pytest.mark.slow
def test_processes_load_a_model_after_a_spawn_or_before_this_process_does(tiny_pretrained, tmp_path):
    (tmp_path / "workers.py").write_text(WORKERS.replace("INIT", repr(tiny_pretrained)))
    options = {"env": {**os.environ, "PYTHONPATH": str(PROJECT)}, "check": True, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, tmp_path / "workers.py"], timeout=300, **options)
    forked, spawned, here = done.stdout.splitlines()
    assert forked == spawned == here


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
