"""Texts and labels from a user's own files and from GLUE's, all rows made up; and mistakes in them."""

import logging
from decimal import Decimal

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.data.tables import Table
from electra_tf.tasks.finetune.benchmarks import GLUE_TASKS, read_glue, read_glue_texts
from electra_tf.tasks.finetune.examples import Examples, NewColumns, read_texts, with_swapped_pairs
from electra_tf.tasks.finetune.examples import read_examples as read_columns
from electra_tf.tasks.finetune.kinds import KINDS
from electra_tf.tasks.finetune.kinds.regression import scaled_targets, target_range
from electra_tf.tasks.finetune.kinds.sentence import SentenceConfig
from electra_tf.tasks.finetune.labels import class_weights, label_set

NAN = float("nan")


def read_examples(path, kind: str = "classification", columns=("text",), label="label", **options) -> Examples:
    return read_columns(path, columns, label, KINDS[kind].labels_in, **options)


def table_of(labels: list, class_names: tuple[str, ...] = ()) -> Table:
    columns = {"text": ["a"] * len(labels), "label": labels}
    return Table("a.jsonl", columns, range(1, 1 + len(labels)), {"label": class_names} if class_names else {})


def labelled(*labels) -> Examples:
    rows = range(2, 2 + len(labels))
    return Examples((["t"] * len(labels),), list(labels), list(map(str, rows)), "train.csv", rows)


def test_csv_fields_may_hold_commas_quotes_and_line_breaks(write):
    path = write("a.csv", '\ufefftitle,body,topic\nOne,"a, ""b""\nc",x\n\nTwo,d,y\n')
    examples = read_examples(path, columns=["title", "body"], label="topic")
    assert examples.inputs == (["One", "Two"], ['a, "b"\nc', "d"])
    assert (examples.labels, examples.ids, list(examples.rows)) == (["x", "y"], ["0", "1"], [2, 5])


def test_tsv_jsonl_parquet_and_a_remote_csv_give_the_same_examples(write, write_parquet):
    paths = [
        write("a.tsv", "id\ttext\tlabel\r\n7\ta\u2028b\t1\r\n8\tc\t0\r\n"),
        write("a.jsonl", '{"id": 7, "text": "a\u2028b", "label": 1}\n{"id": 8, "text": "c", "label": 0}\n'),
        write_parquet("a.parquet", {"id": [7, 8], "text": ["a\u2028b", "c"], "label": [1, 0]}),
        "ram://tables/a.csv",
    ]
    tf.io.write_file(paths[-1], "id,text,label\n7,a\u2028b,1\n8,c,0\n")
    for path in paths:
        examples = read_examples(path)
        assert (examples.inputs, examples.labels, examples.ids) == ((["a\u2028b", "c"],), ["1", "0"], ["7", "8"])


def test_a_text_that_is_missing_is_named_with_its_place(write, refusal):
    message = refusal(read_examples, write("a.csv", "txt,label\na,x\n"))
    assert "'text'" in message and "did you mean txt?" in message
    message = refusal(read_examples, write("a.jsonl", [{"text": "a", "label": "x"}, {"label": "x"}]))
    assert "a.jsonl:2" in message and "'text'" in message


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_a_file_without_any_label_is_refused(task_of, refusal, split):
    columns = {name: {"text": [*"abcdef"], "label": [*"xyxyxy"]} for name in ("train", "validation", "test")}
    columns[split]["label"] = ["-1", -1, "-", "", None, NAN]
    assert f"{split}.csv has no labels" in refusal(lambda: task_of("classification", **columns))


