"""A loaded model: vectors, detection, masked words, predictions; its encoder in a model of Keras; how it is saved."""

import dataclasses
import os
import random
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import electra_tf
from electra_tf.api.model import Model
from electra_tf.api.texts import masked_features
from electra_tf.cli.convert_checkpoint import main as convert
from electra_tf.config.errors import UserError
from electra_tf.models.layers import INFERENCE
from electra_tf.reports.sentence_scores import scorer_of
from electra_tf.serving.saved_model import export_saved_model, load_served_model
from electra_tf.tasks.finetune.kinds.similarity import SimilarityTask
from electra_tf.text.kinds import create_tokenizer
from electra_tf.text.vocabulary import StoredTokenizer, TextSettings, Vocabulary
from electra_tf.weights.source import load_trained
from electra_tf.weights.stored_model import StoredModel
from tests.byte_level import byte_level
from tests.segmenter import SEGMENTER
from tests.sentence_pieces import train
from tests.toy import toy_finetuning_config
from tests.weights.conftest import FEWER_LAYERS, MODERN, stored  # noqa: F401

PROJECT = Path(__file__).resolve().parents[2]
TEXTS = ["w5 w6 w7 w8", "w10", "w11 w12"]


@pytest.fixture(scope="module")
def model(tiny_pretrained) -> Model:
    """A model that no test trains."""
    return electra_tf.load(tiny_pretrained, batch_size=2)


@pytest.fixture(scope="module")
def finetuned(tiny_pretrained) -> Callable[..., Model]:
    """`finetuned({"batch_size": 4}, num_candidates=3)`: a new model of the similarity of texts, with these settings."""

    def build(train: dict, **task) -> Model:
        task = {"kind": "similarity", "text_columns": ["a", "b"], **task}
        config = toy_finetuning_config(task, encoder={"max_position_embeddings": 20}, train=train)
        return Model(dataclasses.replace(load_trained(tiny_pretrained).finished(), finetuned=config))

    return build


def test_a_texts_vector_is_the_mean_of_its_tokens_or_that_of_cls(model):
    assert model.tokens(TEXTS)[2] == ["[CLS]", "w11", "w12", "[SEP]"]
    of_tokens = model.token_vectors(TEXTS)
    assert [vectors.shape for vectors in of_tokens] == [(6, 16), (3, 16), (4, 16)]
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


def test_detection_is_that_of_the_objective(model, tiny_pretrained):
    objective = load_trained(tiny_pretrained).build_task()
    ids = np.array([[2, 10, 3]], np.int32)
    batch = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}
    np.testing.assert_allclose(model.detect(["w10"])[0], objective.detect(batch).numpy()[0], rtol=1e-5)


