"""Texts and labels from a user's own files, and mistakes in them."""

import json
import logging
from types import SimpleNamespace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import tensorflow as tf

from electra_tf.data.tables import Table, read_table
from electra_tf.tasks.finetune.datasets import read_task
from electra_tf.tasks.finetune.examples import Examples, NewColumns, read_texts, with_swapped_pairs
from electra_tf.tasks.finetune.examples import read_examples as read_columns
from electra_tf.tasks.finetune.kinds import KINDS
from electra_tf.tasks.finetune.kinds.regression import scaled_targets, target_range
from electra_tf.tasks.finetune.kinds.sentence import SentenceConfig
from electra_tf.tasks.finetune.labels import class_weights, label_set


def read_examples(path: str, columns: list[str], label_column: str, kind: str, **options) -> Examples:
    return read_columns(path, columns, label_column, KINDS[kind].labels_in, **options)


def labelled(*labels) -> Examples:
    rows = range(2, 2 + len(labels))
    return Examples((["t"] * len(labels),), list(labels), list(map(str, rows)), "train.csv", rows)


def test_csv_fields_may_hold_commas_quotes_and_line_breaks(write):
    path = write("a.csv", '\ufefftitle,body,topic\nOne,"a, ""b""\nc",x\n\nTwo,d,y\n')
    examples = read_examples(path, ["title", "body"], "topic", "classification")
    assert examples.inputs == (["One", "Two"], ['a, "b"\nc', "d"])
    assert (examples.labels, examples.ids, list(examples.rows)) == (["x", "y"], ["0", "1"], [2, 5])


def test_tsv_jsonl_parquet_and_a_remote_csv_give_the_same_examples(write, write_parquet):
    paths = [
        write("a.tsv", "id\ttext\tlabel\r\n7\ta b\t1\r\n8\tc\t0\r\n"),
        write("a.jsonl", '{"id": 7, "text": "a b", "label": 1}\n{"id": 8, "text": "c", "label": 0}\n'),
        write_parquet("a.parquet", {"id": [7, 8], "text": ["a b", "c"], "label": [1, 0]}),
    ]
    with tf.io.gfile.GFile("ram://tables/a.csv", "w") as file:
        file.write("id,text,label\n7,a b,1\n8,c,0\n")
    for path in (*paths, "ram://tables/a.csv"):
        examples = read_examples(path, ["text"], "label", "classification")
        assert (examples.inputs, examples.labels, examples.ids) == ((["a b", "c"],), ["1", "0"], ["7", "8"])


def test_a_json_text_may_hold_a_line_separator(write):
    path = write("a.jsonl", '{"text": "a\u2028b", "label": "x"}\n')
    assert read_examples(path, ["text"], "label", "classification").inputs == (["a\u2028b"],)


def test_the_labels_of_multi_label_are_lists_or_names_between_commas(write):
    json_path = write("a.jsonl", '{"text": "a", "tags": ["x", "y", "x"]}\n{"text": "b", "tags": []}\n')
    csv_path = write("a.csv", 'text,tags\na,"x, y"\nb,\n')
    csv_of_json_path = write("b.csv", 'text,tags\na,"[""x"", ""y""]"\nb,[]\n')
    for path in (json_path, csv_path, csv_of_json_path):
        assert read_examples(path, ["text"], "tags", "multi_label").labels == [("x", "y"), ()]


def test_the_labels_of_regression_are_numbers(write):
    examples = read_examples(write("a.csv", "text,score\na,-1.5\nb,4\n"), ["text"], "score", "regression")
    assert examples.labels == [-1.5, 4.0]
    np.testing.assert_array_equal(scaled_targets(examples, **target_range(examples)), np.float32([0, 1]))


