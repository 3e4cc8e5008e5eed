"""The table of kinds, each kind on a user's own file, and predictions for files."""

import dataclasses
import importlib
import inspect
import json
import logging
import pkgutil

import numpy as np
import pytest
import tensorflow as tf

import run_finetuning
from electra_tf.finetuning import predict
from electra_tf.finetuning.predict import outputs_of, predict_file
from electra_tf.serving.saved_model import load_served_model
from electra_tf.tasks.finetune import kinds
from electra_tf.tasks.finetune.data import TaskData
from electra_tf.tasks.finetune.kind import Kind
from electra_tf.tasks.finetune.kinds import build_finetuning_task
from tests.markdown import cells
from tests.tasks.finetune.steps import CHOICE
from tests.toy import toy_finetuning_config

_SETTINGS = ("data.max_seq_length=16", "train.num_steps=2", "train.batch_size=4", "train.fused_ops=false")
_TEXTS = [f"w{5 + number} w{6 + number}{' w9' * (number % 4)}" for number in range(12)]
_CONTEXT = "w5 w6 w7, w8 W9. w10 w11 w12 w13 w14 w15 w16 w17 w18"


def squad(version_2: bool) -> str:
    answers = [[{"text": "w8 W9", "answer_start": 10}]] * 3 + [[]] * 2 * version_2
    questions = [{"id": f"q{n}", "question": "w6 w8", "answers": each} for n, each in enumerate(answers)]
    questions = [{**each, "is_impossible": not each["answers"]} for each in questions]
    return json.dumps({"version": "x", "data": [{"paragraphs": [{"context": _CONTEXT, "qas": questions}]}]})


