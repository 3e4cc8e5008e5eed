"""Predictions for files."""

import dataclasses
import json
import logging
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.finetuning import predict
from electra_tf.finetuning.predict import outputs_of, predict_file
from electra_tf.tasks.finetune.kinds import build_finetuning_task
from tests.markdown import cells
from tests.tasks.finetune.steps import CHOICE
from tests.toy import toy_finetuning_config

ONE_DEVICE = tf.distribute.OneDeviceStrategy("CPU:0")


@pytest.fixture
def predicted(monkeypatch, tiny_encoder, tmp_path):
    """`predicted(name, task, file, text, outputs)`: the predictions for a file by a model with these outputs."""

    def predict_new(name: str, task: dict, file: str, text: str | bytes, outputs: dict | None = None, **options) -> str:
        config = toy_finetuning_config(task).model_copy(update={"name": name})
        model = dataclasses.replace(tiny_encoder, finetuned=config, source="a checkpoint")
        if outputs is not None:
            monkeypatch.setattr(predict, "outputs_of", lambda *_: outputs)
        (tmp_path / file).write_bytes(text if isinstance(text, bytes) else text.encode())
        output_file = tmp_path / "new/directory/out"
        print(predict_file(model, str(tmp_path / file), str(output_file), None, ONE_DEVICE, **options))
        return output_file.read_text()

    return predict_new


def test_another_number_of_columns_than_in_training_is_refused(tiny_encoder):
    task = {"kind": "similarity", "text_columns": ["a", "b"]}
    model = dataclasses.replace(tiny_encoder, finetuned=toy_finetuning_config(task))
    with pytest.raises(UserError, match="was trained with 2, a and b"):
        predict_file(model, "none.csv", "none.tsv", ("a",), ONE_DEVICE)


def test_predicted_numbers_have_all_digits(predicted):
    task = {"kind": "regression", "text_columns": ["text"], "min_value": 1.0, "max_value": 5.0}
    outputs = {"logits": np.float32([[1 / 3], [0.5]])}
    table = predicted("regression", task, "new.csv", "text\nw5\nw6\n", outputs)
    assert [float(line.split("\t")[1]) for line in table.splitlines()[1:]] == [1.0 + 4.0 * float(np.float32(1 / 3)), 3]


def test_truncated_texts_are_counted(predicted, caplog):
    caplog.set_level(logging.INFO)
    task = {"kind": "regression", "text_columns": ["text"], "min_value": 1.0, "max_value": 5.0}
    predicted("regression", task, "new.csv", f"text\nw5\n{'w6 ' * 99}\n", {"logits": np.float32([[0.1], [0.5]])})
    assert "new.csv: 1 of 2 examples were truncated: data.max_seq_length is " in caplog.text


TAGS = {"kind": "tagging", "labels": ["B-X", "I-X", "O"]}
ANIMALS = {"kind": "classification", "text_columns": ["text"], "labels": ["cat", "dog", "eel"]}
ANIMALS |= {"label_column": "animal"}
LOGITS = {"logits": np.float32([[1, 0, 0], [0, 1, 0]]), "loss": np.float32([0.25, 0.75])}
TABLE = "text,animal\nw5,cat\nw6,eel\n"