@pytest.mark.parametrize(
    ("name", "content", "problem", "parts"),
    [
        ("a.csv", "txt,label\na,x\n", "classification", ["'text'", "did you mean txt?"]),
        ("a.csv", "text,label\na,high\n", "regression", ["a.csv:2", "'high'", "'label'"]),
        ("a.csv", "text,label\na,inf\n", "regression", ["a.csv:2", "'inf'"]),
        ("a.jsonl", '{"text": "a", "label": "x"}\n{"label": "x"}\n', "classification", ["a.jsonl:2", "'text'"]),
        ("a.jsonl", '{"text": "a", "label": ["x"]}\n', "classification", ["a.jsonl:1", "multi_label"]),
    ],
)
def test_a_mistake_in_a_file_is_reported_with_its_place(write, refusal, name, content, problem, parts):
    message = refusal(read_examples, write(name, content), ["text"], "label", problem)
    assert all(part in message for part in parts), message


@pytest.mark.parametrize("split", ["train", "validation", "test"])
@pytest.mark.parametrize("labels", [["-1", -1, "-", "", None], [float("nan")] * 5], ids=str)
def test_a_file_without_any_label_is_refused(tiny_encoder, refusal, split, labels):
    files = ("train", "validation", "test")
    tables = {name: Table(f"{name}.csv", {"text": [*"abcde"], "label": [*"xyxyx"]}, range(2, 7)) for name in files}
    tables[split].columns["label"] = labels
    message = refusal(read_task, "classification", {}, "test", tiny_encoder.encoder, tiny_encoder.origin, tables)
    assert f"{split}.csv has no labels" in message


def of_labels(write, labels: list[str], name: str = "a.jsonl") -> str:
    """A file with a text and one of the labels, in the file's own words, in each row."""
    rows = (f"a,{label}" if name.endswith(".csv") else f'{{"text": "a", "label": {label}}}' for label in labels)
    return write(name, "".join(f"{row}\n" for row in (["text,label"] * name.endswith(".csv") + list(rows))))


def train_on(path, problem: str) -> None:
    label_set(read_examples(path, ["text"], "label", problem))


@pytest.mark.parametrize("problem", ["classification", "multi_label", "regression"])
@pytest.mark.parametrize(
    "labels",
    [
        ["[1, 0, 0]", "[0, 1, 0]"],
        ["[1, 0]", "[0, 1]"],  # of two labels, none is repeated
        ["[true, false]", "[false, true]"],
        ["[0.2, 0.8]", "[1.0]"],  # probabilities
    ],
    ids=str,
)
def test_a_number_for_every_label_is_no_list_of_labels(write, refusal, labels, problem):
    message = refusal(train_on, of_labels(write, labels), problem)
    assert "a.jsonl:" in message and ("names of the labels" in message or problem != "multi_label")


@pytest.mark.parametrize("problem", ["classification", "multi_label"])
@pytest.mark.parametrize(
    "labels",
    [
        ['"[1, 0]"', '"[0, 1]"'],
        ['"[1 0 0]"', '"[0 1 0]"'],  # as NumPy writes an array, and `datasets` a list
        ['"1,0,0"', '"0,1,0"'],
        ['"(1, 0, 0)"', '"(0, 1, 0)"'],
        ["\"['a' 'b']\"", "\"['c']\""],
    ],
    ids=str,
)
def test_a_list_as_text_that_states_no_names_is_refused(write, refusal, labels, problem):
    assert "a.csv" in refusal(train_on, of_labels(write, labels, "a.csv"), problem)


@pytest.mark.parametrize(
    ("problem", "name", "labels", "expected"),
    [
        ("multi_label", "a.csv", ["\"['a', 'b']\"", "\"['c']\""], [("a", "b"), ("c",)]),  # as pandas writes a list
        ("multi_label", "a.jsonl", ["[3, 7]", "[1]"], [("3", "7"), ("1",)]),
        ("multi_label", "a.jsonl", ["[0]", "[0, 1]"], [("0",), ("0", "1")]),
        ("classification", "a.csv", ["[none]", "(0)"], ["[none]", "(0)"]),
        ("classification", "a.csv", ["1:0", "10"], ["1:0", "10"]),
        ("classification", "a.jsonl", ["0.0", "1.0"], ["0", "1"]),
        ("classification", "a.jsonl", ["-1", "2.5"], ["-1", "2.5"]),
        ("classification", "a.jsonl", ["true", "false"], ["True", "False"]),
        ("regression", "a.jsonl", ["true", "false"], [1.0, 0.0]),
    ],
)
def test_labels_that_only_look_foreign_are_read(write, problem, name, labels, expected):
    assert read_examples(of_labels(write, labels, name), ["text"], "label", problem).labels == expected


