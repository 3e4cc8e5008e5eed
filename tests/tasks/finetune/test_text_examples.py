"""A user's own files: texts and labels, and mistakes in them."""

import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.tasks.finetune.text_examples import (
    TextExamples,
    class_targets,
    class_weights,
    label_set,
    multi_label_targets,
    read_examples,
    scaled_targets,
    target_range,
    with_swapped_pairs,
)


@pytest.fixture
def write(tmp_path):
    def write_file(name: str, content: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write_file


def write_parquet(path, columns: dict, features: dict | None = None) -> str:
    table = pyarrow.table(columns)
    if features:
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        table = table.replace_schema_metadata(metadata)
    pyarrow.parquet.write_table(table, path)
    return str(path)


def labelled(*labels) -> TextExamples:
    rows = range(2, 2 + len(labels))
    return TextExamples((["t"] * len(labels),), list(labels), list(map(str, rows)), "train.csv", rows)


def refusal(call, *arguments) -> str:
    with pytest.raises(UserError) as caught:
        call(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_csv_fields_may_hold_commas_quotes_and_line_breaks(write):
    path = write("a.csv", '\ufefftitle,body,topic\nOne,"a, ""b""\nc",x\n\nTwo,d,y\n')
    examples = read_examples(path, ["title", "body"], "topic", "classification")
    assert examples.texts == (["One", "Two"], ['a, "b"\nc', "d"])
    assert (examples.labels, examples.ids, list(examples.rows)) == (["x", "y"], ["0", "1"], [2, 3])


def test_tsv_jsonl_and_parquet_give_the_same_examples(write, tmp_path):
    paths = [
        write("a.tsv", "id\ttext\tlabel\r\n7\ta b\t1\r\n8\tc\t0\r\n"),
        write("a.jsonl", '{"id": 7, "text": "a b", "label": 1}\n{"id": 8, "text": "c", "label": 0}\n'),
        write_parquet(tmp_path / "a.parquet", {"id": [7, 8], "text": ["a b", "c"], "label": [1, 0]}),
    ]
    for path in paths:
        examples = read_examples(path, ["text"], "label", "classification")
        assert (examples.texts, examples.labels, examples.ids) == ((["a b", "c"],), ["1", "0"], ["7", "8"])


def test_a_file_is_read_from_a_filesystem_that_tensorflow_knows():
    with tf.io.gfile.GFile("ram://tables/a.csv", "w") as file:
        file.write("text,label\na,x\n")
    assert read_examples("ram://tables/a.csv", ["text"], "label", "classification").labels == ["x"]


def test_classes_that_parquet_stores_as_numbers_get_their_names(tmp_path):
    columns = {"text": ["a", "b"], "label": [1, 0]}
    path = write_parquet(tmp_path / "a.parquet", columns, {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}})
    assert read_examples(path, ["text"], "label", "classification").labels == ["yes", "no"]


@pytest.mark.parametrize("numbers", [[0, 2], [0.0, 1.5], ["no", "yes"]])
def test_a_number_that_no_class_of_parquet_has_is_refused(tmp_path, numbers):
    columns = {"text": ["a", "b"], "label": numbers}
    path = write_parquet(tmp_path / "a.parquet", columns, {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}})
    message = refusal(read_examples, path, ["text"], "label", "classification")
    assert "a.parquet:" in message and "no, yes" in message


@pytest.mark.parametrize(("labels", "names"), [("1 2.5", ["1", "2.5"]), ('"1" "2"', ["1", "2"]), ("true", ["True"])])
def test_numbers_and_booleans_are_classes_too(write, labels, names):
    path = write("a.jsonl", "".join(f'{{"text": "a", "label": {label}}}\n' for label in labels.split()))
    assert read_examples(path, ["text"], "label", "classification").labels == names


def test_a_json_text_may_hold_a_line_separator_or_look_like_a_date(write):
    path = write("a.jsonl", '{"text": "2012-01-01", "label": "2012-02-02 10:00:00", "other": "a\u2028b"}\n')
    examples = read_examples(path, ["text", "other"], "label", "classification")
    assert (examples.texts, examples.labels) == ((["2012-01-01"], ["a\u2028b"]), ["2012-02-02 10:00:00"])


def test_several_labels_are_lists_or_names_between_commas(write):
    json_path = write("a.jsonl", '{"text": "a", "tags": ["x", "y", "x"]}\n{"text": "b", "tags": []}\n')
    csv_path = write("a.csv", 'text,tags\na,"x, y"\nb,\n')
    csv_of_json_path = write("b.csv", 'text,tags\na,"[""x"", ""y""]"\nb,[]\n')
    for path in (json_path, csv_path, csv_of_json_path):
        assert read_examples(path, ["text"], "tags", "multi_label").labels == [("x", "y"), ()]


def test_labels_of_a_regression_are_numbers(write):
    path = write("a.csv", "text,score\na,-1.5\nb,4\n")
    examples = read_examples(path, ["text"], "score", "regression")
    assert examples.labels == [-1.5, 4.0]
    np.testing.assert_array_equal(scaled_targets(examples, *target_range(examples)), np.float32([0, 1]))


