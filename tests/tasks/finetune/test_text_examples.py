"""Texts and labels from a user's own files, and mistakes in them."""

import numpy as np
import pytest
import tensorflow as tf

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


def labelled(*labels) -> TextExamples:
    rows = range(2, 2 + len(labels))
    return TextExamples((["t"] * len(labels),), list(labels), list(map(str, rows)), "train.csv", rows)


def test_csv_fields_may_hold_commas_quotes_and_line_breaks(write):
    path = write("a.csv", '\ufefftitle,body,topic\nOne,"a, ""b""\nc",x\n\nTwo,d,y\n')
    examples = read_examples(path, ["title", "body"], "topic", "classification")
    assert examples.texts == (["One", "Two"], ['a, "b"\nc', "d"])
    assert (examples.labels, examples.ids, list(examples.rows)) == (["x", "y"], ["0", "1"], [2, 3])


def test_tsv_jsonl_and_parquet_give_the_same_examples(write, write_parquet):
    paths = [
        write("a.tsv", "id\ttext\tlabel\r\n7\ta b\t1\r\n8\tc\t0\r\n"),
        write("a.jsonl", '{"id": 7, "text": "a b", "label": 1}\n{"id": 8, "text": "c", "label": 0}\n'),
        write_parquet("a.parquet", {"id": [7, 8], "text": ["a b", "c"], "label": [1, 0]}),
    ]
    for path in paths:
        examples = read_examples(path, ["text"], "label", "classification")
        assert (examples.texts, examples.labels, examples.ids) == ((["a b", "c"],), ["1", "0"], ["7", "8"])


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
    assert (examples.texts, examples.labels) == ((["2012-01-01"], ["a\u2028b"]), ["2012-02-02 10:00:00"])


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
    assert "'z'" in refusal(class_weights, targets, ("a", "b"), {"z": 1.0})
    assert "'c'" in refusal(class_weights, targets, ("a", "b", "c"), "balanced")


def test_pairs_are_followed_by_their_swapped_copies():
    pair = TextExamples((["a", "b"], ["c", "d"]), ["0", "1"], ["0", "1"], "train.tsv", [2, 3])
    doubled = with_swapped_pairs(pair)
    assert doubled.texts == (["a", "b", "c", "d"], ["c", "d", "a", "b"])
    assert (doubled.labels, doubled.rows) == (["0", "1", "0", "1"], [2, 3, 2, 3])