_QUESTIONS = "--set=task.doc_stride=4 --set=task.max_query_length=4 --set=task.head_size=6 --set=task.beam_size=3"
_INDEPENDENT = "--set=task.joint_prediction=false --set=train.precision=bfloat16"
# Flags and examples; of squad a file.
KINDS = {
    "pairs": (
        "--task=classification --text_columns first second --class_weights balanced --set=task.head=huggingface",
        [{"first": text, "second": "w7", "label": n % 3} for n, text in enumerate(_TEXTS)],
    ),
    "windows": (
        "--task=classification --stride=4",
        [{"text": f"{text} " * 5, "label": n % 2} for n, text in enumerate(_TEXTS)],
    ),
    "multi_label": (
        "--task=multi_label --label_column=labels",
        [{"text": text, "labels": ["a", "b", "c"][: n % 4]} for n, text in enumerate(_TEXTS)],
    ),
    "regression": ("--task=regression", [{"text": text, "label": n / 2} for n, text in enumerate(_TEXTS)]),
    "tagging": (
        "--task=tagging --set=task.scheme=bioes",
        [{"words": ["w5", "w6w7,", "w8"], "tags": ["O", "B-X", "E-X"]} for _ in range(5)],
    ),
    "multiple_choice": (
        "--task=multiple_choice --set=train.gradient_accumulation_steps=2",
        [{"context": text * 5, "choices": ["w6", "w8", "w7"][n % 3 :], "label": 0} for n, text in enumerate(_TEXTS)],
    ),
    "squad_v1": (f"--task=squad_v1 {_QUESTIONS}", squad(False)),
    "squad_v2": (f"--task=squad_v2 {_QUESTIONS}", squad(True)),
    "independent": (f"--task=squad_v2 {_QUESTIONS} {_INDEPENDENT}", squad(True)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_trained_scored_and_predicts(kind, write, tiny_pretrained, tmp_path, capsys):
    flags, examples = KINDS[kind]
    is_squad = isinstance(examples, str)
    train, out = write("train.json" if is_squad else "train.jsonl", examples), tmp_path / "out"
    new = [{"id": "a", "question": "w6", "context": _CONTEXT}, {"question": "w7", "context": "w5 w6"}]
    if not is_squad:
        new = [{name: each[name] for name in each if name not in ("label", "labels", "tags")} for each in examples[:2]]
    files = [f"--{split}_file={train}" for split in ("train", "validation", "test")]
    files += [f"--init_from={tiny_pretrained}", f"--output_dir={out}"]
    assert run_finetuning.main([*files, *(f"--set={each}" for each in _SETTINGS), *flags.split()]) == 0
    assert sum(" * " in line for line in capsys.readouterr().out.splitlines()) == 2
    summary = json.loads((out / "summary.json").read_text())
    assert summary["statistics"] and summary["test"] == {"file": train, "statistics": summary["statistics"]}
    reports = json.loads((out / "seed_0/result.json").read_text()).get("reports", {})
    has_classes = not is_squad and kind not in ("regression", "multiple_choice")
    assert list(reports) == (["validation", "test"] if has_classes else [])
    predict = ["--predict", f"--model_dir={out}/seed_0", f"--input_file={write('new.jsonl', new)}"]
    assert run_finetuning.main([*predict, f"--output_file={out}/predicted"]) == 0
    lines = (out / "predicted").read_text().splitlines()
    assert len(load_served_model(out / "seed_0").names) == 4  # the kind's and `embed`, of texts and of ids
    if is_squad:
        assert summary["seeds"][0]["answer_language"] == summary["seeds"][0]["test"]["answer_language"] == "en"
        answers = list(map(json.loads, lines))
        assert [answer["id"] for answer in answers] == ["a", "1"]
        assert answers[0]["best_text"] == _CONTEXT[answers[0]["start"] : answers[0]["end"]]
        names = {"id", "text", "null_odds", "best_text", "start", "end", "probability", "score"}
        assert all(set(answer) == names for answer in answers)
    else:
        expected = ["w5", "w6w7,", "w8", ""] * 2 if kind == "tagging" else ["id", "0", "1"]
        assert [line.split("\t")[0] for line in lines][: len(expected)] == expected


def test_every_kind_in_the_folder_has_a_row():
    names = [each.name for each in pkgutil.iter_modules(kinds.__path__)]
    modules = [importlib.import_module(f"{kinds.__name__}.{name}") for name in names]
    classes = {each for module in modules for each in vars(module).values() if inspect.isclass(each)}
    found = {each for each in classes if issubclass(each, Kind) and not inspect.isabstract(each)}
    assert found == set(map(type, kinds.KINDS.values()))


@pytest.mark.parametrize(
    ("kind", "columns", "settings", "message"),
    [
        ("tagging", {"words": [["w5"], ["w6"]], "labels": [["O"], ["O"]]}, {}, "only the tag 'O'"),
        ("multiple_choice", {"context": ["w5"] * 2, "choices": [["w6"], ["w7"]], "label": [0, 0]}, {}, "one choice"),
        ("classification", {"text": ["w5", "w6"], "label": [*"ab"]}, {"labels": [*"aab"]}, "different labels"),
        ("regression", {"text": ["w5", "w6"], "label": [1, 2]}, {"min_value": 5, "max_value": 0}, "min_value 5"),
    ],
)
def test_a_task_without_anything_to_learn_is_refused(task_of, tiny_encoder, refusal, kind, columns, settings, message):
    def read() -> None:
        task = task_of(kind, {"task": settings}, train=columns)
        TaskData(task.config, tiny_encoder.tokenizer, task.train, task.evaluated)

    assert message in refusal(read)


ONE_DEVICE = tf.distribute.OneDeviceStrategy("CPU:0")
SCORES = {"kind": "regression", "text_columns": ["text"], "min_value": 1.0, "max_value": 5.0}
TAGS = {"kind": "tagging", "labels": ["B-X", "I-X", "O"]}
NAMES = {"text_columns": ["text"], "labels": ["cat", "dog", "eel"]}
ANIMALS = {"kind": "classification", "label_column": "animal", **NAMES}
LOGITS = {"logits": np.float32([[1, 0, 0], [0, 1, 0]]), "loss": np.float32([0.25, 0.75])}
TABLE = "text,animal\nw5,cat\nw6,eel\n"


@pytest.fixture
def predicted(monkeypatch, tiny_encoder, write, tmp_path):
    """`predicted(name, task, file, content, outputs)`: the predictions for a file by a model with these outputs."""

    def predict_new(name: str, task: dict, file: str, content, outputs=None, text_columns=None, label=None) -> str:
        config = toy_finetuning_config(task).model_copy(update={"name": name})
        model = dataclasses.replace(tiny_encoder, finetuned=config, source="a checkpoint")
        if outputs is not None:
            monkeypatch.setattr(predict, "outputs_of", lambda *_: outputs)
        output_file = tmp_path / "new/directory/out"
        print(predict_file(model, write(file, content), str(output_file), text_columns, ONE_DEVICE, label))
        return output_file.read_text()

    return predict_new


def test_predicted_numbers_have_all_digits(predicted):
    outputs = {"logits": np.float32([[1 / 3], [0.5]])}
    table = predicted("regression", SCORES, "new.csv", "text\nw5\nw6\n", outputs)
    assert [float(line.split("\t")[1]) for line in table.splitlines()[1:]] == [1.0 + 4.0 * float(np.float32(1 / 3)), 3]


def test_labels_in_the_input_are_copied_and_scored_and_a_given_column_replaces_that_of_training(predicted, capsys):
    table = predicted("classification", ANIMALS, "new.csv", TABLE, LOGITS)
    assert [line.split()[:3] for line in table.splitlines()[1:]] == [["0", "cat", "cat"], ["1", "eel", "dog"]]
    scores, _, classes = capsys.readouterr().out.split("\n\n")
    assert cells(scores)[1:3] == [["classification", "accuracy *", "50.00"], ["classification", "f1_macro", "33.33"]]
    assert cells(scores)[-1] == ["classification", "loss", "0.50"]
    assert cells(classes)[1] == ["eel", "0.00", "0.00", "0.00", "1", "dog 1"]
    table = predicted("classification", ANIMALS, "new.csv", "text,a\nw5,dog\nw6,eel\n", LOGITS, label="a")
    assert [line.split()[1] for line in table.splitlines()] == ["label", "dog", "eel"]


@pytest.mark.parametrize("text", ["text\nw5\nw6\n", "text,animal\nw5,\nw6,\n", "text,label\nw5,cow\nw6,cow\n"])
def test_an_input_without_labels_in_the_column_of_training_is_only_predicted(predicted, capsys, text):
    table = predicted("classification", ANIMALS, "new.csv", text, {"logits": LOGITS["logits"]})
    assert [line.split()[:2] for line in table.splitlines()] == [["id", "prediction"], ["0", "cat"], ["1", "dog"]]
    assert capsys.readouterr().out == "\n"


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        (TABLE.replace("eel", "cow"), {}, "new.csv:3 has the label 'cow'"),
        (TABLE, {"label": "a"}, "new.csv has no column 'a'"),
        (TABLE, {"text_columns": ("a", "b")}, "was trained with 1, text; give as many"),
    ],
)
def test_an_unknown_label_and_other_columns_are_named(predicted, refusal, content, columns, message):
    assert message in refusal(predicted, "classification", ANIMALS, "new.csv", content, **columns)


