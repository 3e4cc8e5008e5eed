"""Folders as other programs publish them: pairs of texts, a pooling that is lost, and what their cards may state."""

import dataclasses
import json
from pathlib import Path

import pytest

import electra_tf
from electra_tf.cli.convert_checkpoint import main
from electra_tf.config.errors import UserError
from electra_tf.finetuning.predict import data_of
from electra_tf.weights.hugging_face.writer import write_hugging_face
from electra_tf.weights.source import load_trained
from tests.weights.conftest import refusal
from tests.weights.hugging_face.test_sentence_transformers import CLS, with_modules

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
        assert "is not a model of" in refusal(model.with_text_columns, names)
    tagging = stored_finetuned({"kind": "tagging", "labels": ["A", "B"], "scheme": "plain"})
    assert "is not a model of 1 texts" in refusal(tagging.with_text_columns, ["text"])


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
    place = with_modules(folder("discriminator"), CLS)
    assert main([f"--from={place}", "--to=hugging_face", f"--output_dir={tmp_path}/folder"]) == 0
    assert "hugging_face does not keep the pooling of the source, cls" in capsys.readouterr().out
    assert main([f"--from={place}", "--to=tf1", f"--output_dir={tmp_path}/tf1", "--text_columns", "a"]) == 2
    assert "text_columns a" in capsys.readouterr().err


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