def test_fill_mask_has_the_generators_probabilities(model, tiny_pretrained):
    (of_first,), of_second, of_none = model.fill_mask(["w5 [MASK] w7", "[MASK][MASK] w8", "w5"], top_k=3)
    assert [len(of_first), *map(len, of_second)] == [3, 3, 3] and of_none == []
    ids = tf.constant([[2, 5, 4, 7, 3]])
    batch = {"masked_input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}
    batch |= {"input_ids": ids, "masked_lm_positions": tf.constant([[2]])}
    objective = load_trained(tiny_pretrained).build_task()
    shares = tf.nn.softmax(objective.generate(batch, INFERENCE).logits[0, 0]).numpy()
    assert [share for _, share in of_first] == pytest.approx(sorted(shares, reverse=True)[:3], rel=1e-5)
    assert of_first[0][0] == f"w{shares.argmax()}"
    assert model.fill_mask("w5 [MASK] w7", top_k=3) == [of_first]


def test_a_long_text_loses_its_end(model):
    assert model.tokens("w5 " + "w6 " * 30) == ["[CLS]", "w5", *["w6"] * 7, "[SEP]"]
    np.testing.assert_array_equal(model.encode("w6 " * 30), model.encode("w6 " * 8))


@pytest.fixture(scope="module")
def comparing(finetuned) -> Model:
    return finetuned({"batch_size": 4})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model, *_: model.encode({"text": ["w5"]}), "texts: expected a text or a list of texts, found dict"),
        (lambda model, *_: model.encode(["w5", None]), "^texts:2 is None, expected a text"),
        (lambda model, *_: model.detect(["w5", b"w6"]), "^texts:2 is b'w6'"),
        (lambda model, *_: model.fill_mask("[MASK]" + " w5" * 11), "^texts:1 has 14 tokens, but the model reads 10"),
        (lambda model, *_: model.encode(TEXTS, pooling="sum"), "pooling is 'sum', expected mean, cls or max"),
        *((lambda model, *_, n=n: model.encode("w5", layers=[1, n]), "not in range") for n in (0, 2, -2)),
        (lambda model, *_: model.inputs(TEXTS, max_seq_length=21), "max_seq_length is 21, expected 3 to 20"),
        (lambda model, *_: model.save(""), "^output_dir= is not empty; give a new directory"),
        (lambda model, *_: model.predict(TEXTS), "is not fine-tuned; give the directory"),
        (lambda _, model, __: model.predict([("w5", "w6"), None]), "^inputs:2 is None, expected 2 texts: a, b"),
        (lambda _, model, __: model.predict({"a": ["w5", None], "b": ["w6"] * 2}), "^inputs:2 has None in column 'a'"),
        (lambda _, model, __: model.predict({"a": ["w5"], "b": ["w6"], "label": ["x"]}), "give task=classification"),
        # It is not longer or deeper than it was trained.
        (lambda _, __, path: electra_tf.load(path, max_seq_length=21), "expected 3 to 20"),
        (lambda _, __, path: electra_tf.load(path, layers=2), "^layers=2"),
        (lambda _, __, path: electra_tf.load(path, cased=True), "cased"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_row(model, comparing, tiny_pretrained, call, message):
    with pytest.raises(ValueError, match=message):  # which a UserError is
        call(model, comparing, tiny_pretrained)


def test_electrics_probabilities_are_not_computed_without_its_generator(tiny_pretrained):
    electric = dataclasses.replace(load_trained(tiny_pretrained).finished(), objective="electric")
    with pytest.raises(UserError, match="`detect` of its SavedModel"):
        Model(electric).detect(["w5"])


def test_vectors_of_a_model_of_bfloat16_are_those_of_float32(finetuned, model):
    vectors = finetuned({"precision": "bfloat16"}).encode(TEXTS[:1])
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
    model = finetuned({"batch_size": 6}, is_contrastive=True, num_candidates=3)
    assert [len(model.predict([("w5", "w6")] * number)) for number in (4, 0)] == [4, 0]


def test_loading_and_predicting_leave_random_states_as_they_were(comparing, tiny_pretrained):
    before = random.getstate(), np.random.get_state()[1].tolist()
    model = electra_tf.load(tiny_pretrained)
    assert comparing.predict([("w5", "w6")]) and model.fill_mask("[MASK]") and model.task
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


WORKERS = """
import multiprocessing, sys, electra_tf

def encode(text):
    return electra_tf.load(sys.argv[1]).encode([text]).round(4).tolist()

if __name__ == "__main__":
    for method in ("fork", "spawn"):  # between them this process loads a model
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(pool.apply(encode, ["w5"]))
        print(encode("w5"))
"""


@pytest.mark.slow
def test_processes_load_a_model_after_a_spawn_or_before_this_process_does(tiny_pretrained, tmp_path):
    (tmp_path / "workers.py").write_text(WORKERS)
    options = {"env": {**os.environ, "PYTHONPATH": str(PROJECT)}, "check": True, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, tmp_path / "workers.py", tiny_pretrained], timeout=300, **options)
    assert len(done.stdout.splitlines()) == 4 and len(set(done.stdout.splitlines())) == 1