@pytest.mark.parametrize(
    ("kind", "known", "labels", "expected"),
    [
        ("classification", (), ["[none]", "(0)", "1:0", "10", " a", "a "], ["[none]", "(0)", "1:0", "10", "a", "a"]),
        ("classification", (), [0.0, 1.0, True], ["0", "1", "True"]),
        ("classification", (), [-1, Decimal("2.5")], ["-1", "2.5"]),
        ("classification", (), ["a", " -1 "], ["a", None]),
        # The labels of the task are labels, whatever they are.
        ("classification", ["0", "1"], [1, 0, -1], ["1", "0", None]),
        ("classification", ["-1", "0", "2"], [2, 0, -1], ["2", "0", "-1"]),
        ("classification", ["x", "-"], ["x", "-", ""], ["x", "-", None]),
        # -1 is a score, unless it stands alone.
        ("regression", (), [True, "4", -1, None, "-", "", "NaN", " null "], [1.0, 4.0, -1.0, *[None] * 5]),
        ("regression", (), ["-1.0", -1], [None, None]),
        ("multi_label", (), [["x", "y", "x"], [], [3], [0, 1]], [("x", "y"), (), ("3",), ("0", "1")]),
        ("multi_label", (), [["a", "b"], [None], ["-"]], [("a", "b"), None, None]),
        ("multi_label", (), ["a, null", " b ,c", "", "-", "-1", "nan"], [("a",), ("b", "c"), (), None, None, None]),
        ("multi_label", ["a", "b"], [["a"], [], None, ["-1"]], [("a",), (), None, None]),
        ("multi_label", ["a|b", "c"], ["a|b", "c"], [("a|b",), ("c",)]),
        # Lists as JSON and Python write them.
        ("multi_label", (), ['["x", "y"]', "[]", ' ["a"]'], [("x", "y"), (), ("a",)]),
        ("multi_label", (), ["('film', 'music')", "('film',)", "()"], [("film", "music"), ("film",), ()]),
        ("multi_label", (), ["{'b', 'a'}", "set()", "frozenset({'b', 'a'})", "frozenset()"], [("a", "b"), ()] * 2),
        ("multi_label", (), ["['it\\'s', \"b's\"]", "['a,b']"], [("it's", "b's"), ("a,b",)]),
        # Names with brackets, quotes or marks.
        ("multi_label", (), ["Mercury (planet), Mercury", "(I) one"], [("Mercury (planet)", "Mercury"), ("(I) one",)]),
        ("multi_label", (), ["'90s, rock 'n' roll", "a;b|c/d"], [("'90s", "rock 'n' roll"), ("a;b|c/d",)]),
        ("multi_label", (), ["R&B/Soul", "Arts & Crafts"], [("R&B/Soul",), ("Arts & Crafts",)]),
        ("multi_label", (), ["rock/pop", "pop"], [("rock/pop",), ("pop",)]),  # as many parts as different cells
    ],
    ids=str,
)
def test_labels_are_read_as_they_are_meant(kind, known, labels, expected):
    assert KINDS[kind].labels_in(table_of(labels), "label", known=known) == expected


@pytest.mark.parametrize(
    ("kind", "labels", "named"),
    [
        ("regression", ["high"], "a.jsonl:1 has 'high' as 'label'"),
        ("regression", [0.5, "inf"], "a.jsonl:2 has 'inf'"),
        ("regression", [[1, 0], [0, 1]], "a.jsonl:1"),
        ("classification", [["x"]], "a.jsonl:1"),
        ("classification", [1, 0, -1], "labels -1 0 1"),  # of which -1 may mean no label
        ("classification", ["0", "1.0", "-1.0"], "labels -1 0 1"),
        # A list as text.
        *(("classification", ["film", each], "a.jsonl:2") for each in ("('film', 'music')", "frozenset({'film'})",
          "()", '["film"]', "[1, 0]", "[1 0 0]", "1,0,0", "(1, 0, 0)", "['a' 'b']")),
        # A number for every label, also as NumPy writes an array.
        *(("multi_label", labels, "names of the labels") for labels in ([[1, 0, 0], [0, 1, 0]], [[1, 0], [0, 1]],
          [[True, False], [False, True]], [[Decimal("0.2"), 0.8], [1]], ["[1, 0]", "[0, 1]"], ["1,0,0", "0,1,0"])),
        ("multi_label", ["[1 0 0]", "[0 1 0]"], "'[1 0 0]'"),
        ("multi_label", ["['film' 'music']"], "'film'"),
        # No cell has a comma.
        ("multi_label", ["film|music", *["music"] * 9], "'|'"),
        ("multi_label", ["<film><music>", "<music>"], "'><'"),
        ("multi_label", ["film\nmusic", "music"], r"'\n'"),
        ("multi_label", ["film/music", "music", "film", "music/film"], "'/'"),
        ("multi_label", ["cs.CL cs.LG", "cs.LG", "cs.CL", "cs.LG cs.CL"], "' '"),
        # A comma cuts a list.
        *(("multi_label", [each], repr(each)) for each in ("<film>", "[film, music]", "'film', 'music'",
          "film, 'music'", "film, “music”", "‘film’, music", "'film, music'", 'film, "music', "{'film': 1, 'music': 0}",
          "array(['film', 'music'])", "[np.str_('film'), np.str_('music')]")),
        ("multi_label", ["film, music", "(film, music)"], "'(film"),
        ("multi_label", ["film, music", "{film}"], "'{film}'"),
    ],
    ids=str,
)  # fmt: skip
def test_labels_that_may_mean_something_else_are_refused(refusal, kind, labels, named):
    assert named in refusal(lambda: label_set(read_examples(table_of(labels), kind)))


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
@pytest.mark.parametrize("are_texts", [False, True])
def test_what_means_no_label_follows_from_the_other_labels(labels, unlabelled, are_texts):
    values = ["" if label is None else str(label) for label in labels] if are_texts else labels
    assert read_examples(table_of(values)).unlabelled == unlabelled