def test_texts_and_labels_to_predict_may_count_the_rows(write):
    path = write("a.csv", "text,label\n" + "".join(f"{number},{number}\n" for number in range(10)))
    examples = read_examples(path, ["text"], "label", "classification")
    assert examples.inputs[0] == examples.labels == list("0123456789")
    path = of_labels(write, ["[0, 1]", "[1, 0]"])
    assert read_examples(path, ["text"], "label", "multi_label").labels == [("0", "1"), ("1", "0")]


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("a.jsonl", ["-1", "-1.0"], None),
        ("a.csv", ["-1", "-1"], None),
        ("a.csv", ["-1", "1"], ["-1", "1"]),
    ],
)
def test_minus_one_alone_marks_an_unlabelled_file(write, name, labels, expected):
    path = of_labels(write, labels, name)
    examples = read_examples(path, ["text"], "label", "classification", may_lack_labels=True)
    assert examples.labels == expected


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["('film', 'music')", "('film',)", "()"], [("film", "music"), ("film",), ()]),
        (["{'music', 'film'}", "{'film'}", "set()"], [("film", "music"), ("film",), ()]),
        (["frozenset({'music', 'film'})", "frozenset()"], [("film", "music"), ()]),
        (["['it\\'s', \"b's\"]", '["it\'s"]', "['a,b']"], [("it's", "b's"), ("it's",), ("a,b",)]),
        (["(3, 7)", "[6]", "{5, 4}"], [("3", "7"), ("6",), ("4", "5")]),
        ([' ["a"]', "Mercury (planet), Mercury", "(I) one", "'90s, rock 'n' roll"], [
            ("a",), ("Mercury (planet)", "Mercury"), ("(I) one",), ("'90s", "rock 'n' roll")]),
        (["a;b|c/d, e", "a;b|c/d"], [("a;b|c/d", "e"), ("a;b|c/d",)]),
        (["R&B/Soul", "Arts & Crafts", "very good"], [("R&B/Soul",), ("Arts & Crafts",), ("very good",)]),
    ],
    ids=lambda cells: cells[0],
)  # fmt: skip
def test_a_list_of_labels_may_be_written_as_python_or_json_write_it(write_parquet, cells, expected):
    path = write_parquet("a.parquet", {"text": ["a"] * len(cells), "label": cells})
    assert read_examples(path, ["text"], "label", "multi_label").labels == expected


@pytest.mark.parametrize(
    ("cells", "name"),
    [
        (["film|music", "music"], "'|'"),
        (["film; music", "music"], "';'"),
        (["<film><music>", "<music>"], "'><'"),
        (["film、music", "music"], "'、'"),
        (["film\nmusic", "music"], r"'\n'"),
        (["film/music", "music", "film", "music/film"], "'/'"),
        (["cs.CL cs.LG", "cs.LG", "cs.CL", "cs.LG cs.CL"], "' '"),
        (["<film>"], "'<film>'"),
        (["film, music", "(film, music)"], "'(film"),
        (["[film, music]"], "'[film"),
        (["{film,music}"], "'{film"),
        (["film, music", "{film}"], "'{film}'"),
        (["['film' 'music']"], "'film'"),
        (["array(['film', 'music'])"], "music"),
        (["'film', 'music'"], "'film'"),
        (["film, 'music'"], "'music'"),
        (["film, “music”"], "“music”"),
        (["‘film’, music"], "‘film’"),
        (["'film, music'"], "film"),
        (['film, "music'], "music"),
        (["[np.str_('film'), np.str_('music')]"], "film"),
        (["{'film': 1, 'music': 0}"], "film"),
    ],
    ids=lambda cells: cells[0] if isinstance(cells, list) else "",
)
def test_labels_that_no_comma_divides_are_refused(write_parquet, refusal, cells, name):
    path = write_parquet("a.parquet", {"text": ["a"] * len(cells), "label": cells})
    message = refusal(read_examples, path, ["text"], "label", "multi_label")
    assert "a.parquet" in message and name in message


