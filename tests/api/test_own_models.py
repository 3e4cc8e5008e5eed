"""A model's encoder in a Keras model of the user's own, and how a model is saved."""

import dataclasses
import threading
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

import electra_tf
from electra_tf.api.texts import masked_features
from electra_tf.serving.saved_model import export_saved_model, load_served_model
from electra_tf.text.vocabulary import StoredTokenizer, TextSettings
from tests.byte_level import byte_level
from tests.weights.conftest import FEWER_LAYERS, MODERN, stored  # noqa: F401

TEXTS = ["w5 w6 w7 w8", "w10", "w11 w12"]


@pytest.fixture
def own(tiny_pretrained) -> electra_tf.Model:
    """A model to be trained."""
    return electra_tf.load(tiny_pretrained)


def test_the_inputs_of_texts_are_padded_rows_and_those_of_pairs_have_segments(model):
    inputs = model.inputs(TEXTS)
    np.testing.assert_array_equal(inputs["input_ids"], [[2, 5, 6, 7, 8, 3], [2, 10, 3, 0, 0, 0], [2, 11, 12, 3, 0, 0]])
    np.testing.assert_array_equal(inputs["input_mask"].sum(axis=1), [6, 3, 4])
    pairs = model.inputs([("w5", "w6"), ("w7", "w8 w9")], max_seq_length=8)
    np.testing.assert_array_equal(pairs["segment_ids"], [[0, 0, 0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1, 0, 0]])
    assert model.inputs([])["input_ids"].shape[0] == 0
    with pytest.raises(electra_tf.UserError, match="max_seq_length is 21, expected 3 to 20"):
        model.inputs(TEXTS, max_seq_length=21)


def test_the_encoder_is_a_layer_with_the_models_vectors(model):
    inputs, expected = model.inputs(TEXTS), model.token_vectors(TEXTS)
    outputs = model.encoder(**inputs)
    for row, vectors in enumerate(expected):
        np.testing.assert_allclose(outputs.sequence_output[row, : len(vectors)], vectors, atol=1e-6)
    np.testing.assert_array_equal(outputs.pooled_output, outputs.sequence_output[:, 0])
    np.testing.assert_array_equal(model.encoder(inputs).sequence_output, outputs.sequence_output)
    by_default = model.encoder(inputs["input_ids"])  # the mask is that of [PAD], the segments are 0
    np.testing.assert_array_equal(by_default.pooled_output, outputs.pooled_output)


def test_fit_trains_the_encoder_and_save_writes_what_it_learnt(own, tmp_path):
    before = own.encode(TEXTS)
    inputs = {name: keras.Input([None], dtype=tf.int32, name=name) for name in own.inputs("")}
    model = keras.Model(inputs, keras.layers.Dense(1)(own.encoder(**inputs).pooled_output))
    model.compile(keras.optimizers.SGD(0.1), loss="mse")
    model.fit(own.inputs(TEXTS), tf.constant([[3.0], [0.0], [3.0]]), epochs=2, verbose=0)
    after = own.encode(TEXTS)
    assert np.abs(after - before).max() > 1e-3
    again = electra_tf.load(own.save(tmp_path / "folder"))
    np.testing.assert_allclose(again.encode(TEXTS), after, atol=1e-6)
    assert again.fill_mask("w5 [MASK]") == own.fill_mask("w5 [MASK]")  # whose table of words is the encoder's


def test_a_model_of_keras_2_is_refused(model):
    tf_keras = pytest.importorskip("tf_keras")
    with pytest.raises(electra_tf.UserError, match="tf_keras would train without the encoder"):
        model.encoder(tf_keras.Input([None], dtype="int32"))


def test_a_frozen_encoder_stays_also_in_a_subclass_of_a_model(own):
    class Head(keras.Model):
        def __init__(self):
            super().__init__()
            self.encoder, self.head = own.encoder, keras.layers.Dense(1)

        def call(self, inputs, training=False):
            return self.head(self.encoder(inputs, training=training).pooled_output)

    own.encoder.trainable = False
    model, before = Head(), own.encode(TEXTS)
    model.compile(keras.optimizers.SGD(0.1), loss="mse", run_eagerly=True)
    model.fit(own.inputs(TEXTS), tf.ones([3, 1]), verbose=0)
    assert len(model.trainable_variables) == 2
    np.testing.assert_array_equal(own.encode(TEXTS), before)


def test_training_drops_other_units_in_each_call(model):
    ids = model.inputs(TEXTS)["input_ids"]
    first, second, plain = (model.encoder(ids, training=each).pooled_output.numpy() for each in (True, True, False))
    assert np.abs(first - second).max() > 1e-3 and np.abs(first - plain).max() > 1e-3
    np.testing.assert_array_equal(plain, model.encoder(ids).pooled_output)


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory) -> Path:
    return Path(model.save(tmp_path_factory.mktemp("saved") / "out"))


def test_a_saved_model_loads_with_the_same_vectors_and_length(model, folder):
    again = electra_tf.load(folder, batch_size=2)
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    assert again.max_seq_length == model.max_seq_length == 10  # the encoder has 20 positions
    with pytest.raises(electra_tf.UserError, match="is not empty"):
        model.save(folder)


def test_a_folder_of_sentence_transformers_has_the_same_vectors_and_length(model, tiny_pretrained, tmp_path):
    shorter = electra_tf.load(tiny_pretrained, max_seq_length=7)
    again = electra_tf.load(shorter.save(tmp_path / "out", "sentence_transformers"), batch_size=2)
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    assert again.max_seq_length == 7