@pytest.mark.parametrize(
    ("names", "ids", "labels"),
    [
        (("no", "yes"), [0, -1, 1, -1], ["no", None, "yes", None]),
        (("no", "yes"), [0.0, -1.0, NAN, None], ["no", None, None, None]),
        (("-1", "1", "2"), [0, 1, 2, -1], ["-1", "1", "2", None]),
    ],
)
def test_a_class_id_may_be_missing_and_a_class_may_be_named_minus_one(names, ids, labels):
    assert read_examples(table_of(ids, names)).labels == labels


@pytest.mark.parametrize("numbers", [[0, 2], [0.0, 1.5]])
def test_an_unknown_class_id_is_refused(refusal, numbers):
    message = refusal(read_examples, table_of(numbers, ("no", "yes")))
    assert "a.jsonl:2" in message and "no, yes" in message


NAMES = {"names": ["no", "yes"], "_type": "ClassLabel"}


@pytest.mark.parametrize(
    ("feature", "kind", "ids", "labels"),
    [
        (NAMES, "classification", [1, 0], ["yes", "no"]),
        ({"feature": NAMES, "_type": "List"}, "multi_label", [[1], [0, 1]], [("yes",), ("no", "yes")]),
        ({"feature": NAMES, "length": -1, "_type": "Sequence"}, "multi_label", [[1], []], [("yes",), ()]),
        ([NAMES], "multi_label", [[0], [1]], [("no",), ("yes",)]),  # of datasets 1
        ({"dtype": "int64", "_type": "Value"}, "classification", [1, 0], ["1", "0"]),
    ],
)
@pytest.mark.parametrize("ending", ["parquet", "stream.arrow", "file.arrow"])
def test_names_of_classes_are_taken_from_the_schema(write_parquet, feature, kind, ids, labels, ending):
    path = write_parquet(f"a.{ending}", {"text": ["a", "b"], "label": ids}, label=feature)
    assert read_examples(path, kind).labels == labels


def test_a_file_to_predict_may_have_any_numbers_for_a_single_output():
    task = SentenceConfig(kind="multi_label", labels=("LABEL_0",))
    assert read_texts(table_of([0.8, 1]), task, NewColumns(), KINDS["multi_label"].labels_in).labels is None


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_examples_without_a_label_are_left_out_of_training_and_scoring(task_of, caplog, kind):
    caplog.set_level(logging.INFO)
    labels = {"train": ["0", "", "2", "-", "1"], "validation": ["1", "0", None, "1", "0"], "test": [*"-0122"]}
    task = task_of(kind, **{name: {"text": [*"abcde"], "label": each} for name, each in labels.items()})
    train = task.train.inputs, task.train.ids, list(task.train.rows)
    assert train == ((["a", "c", "e"],), ["0", "2", "4"], [2, 4, 6])
    assert list(map(float, task.train.labels)) == [0, 2, 1]
    assert list(map(float, task.evaluated["validation"].labels)) == [1, 0, 1, 0]
    assert task.test.unlabelled == [0] and len(task.test) == 5
    assert "train.csv: 2 of 5 examples have no label" in caplog.text and "rows 3, 5" in caplog.text
    assert "validation.csv: 1 of 5 examples have no label" in caplog.text


def test_the_labels_of_the_training_file_decide_for_the_dev_set(task_of):
    labels = {"train": [0, 1, 2, -1], "validation": [1, -1, 0, 0]}
    task = task_of("classification", **{name: {"text": [*"abcd"], "label": each} for name, each in labels.items()})
    assert (task.train.labels, task.evaluated["validation"].labels) == (["0", "1", "2"], ["1", "0", "0"])