@pytest.mark.parametrize(
    ("name", "content", "problem", "parts"),
    [
        ("a.csv", "txt,label\na,x\n", "classification", ["'text'", "did you mean txt?"]),
        ("a.csv", "", "classification", ["a.csv"]),
        ("a.csv", "text,label\n", "classification", ["a.csv has no examples"]),
        ("a.csv", "text,label\na,x\nb,c,y\n", "classification", ["a.csv", "Row #3", "b,c,y"]),
        ("a.csv", 'text,label\n"a,x\nb,y\n', "classification", ["a.csv", "Row #2"]),
        ("a.csv", "text,text\na,x\n", "classification", ["'text' twice"]),
        ("a.csv", "text,label\na,x\nb,\n", "classification", ["a.csv:3", "'label'"]),
        ("a.csv", "text,label\na,high\n", "regression", ["a.csv:2", "'high'", "'label'"]),
        ("a.csv", "text,label\na,nan\n", "regression", ["a.csv:2", "'nan'"]),
        ("a.csv", b"text,label\na,x\n\xe9,y\n", "classification", ["a.csv", "Row #3"]),
        ("a.jsonl", '{"text": "a", "label": "x"}\n{"text": \n', "classification", ["a.jsonl", "row 1"]),
        ("a.jsonl", '["a", "x"]\n', "classification", ["a.jsonl", "array"]),
        ("a.jsonl", '{"text": "a", "label": "x"}\n{"label": "x"}\n', "classification", ["a.jsonl:2", "'text'"]),
        ("a.jsonl", '{"text": 5, "label": "x"}\n', "classification", ["a.jsonl:1", "5", "'text'"]),
        ("a.jsonl", '{"text": "a", "label": ["x"]}\n', "classification", ["a.jsonl:1", "multi_label"]),
        ("a.jsonl", '{"text": "a", "label": 3}\n', "multi_label", ["a.jsonl:1", "'label'"]),
        ("a.csv", 'text,label\na,"[x"\n', "multi_label", ["a.csv:2", "'[x'"]),
        ("a.jsonl", '{"text": "a", "label": NaN}\n', "classification", ["a.jsonl:1", "'label'"]),
        ("a.csv", "text;label\na, b;x\n", "classification", ["a.csv"]),
        ("a.parquet", b"PAR", "classification", ["a.parquet"]),
        ("a.xls", b"", "classification", ["'.xls'", ".csv"]),
    ],
)
def test_a_mistake_in_a_file_is_one_line_with_its_place(write, name, content, problem, parts):
    message = refusal(read_examples, write(name, content), ["text"], "label", problem)
    for part in parts:
        assert part in message, (part, message)


def test_a_file_that_does_not_exist_is_named(tmp_path):
    assert "none.csv" in refusal(read_examples, tmp_path / "none.csv", ["text"], None, "classification")


def test_more_than_two_text_columns_are_refused(write):
    path = write("a.csv", "a,b,c\nx,y,z\n")
    assert "a b c" in refusal(read_examples, path, ["a", "b", "c"], None, "classification")


def test_labels_are_sorted_and_numbers_by_their_value():
    assert label_set(labelled("b", "a", "b")) == ("a", "b")
    assert label_set(labelled("10", "9", "-1")) == ("-1", "9", "10")
    assert label_set(labelled(("c", "a"), (), ("b",))) == ("a", "b", "c")


def test_labels_given_keep_their_order():
    assert label_set(labelled("a", "b"), given=["b", "c", "a"]) == ("b", "c", "a")
    assert "a, b, a has a label twice" in refusal(label_set, labelled("a", "b"), ["a", "b", "a"])
    assert "train.csv:3 has the label 'b', which --labels lacks" in refusal(label_set, labelled("a", "b"), ["a", "c"])


def test_labels_that_are_all_equal_are_refused():
    assert "train.csv has only the label 'a'" in refusal(label_set, labelled("a", "a", "a"))
    assert "train.csv has no labels" in refusal(label_set, labelled((), ()))
    assert "train.csv has 2.0" in refusal(target_range, labelled(2.0, 2.0))


def test_targets_are_the_numbers_of_labels():
    assert class_targets(labelled("b", "a", "b"), ("a", "b")).tolist() == [1, 0, 1]
    assert multi_label_targets(labelled(("c",), (), ("a", "c")), ("a", "b", "c")).tolist() == [
        [0, 0, 1],
        [0, 0, 0],
        [1, 0, 1],
    ]


@pytest.mark.parametrize("targets, label", [(class_targets, "z"), (multi_label_targets, ("a", "z"))])
def test_a_label_that_the_training_file_lacks_is_named_with_its_line(targets, label):
    message = refusal(targets, labelled("a", label), ("a", "b"))
    assert "train.csv:3" in message and "'z'" in message and "a, b" in message


def test_balanced_weights_are_those_of_scikit_learn():
    from sklearn.utils.class_weight import compute_class_weight

    targets = np.array([0, 0, 0, 1, 2, 2], np.int32)
    expected = compute_class_weight("balanced", classes=np.arange(3), y=targets)
    np.testing.assert_allclose(class_weights(targets, "abc", "balanced"), expected, rtol=1e-6)


def test_weights_are_given_by_label():
    targets = np.array([0, 1], np.int32)
    assert class_weights(targets, ("a", "b"), {"b": 2.5}).tolist() == [1.0, 2.5]
    assert "'z'" in refusal(class_weights, targets, ("a", "b"), {"z": 1.0})
    assert "'c'" in refusal(class_weights, targets, ("a", "b", "c"), "balanced")


def test_swapped_pairs_follow_the_examples():
    pair = TextExamples((["a", "b"], ["c", "d"]), ["0", "1"], ["0", "1"], "train.tsv", [2, 3])
    doubled = with_swapped_pairs(pair)
    assert doubled.texts == (["a", "b", "c", "d"], ["c", "d", "a", "b"])
    assert (doubled.labels, doubled.rows) == (["0", "1", "0", "1"], [2, 3, 2, 3])