def test_a_discriminator_alone_fills_no_masks(folder):
    with pytest.raises(electra_tf.UserError, match="has no generator or masked LM that it trained"):
        electra_tf.load(folder / "discriminator").fill_mask("[MASK]")


@pytest.mark.slow
def test_a_saved_model_of_tensorflow_is_that_of_the_export(model, tiny_pretrained, tmp_path):
    export_saved_model(load_served_model(tiny_pretrained), tmp_path / "command")
    assert model.save(tmp_path / "python", "saved_model") == str(tmp_path / "python" / "1")
    texts = tf.constant(TEXTS)
    served = [tf.saved_model.load(str(tmp_path / name / "1")).signatures for name in ("python", "command")]
    assert set(served[0]) == set(served[1])
    for name in ("embed", "detect"):
        ours, theirs = (each[name](texts) for each in served)
        assert ours.keys() == theirs.keys()
        for key, values in ours.items():
            np.testing.assert_array_equal(values, theirs[key])


@pytest.mark.slow
def test_two_threads_have_the_vectors_of_one(model):
    expected, found = model.encode(TEXTS * 20), {}

    def encode(number: int) -> None:
        found[number] = model.encode(TEXTS * 20)

    threads = [threading.Thread(target=encode, args=[number]) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [np.array_equal(found[number], expected) for number in range(2)] == [True, True]


@pytest.mark.slow
def test_the_task_of_a_pretrained_model_computes_what_the_model_does(model):
    outputs = model.task({name: tf.constant(values) for name, values in model.inputs(TEXTS[:1]).items()})
    np.testing.assert_allclose(outputs.sequence_output[0], model.token_vectors(TEXTS[0]), atol=1e-6)
    assert model.task.config.objective.name == "electra"


@pytest.fixture
def rounded(finetuned) -> electra_tf.Model:
    """A fine-tuned model that was trained in bfloat16."""
    return finetuned(train={"precision": "bfloat16", "batch_size": 4})


@pytest.mark.slow
@pytest.mark.parametrize("place", ["encoder", "task"])
def test_a_model_of_bfloat16_has_one_encoder_whichever_way_it_is_trained(rounded, tmp_path, place):
    before = rounded.encode(TEXTS), rounded.predict([("w5", "w6 w7")])[0]["prediction"]
    for variable in getattr(rounded, place).trainable_variables:
        variable.assign(variable * 1.5)
    after = rounded.encode(TEXTS), rounded.predict([("w5", "w6 w7")])[0]["prediction"]
    assert np.abs(after[0] - before[0]).max() > 0.01 and after[1] != before[1]
    again = electra_tf.load(rounded.save(tmp_path / "out", "sentence_transformers"))
    np.testing.assert_allclose(again.encode(TEXTS), after[0], atol=1e-5)


@pytest.mark.slow
def test_a_modernbert_fills_masks_and_is_saved_and_exported_with_its_tokenizer(stored, tmp_path):  # noqa: F811
    source = stored(encoder=MODERN | {"vocab_size": 273}, objective={"generator": FEWER_LAYERS})
    tokenizer = StoredTokenizer(byte_level(), TextSettings(False, False, False))
    model = electra_tf.Model(dataclasses.replace(source, stored_tokenizer=tokenizer))
    assert model.tokens("the cat [MASK]")[:3] == ["[CLS]", "the", "Ġcat"]
    model.save(tmp_path / "out")
    assert (tmp_path / "out" / "discriminator" / "tokenizer.json").read_bytes() == byte_level()
    again = electra_tf.load(tmp_path / "out")
    np.testing.assert_allclose(again.encode(["the cat", "日"]), model.encode(["the cat", "日"]), atol=1e-6)
    assert [len(each) for each in again.fill_mask(["the [MASK]", "[MASK] on [MASK]"], top_k=2)] == [1, 2]
    assert "they take ids" in electra_tf.export(tmp_path / "out", tmp_path / "served")


def test_what_a_format_lacks_is_a_warning(rounded, tmp_path, caplog):
    rounded.save(tmp_path / "out")
    (line,) = caplog.records
    assert line.levelname == "WARNING" and "sentence_transformers writes a folder that computes it" in line.getMessage()


def test_sentencepiece_goes_on_after_a_mask_within_a_word():
    """A stand-in for a tokenizer that begins every part as a word."""
    tokens = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u2581", "\u2581a", "a", ",", "\u2581b")
    ids = {", a": [5, 8, 6], "a": [6], " a": [6], "b": [9]}
    tokenizer = SimpleNamespace(
        vocabulary=SimpleNamespace(tokens=tokens, cls_id=2, sep_id=3, mask_id=4),
        tokenize=lambda parts: tf.ragged.constant([ids[part.decode()] for part in parts.numpy()], tf.int32),
    )
    for text, expected in {
        "a[MASK], a": [2, 6, 4, 8, 6, 3],
        "a[MASK]a": [2, 6, 4, 7, 3],
        "a[MASK] a": [2, 6, 4, 6, 3],
        "a[MASK]b": [2, 6, 4, 9, 3],  # the vocabulary has no `b` within a word
    }.items():
        assert masked_features([[text]], tokenizer, 10)[0].input_ids.tolist() == expected