@pytest.mark.parametrize(
    ("task", "rows", "label", "scores"),
    [
        (ANIMALS, [{"animal": "eel"}, {"animal": -1}], "eel", {"accuracy": "0.00", "loss": "0.25"}),
        ({"kind": "multi_label", **NAMES}, [{"label": ["cat"]}, {}], '"[""cat""]"', {"accuracy": "100.00"}),
        (SCORES, [{"label": 2.5}, {"label": None}], "2.5", {"mse": "6.25"}),
        (CHOICE, [{"label": 0}, {"label": "-"}], "0", {"accuracy": "100.00", "loss": "0.25"}),
    ],
    ids=["minus one", "lacking", "null", "dash"],
)
def test_examples_without_a_label_are_predicted_but_not_scored(predicted, caplog, capsys, task, rows, label, scores):
    caplog.set_level(logging.INFO)
    facts = {"text": "w5", "context": "w5", "choices": ["w6", "w7", "w8"]}
    table = predicted(task["kind"], task, "new.jsonl", [facts | row for row in rows], LOGITS)
    assert [line.split("\t")[1] for line in table.splitlines()] == ["label", label, ""]
    printed = {row[1].removesuffix(" *"): row[-1] for row in cells(capsys.readouterr().out.split("\n\n")[0])}
    assert printed.items() >= scores.items()
    assert "new.jsonl: 1 of 2 examples have no label" in caplog.text and "rows 2" in caplog.text


