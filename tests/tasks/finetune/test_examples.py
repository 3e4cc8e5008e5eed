"""Texts and labels from a user's own files, and mistakes in them."""

import json
from types import SimpleNamespace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import tensorflow as tf

from electra_tf.tasks.finetune import sentence
from electra_tf.tasks.finetune.config import SentenceConfig
from electra_tf.tasks.finetune.examples import (
    Examples,
    class_targets,
    class_weights,
    label_set,
    multi_label_targets,
    read_examples,
    scaled_targets,
    target_range,
    with_swapped_pairs,
)


def labelled(*labels) -> Examples:
    rows = range(2, 2 + len(labels))
    return Examples((["t"] * len(labels),), list(labels), list(map(str, rows)), "train.csv", rows)


def test_csv_fields_may_hold_commas_quotes_and_line_breaks(write):
    path = write("a.csv", '\ufefftitle,body,topic\nOne,"a, ""b""\nc",x\n\nTwo,d,y\n')
    examples = read_examples(path, ["title", "body"], "topic", "classification")
    assert examples.inputs == (["One", "Two"], ['a, "b"\nc', "d"])
    assert (examples.labels, examples.ids, list(examples.rows)) == (["x", "y"], ["0", "1"], [2, 3])


def test_tsv_jsonl_and_parquet_give_the_same_examples(write, write_parquet):
    paths = [
        write("a.tsv", "id\ttext\tlabel\r\n7\ta b\t1\r\n8\tc\t0\r\n"),
        write("a.jsonl", '{"id": 7, "text": "a b", "label": 1}\n{"id": 8, "text": "c", "label": 0}\n'),
        write_parquet("a.parquet", {"id": [7, 8], "text": ["a b", "c"], "label": [1, 0]}),
    ]
    for path in paths:
        examples = read_examples(path, ["text"], "label", "classification")
        assert (examples.inputs, examples.labels, examples.ids) == ((["a b", "c"],), ["1", "0"], ["7", "8"])


def test_a_remote_file_is_read():
    with tf.io.gfile.GFile("ram://tables/a.csv", "w") as file:
        file.write("text,label\na,x\n")
    assert read_examples("ram://tables/a.csv", ["text"], "label", "classification").labels == ["x"]


def test_class_ids_in_parquet_become_names(write_parquet):
    path = write_parquet("a.parquet", {"text": ["a", "b"], "label": [1, 0]}, ("no", "yes"))
    assert read_examples(path, ["text"], "label", "classification").labels == ["yes", "no"]


@pytest.mark.parametrize("numbers", [[0, 2], [0.0, 1.5], ["no", "maybe"]])
def test_an_unknown_class_id_in_parquet_is_refused(write_parquet, refusal, numbers):
    path = write_parquet("a.parquet", {"text": ["a", "b"], "label": numbers}, ("no", "yes"))
    message = refusal(read_examples, path, ["text"], "label", "classification")
    assert "a.parquet:" in message and "no, yes" in message


@pytest.mark.parametrize(("labels", "names"), [("1 2.5", ["1", "2.5"]), ('"1" "2"', ["1", "2"]), ("true", ["True"])])
def test_numbers_and_booleans_are_classes(write, labels, names):
    path = write("a.jsonl", "".join(f'{{"text": "a", "label": {label}}}\n' for label in labels.split()))
    assert read_examples(path, ["text"], "label", "classification").labels == names


def test_a_json_text_may_hold_a_line_separator_or_look_like_a_date(write):
    path = write("a.jsonl", '{"text": "2012-01-01", "label": "2012-02-02 10:00:00", "other": "a\u2028b"}\n')
    examples = read_examples(path, ["text", "other"], "label", "classification")
    assert (examples.inputs, examples.labels) == ((["2012-01-01"], ["a\u2028b"]), ["2012-02-02 10:00:00"])


def test_the_labels_of_multi_label_are_lists_or_names_between_commas(write):
    json_path = write("a.jsonl", '{"text": "a", "tags": ["x", "y", "x"]}\n{"text": "b", "tags": []}\n')
    csv_path = write("a.csv", 'text,tags\na,"x, y"\nb,\n')
    csv_of_json_path = write("b.csv", 'text,tags\na,"[""x"", ""y""]"\nb,[]\n')
    for path in (json_path, csv_path, csv_of_json_path):
        assert read_examples(path, ["text"], "tags", "multi_label").labels == [("x", "y"), ()]


