"""GLUE's files: the columns of each task, both layouts, and damaged files. All rows are made up."""

import logging

import pytest

from electra_tf.data.tables import Table
from electra_tf.tasks.finetune.benchmarks import GLUE_TASKS, read_glue, read_glue_texts

STSB_HEADER = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
MNLI_HEADER = "index\tpromptID\tpairID\tgenre\tb1\tb2\tp1\tp2\tsentence1\tsentence2"
# Task, split, file, content, and the first example: texts, label, id and line.
TSV_FILES = [
    ("cola", "train", "CoLA/train.tsv", 'gj\t0\t*\tA "b.\n', (['A "b.'], "0", "0", 1)),
    ("cola", "test", "cola/test.tsv", "index\tsentence\n4\tA b.\n", (["A b."], None, "4", 2)),
    ("sst2", "validation", "sst/dev.tsv", "sentence\tlabel\na b \t1\n", (["a b "], "1", "0", 2)),
    (
        "mrpc",
        "train",
        "MRPC/train.tsv",
        '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t7\t8\tA b\t" c\r\n',
        (["A b", '" c'], "1", "0", 2),
    ),
    (
        "stsb",
        "validation",
        "sts/dev.tsv",
        f"{STSB_HEADER}\tscore\n3\tg\tf\t2012\t1\tn\tn\ta\tb\t2.500\n",
        (["a", "b"], 2.5, "3", 2),
    ),
    (
        "qqp",
        "train",
        "QQP/train.tsv",
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n9\t1\t2\ta\tb\t1\n",
        (["a", "b"], "1", "9", 2),
    ),
    (
        "mnli",
        "validation_mismatched",
        "mnli/dev_mismatched.tsv",
        f"{MNLI_HEADER}\tlabel1\tgold_label\n5\t1\t1\tg\tb\tb\tp\tp\ta\tc\tentailment\tneutral\n",
        (["a", "c"], "neutral", "5", 2),
    ),
    (
        "qnli",
        "train",
        "QNLI/train.tsv",
        "index\tquestion\tsentence\tlabel\n2\tq\ts\tnot_entailment\n",
        (["q", "s"], "not_entailment", "2", 2),
    ),
    (
        "rte",
        "train",
        "RTE/train.tsv",
        "index\tsentence1\tsentence2\tlabel\n2\ta\tb\tentailment\n",
        (["a", "b"], "entailment", "2", 2),
    ),
    ("wnli", "test", "WNLI/test.tsv", "index\tsentence1\tsentence2\n0\ta\tb\n", (["a", "b"], None, "0", 2)),
    ("ax", "test", "diagnostic/diagnostic.tsv", "index\tsentence1\tsentence2\n0\ta\tb\n", (["a", "b"], None, "0", 2)),
    ("ax", "test", "mnli/diagnostic.tsv", "index\tsentence1\tsentence2\n0\ta\tb\n", (["a", "b"], None, "0", 2)),
]


def read(name: str, directory, split: str):
    return read_glue(GLUE_TASKS[name], directory, split)


@pytest.mark.parametrize("name, split, file, content, first", TSV_FILES, ids=[row[2] for row in TSV_FILES])
def test_the_official_file_of_a_split_is_read(write, tmp_path, name, split, file, content, first):
    write(file, content)
    examples = read(name, tmp_path, split)
    texts, label, identifier, line = first
    assert [column[0] for column in examples.inputs] == texts
    assert (examples.labels[0] if examples.labels else None) == label
    assert (examples.ids[0], examples.rows[0], len(examples)) == (identifier, line, 1)


@pytest.mark.parametrize("names", [("not_equivalent", "equivalent"), None])
def test_labels_of_a_parquet_file_are_named_as_in_the_tsv_file(write_parquet, tmp_path, names):
    columns = {"sentence1": ["a", "b"], "sentence2": ["c", "d"], "label": [1, 0], "idx": [5, 8]}
    write_parquet("mrpc/train-00000-of-00001.parquet", columns, names)
    examples = read("mrpc", tmp_path, "train")
    assert (examples.inputs, examples.labels, examples.ids) == ((["a", "b"], ["c", "d"]), ["1", "0"], ["5", "8"])


def test_mismatched_mnli_may_have_a_folder_of_its_own(write_parquet, tmp_path):
    columns = {"premise": ["a"], "hypothesis": ["b"], "label": [2], "idx": [0]}
    write_parquet("mnli_mismatched/validation-00000-of-00001.parquet", columns)
    assert read("mnli", tmp_path, "validation_mismatched").labels == ["contradiction"]