RTE = {"kind": "classification", "labels": ["entailment", "not_entailment"], "text_columns": ["sentence1", "sentence2"]}


def test_a_tsv_file_for_a_glue_model_is_read_as_glues_dev_files_and_scored(predicted, capsys):
    text = 'index\tsentence1\tsentence2\tlabel\n4\t"w5 w6\tw7\tentailment\n5\tw8\tw9"\tnot_entailment\n'
    outputs = {"logits": np.float32([[1, 0], [1, 0]]), "loss": np.float32([0.25, 0.75])}
    table = predicted("rte", RTE, "dev.tsv", text, outputs)  # its quotes are characters
    assert [line.split("\t")[:3] for line in table.splitlines()[1:]] == [
        ["4", "entailment", "entailment"],
        ["5", "not_entailment", "entailment"],
    ]
    assert cells(capsys.readouterr().out)[1] == ["rte", "accuracy *", "50.00"]


@pytest.mark.parametrize(
    ("file", "text", "columns", "printed"),
    [
        ("a.txt", "w5 a B-X\nw6 a I-X\n", [["B-X", "B-X"], ["I-X", "O"]], [["tagging", "f1 *", "0.00"]]),
        ("a.jsonl", [{"words": ["w5", "w6"], "tags": []}], [["B-X"], ["O"]], []),
    ],
)
def test_tags_in_the_input_are_copied_and_scored(predicted, capsys, file, text, columns, printed):
    outputs = {"label_ids": np.array([[0, 0, 2, 0]]), "probabilities": np.ones([1, 4]), "loss": np.float32([0.5])}
    lines = predicted("tagging", TAGS, file, text, outputs).splitlines()
    assert [line.split("\t")[1:-1] for line in lines[:2]] == columns
    assert cells(capsys.readouterr().out)[1:2] == printed


def test_answers_in_the_input_are_scored_and_the_log_names_how_they_are_compared(predicted, capsys, caplog):
    caplog.set_level(logging.INFO)
    questions = [{"id": "q", "question": "谁？", "answers": [{"text": "曹雪芹", "answer_start": 0}]}]
    text = json.dumps({"data": [{"paragraphs": [{"context": "", "qas": questions}]}]})
    task = {"kind": "question_answering", "version_2": False, "max_query_length": 4}
    for given, language in ((None, "characters"), ("words", "words")):
        predicted("squad_v1", task | {"answer_language": given}, "new.json", text)
        assert f"task.answer_language {language}" in caplog.messages[-2]
        assert cells(capsys.readouterr().out)[1:] == [["squad_v1", "exact_match", "0.00"], ["squad_v1", "f1 *", "0.00"]]


@pytest.mark.parametrize("version_2", [False, True])
def test_questions_with_empty_contexts_have_empty_answers(predicted, caplog, version_2):
    task = {"kind": "question_answering", "version_2": version_2, "max_query_length": 4, "null_threshold": 0.5}
    with caplog.at_level(logging.INFO):
        lines = predicted("squad_v2", task, "new.jsonl", [{"question": "w5?", "context": ""}] * 2).splitlines()
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