def test_labels_of_the_task_may_hold_any_mark(write):
    path = of_labels(write, ["a|b", "c"], "a.csv")
    labels = KINDS["multi_label"].labels_in(read_table(path), "label", known=["a|b", "c"])
    assert labels == [("a|b",), ("c",)]


@pytest.mark.parametrize("cell", ["('film', 'music')", "{'film'}", "frozenset({'film'})", "()", '["film"]'])
def test_a_list_as_text_is_no_class(write_parquet, refusal, cell):
    path = write_parquet("a.parquet", {"text": ["a", "b"], "label": ["film", cell]})
    message = refusal(read_examples, path, ["text"], "label", "classification")
    assert "a.parquet:2" in message and "multi_label" in message


@pytest.mark.parametrize(
    ("labels", "unlabelled"),
    [
        ([0, 1, 2, -1], [3]),  # SNLI of the `datasets` library
        ([0.0, 1.0, 2.0, -1.0], [3]),
        (["0", "2", "-1", "-1.0", "-", "", " ", None], [2, 3, 4, 5, 6, 7]),
        (["yes", "no", "-", "-1"], [2, 3]),  # SNLI's own files have a dash
        (["yes", "no", "nan", "NULL", "None"], [2, 3]),
        ([1, -1], []),  # opinions
        ([1, -1, None], [2]),
        ([2, 1, 0, -1, -2], []),
        ([-1.0, 2.5], []),
        (["+", "-", "+/-"], []),
        ([True, False, None], [2]),
    ],
    ids=str,
)
@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_what_means_no_label_follows_from_the_other_labels(write, write_parquet, labels, unlabelled, ending):
    texts = ["a"] * len(labels)
    if ending == "jsonl":
        rows = (json.dumps({"text": "a", "label": label}) for label in labels)
        path = write("a.jsonl", "".join(f"{row}\n" for row in rows))
    elif ending == "csv":
        path = write("a.csv", "text,label\n" + "".join(f"a,{'' if each is None else each}\n" for each in labels))
    else:
        path = write_parquet("a.parquet", {"text": texts, "label": labels})
    assert read_examples(path, ["text"], "label", "classification").unlabelled == unlabelled


@pytest.mark.parametrize("labels", [[1, 0, -1], ["0", "1.0", "-1.0"]])
def test_minus_one_beside_zero_and_one_must_be_told(refusal, labels):
    table = Table("a.jsonl", {"text": ["a"] * 3, "label": labels}, range(1, 4))
    assert "labels" in refusal(read_examples, table, ["text"], "label", "classification")


@pytest.mark.parametrize(
    ("kind", "known", "labels", "expected"),
    [
        ("classification", ["0", "1"], [1, 0, -1], ["1", "0", None]),
        ("classification", ["-1", "0", "2"], [2, 0, -1], ["2", "0", "-1"]),
        ("classification", ["x", "-"], ["x", "-", ""], ["x", "-", None]),
        ("multi_label", ["a", "b"], [["a"], [], None, ["-1"]], [("a",), (), None, None]),
        ("multi_label", (), ["a, b", "", "-", "-1"], [("a", "b"), (), None, None]),
        ("multi_label", (), [["a", "b"], [None], ["-"]], [("a", "b"), None, None]),
        ("multi_label", (), ["a, null", " b ,c", "nan"], [("a",), ("b", "c"), None]),
        ("classification", (), [" a", "a ", " -1 "], ["a", "a", None]),
    ],
    ids=str,
)
def test_the_labels_of_the_task_are_labels_whatever_they_are(kind, known, labels, expected):
    table = Table("a.jsonl", {"label": labels}, range(1, 1 + len(labels)))
    assert KINDS[kind].labels_in(table, "label", known=known) == expected