def test_the_inputs_of_texts_are_padded_rows_and_those_of_pairs_have_segments(model):
    inputs = model.inputs(TEXTS)
    np.testing.assert_array_equal(inputs["input_ids"], [[2, 5, 6, 7, 8, 3], [2, 10, 3, 0, 0, 0], [2, 11, 12, 3, 0, 0]])
    np.testing.assert_array_equal(inputs["input_mask"].sum(axis=1), [6, 3, 4])
    pairs = model.inputs([("w5", "w6"), ("w7", "w8 w9")], max_seq_length=8)
    np.testing.assert_array_equal(pairs["segment_ids"], [[0, 0, 0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1, 0, 0]])
    assert model.inputs([])["input_ids"].shape[0] == 0


def test_the_encoder_is_a_layer_with_the_models_vectors(model):
    inputs, expected = model.inputs(TEXTS), model.token_vectors(TEXTS)
    outputs = model.encoder(**inputs)
    for row, vectors in enumerate(expected):
        np.testing.assert_allclose(outputs.sequence_output[row, : len(vectors)], vectors, atol=1e-6)
    np.testing.assert_array_equal(outputs.pooled_output, outputs.sequence_output[:, 0])
    np.testing.assert_array_equal(model.encoder(inputs).sequence_output, outputs.sequence_output)
    by_default = model.encoder(inputs["input_ids"])  # the mask is that of [PAD], the segments are 0
    np.testing.assert_array_equal(by_default.pooled_output, outputs.pooled_output)
    without = model.encoder({"input_ids": inputs["input_ids"], "input_mask": None})
    np.testing.assert_array_equal(without.pooled_output, outputs.pooled_output)
    with pytest.raises(TypeError, match="and not attention_mask"):
        model.encoder({"input_ids": inputs["input_ids"], "attention_mask": inputs["input_mask"]})
    for each in (outputs, by_default):  # by the mask of Keras
        averages = keras.layers.GlobalAveragePooling1D()(each.sequence_output)
        np.testing.assert_allclose(averages, [vectors.mean(axis=0) for vectors in expected], atol=1e-6)


def test_ids_that_are_floats_are_not_rounded_under_a_policy_of_mixed_precision(model):
    ids, config = np.array([[2, 289, 301, 3]]), model.encoder.get_config()
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        encoder = type(model.encoder).from_config(config | {"encoder": config["encoder"] | {"vocab_size": 311}})
        floats = encoder(ids.astype(np.float32)).pooled_output  # of 289 and 301 bfloat16 makes 288 and 300
        np.testing.assert_array_equal(floats, encoder(ids).pooled_output)
    finally:
        keras.config.set_dtype_policy(policy)


def test_fit_trains_the_encoder_and_save_writes_what_it_learnt(tiny_pretrained, tmp_path):
    own = electra_tf.load(tiny_pretrained)
    before, filled = own.encode(TEXTS), own.fill_mask("w5 [MASK]")
    inputs = {name: keras.Input([None], dtype=tf.int32, name=name) for name in own.inputs("")}
    model = keras.Model(inputs, keras.layers.Dense(1)(own.encoder(**inputs).pooled_output))
    model.compile(keras.optimizers.SGD(0.1), loss="mse", run_eagerly=True)  # tests/test_wheel.py: as a graph
    model.fit(own.inputs(TEXTS), tf.constant([[3.0], [0.0], [3.0]]), epochs=2, verbose=0)
    after = own.encode(TEXTS)
    assert np.abs(after - before).max() > 1e-3
    again = electra_tf.load(own.save(tmp_path / "folder"))
    np.testing.assert_allclose(again.encode(TEXTS), after, atol=1e-6)
    assert again.fill_mask("w5 [MASK]") == own.fill_mask("w5 [MASK]") != filled  # whose table of words is the encoder's


def test_a_model_of_keras_2_is_refused(model):
    tf_keras = pytest.importorskip("tf_keras")
    with pytest.raises(UserError, match="tf_keras would train without the encoder"):
        model.encoder(tf_keras.Input([None], dtype="int32"))


