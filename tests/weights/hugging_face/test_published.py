"""Folders as other programs publish them: pairs of texts, poolings, and what their cards may state."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import electra_tf
from electra_tf.cli.convert_checkpoint import main
from electra_tf.config.errors import UserError
from electra_tf.finetuning.predict import data_of
from electra_tf.serving.saved_model import load_served_model
from electra_tf.weights.hugging_face.sentence_transformers import read_pooling, write_sentence_transformers
from electra_tf.weights.hugging_face.writer import write_hugging_face
from electra_tf.weights.source import load_trained
from tests.weights.conftest import assert_same_weights, refusal

TEXTS = ["w5 w6 w7", "w8"]
LABELS = {"kind": "classification", "labels": ["no", "yes"], "head": "huggingface"}


def change_note(folder: Path, note: dict | None) -> None:
    """Changes this program's entry in config.json, which transformers keeps, or removes it."""
    config = json.loads((folder / "config.json").read_text()) | {"electra_tf": note}
    (folder / "config.json").write_text(json.dumps(config))


@pytest.fixture(scope="module")
def published(stored_finetuned, tmp_path_factory) -> str:
    """A classifier that does not state whether it takes one text or two."""
    folder = tmp_path_factory.mktemp("published")
    write_hugging_face(stored_finetuned(LABELS), str(folder))
    change_note(folder, None)
    return str(folder)


@pytest.fixture(scope="module")
def classifier(published):
    return electra_tf.load(published)


def test_pairs_are_told_from_texts_by_the_inputs_and_may_have_columns_of_other_names(classifier, published):
    pair, first = classifier.predict([("w5 w6", "w7")]), classifier.predict(["w5 w6"])
    assert pair != first
    assert classifier.predict([{"text": "w5 w6", "label": "no"}])[0]["prediction"] == first[0]["prediction"]
    assert classifier.predict({"text": ["w5 w6"], "text_pair": ["w7"]}) == pair
    named = electra_tf.load(published, text_columns=("premise", "hypothesis"))
    assert named.predict([{"premise": "w5 w6", "hypothesis": "w7", "text": "w9"}]) == pair


def test_texts_that_are_neither_single_nor_pairs_are_refused(classifier):
    with pytest.raises(UserError, match="expected 2 texts"):
        classifier.predict([("w5", "w6"), ("w5",)])
    with pytest.raises(UserError, match="'text_pair', expected a string"):
        classifier.predict([{"text": "w5", "text_pair": None}])


def test_the_number_of_texts_of_a_model_that_states_it_cannot_be_changed(stored_finetuned):
    model = stored_finetuned(LABELS | {"text_columns": ["title"]})
    assert model.with_text_columns(["body"]).finetuned.task.text_columns == ("body",)
    for names in (["title", "body"], []):
        assert "is not a model of" in refusal(model.with_text_columns, names)
    tagging = stored_finetuned({"kind": "tagging", "labels": ["A", "B"], "scheme": "plain"})
    assert "is not a model of 1 texts" in refusal(tagging.with_text_columns, ["text"])


def test_predict_takes_pairs_by_their_columns_or_by_the_name_text_pair(published, tmp_path):
    model, file = load_trained(published).finished(), tmp_path / "new.csv"
    for header, columns in (("a,b", ("a", "b")), ("text,text_pair", None), ("text,other", None)):
        file.write_text(f"{header}\nw5 w6,w7\n")
        num_tokens = data_of(model, str(file), columns).evaluation.input_ids.size
        assert num_tokens == (4 if "other" in header else 6), header


def test_a_folder_that_does_not_state_it_is_served_as_a_model_of_one_text(published, stored_finetuned, tmp_path):
    write_hugging_face(stored_finetuned(LABELS | {"text_columns": ["title", "body"]}), str(tmp_path / "pairs"))
    for folder, names in ((published, ["text"]), (tmp_path / "pairs", ["text", "text_pair"])):
        _, texts = load_served_model(folder).served()["classify"]
        assert [text.name for text in texts] == names