def test_minus_one_is_a_score_unless_it_stands_alone():
    missing = [None, "-", "", "NaN", " null "]
    for labels, expected in (([-1, 2.5, *missing], [-1.0, 2.5, *[None] * 5]), (["-1.0", -1], [None, None])):
        table = Table("a.jsonl", {"label": labels}, range(1, 1 + len(labels)))
        assert KINDS["regression"].labels_in(table, "label") == expected


@pytest.mark.parametrize("labels", [[0, -1, 1, -1], [0.0, -1.0, 1.0, None], [0.0, float("nan"), 1.0, None]], ids=str)
def test_a_class_id_may_be_missing(write_parquet, labels):
    path = write_parquet("a.parquet", {"text": ["a"] * 4, "label": labels}, ("no", "yes"))
    assert read_examples(path, ["text"], "label", "classification").labels == ["no", None, "yes", None]


def test_a_class_may_be_named_minus_one(write_parquet):
    path = write_parquet("a.parquet", {"text": ["a"] * 4, "label": [0, 1, 2, -1]}, ("-1", "1", "2"))
    assert read_examples(path, ["text"], "label", "classification").labels == ["-1", "1", "2", None]


def test_a_file_to_predict_may_have_any_numbers_for_a_single_output():
    task = SentenceConfig(kind="multi_label", labels=("LABEL_0",))
    table = Table("a.jsonl", {"text": ["a", "b"], "label": [0.8, 1]}, [1, 2])
    assert read_texts(table, task, NewColumns(None, None), KINDS["multi_label"].labels_in).labels is None


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_examples_without_a_label_are_left_out_of_training_and_scoring(tiny_encoder, caplog, kind):
    caplog.set_level(logging.INFO)
    tables = {
        name: Table(f"{name}.csv", {"text": list("abcde"), "label": labels}, range(2, 7))
        for name, labels in (
            ("train", ["0", "", "2", "-", "1"]),
            ("validation", ["1", "0", None, "1", "0"]),
            ("test", ["-", "0", "1", "2", "2"]),
        )
    }
    task = read_task(kind, {}, "test", tiny_encoder.encoder, tiny_encoder.origin, tables)
    assert (task.train.inputs, task.train.ids, list(task.train.rows)) == (
        (["a", "c", "e"],),
        ["0", "2", "4"],
        [2, 4, 6],
    )
    assert list(map(float, task.train.labels)) == [0, 2, 1]
    assert list(map(float, task.evaluated["validation"].labels)) == [1, 0, 1, 0]
    assert task.test.unlabelled == [0] and len(task.test) == 5
    assert "train.csv: 2 of 5 examples have no label" in caplog.text and "rows 3, 5" in caplog.text
    assert "validation.csv: 1 of 5 examples have no label" in caplog.text


def test_the_labels_of_the_training_file_decide_for_the_dev_set(tiny_encoder):
    tables = {
        name: Table(f"{name}.csv", {"text": list("abcd"), "label": labels}, range(2, 6))
        for name, labels in (("train", [0, 1, 2, -1]), ("validation", [1, -1, 0, 0]))
    }
    task = read_task("classification", {}, "test", tiny_encoder.encoder, tiny_encoder.origin, tables)
    assert (task.train.labels, task.evaluated["validation"].labels) == (["0", "1", "2"], ["1", "0", "0"])


NAMES = {"names": ["no", "yes"], "_type": "ClassLabel"}


@pytest.mark.parametrize(
    ("feature", "problem", "ids", "labels"),
    [
        (NAMES, "classification", [1, 0], ["yes", "no"]),
        ({"feature": NAMES, "_type": "List"}, "multi_label", [[1], [0, 1]], [("yes",), ("no", "yes")]),
        ({"feature": NAMES, "length": -1, "_type": "Sequence"}, "multi_label", [[1], []], [("yes",), ()]),
        ([NAMES], "multi_label", [[0], [1]], [("no",), ("yes",)]),  # of datasets 1
        ({"dtype": "int64", "_type": "Value"}, "classification", [1, 0], ["1", "0"]),
    ],
)
@pytest.mark.parametrize("ending", ["parquet", "stream.arrow", "file.arrow"])
def test_names_of_classes_are_taken_from_the_schema(tmp_path, feature, problem, ids, labels, ending):
    metadata = {"huggingface": json.dumps({"info": {"features": {"label": feature}}})}
    table = pyarrow.table({"text": ["a", "b"], "label": ids}).replace_schema_metadata(metadata)
    path = str(tmp_path / f"a.{ending}")
    if ending == "parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        kind = pyarrow.ipc.new_stream if ending == "stream.arrow" else pyarrow.ipc.new_file
        with kind(path, table.schema) as writer:
            writer.write_table(table)
    assert read_examples(path, ["text"], "label", problem).labels == labels