def test_labels_are_sorted_and_numbers_by_their_value_but_given_ones_keep_their_order_and_a_single_one_is_refused(
    refusal,
):
    assert label_set(labelled("b", "a", "b")) == ("a", "b")
    assert label_set(labelled("10", "9", "-1")) == ("-1", "9", "10")
    assert label_set(labelled(("c", "a"), (), ("b",))) == ("a", "b", "c")
    assert label_set(labelled("a", "b"), given=["b", "c", "a"]) == ("b", "c", "a")
    assert "'a'" in refusal(label_set, labelled("a", "a", "a"))
    assert "2.0" in refusal(target_range, labelled(2.0, 2.0))


def test_targets_are_the_ids_of_labels_and_numbers_between_the_smallest_and_the_largest():
    targets = {name: KINDS[name].targets for name in ("classification", "multi_label")}
    one, several = (SentenceConfig(kind=name, labels=("a", "b", "c")) for name in targets)
    assert targets["classification"](labelled("b", "a", "b"), one).tolist() == [1, 0, 1]
    examples = labelled(("c",), (), ("a", "c"))
    assert targets["multi_label"](examples, several).tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 1]]
    numbers = labelled(-1.5, 4.0, 2.625)
    assert scaled_targets(numbers, **target_range(numbers)).tolist() == [0, 1, 0.75]


@pytest.mark.parametrize("kind, label", [("classification", "z"), ("multi_label", ("a", "z"))])
def test_an_unknown_label_is_named_with_its_line(refusal, kind, label):
    message = refusal(KINDS[kind].targets, labelled("a", label), SentenceConfig(kind=kind, labels=("a", "b")))
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
    doubled = with_swapped_pairs(Examples((["a", "b"], ["c", "d"]), ["0", "1"], ["x", "y"], "train.tsv", [2, 3]))
    assert doubled.inputs == (["a", "b", "c", "d"], ["c", "d", "a", "b"])
    assert (doubled.labels, doubled.ids, doubled.rows) == (["0", "1", "0", "1"], ["x", "y", "x", "y"], [2, 3, 2, 3])


STSB = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
MNLI = "index\tpromptID\tpairID\tgenre\tb1\tb2\tp1\tp2\tsentence1\tsentence2"
MRPC = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"
QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
PAIR, INDEX = ["a", "b"], "index\tsentence1\tsentence2"
# Task, split, file, header and row, and the first example: texts, label, id and line.
TSV_FILES = [
    ("cola", "train", "CoLA/train.tsv", ['gj\t0\t*\tA "b.'], (['A "b.'], "unacceptable", "0", 1)),
    ("sst2", "validation", "sst/dev.tsv", ["sentence\tlabel", "a b \t1"], (["a b "], "positive", "0", 2)),
    ("mrpc", "train", "MRPC/train.tsv", [f"{MRPC}\r", '1\t7\t8\tA b\t" c\r'], (["A b", '" c'], "equivalent", "0", 2)),
    ("stsb", "validation", "sts/dev.tsv", [f"{STSB}\tscore", "3\tg\tf\t20\t1\tn\tn\ta\tb\t2.500"], (PAIR, 2.5, "3", 2)),
    ("qqp", "train", "QQP/train.tsv", [QQP, "9\t1\t2\ta\tb\t1"], (PAIR, "duplicate", "9", 2)),
    ("mnli", "validation_mismatched", "mnli/dev_mismatched.tsv",
     [f"{MNLI}\tlabel1\tgold_label", "5\t1\t1\tg\tb\tb\tp\tp\ta\tb\tentailment\tneutral"], (PAIR, "neutral", "5", 2)),
    ("qnli", "train", "QNLI/train.tsv", ["index\tquestion\tsentence\tlabel", "2\ta\tb\tnot_entailment"],
     (PAIR, "not_entailment", "2", 2)),
    ("rte", "train", "RTE/train.tsv", [f"{INDEX}\tlabel", "2\ta\tb\tentailment"], (PAIR, "entailment", "2", 2)),
]  # fmt: skip


@pytest.mark.parametrize("name, split, file, lines, first", TSV_FILES, ids=[row[2] for row in TSV_FILES])
def test_the_official_file_of_a_split_is_read(write, tmp_path, name, split, file, lines, first):
    write(file, "\n".join([*lines, ""]))
    examples = read_glue(GLUE_TASKS[name], tmp_path, split)
    texts = [column[0] for column in examples.inputs]
    assert (texts, examples.labels[0], examples.ids[0], examples.rows[0]) == first and len(examples) == 1


