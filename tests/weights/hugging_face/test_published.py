"""Folders as other programs publish them: pairs of texts, poolings, parts, and what their cards may state."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import electra_tf
from electra_tf.cli.convert_checkpoint import main
from electra_tf.config.errors import UserError
from electra_tf.finetuning.predict import data_of
from electra_tf.weights.hugging_face.sentence_transformers import read_pooling, write_sentence_transformers
from electra_tf.weights.hugging_face.writer import write_hugging_face
from electra_tf.weights.source import load_trained
from tests.weights.conftest import TWO_LAYERS

LABELS = {"kind": "classification", "labels": ["no", "yes"], "head": "huggingface"}
SETTINGS = ("`train.batch_size`", "`optimizer.learning_rate`", "`data.max_seq_length`")


def of_another_program(folder: Path) -> str:
    """Removes our entry from config.json, and the card."""
    config = json.loads((folder / "config.json").read_text())
    del config["electra_tf"]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "README.md").unlink()
    return str(folder)


@pytest.fixture(scope="module")
def published(stored_finetuned, tmp_path_factory) -> str:
    """A classifier that does not state whether it takes one text or two."""
    folder = tmp_path_factory.mktemp("published")
    write_hugging_face(stored_finetuned(LABELS), str(folder))
    return of_another_program(folder)


@pytest.fixture(scope="module")
def classifier(published):
    return electra_tf.load(published)


@pytest.mark.slow
def test_pairs_are_told_from_texts_by_the_inputs(classifier):
    pair, first = classifier.predict([("w5 w6", "w7")]), classifier.predict(["w5 w6"])
    assert pair != first
    assert classifier.predict([{"text": "w5 w6", "text_pair": "w7"}]) == pair
    assert classifier.predict({"text": ["w5 w6"], "text_pair": ["w7"]}) == pair
    assert classifier.predict([{"text": "w5 w6", "label": "no"}])[0]["prediction"] == first[0]["prediction"]


def test_columns_of_pairs_may_have_other_names(classifier, published):
    named = electra_tf.load(published, text_columns=("premise", "hypothesis"))
    rows = [{"premise": "w5 w6", "hypothesis": "w7", "text": "w9"}]
    assert named.predict(rows) == named.predict([("w5 w6", "w7")]) == classifier.predict([("w5 w6", "w7")])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([("w5", "w6"), ("w5",)], "expected 2 texts"),
        ([{"text": "w5", "text_pair": None}], "'text_pair', expected a string"),
    ],
)
def test_texts_that_are_neither_single_nor_pairs_are_refused(classifier, inputs, message):
    with pytest.raises(UserError, match=message):
        classifier.predict(inputs)


def test_the_number_of_texts_of_a_model_that_states_it_cannot_be_changed(stored_finetuned):
    model = stored_finetuned(LABELS | {"text_columns": ["title"]})
    assert model.with_text_columns(["body"]).finetuned.task.text_columns == ("body",)
    for names in (["title", "body"], []):
        with pytest.raises(UserError, match="is not a model of"):
            model.with_text_columns(names)
    with pytest.raises(UserError, match="is not a model of 1 texts"):
        stored_finetuned({"kind": "tagging", "labels": ["A", "B"], "scheme": "plain"}).with_text_columns(["text"])


def test_predict_takes_pairs_by_their_columns_or_by_the_name_text_pair(published, tmp_path):
    model, file = load_trained(published).finished(), tmp_path / "new.csv"
    for header, columns in (("a,b", ("a", "b")), ("text,text_pair", None), ("text,other", None)):
        file.write_text(f"{header}\nw5 w6,w7\n")
        num_tokens = data_of(model, str(file), columns).evaluation.input_ids.size
        assert num_tokens == (4 if "other" in header else 6), header


def test_the_converter_takes_columns_of_pairs_and_names_a_pooling_that_is_lost(published, folder, tmp_path, capsys):
    flags = ["--to=hugging_face", f"--output_dir={tmp_path}/pairs", "--text_columns", "a", "b"]
    assert main([f"--from={published}", *flags]) == 0
    assert load_trained(tmp_path / "pairs").finetuned.task.text_columns == ("a", "b")
    place = with_modules(folder("discriminator"), FLAGS | {"pooling_mode_cls_token": True})
    assert main([f"--from={place}", "--to=hugging_face", f"--output_dir={tmp_path}/folder"]) == 0
    assert "hugging_face does not keep the pooling of the source, cls" in capsys.readouterr().out
    assert main([f"--from={place}", "--to=tf1", f"--output_dir={tmp_path}/tf1", "--text_columns", "a"]) == 2
    assert "text_columns a" in capsys.readouterr().err


# Facts of cards.


def facts_of_card(model, directory: Path) -> str:
    write_hugging_face(model, str(directory))
    return next(directory.rglob("README.md")).read_text()


def test_the_card_of_a_published_model_states_only_what_its_folder_does(published, tmp_path):
    card = facts_of_card(load_trained(published).finished(), tmp_path / "again")
    assert "- `hidden_size`: 16" in card
    assert not any(name in card for name in (*SETTINGS, "- steps:", "SHA-256", "initial weights"))


def test_the_card_of_a_folder_of_this_program_states_what_the_folder_notes(stored_finetuned, tmp_path):
    model = stored_finetuned(LABELS)
    settings = {"configuration": model.finetuned.model_dump(mode="json")}
    card = facts_of_card(dataclasses.replace(model, facts=settings), tmp_path / "folder")
    assert "- `train.batch_size`: 32" in card and "- `optimizer.learning_rate`: 0.0003" in card
    card = facts_of_card(load_trained(tmp_path / "folder").finished(), tmp_path / "again")
    assert "- `data.max_seq_length`: 12" in card and "- steps: 4" in card
    assert "batch_size" not in card and "learning_rate" not in card


@pytest.mark.parametrize("name", ["discriminator", "generator"])
def test_the_card_of_a_published_pre_trained_network_names_no_objective_and_no_step(folder, tmp_path, name):
    card = facts_of_card(load_trained(folder(name)).finished(), tmp_path / "again")
    assert not any(word in card for word in ("electra_tf electra", "bert_mlm", "- steps:", *SETTINGS))


def test_the_step_of_a_pre_training_is_not_that_of_a_head_trained_elsewhere(stored_finetuned, tmp_path):
    write_hugging_face(stored_finetuned(LABELS), str(tmp_path / "folder"))
    config = json.loads((tmp_path / "folder" / "config.json").read_text())
    config["electra_tf"] = {"objective": "electra", "step": 1_000_000, "data": ["5ea"]}  # transformers keeps it
    (tmp_path / "folder" / "config.json").write_text(json.dumps(config))
    model = load_trained(tmp_path / "folder").finished()
    assert (model.step, model.facts) == (0, {"is_assumed": True})


# Folders of sentence-transformers.

TEXTS = ["w5 w6 w7", "w8"]


def with_modules(
    folder: Path, pooling: dict, *others: str, longest: int | None = None, prompt: str | None = None
) -> str:
    """Makes a folder one of sentence-transformers."""
    names = ["Transformer", "Pooling", *others]
    modules = [
        {"idx": index, "path": f"{index}_{name}" if index else "", "type": f"sentence_transformers.models.{name}"}
        for index, name in enumerate(names)
    ]
    (folder / "1_Pooling").mkdir(exist_ok=True)
    files = {"modules.json": modules, "1_Pooling/config.json": pooling}
    files["sentence_bert_config.json"] = {"max_seq_length": longest, "do_lower_case": False}
    files["config_sentence_transformers.json"] = {"prompts": {}, "default_prompt_name": prompt}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return str(folder)


FLAGS = {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": False}


@pytest.mark.parametrize(
    ("pooling", "others", "expected"),
    [
        (FLAGS | {"pooling_mode_cls_token": True}, (), "cls"),
        (FLAGS | {"pooling_mode_max_tokens": True}, ("Normalize",), "max, Normalize"),
        ({"embedding_dimension": 16, "pooling_mode": "cls"}, ("Normalize",), "cls, Normalize"),  # version 6
        ({"word_embedding_dimension": 16}, (), "mean"),  # the default
    ],
)
def test_the_pooling_of_a_folder_is_kept(folder, tmp_path, pooling, others, expected):
    place = with_modules(folder("discriminator"), pooling, *others)
    model = electra_tf.load(place)
    mode, *normalize = expected.split(", ")
    vectors = model.encode(TEXTS, pooling=mode)
    if normalize:
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(model.encode(TEXTS), vectors, atol=1e-6)
    write_sentence_transformers(load_trained(place).finished(), str(tmp_path / "again"))
    assert read_pooling(str(tmp_path / "again")) == (expected, load_trained(place).finished().trained_length)


@pytest.mark.parametrize(
    ("pooling", "others", "prompt", "part"),
    [
        (FLAGS | {"pooling_mode_mean_sqrt_len_tokens": True}, (), None, "mean_sqrt_len"),
        ({"pooling_mode": ["mean", "max"]}, ("Normalize",), None, "mean, max, Normalize"),
        (FLAGS | {"pooling_mode_cls_token": True}, ("Dense", "Normalize"), None, "cls, Dense, Normalize"),
        (FLAGS | {"pooling_mode_cls_token": True}, (), "query", "cls, prompt query"),
    ],
)
def test_a_foreign_pooling_is_refused_and_the_encoder_is_still_read(folder, tmp_path, pooling, others, prompt, part):
    place = with_modules(folder("discriminator"), pooling, *others, prompt=prompt)
    model = electra_tf.load(place)
    with pytest.raises(UserError, match=f"the pooling is '{part}', expected mean, cls or max"):
        model.encode(TEXTS)
    assert model.encode(TEXTS, pooling="cls").shape == (2, 16)
    with pytest.raises(UserError, match=part):
        write_sentence_transformers(load_trained(place).finished(), str(tmp_path / "again"))


@pytest.mark.parametrize(
    ("longest", "of_tokenizer", "expected"),
    [(7, 9, 7), (None, 9, 9), (None, 10**30, 13), (512, 9, 13)],  # of 13 positions
)
def test_the_longest_text_is_that_of_the_folder(folder, longest, of_tokenizer, expected):
    place = with_modules(folder("discriminator"), FLAGS | {"pooling_mode_cls_token": True}, longest=longest)
    (Path(place) / "tokenizer_config.json").write_text(json.dumps({"model_max_length": of_tokenizer}))
    assert load_trained(place).finished().trained_length == expected


def test_an_older_folder_has_its_network_in_a_folder_of_its_own(folder, tmp_path):
    place = folder("discriminator", name="st/0_Transformer") if (tmp_path / "st").mkdir() is None else None
    with_modules(place, {}, longest=9)
    (place / "1_Pooling" / "config.json").unlink()
    (tmp_path / "st" / "1_Pooling").mkdir()
    (tmp_path / "st" / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    (tmp_path / "st" / "modules.json").write_text(
        json.dumps([{"path": "0_Transformer", "type": "a.Transformer"}, {"path": "1_Pooling", "type": "a.Pooling"}])
    )
    model = load_trained(tmp_path / "st").finished()
    assert (model.pooling, model.trained_length, model.encoder.num_layers) == ("cls", 9, TWO_LAYERS["num_layers"])