def test_the_labels_of_regression_are_numbers(write):
    path = write("a.csv", "text,score\na,-1.5\nb,4\n")
    examples = read_examples(path, ["text"], "score", "regression")
    assert examples.labels == [-1.5, 4.0]
    np.testing.assert_array_equal(scaled_targets(examples, *target_range(examples)), np.float32([0, 1]))


@pytest.mark.parametrize(
    ("name", "content", "problem", "parts"),
    [
        ("a.csv", "txt,label\na,x\n", "classification", ["'text'", "did you mean txt?"]),
        ("a.csv", "text,label\n", "classification", ["a.csv has no examples"]),
        ("a.csv", "text,label\na,x\nb,c,y\n", "classification", ["a.csv", "Row #3", "b,c,y"]),
        ("a.csv", "text,text\na,x\n", "classification", ["'text' twice"]),
        ("a.csv", "text,id,label,id\na,1,x,2\n", "classification", ["'id' twice"]),
        ("a.csv", "text,label\na,x\nb,\n", "classification", ["a.csv:3", "'label'"]),
        ("a.csv", "text,label\na,high\n", "regression", ["a.csv:2", "'high'", "'label'"]),
        ("a.csv", "text,label\na,nan\n", "regression", ["a.csv:2", "'nan'"]),
        ("a.jsonl", '{"text": "a", "label": "x"}\n{"text": \n', "classification", ["a.jsonl:2 cannot be read"]),
        ("a.jsonl", '{"text": "a", "label": "x"}\n{"label": "x"}\n', "classification", ["a.jsonl:2", "'text'"]),
        ("a.jsonl", '{"text": "a", "label": ["x"]}\n', "classification", ["a.jsonl:1", "multi_label"]),
        ("a.jsonl", '{"text": "a", "label": 3}\n', "multi_label", ["a.jsonl:1", "'label'"]),
        ("a.csv", 'text,label\na,"[x"\n', "multi_label", ["a.csv:2", "'[x'"]),
        ("a.jsonl", '{"text": "a", "label": NaN}\n', "classification", ["a.jsonl:1", "'label'"]),
        ("a.parquet", b"PAR", "classification", ["a.parquet"]),
        ("a.xls", b"", "classification", ["'.xls'", ".csv"]),
    ],
)
def test_a_mistake_in_a_file_is_reported_with_its_place(write, refusal, name, content, problem, parts):
    message = refusal(read_examples, write(name, content), ["text"], "label", problem)
    for part in parts:
        assert part in message, (part, message)


def of_labels(write, labels: list[str], name: str = "a.jsonl") -> str:
    """A file with a text and one of the labels, in the file's own words, in each row."""
    rows = (f"a,{label}" if name.endswith(".csv") else f'{{"text": "a", "label": {label}}}' for label in labels)
    return write(name, "".join(f"{row}\n" for row in (["text,label"] * name.endswith(".csv") + list(rows))))


INDICATORS = [
    ["[1, 0, 0]", "[0, 1, 0]"],
    ["[1, 0]", "[0, 1]"],  # of two labels, none is repeated
    ["[]", "[1, 1]"],
    ["[true, false]", "[false, true]"],
    ["[1.0, 0.0]", "[0.0, 1.0]"],
    ["[0.2, 0.8]", "[1.0]"],  # probabilities
    ['["1", "0", "0"]', '["0", "0", "1"]'],
]


def train_on(path, problem: str) -> None:
    label_set(read_examples(path, ["text"], "label", problem))


@pytest.mark.parametrize("problem", ["classification", "multi_label", "regression"])
@pytest.mark.parametrize("labels", INDICATORS, ids=str)
def test_a_number_for_every_label_is_no_list_of_labels(write, refusal, labels, problem):
    message = refusal(train_on, of_labels(write, labels), problem)
    assert "a.jsonl:" in message and "names of the labels" in message