def test_a_frozen_encoder_stays_also_in_a_subclass_of_a_model(tiny_pretrained):
    own = electra_tf.load(tiny_pretrained)

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


def test_the_seed_of_dropout_is_drawn_as_that_of_keras_layers(model):
    def dropped(seed):
        keras.utils.set_random_seed(seed)
        config = {name: value for name, value in model.encoder.get_config().items() if name not in ("seed", "name")}
        layer = type(model.encoder).from_config(config)
        layer.set_weights(model.encoder.get_weights())
        return layer(model.inputs(TEXTS), training=True).pooled_output.numpy()

    np.testing.assert_array_equal(dropped(1), dropped(1))
    assert np.abs(dropped(1) - dropped(2)).max() > 1e-3


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory) -> Path:
    return Path(model.save(tmp_path_factory.mktemp("saved") / "out"))


def test_a_saved_model_loads_with_the_same_vectors_and_length(model, folder):
    again = electra_tf.load(folder, batch_size=2)
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    assert again.max_seq_length == model.max_seq_length == 10  # the encoder has 20 positions
    with pytest.raises(UserError, match="is not empty"):
        model.save(folder)


def test_a_folder_of_sentence_transformers_has_the_same_vectors_and_length(model, tiny_pretrained, tmp_path):
    shorter = electra_tf.load(tiny_pretrained, max_seq_length=7)
    again = electra_tf.load(shorter.save(tmp_path / "out", "sentence_transformers"), batch_size=2)
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    assert again.max_seq_length == 7


def test_a_discriminator_alone_fills_no_masks(folder):
    with pytest.raises(UserError, match="has no generator or masked LM that it trained"):
        electra_tf.load(folder / "discriminator").fill_mask("[MASK]")


def test_a_generator_alone_detects_nothing(folder):
    with pytest.raises(UserError, match="has no discriminator that works alone"):
        electra_tf.load(folder / "generator").detect("w5")


def test_a_local_model_needs_no_network(folder, tiny_pretrained, tmp_path, monkeypatch):
    def refuse(*address):
        raise AssertionError(f"a connection to {address}")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    for path in (tiny_pretrained, folder):
        model = electra_tf.load(path)
        assert model.encode("w5").shape == (16,) and model.fill_mask("[MASK]") and len(model.detect("w5")) == 3
    model.save(tmp_path / "saved", "sentence_transformers")
    assert convert([f"--from={folder}", "--to=tf1", f"--output_dir={tmp_path}/converted"]) == 0


@pytest.mark.slow
def test_a_saved_model_of_tensorflow_is_that_of_the_export(model, tiny_pretrained, tmp_path):
    export_saved_model(load_served_model(tiny_pretrained), tmp_path / "command")
    assert model.save(tmp_path / "python", "saved_model") == str(tmp_path / "python" / "1")
    served = [tf.saved_model.load(str(tmp_path / name / "1")).signatures for name in ("python", "command")]
    assert set(served[0]) == set(served[1])
    for name in ("embed", "detect"):
        outputs = (signatures[name](tf.constant(TEXTS)) for signatures in served)
        ours, theirs = ({key: values.numpy() for key, values in each.items()} for each in outputs)
        np.testing.assert_equal(ours, theirs)


@pytest.mark.slow
def test_two_threads_have_the_vectors_of_one(model):
    texts = TEXTS * 20
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(model.encode, [texts, texts])
    np.testing.assert_array_equal([first, second], [model.encode(texts)] * 2)


@pytest.mark.slow
def test_the_task_of_a_pretrained_model_computes_what_the_model_does(model):
    outputs = model.task({name: tf.constant(values) for name, values in model.inputs(TEXTS[:1]).items()})
    np.testing.assert_allclose(outputs.sequence_output[0], model.token_vectors(TEXTS[0]), atol=1e-6)
    assert model.task.config.objective.name == "electra"


