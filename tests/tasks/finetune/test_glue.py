"""The files of GLUE: the columns of each task, both layouts, and damaged files.

The rows are made up, in the layout of the official files.
"""

import json
import logging

import pyarrow
import pyarrow.parquet
import pytest

from electra_tf.config.errors import UserError
from electra_tf.tasks.finetune.glue import GLUE_TASKS, PAPER_TASKS, read_glue, read_glue_texts
from electra_tf.tasks.finetune.text_examples import class_targets

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


def written(directory, file: str, content: str):
    path = directory / file
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content.encode())
    return directory


def parquet_written(directory, file: str, columns: dict, names: tuple[str, ...] | None):
    path = directory / file
    path.parent.mkdir(exist_ok=True)
    table = pyarrow.table(columns)
    if names:
        features = {"label": {"names": names, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pyarrow.parquet.write_table(table, path)
    return directory


def refusal(name: str, directory, split: str) -> str:
    with pytest.raises(UserError) as caught:
        read_glue(GLUE_TASKS[name], directory, split)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name, split, file, content, first", TSV_FILES, ids=[row[2] for row in TSV_FILES])
def test_the_official_file_of_a_split_is_read(tmp_path, name, split, file, content, first):
    examples = read_glue(GLUE_TASKS[name], written(tmp_path, file, content), split)
    texts, label, identifier, line = first
    assert [column[0] for column in examples.texts] == texts
    assert (examples.labels[0] if examples.labels else None) == label
    assert (examples.ids[0], examples.rows[0], len(examples)) == (identifier, line, 1)


@pytest.mark.parametrize("names", [("not_equivalent", "equivalent"), None])
def test_the_parquet_file_of_a_split_gives_labels_as_the_tsv_file_writes_them(tmp_path, names):
    columns = {"sentence1": ["a", "b"], "sentence2": ["c", "d"], "label": [1, 0], "idx": [5, 8]}
    parquet_written(tmp_path, "mrpc/train-00000-of-00001.parquet", columns, names)
    examples = read_glue(GLUE_TASKS["mrpc"], tmp_path, "train")
    assert (examples.texts, examples.labels, examples.ids) == ((["a", "b"], ["c", "d"]), ["1", "0"], ["5", "8"])


def test_mismatched_mnli_is_also_found_as_a_configuration_of_its_own(tmp_path):
    columns = {"premise": ["a"], "hypothesis": ["b"], "label": [2], "idx": [0]}
    parquet_written(tmp_path, "mnli_mismatched/validation-00000-of-00001.parquet", columns, None)
    assert read_glue(GLUE_TASKS["mnli"], tmp_path, "validation_mismatched").labels == ["contradiction"]


def test_scores_of_parquet_are_numbers_and_test_splits_have_no_labels(tmp_path):
    columns = {"sentence1": ["a"], "sentence2": ["b"], "idx": [0]}
    parquet_written(tmp_path, "stsb/train-00000-of-00001.parquet", columns | {"label": [3.5]}, None)
    parquet_written(tmp_path, "stsb/test-00000-of-00001.parquet", columns | {"label": [-1.0]}, None)
    assert read_glue(GLUE_TASKS["stsb"], tmp_path, "train").labels == [3.5]
    assert read_glue(GLUE_TASKS["stsb"], tmp_path, "test").labels is None


def test_a_row_of_training_that_has_no_label_is_named(tmp_path):
    columns = {"sentence": ["a", "b"], "label": [1, -1], "idx": [0, 1]}
    names = ("unacceptable", "acceptable")
    parquet_written(tmp_path, "cola/train-00000-of-00001.parquet", columns, names)
    assert "parquet:2 has no label" in refusal("cola", tmp_path, "train")


def test_parquet_files_with_classes_in_another_order_are_refused(tmp_path):
    columns = {"sentence": ["a"], "label": [1], "idx": [0]}
    parquet_written(tmp_path, "cola/train-00000-of-00001.parquet", columns, ("acceptable", "unacceptable"))
    assert "acceptable, unacceptable, expected unacceptable, acceptable" in refusal("cola", tmp_path, "train")


def test_a_handful_of_rows_of_the_wrong_width_is_left_out_with_a_warning(tmp_path, caplog):
    content = "sentence\tlabel\na\t1\nb\nc\t0\n"
    with caplog.at_level(logging.WARNING):
        examples = read_glue(GLUE_TASKS["sst2"], written(tmp_path, "SST-2/dev.tsv", content), "validation")
    assert (examples.texts, examples.rows, examples.ids) == ((["a", "c"],), [2, 4], ["0", "1"])
    assert "dev.tsv: left out 1 rows" in caplog.text and caplog.text.endswith(": 3\n")


def test_a_row_of_the_wrong_width_in_a_test_split_is_refused_as_the_leaderboard_needs_every_row(tmp_path):
    content = "id\tquestion1\tquestion2\n0\ta\tb\n1\tc\n"
    with pytest.raises(UserError, match=r"QQP/test\.tsv .*Row #3"):
        read_glue(GLUE_TASKS["qqp"], written(tmp_path, "QQP/test.tsv", content), "test")


def test_more_than_a_handful_of_rows_of_the_wrong_width_are_refused(tmp_path):
    content = "sentence\tlabel\na\t1\n" + "b\n" * 11
    message = refusal("sst2", written(tmp_path, "SST-2/train.tsv", content), "train")
    assert "SST-2/train.tsv" in message and "Row #13" in message


@pytest.mark.parametrize("content", ["", "sentence\tlabel\n"])
def test_a_file_without_examples_is_refused(tmp_path, content):
    assert "SST-2/train.tsv" in refusal("sst2", written(tmp_path, "SST-2/train.tsv", content), "train")


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
def test_texts_to_predict_are_read_from_a_file_of_their_own(tmp_path, name, content, columns, texts):
    (tmp_path / "new.tsv").write_text(content)
    assert read_glue_texts(GLUE_TASKS[name], str(tmp_path / "new.tsv"), columns).texts == texts


def test_the_message_on_a_missing_file_lists_the_places_searched(tmp_path):
    message = refusal("mnli", tmp_path, "test_matched")
    for part in ("mnli", "MNLI/test_matched.tsv", "mnli/test_matched.tsv", "mnli_matched/test-00000", "--data_dir"):
        assert part in message


def test_a_label_of_another_task_is_named_with_its_line(tmp_path):
    content = "index\tsentence1\tsentence2\tlabel\n2\ta\tb\tneutral\n"
    examples = read_glue(GLUE_TASKS["rte"], written(tmp_path, "RTE/train.tsv", content), "train")
    with pytest.raises(UserError, match=r"RTE/train.tsv:2 has the label 'neutral'"):
        class_targets(examples, GLUE_TASKS["rte"].labels)


def test_labels_have_the_numbers_that_hugging_face_gives_them():
    assert GLUE_TASKS["mnli"].labels.index("contradiction") == 2
    assert GLUE_TASKS["rte"].labels.index("entailment") == GLUE_TASKS["qnli"].labels.index("entailment") == 0
    assert GLUE_TASKS["wnli"].parquet_labels.index("not_entailment") == 0


def test_the_leaderboard_has_eleven_files_and_the_paper_eight_tasks():
    files = [file for task in GLUE_TASKS.values() for file, _ in task.leaderboard.values()]
    assert len(set(files)) == 11
    assert set(GLUE_TASKS) - set(PAPER_TASKS) == {"wnli", "ax"}