@pytest.mark.parametrize("problem", ["classification", "multi_label"])
@pytest.mark.parametrize(
    "labels",
    [
        ['"[1, 0]"', '"[0, 1]"'],
        ['"[1 0 0]"', '"[0 1 0]"'],  # as NumPy writes an array, and `datasets` a list
        ['"[1. 0.]"', '"[0. 1.]"'],
        ['"[True, False]"', '"[False, True]"'],
        ['"1,0,0"', '"0,1,0"'],
        ["1 0 0", "0 1 0"],
        ["(1 0)", "(0 1)"],
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
        ("multi_label", "a.jsonl", ["[0]", "[1]"], [("0",), ("1",)]),
        ("classification", "a.csv", ["[none]", "(0)"], ["[none]", "(0)"]),
        ("classification", "a.csv", ["1:0", "10"], ["1:0", "10"]),
        ("classification", "a.jsonl", ["0.0", "1.0"], ["0", "1"]),
        ("classification", "a.jsonl", ["-1", "1"], ["-1", "1"]),
        ("regression", "a.jsonl", ["true", "false"], [1.0, 0.0]),
    ],
)
def test_labels_that_only_look_foreign_are_read(write, problem, name, labels, expected):
    assert read_examples(of_labels(write, labels, name), ["text"], "label", problem).labels == expected


@pytest.mark.parametrize("label", ['{"name": "a"}', "[3]", '["a"]'])
def test_a_value_with_parts_is_no_label(write, refusal, label):
    assert "a.jsonl:1" in refusal(read_examples, of_labels(write, [label]), ["text"], "label", "classification")


@pytest.mark.parametrize("first", [0, 1])
def test_a_column_that_counts_the_rows_has_neither_texts_nor_labels(write, refusal, first):
    numbers = [str(first + row) for row in range(10)]
    path = write("a.csv", "Unnamed: 0,text,label\n" + "".join(f"{number},a,{number[-1] > '4'}\n" for number in numbers))
    index = read_examples(path, ["Unnamed: 0"], "label", "classification")
    assert "of texts counts" in refusal(label_set, index)
    for problem in ("classification", "multi_label", "regression"):
        learn = target_range if problem == "regression" else label_set
        assert "of labels counts" in refusal(learn, read_examples(path, ["text"], "Unnamed: 0", problem))
    assert label_set(read_examples(path, ["text"], "label", "classification")) == ("False", "True")


def test_texts_and_labels_to_predict_may_count_the_rows(write):
    path = write("a.csv", "text,label\n" + "".join(f"{number},{number}\n" for number in range(10)))
    examples = read_examples(path, ["text"], "label", "classification")
    assert examples.inputs[0] == examples.labels == list("0123456789")
    path = of_labels(write, ["[0, 1]", "[1, 0]"])
    assert read_examples(path, ["text"], "label", "multi_label").labels == [("0", "1"), ("1", "0")]


@pytest.mark.parametrize(("known", "expected"), [(["-1", "1"], ["-1", "-1"]), (["0", "1"], None), ([], None)])
def test_minus_one_is_a_label_if_the_model_knows_it(write, known, expected):
    path = of_labels(write, ["-1", "-1"])
    examples = read_examples(path, ["text"], "label", "classification", may_lack_labels=True, known_labels=known)
    assert examples.labels == expected


def test_labels_that_are_all_minus_one_are_those_of_an_unlabelled_file(write):
    for name, labels in (("a.jsonl", ["-1", "-1.0"]), ("a.csv", ["-1", "-1"])):
        path = of_labels(write, labels, name)
        assert read_examples(path, ["text"], "label", "classification", may_lack_labels=True).labels is None


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


def test_empty_texts_and_repeated_ids_are_counted_in_one_warning_with_their_first_rows(write, caplog):
    path = write("a.csv", "id,text,more,label\n7,a,b,x\n8, ,c,y\n7,d,e,x\n9,f,,x\n7,g,h,y\n")
    examples = read_examples(path, ["text", "more"], "label", "classification")
    assert examples.ids == ["7", "8", "7", "9", "7"]
    (line,) = caplog.messages
    assert f"2 of 5 examples have an empty text, first in {path}:3" in line
    assert f"2 of 5 ids repeat an earlier one, first in {path}:4" in line


def test_examples_without_empty_texts_and_repeated_ids_give_no_warning(write, caplog):
    read_examples(write("a.csv", "text,label\na,x\na,y\n"), ["text"], "label", "classification")
    assert not caplog.messages