def fields(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_labels_in_the_input_are_copied_and_scored(predicted, capsys):
    table = predicted("classification", ANIMALS, "new.csv", TABLE, LOGITS)
    assert [row[:3] for row in fields(table)[1:]] == [["0", "cat", "cat"], ["1", "eel", "dog"]]
    scores, _, classes = capsys.readouterr().out.split("\n\n")
    assert cells(scores)[1:3] == [["classification", "accuracy *", "50.00"], ["classification", "f1_macro", "33.33"]]
    assert cells(scores)[-1] == ["classification", "loss", "0.50"]
    assert cells(classes)[1] == ["eel", "0.00", "0.00", "0.00", "1", "dog 1"]


@pytest.mark.parametrize("text", ["text\nw5\nw6\n", "text,animal\nw5,\nw6,\n", "text,label\nw5,cow\nw6,cow\n"])
def test_an_input_without_labels_in_the_column_of_training_is_only_predicted(predicted, capsys, text):
    table = predicted("classification", ANIMALS, "new.csv", text, {"logits": LOGITS["logits"]})
    assert [row[:2] for row in fields(table)] == [["id", "prediction"], ["0", "cat"], ["1", "dog"]]
    assert capsys.readouterr().out == "\n"


def test_a_given_label_column_replaces_that_of_training_and_must_exist(predicted):
    table = predicted("classification", ANIMALS, "new.csv", "text,a\nw5,dog\nw6,eel\n", LOGITS, label_column="a")
    assert [row[1] for row in fields(table)] == ["label", "dog", "eel"]
    arguments = "classification", ANIMALS, "new.csv", TABLE
    with pytest.raises(UserError, match="new.csv has no column 'a'"):
        predicted(*arguments, label_column="a")


@pytest.mark.parametrize(
    ("task", "file", "text", "message"),
    [
        (ANIMALS, "new.csv", TABLE.replace("eel", "cow"), "new.csv:3 has the label 'cow'"),
        (TAGS, "a.txt", "w5 B-X\nw6 I-Y\n", "a.txt:2 has the tag 'I-Y'"),
    ],
)
def test_an_unknown_label_is_named_with_its_line(predicted, refusal, task, file, text, message):
    assert message in refusal(predicted, task["kind"], task, file, text)


@pytest.mark.parametrize(
    ("task", "rows", "label", "scores"),
    [
        (ANIMALS, [{"animal": "cat"}, {"animal": -1}], "cat", {"accuracy": "100.00", "loss": "0.25"}),
        (ANIMALS, [{"animal": "eel"}, {"animal": "-"}], "eel", {"accuracy": "0.00", "loss": "0.25"}),
        (
            {"kind": "multi_label", "text_columns": ["text"], "labels": ["cat", "dog", "eel"]},
            [{"label": ["cat"]}, {"label": None}],
            '"[""cat""]"',
            {"accuracy": "100.00"},
        ),
        (
            {"kind": "regression", "text_columns": ["text"], "min_value": 1.0, "max_value": 5.0},
            [{"label": 2.5}, {}],
            "2.5",
            {"mse": "6.25"},
        ),
        (CHOICE, [{"label": 0}, {"label": -1}], "0", {"accuracy": "100.00", "loss": "0.25"}),
    ],
    ids=["minus one", "dash", "null", "lacking", "choices"],
)
def test_examples_without_a_label_are_predicted_but_not_scored(predicted, caplog, capsys, task, rows, label, scores):
    caplog.set_level(logging.INFO)
    facts = {"text": "w5", "context": "w5", "choices": ["w6", "w7", "w8"]}
    text = "".join(f"{json.dumps(facts | row)}\n" for row in rows)
    table = predicted(task["kind"], task, "new.jsonl", text, LOGITS)
    assert [line.split("\t")[1] for line in table.splitlines()] == ["label", label, ""]
    printed = {row[1].removesuffix(" *"): row[-1] for row in cells(capsys.readouterr().out.split("\n\n")[0])}
    assert printed.items() >= scores.items()
    assert "new.jsonl: 1 of 2 examples have no label" in caplog.text and "rows 2" in caplog.text


RTE = {"kind": "classification", "labels": ["entailment", "not_entailment"], "text_columns": ["sentence1", "sentence2"]}
RIGHT_AND_WRONG = {"logits": np.float32([[1, 0], [1, 0]]), "loss": np.float32([0.25, 0.75])}


def test_a_tsv_file_for_a_glue_model_is_read_as_glues_dev_files_and_scored(predicted, capsys):
    text = 'index\tsentence1\tsentence2\tlabel\n4\t"w5 w6\tw7\tentailment\n5\tw8\tw9"\tnot_entailment\n'
    table = predicted("rte", RTE, "dev.tsv", text, RIGHT_AND_WRONG)  # its quotes are characters
    assert [line.split("\t")[:3] for line in table.splitlines()[1:]] == [
        ["4", "entailment", "entailment"],
        ["5", "not_entailment", "entailment"],
    ]
    assert cells(capsys.readouterr().out)[1] == ["rte", "accuracy *", "50.00"]


def test_the_class_ids_of_a_parquet_file_for_a_glue_model_are_the_names_of_its_tsv_files(predicted, write_parquet):
    texts = {"sentence1": ["w5", "w6"], "sentence2": ["w7", "w8"]}
    content = Path(write_parquet("a.parquet", {**texts, "label": [0, 1]}, ("entailment", "not_entailment")))
    table = predicted("rte", RTE, "dev.parquet", content.read_bytes(), RIGHT_AND_WRONG)
    assert [row[1] for row in fields(table)] == ["label", "entailment", "not_entailment"]
    unlabelled = Path(write_parquet("b.parquet", {**texts, "label": [-1, -1]}, ("entailment", "not_entailment")))
    table = predicted("rte", RTE, "test.parquet", unlabelled.read_bytes(), {"logits": RIGHT_AND_WRONG["logits"]})
    assert [row[1] for row in fields(table)] == ["prediction", "entailment", "entailment"]


@pytest.mark.parametrize(
    ("file", "text", "known"),
    [
        ("a.txt", "w5 a B-X\nw6 a O\n", ["B-X", "O"]),
        ("a.jsonl", '{"words": ["w5", "w6"], "tags": ["B-X", "O"]}\n', ["B-X", "O"]),
        ("a.txt", "w5 NN\nw6 VB\n", None),  # no column of tags
        ("a.jsonl", '{"words": ["w5", "w6"], "tags": []}\n', None),
    ],
)
def test_tags_in_the_input_are_copied_and_scored(predicted, capsys, file, text, known):
    outputs = {"label_ids": np.array([[0, 0, 2, 0]]), "probabilities": np.ones([1, 4]), "loss": np.float32([0.5])}
    lines = predicted("tagging", TAGS, file, text, outputs).splitlines()
    tags = [[tag, "B-X" if word == "w5" else "O"] for word, tag in zip(("w5", "w6"), known or (), strict=False)]
    assert [line.split("\t")[1:-1] for line in lines[:2]] == (tags or [["B-X"], ["O"]])
    printed = cells(capsys.readouterr().out)
    assert (printed[1:2] == [["tagging", "f1 *", "100.00"]]) == bool(known)


def test_answers_in_the_input_are_scored(predicted, capsys):
    questions = [{"id": "q", "question": "w5?", "answers": [{"text": "w6", "answer_start": 0}]}]
    text = json.dumps({"data": [{"paragraphs": [{"context": "", "qas": questions}]}]})
    task = {"kind": "question_answering", "version_2": False, "max_query_length": 4}
    predicted("squad_v1", task, "new.json", text)
    assert cells(capsys.readouterr().out)[1:] == [["squad_v1", "exact_match", "0.00"], ["squad_v1", "f1 *", "0.00"]]


def test_the_log_names_how_answers_are_compared(predicted, caplog):
    caplog.set_level(logging.INFO)
    questions = [{"id": "q", "question": "谁？", "answers": [{"text": "曹雪芹", "answer_start": 0}]}]
    text = json.dumps({"data": [{"paragraphs": [{"context": "", "qas": questions}]}]})
    task = {"kind": "question_answering", "version_2": False}
    for given, language in ((None, "characters"), ("words", "words")):
        predicted("squad_v1", task | {"answer_language": given}, "new.json", text)
        assert f"task.answer_language {language}" in caplog.messages[-2]


@pytest.mark.parametrize("version_2", [False, True])
def test_questions_with_empty_contexts_have_empty_answers(predicted, caplog, version_2):
    task = {"kind": "question_answering", "version_2": version_2, "max_query_length": 4, "null_threshold": 0.5}
    question = '{"question": "w5?", "context": ""}\n'
    with caplog.at_level(logging.INFO):
        lines = predicted("squad_v2", task, "new.jsonl", question * 2).splitlines()
    assert [(answer["id"], answer["text"]) for answer in map(json.loads, lines)] == [("0", ""), ("1", "")]
    assert "2 predictions by a checkpoint" in caplog.text


@pytest.mark.slow
def test_evaluation_batches_are_enlarged_to_divide_among_replicas(job_in, two_replicas, tmp_path):
    job = job_in(tmp_path, evaluation={"batch_size": 3})
    with two_replicas.scope():
        task = build_finetuning_task(job.config)
    model = dataclasses.replace(job.pretrained, finetuned=job.config, task=task)
    logits = outputs_of(model, job.data, two_replicas)["logits"]
    assert logits.shape == (6, 2) and logits.all()  # a skipped example would have zeros