@pytest.mark.slow
@pytest.mark.parametrize("place", ["encoder", "task"])
def test_a_model_of_bfloat16_has_one_encoder_whichever_way_it_is_trained(finetuned, tmp_path, place):
    rounded = finetuned({"precision": "bfloat16", "batch_size": 4})
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
    model = Model(dataclasses.replace(source, stored_tokenizer=tokenizer))
    assert model.tokens("the cat [MASK]")[:3] == ["[CLS]", "the", "Ġcat"]
    model.save(tmp_path / "out")
    assert (tmp_path / "out" / "discriminator" / "tokenizer.json").read_bytes() == byte_level()
    again = electra_tf.load(tmp_path / "out")
    np.testing.assert_allclose(again.encode(["the cat", "日"]), model.encode(["the cat", "日"]), atol=1e-6)
    assert [len(each) for each in again.fill_mask(["the [MASK]", "[MASK] on [MASK]"], top_k=2)] == [1, 2]
    assert "signatures detect, detect_ids, embed" in electra_tf.export(tmp_path / "out", tmp_path / "served")


def test_what_a_format_lacks_is_a_warning(comparing, tmp_path, caplog):
    comparing.save(tmp_path / "out")
    (line,) = caplog.records
    assert line.levelname == "WARNING" and "sentence_transformers writes a folder that computes it" in line.getMessage()


@pytest.fixture
def cut_by(tiny_pretrained) -> Callable[[str], StoredModel]:
    """`cut_by(segment)`: the model of a vocabulary that states a program, with the user's word on it."""
    source = load_trained(tiny_pretrained).finished()
    stated = source.stored_tokenizer._replace(settings=TextSettings(segment=SEGMENTER))
    return lambda segment: dataclasses.replace(source, stored_tokenizer=stated, segment=segment)


def test_texts_are_cut_into_words_by_the_program_that_the_user_gives(cut_by):
    cutting, cut = (cut_by(segment).tokenizer for segment in (SEGMENTER, "none"))
    assert Model(cut_by(SEGMENTER)).tokens(["w5w6", "w7"]) == [["[CLS]", "w5", "w6", "[SEP]"], ["[CLS]", "w7", "[SEP]"]]
    assert scorer_of(cut_by(SEGMENTER)).features(["w5w6"]).input_ids.tolist() == [2, 5, 6, 3]
    features, positions = masked_features([["w5w6[MASK]w7", "[MASK]", "w8w9"]], cutting, 10)
    expected, expected_positions = masked_features([["w5 w6 [MASK] w7", "[MASK]", "w8 w9"]], cut, 10)
    assert (features.input_ids.tolist(), positions) == (expected.input_ids.tolist(), expected_positions)


@pytest.mark.slow
def test_folders_and_saved_models_state_the_program(cut_by, tmp_path):
    model = Model(cut_by(None))
    folder, served = model.save(tmp_path / "folder"), model.save(tmp_path / "served", "saved_model")
    for file in (f"{folder}/discriminator/README.md", f"{served}/assets.extra/README.md"):
        assert f"`{SEGMENTER}`" in Path(file).read_text()
    with pytest.raises(UserError, match="segment=none"):
        electra_tf.load(folder).encode("w5")
    assert electra_tf.load(folder, segment=SEGMENTER).tokens("w5w6") == ["[CLS]", "w5", "w6", "[SEP]"]


def test_sentencepiece_goes_on_after_a_mask_within_a_word():
    tokenizer = create_tokenizer(Vocabulary.from_bytes(train("bpe"), "a test"))
    for text, expected in {
        "the[MASK], ein": "\u2581the [MASK] , \u2581ein",
        "the[MASK]ein": "\u2581the [MASK] ein",
        "the[MASK] ein": "\u2581the [MASK] \u2581ein",
        "the[MASK]cat": "\u2581the [MASK] \u2581cat",  # the vocabulary has no `cat` within a word
    }.items():
        ids = masked_features([[text]], tokenizer, 10)[0].input_ids
        assert [tokenizer.vocabulary.tokens[index] for index in ids[1:-1]] == expected.split()