def test_the_message_for_an_unknown_column_of_a_wide_table_is_short(write, refusal):
    path = write("a.csv", ",".join(f"{number:05d}" for number in range(3000)) + "\n" + 2999 * ",")
    message = refusal(read_examples, path, ["text"], None, "classification")
    assert "'text'; there are: 00000, 00001" in message and "and 2950 more" in message and len(message) < 600


def test_more_than_two_text_columns_are_refused(write, refusal):
    path = write("a.csv", "a,b,c\nx,y,z\n")
    assert "a b c" in refusal(read_examples, path, ["a", "b", "c"], None, "classification")


def test_labels_are_sorted_and_numbers_by_their_value():
    assert label_set(labelled("b", "a", "b")) == ("a", "b")
    assert label_set(labelled("10", "9", "-1")) == ("-1", "9", "10")
    assert label_set(labelled(("c", "a"), (), ("b",))) == ("a", "b", "c")


def test_given_labels_keep_their_order(refusal):
    assert label_set(labelled("a", "b"), given=["b", "c", "a"]) == ("b", "c", "a")
    assert "a, b, a" in refusal(label_set, labelled("a", "b"), ["a", "b", "a"])


def test_a_single_label_is_refused(refusal):
    assert "'a'" in refusal(label_set, labelled("a", "a", "a"))
    assert "train.csv has no labels" in refusal(label_set, labelled((), ()))
    assert "2.0" in refusal(target_range, labelled(2.0, 2.0))


def test_targets_are_the_ids_of_labels():
    assert class_targets(labelled("b", "a", "b"), ("a", "b")).tolist() == [1, 0, 1]
    assert multi_label_targets(labelled(("c",), (), ("a", "c")), ("a", "b", "c")).tolist() == [
        [0, 0, 1],
        [0, 0, 0],
        [1, 0, 1],
    ]


@pytest.mark.parametrize("targets, label", [(class_targets, "z"), (multi_label_targets, ("a", "z"))])
def test_an_unknown_label_is_named_with_its_line(refusal, targets, label):
    message = refusal(targets, labelled("a", label), ("a", "b"))
    assert "train.csv:3" in message and "'z'" in message and "a, b" in message


def test_balanced_weights_are_equal_to_scikit_learns():
    from sklearn.utils.class_weight import compute_class_weight

    targets = np.array([0, 0, 0, 1, 2, 2], np.int32)
    expected = compute_class_weight("balanced", classes=np.arange(3), y=targets)
    np.testing.assert_allclose(class_weights(targets, "abc", "balanced"), expected, rtol=1e-6)


def test_labels_without_a_weight_have_weight_one(refusal):
    targets = np.array([0, 1], np.int32)
    assert class_weights(targets, ("a", "b"), {"b": 2.5}).tolist() == [1.0, 2.5]
    assert class_weights(targets, ("a", "b"), (3.0, 2.5)).tolist() == [3.0, 2.5]
    assert "'z'" in refusal(class_weights, targets, ("a", "b"), {"z": 1.0})
    assert "(1.0,)" in refusal(class_weights, targets, ("a", "b"), (1.0,))
    assert "'c'" in refusal(class_weights, targets, ("a", "b", "c"), "balanced")


def test_pairs_are_followed_by_their_swapped_copies():
    pair = Examples((["a", "b"], ["c", "d"]), ["0", "1"], ["0", "1"], "train.tsv", [2, 3])
    doubled = with_swapped_pairs(pair)
    assert doubled.inputs == (["a", "b", "c", "d"], ["c", "d", "a", "b"])
    assert (doubled.labels, doubled.rows) == (["0", "1", "0", "1"], [2, 3, 2, 3])


def test_the_known_labels_of_a_row_are_a_list_like_the_predicted_ones():
    task = SentenceConfig(kind="multi_label", text_columns=("text",), labels=("a", "b"))
    split = SimpleNamespace(task=task, examples=Examples((["w5"],), [("b",)], ["7"], "dev.tsv", [2]))
    (row,) = sentence.rows(split, np.array([[-3.0, 3.0]], np.float32))
    assert row["label"] == row["prediction"] == ["b"]