def card_of(model, directory: Path) -> str:
    write_hugging_face(model, str(directory))
    return (directory / "README.md").read_text()


@pytest.mark.parametrize("is_finetuned", [True, False])
def test_the_card_of_a_published_model_states_only_what_its_folder_does(published, folder, tmp_path, is_finetuned):
    card = card_of(load_trained(published if is_finetuned else folder("discriminator")).finished(), tmp_path / "again")
    assert "- `hidden_size`: 16" in card
    unknown = ("`train.batch_size`", "`optimizer.learning_rate`", "`data.max_seq_length`", "- steps:", "SHA-256")
    assert not any(name in card for name in (*unknown, "initial weights", "electra_tf electra"))


def test_the_card_of_a_folder_of_this_program_states_what_the_folder_notes(stored_finetuned, tmp_path):
    model = stored_finetuned(LABELS)
    settings = {"configuration": model.finetuned.model_dump(mode="json")}
    card = card_of(dataclasses.replace(model, facts=settings), tmp_path / "folder")
    assert "- `train.batch_size`: 32" in card and "- `optimizer.learning_rate`: 0.0003" in card
    card = card_of(load_trained(tmp_path / "folder").finished(), tmp_path / "again")
    assert "- `data.max_seq_length`: 12" in card and "- steps: 4" in card
    assert "batch_size" not in card and "learning_rate" not in card


def test_the_step_of_a_pre_training_is_not_that_of_a_head_trained_elsewhere(stored_finetuned, tmp_path):
    write_hugging_face(stored_finetuned(LABELS), str(tmp_path))
    change_note(tmp_path, {"objective": "electra", "step": 1_000_000, "data": ["5ea"]})
    model = load_trained(tmp_path).finished()
    assert (model.step, model.facts) == (0, {"is_assumed": True})


CLS = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}


def with_modules(place: Path, pooling: dict, *others: str, longest: int | None = None, **settings) -> str:
    """Makes a folder one of sentence-transformers."""
    names = ["Transformer", "Pooling", *others]
    modules = [
        {"idx": index, "path": f"{index}_{name}" if index else "", "type": f"sentence_transformers.models.{name}"}
        for index, name in enumerate(names)
    ]
    (place / "1_Pooling").mkdir(exist_ok=True)
    files = {"modules.json": modules, "1_Pooling/config.json": pooling, "config_sentence_transformers.json": settings}
    files["sentence_bert_config.json"] = {"max_seq_length": longest, "do_lower_case": False}
    for name, content in files.items():
        (place / name).write_text(json.dumps(content))
    return str(place)


def test_the_converter_takes_columns_of_pairs_and_names_a_pooling_that_is_lost(published, folder, tmp_path, capsys):
    flags = ["--to=hugging_face", f"--output_dir={tmp_path}/pairs", "--text_columns", "a", "b"]
    assert main([f"--from={published}", *flags]) == 0
    assert load_trained(tmp_path / "pairs").finetuned.task.text_columns == ("a", "b")
    place = with_modules(folder("discriminator"), CLS)
    assert main([f"--from={place}", "--to=hugging_face", f"--output_dir={tmp_path}/folder"]) == 0
    assert "hugging_face does not keep the pooling of the source, cls" in capsys.readouterr().out
    assert main([f"--from={place}", "--to=tf1", f"--output_dir={tmp_path}/tf1", "--text_columns", "a"]) == 2
    assert "text_columns a" in capsys.readouterr().err


def test_a_written_folder_has_the_encoder_alone_and_averages_the_vectors_of_all_real_tokens(stored, tmp_path):
    """That library itself checks these files (docs/interop.md), because the tests do not depend on it."""
    model = stored(encoder={"num_layers": 3}).truncated(2)
    write_sentence_transformers(model, str(tmp_path))
    names = ("config", "modules", "1_Pooling/config", "sentence_bert_config")
    config, modules, pooling, lengths = (json.loads((tmp_path / f"{name}.json").read_text()) for name in names)
    assert (config["architectures"], config["num_hidden_layers"]) == (["ElectraModel"], 2)
    assert_same_weights(load_trained(tmp_path).weights, model.weights)
    kinds = [(each["path"], each["type"].split(".")[-1]) for each in modules]
    assert kinds == [("", "Transformer"), ("1_Pooling", "Pooling")]
    assert pooling["word_embedding_dimension"] == 16
    assert [name for name, value in pooling.items() if value is True] == ["pooling_mode_mean_tokens", "include_prompt"]
    assert lengths == {"max_seq_length": 13, "do_lower_case": False}