@pytest.mark.parametrize("numbers", [[0, 2], [0.0, 1.5]])
def test_an_unknown_class_id_in_parquet_is_refused(write_parquet, refusal, numbers):
    path = write_parquet("a.parquet", {"text": ["a", "b"], "label": numbers}, ("no", "yes"))
    message = refusal(read_examples, path, ["text"], "label", "classification")
    assert "a.parquet:" in message and "no, yes" in message


def test_labels_are_sorted_and_numbers_by_their_value_but_given_ones_keep_their_order():
    assert label_set(labelled("b", "a", "b")) == ("a", "b")
    assert label_set(labelled("10", "9", "-1")) == ("-1", "9", "10")
    assert label_set(labelled(("c", "a"), (), ("b",))) == ("a", "b", "c")
    assert label_set(labelled("a", "b"), given=["b", "c", "a"]) == ("b", "c", "a")


def test_a_single_label_is_refused(refusal):
    assert "'a'" in refusal(label_set, labelled("a", "a", "a"))
    assert "2.0" in refusal(target_range, labelled(2.0, 2.0))


def test_targets_are_the_ids_of_labels():
    task = SimpleNamespace(labels=("a", "b", "c"))
    assert KINDS["classification"].targets(labelled("b", "a", "b"), task).tolist() == [1, 0, 1]
    several = KINDS["multi_label"].targets(labelled(("c",), (), ("a", "c")), task)
    assert several.tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 1]]


@pytest.mark.parametrize("kind, label", [("classification", "z"), ("multi_label", ("a", "z"))])
def test_an_unknown_label_is_named_with_its_line(refusal, kind, label):
    message = refusal(KINDS[kind].targets, labelled("a", label), SimpleNamespace(labels=("a", "b")))
    assert "train.csv:3" in message and "'z'" in message and "a, b" in message


def test_balanced_weights_are_equal_to_scikit_learns_and_labels_without_a_weight_have_one(refusal):
    from sklearn.utils.class_weight import compute_class_weight

    used = list("aaabcc")
    expected = compute_class_weight("balanced", classes=np.array(list("abc")), y=used)
    np.testing.assert_allclose(class_weights(used, "abc", "balanced"), expected, rtol=1e-6)
    assert class_weights(used, ("a", "b"), {"b": 2.5}).tolist() == [1.0, 2.5]
    assert class_weights(used, ("a", "b"), (3.0, 2.5)).tolist() == [3.0, 2.5]
    assert "'z'" in refusal(class_weights, used, ("a", "b"), {"z": 1.0})


def test_pairs_are_followed_by_their_swapped_copies():
    pair = Examples((["a", "b"], ["c", "d"]), ["0", "1"], ["0", "1"], "train.tsv", [2, 3])
    doubled = with_swapped_pairs(pair)
    assert doubled.inputs == (["a", "b", "c", "d"], ["c", "d", "a", "b"])
    assert (doubled.labels, doubled.rows) == (["0", "1", "0", "1"], [2, 3, 2, 3])


def test_the_known_labels_of_a_row_are_a_list_like_the_predicted_ones():
    task = SentenceConfig(kind="multi_label", text_columns=("text",), labels=("a", "b"))
    split = SimpleNamespace(task=task, examples=Examples((["w5"],), [("b",)], ["7"], "dev.tsv", [2]))
    (row,) = KINDS["multi_label"].rows(split, np.array([[-3.0, 3.0]], np.float32))
    assert row["label"] == row["prediction"] == ["b"]