@pytest.mark.parametrize(
    ("name", "file", "split", "columns", "labels"),
    [
        # Mismatched MNLI may have a folder of its own.
        ("mnli", "mnli_mismatched/validation", "validation_mismatched",
         {"premise": ["a"], "hypothesis": ["c"], "label": [2]}, ["contradiction"]),
        ("stsb", "stsb/train", "train", {"sentence1": ["a"], "sentence2": ["c"], "label": [3.5]}, [3.5]),
    ],
)  # fmt: skip
def test_the_parquet_file_of_a_split_is_read(write_parquet, tmp_path, name, file, split, columns, labels):
    write_parquet(f"{file}-00000-of-00001.parquet", columns | {"idx": [5]})
    examples = read_glue(GLUE_TASKS[name], tmp_path, split)
    assert (examples.inputs, examples.labels, examples.ids) == ((["a"], ["c"]), labels, ["5"])


@pytest.mark.parametrize("names", [("acceptable", "unacceptable"), None])
def test_classes_of_a_parquet_file_may_have_another_order_and_a_row_may_lack_its_label(write_parquet, tmp_path, names):
    columns = {"sentence": ["a", "b", "c"], "label": [1, 0, -1], "idx": [0, 1, 2]}
    feature = names and {"names": names, "_type": "ClassLabel"}
    write_parquet("cola/train-00000-of-00001.parquet", columns, label=feature)
    expected = ["unacceptable", "acceptable", None] if names else ["acceptable", "unacceptable", None]
    assert read_glue(GLUE_TASKS["cola"], tmp_path, "train").labels == expected


def test_a_few_incomplete_rows_are_left_out_with_a_warning(write, tmp_path, caplog):
    write("SST-2/dev.tsv", "sentence\tlabel\na\t1\nb\nc\t0\n")
    with caplog.at_level(logging.WARNING):
        examples = read_glue(GLUE_TASKS["sst2"], tmp_path, "validation")
    assert (examples.inputs, examples.rows, examples.ids) == ((["a", "c"],), [2, 4], ["0", "1"])
    assert "dev.tsv: left out 1 rows" in caplog.text and caplog.text.endswith(": 3\n")


def test_incomplete_and_missing_files_are_refused(write, refusal, tmp_path):
    write("SST-2/train.tsv", "sentence\tlabel\na\t1\n" + "b\n" * 11)
    assert "train.tsv:13 has 1 columns, expected 2" in refusal(read_glue, GLUE_TASKS["sst2"], tmp_path, "train")
    message = refusal(read_glue, GLUE_TASKS["mnli"], tmp_path, "validation_matched")
    assert all(part in message for part in ("data_dir", "mnli/dev_matched.tsv", "mnli_matched/validation-00000"))
    path = write("test.tsv", "id\tquestion1\tquestion2\n0\ta\tb\n1\tc\n")  # a leaderboard needs all predictions
    assert "test.tsv:3 has 2 columns, expected 3" in refusal(read_glue_texts, GLUE_TASKS["qqp"], path, None)


@pytest.mark.parametrize(
    ("name", "content", "columns", "texts"),
    [
        ("cola", 'a\t1\t\t"b c\nd\t0\t*\te"\n', None, (['"b c', 'e"'],)),
        ("cola", "index\tsentence\n0\tb\n", None, (["b"],)),
        ("mrpc", f"{MRPC[1:]}\n1\t2\t3\ta\tb\n", None, (["a"], ["b"])),
        ("mrpc", "sentence1\tsentence2\na\tb\n", None, (["a"], ["b"])),
        ("qqp", 'left\tright\n"a\tb"\n', ["left", "right"], (['"a'], ['b"'])),
    ],
)
def test_texts_to_predict_are_read_from_a_tsv_file(write, name, content, columns, texts):
    assert read_glue_texts(GLUE_TASKS[name], write("new.tsv", content), columns).inputs == texts


def test_a_table_in_memory_may_have_ids_or_names_of_classes():
    columns = {"sentence1": ["a", "b"], "sentence2": ["c", "d"], "label": ["not_entailment", 0]}
    examples = read_glue_texts(GLUE_TASKS["rte"], Table("rows", columns, [1, 2]), None)
    assert examples.labels == ["not_entailment", "entailment"]