def test_parquet_files_of_stsb_have_numbers_and_those_of_test_splits_no_labels(write_parquet, tmp_path):
    columns = {"sentence1": ["a"], "sentence2": ["b"], "idx": [0]}
    write_parquet("stsb/train-00000-of-00001.parquet", columns | {"label": [3.5]})
    write_parquet("stsb/test-00000-of-00001.parquet", columns | {"label": [-1.0]})
    assert read("stsb", tmp_path, "train").labels == [3.5]
    assert read("stsb", tmp_path, "test").labels is None


@pytest.mark.parametrize(
    ("labels", "names", "part"),
    [
        ([1, -1], ("unacceptable", "acceptable"), "parquet:2 has no label"),
        ([1, 0], ("acceptable", "unacceptable"), "acceptable, unacceptable, expected unacceptable, acceptable"),
    ],
)
def test_a_parquet_file_without_a_label_or_with_other_classes_is_refused(
    write_parquet, refusal, tmp_path, labels, names, part
):
    columns = {"sentence": ["a", "b"], "label": labels, "idx": [0, 1]}
    write_parquet("cola/train-00000-of-00001.parquet", columns, names)
    assert part in refusal(read, "cola", tmp_path, "train")


def test_a_few_incomplete_rows_are_left_out_with_a_warning(write, tmp_path, caplog):
    write("SST-2/dev.tsv", "sentence\tlabel\na\t1\nb\nc\t0\n")
    with caplog.at_level(logging.WARNING):
        examples = read("sst2", tmp_path, "validation")
    assert (examples.inputs, examples.rows, examples.ids) == ((["a", "c"],), [2, 4], ["0", "1"])
    assert "dev.tsv: left out 1 rows" in caplog.text and caplog.text.endswith(": 3\n")


@pytest.mark.parametrize(
    ("name", "split", "files", "parts"),
    [
        # The leaderboard needs every row.
        ("qqp", "test", {"QQP/test.tsv": "id\tquestion1\tquestion2\n0\ta\tb\n1\tc\n"}, ["QQP/test.tsv", "Row #3"]),
        ("sst2", "train", {"SST-2/train.tsv": "sentence\tlabel\na\t1\n" + "b\n" * 11}, ["train.tsv", "Row #13"]),
        ("sst2", "train", {"SST-2/train.tsv": "sentence\tlabel\n"}, ["SST-2/train.tsv"]),
        ("mnli", "test_matched", {}, ["mnli", "mnli/test_matched.tsv", "mnli_matched/test-00000", "--data_dir"]),
    ],
)
def test_incomplete_and_missing_files_are_refused(write, refusal, tmp_path, name, split, files, parts):
    for file, content in files.items():
        write(file, content)
    message = refusal(read, name, tmp_path, split)
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("name", "content", "columns", "texts"),
    [
        ("cola", 'a\t1\t\t"b c\nd\t0\t*\te"\n', None, (['"b c', 'e"'],)),
        ("cola", "index\tsentence\n0\tb\n", None, (["b"],)),
        ("mrpc", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t2\t3\ta\tb\n", None, (["a"], ["b"])),
        ("mrpc", "sentence1\tsentence2\na\tb\n", None, (["a"], ["b"])),
        ("qqp", 'left\tright\n"a\tb"\n', ["left", "right"], (['"a'], ['b"'])),
    ],
)
def test_texts_to_predict_are_read_from_a_tsv_file(write, name, content, columns, texts):
    assert read_glue_texts(GLUE_TASKS[name], write("new.tsv", content), columns).inputs == texts


def test_labels_have_hugging_faces_ids():
    assert GLUE_TASKS["mnli"].labels.index("contradiction") == 2
    assert GLUE_TASKS["rte"].labels.index("entailment") == GLUE_TASKS["qnli"].labels.index("entailment") == 0
    assert GLUE_TASKS["wnli"].parquet_labels.index("not_entailment") == 0


def test_a_table_in_memory_may_have_ids_or_names_of_classes():
    columns = {"sentence1": ["a", "b"], "sentence2": ["c", "d"], "label": ["not_entailment", 0]}
    examples = read_glue_texts(GLUE_TASKS["rte"], Table("rows", columns, [1, 2]), None)
    assert examples.labels == ["not_entailment", "entailment"]
