"""GLUE's files: the columns of each task, both layouts, and damaged files. All rows are made up."""

import logging

import pytest

from electra_tf.data.tables import Table
from electra_tf.tasks.finetune.benchmarks import GLUE_TASKS, read_glue, read_glue_texts

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


def read(name: str, directory, split: str):
    return read_glue(GLUE_TASKS[name], directory, split)


@pytest.mark.parametrize("name, split, file, lines, first", TSV_FILES, ids=[row[2] for row in TSV_FILES])
def test_the_official_file_of_a_split_is_read(write, tmp_path, name, split, file, lines, first):
    write(file, "\n".join([*lines, ""]))
    examples = read(name, tmp_path, split)
    texts, label, identifier, line = first
    assert [column[0] for column in examples.inputs] == texts
    assert (examples.labels[0] if examples.labels else None) == label
    assert (examples.ids[0], examples.rows[0], len(examples)) == (identifier, line, 1)


@pytest.mark.parametrize(
    ("name", "file", "split", "columns", "names", "labels"),
    [
        ("mrpc", "mrpc/train", "train", {"sentence1": ["a"], "sentence2": ["c"], "label": [1]}, True, ["equivalent"]),
        ("mrpc", "mrpc/train", "train", {"sentence1": ["a"], "sentence2": ["c"], "label": [1]}, False, ["equivalent"]),
        # Mismatched MNLI may have a folder of its own.
        ("mnli", "mnli_mismatched/validation", "validation_mismatched",
         {"premise": ["a"], "hypothesis": ["c"], "label": [2]}, False, ["contradiction"]),
        ("stsb", "stsb/train", "train", {"sentence1": ["a"], "sentence2": ["c"], "label": [3.5]}, False, [3.5]),
    ],
)  # fmt: skip
def test_labels_of_a_parquet_file_have_the_names_of_the_classes(
    write_parquet, tmp_path, name, file, split, columns, names, labels
):
    class_names = ("not_equivalent", "equivalent") if names else None
    write_parquet(f"{file}-00000-of-00001.parquet", columns | {"idx": [5]}, class_names)
    examples = read(name, tmp_path, split)
    assert (examples.inputs, examples.labels, examples.ids) == ((["a"], ["c"]), labels, ["5"])


@pytest.mark.parametrize("names", [("acceptable", "unacceptable"), None])
def test_classes_of_a_parquet_file_may_have_another_order_and_a_row_may_lack_its_label(write_parquet, tmp_path, names):
    columns = {"sentence": ["a", "b", "c"], "label": [1, 0, -1], "idx": [0, 1, 2]}
    write_parquet("cola/train-00000-of-00001.parquet", columns, names)
    expected = ["unacceptable", "acceptable", None] if names else ["acceptable", "unacceptable", None]
    assert read("cola", tmp_path, "train").labels == expected


def test_a_few_incomplete_rows_are_left_out_with_a_warning(write, tmp_path, caplog):
    write("SST-2/dev.tsv", "sentence\tlabel\na\t1\nb\nc\t0\n")
    with caplog.at_level(logging.WARNING):
        examples = read("sst2", tmp_path, "validation")
    assert (examples.inputs, examples.rows, examples.ids) == ((["a", "c"],), [2, 4], ["0", "1"])
    assert "dev.tsv: left out 1 rows" in caplog.text and caplog.text.endswith(": 3\n")


def test_incomplete_and_missing_files_are_refused(write, refusal, tmp_path):
    write("SST-2/train.tsv", "sentence\tlabel\na\t1\n" + "b\n" * 11)
    assert "train.tsv:13 has 1 columns, expected 2" in refusal(read, "sst2", tmp_path, "train")
    message = refusal(read, "mnli", tmp_path, "validation_matched")
    for part in ("data_dir", "mnli/dev_matched.tsv", "mnli_matched/validation-00000"):
        assert part in message


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


def test_a_leaderboard_needs_a_prediction_for_each_row(write, refusal):
    path = write("test.tsv", "id\tquestion1\tquestion2\n0\ta\tb\n1\tc\n")
    assert "test.tsv:3 has 2 columns, expected 3" in refusal(read_glue_texts, GLUE_TASKS["qqp"], path, None)


def test_the_parquet_file_of_a_test_set_has_no_labels(write_parquet):
    columns = {"sentence1": ["a"], "sentence2": ["c"], "label": [-1.0], "idx": [5]}
    examples = read_glue_texts(GLUE_TASKS["stsb"], write_parquet("test.parquet", columns, None), None)
    assert (examples.inputs, examples.labels, examples.ids) == ((["a"], ["c"]), None, ["5"])


def test_a_table_in_memory_may_have_ids_or_names_of_classes():
    columns = {"sentence1": ["a", "b"], "sentence2": ["c", "d"], "label": ["not_entailment", 0]}
    examples = read_glue_texts(GLUE_TASKS["rte"], Table("rows", columns, [1, 2]), None)
    assert examples.labels == ["not_entailment", "entailment"]