@pytest.mark.parametrize(
    ("pooling", "others", "prompt", "expected"),
    [
        (CLS, (), None, "cls"),
        ({"pooling_mode_max_tokens": True}, ("Normalize",), None, "max, Normalize"),
        ({"embedding_dimension": 16, "pooling_mode": "cls"}, ("Normalize",), None, "cls, Normalize"),  # version 6
        ({"word_embedding_dimension": 16}, (), None, "mean"),  # the default
        ({"pooling_mode_mean_sqrt_len_tokens": True}, (), None, "mean_sqrt_len"),
        ({"pooling_mode": ["mean", "max"]}, ("Normalize",), None, "mean, max, Normalize"),
        (CLS, ("Dense", "Normalize"), None, "cls, Dense, Normalize"),
        (CLS, (), "query", "cls, prompt query"),
    ],
)
def test_the_pooling_of_a_folder_is_read(tmp_path, pooling, others, prompt, expected):
    assert read_pooling(with_modules(tmp_path, pooling, *others, default_prompt_name=prompt)) == (expected, None)


@pytest.mark.parametrize("kind", ["max", "cls"])
def test_the_pooling_of_a_folder_is_used_and_kept(folder, tmp_path, kind):
    pooling = {"pooling_mode": kind, "embedding_dimension": 16}
    place = with_modules(folder("discriminator"), pooling, "Normalize", longest=7)
    model = electra_tf.load(place)
    vectors = model.encode(TEXTS, pooling=kind)
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(model.encode(TEXTS), vectors, atol=1e-6)
    write_sentence_transformers(load_trained(place).finished(), str(tmp_path / "again"))
    assert read_pooling(str(tmp_path / "again")) == (f"{kind}, Normalize", 7)


def test_a_foreign_pooling_is_refused_and_the_encoder_is_still_read(folder, tmp_path):
    place = with_modules(folder("discriminator"), CLS, "Dense", "Normalize")
    model = electra_tf.load(place)
    with pytest.raises(UserError, match="the pooling is 'cls, Dense, Normalize', expected mean, cls or max"):
        model.encode(TEXTS)
    assert model.encode(TEXTS, pooling="cls").shape == (2, 16)
    stored = load_trained(place).finished()
    assert "'cls, Dense, Normalize'" in refusal(write_sentence_transformers, stored, str(tmp_path / "again"))


@pytest.mark.parametrize(
    ("longest", "of_tokenizer", "expected"),
    [(7, 9, 7), (None, 9, 9), (None, 10**30, 13), (512, 9, 13)],  # of 13 positions
)
def test_the_longest_text_is_that_of_the_folder(folder, longest, of_tokenizer, expected):
    place = with_modules(folder("discriminator"), CLS, longest=longest)
    (Path(place) / "tokenizer_config.json").write_text(json.dumps({"model_max_length": of_tokenizer}))
    assert load_trained(place).finished().trained_length == expected


def test_an_older_folder_has_its_network_in_a_folder_of_its_own(folder, tmp_path):
    (tmp_path / "st").mkdir()
    (folder("discriminator", name="st/0_Transformer") / "sentence_bert_config.json").write_text('{"max_seq_length": 9}')
    with_modules(tmp_path / "st", CLS)
    modules = tmp_path / "st" / "modules.json"
    modules.write_text(modules.read_text().replace('"path": ""', '"path": "0_Transformer"'))
    model = load_trained(tmp_path / "st").finished()
    assert (model.pooling, model.trained_length, model.encoder.num_layers) == ("cls", 9, 2)
