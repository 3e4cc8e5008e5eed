"""`electra_tf.finetune`: data in memory as tables, and mistakes in its arguments."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pyarrow
import pytest

import electra_tf
from electra_tf.api import finetuning
from electra_tf.api.tables import as_table
from electra_tf.finetuning import run

pandas = pytest.importorskip("pandas")  # tf-models-official brings it

TRAIN = {"text": ["w5 w6", "w7", "w5", "w7 w8"], "label": [0, 2, 0, 2]}
TINY = {"data.max_seq_length": 12, "train.num_steps": 1, "train.batch_size": 4, "train.fused_ops": False}


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"class_weights": np.ones(3)}, "class_weights has 3 numbers, expected one for each of 0, 2"),
        ({"class_weights": pandas.Series([1.0, 2.0])}, "class_weights has the label '1', expected one of"),
        ({"labels": "ab"}, "put it into brackets"),
        ({"train": {"text": ["w5"], "label": [[1, 2]]}}, "train:1 has [1, 2] in 'label', expected the name of a label"),
        ({"seeds": [0, 2**31]}, "seeds: seed is 2147483648; "),
        ({"seeds": np.array([0.0, 2.5])}, "seeds: seed is 2.5; "),
        ({"seeds": [True]}, "seeds: seed: expected a number"),
        ({"settings": {"data.segment": "m"}}, "data.segment is the program 'm'; to run it, give it as segment"),
        ({"segment": "m"}, "segment=m: the vocabulary's text was not cut"),
        ({"cased": True}, "remove vocab_file, cased,"),
    ],
)
def test_a_mistake_is_one_line(tiny_pretrained, tmp_path, keywords, message):
    arguments = {"task": "classification", "train": TRAIN, "validation": TRAIN, "settings": TINY, **keywords}
    arguments = {"init_from": tiny_pretrained, "output_dir": tmp_path, **arguments}
    with pytest.raises(electra_tf.UserError, match=re.escape(message)) as caught:
        electra_tf.finetune(**arguments)
    assert "\n" not in str(caught.value) and "--" not in str(caught.value)


def test_a_prediction_has_the_program_of_its_call(tiny_pretrained, tmp_path, monkeypatch):
    monkeypatch.setattr(finetuning, "predict_file", lambda model, *_: model.segment)
    assert electra_tf.predict(tiny_pretrained, "new.tsv", tmp_path / "predicted.tsv", segment="m") == "m"


@pytest.fixture
def seen(monkeypatch) -> list:
    """The configurations of the fine-tunings that would begin."""
    configs = []
    monkeypatch.setattr(run, "run_seeds", lambda job, *_: configs.append(job.config) or 1 / 0)
    return configs


@pytest.mark.parametrize("weights", [[2, 1], pandas.Series({2: 2.0, 0: 1.0})], ids=type)
def test_weights_of_classes_may_be_in_the_order_of_the_labels(tiny_pretrained, tmp_path, seen, weights):
    options = {"labels": [2, 0], "class_weights": weights, "settings": TINY, "init_from": tiny_pretrained}
    with pytest.raises(ZeroDivisionError):
        electra_tf.finetune("classification", TRAIN, TRAIN, output_dir=tmp_path, **options)
    assert seen[0].task.class_weights == (2.0, 1.0)


def test_the_settings_of_arguments_are_values_and_no_text(tiny_pretrained, tmp_path, seen):
    # As a seed's config.yaml, with other epochs than its steps and the file that it was trained on.
    (tmp_path / "seed.yaml").write_text(
        "train: {num_steps: 7, num_epochs: 3, save_every_steps: 7}\ndata: {train_file: other.csv}\n"
    )
    table = {"text": TRAIN["text"], "label": ["👍" if label else "👎" for label in TRAIN["label"]]}
    changes = {"train.num_steps": None, "train.save_every_steps": None, "train.num_epochs": 2}
    options = {"init_from": tiny_pretrained, "output_dir": tmp_path / "new", "config": tmp_path / "seed.yaml"}
    options |= {"labels": ["👎", "👍"], "class_weights": {"👍": 1e-5}, "settings": TINY | changes}
    with pytest.raises(ZeroDivisionError):
        electra_tf.finetune("classification", table, table, **options)
    (config,) = seen
    assert (config.task.labels, config.task.class_weights) == (("👎", "👍"), (1.0, float(np.float32(1e-5))))
    assert config.data.train_file is None
    assert (config.train.num_steps, config.train.save_every_steps) == (2, 1)  # four examples, batches of four


def test_a_score_is_a_fraction_of_every_task():
    for task, median, score in (("mrpc", 0.875, 0.875), ("squad_v2", 87.5, 0.875), ("squad_v1", None, None)):
        summary = {"task": task, "primary_metric": "f1", "statistics": {"f1": {"median": median}}}
        assert electra_tf.FinetuningResult(summary, "ft/x").score == score
    assert electra_tf.FinetuningResult({"glue_average": 0.75}, "ft/x").score == 0.75


ROWS = [{"title": "w5", "topic": 3}, {"title": "w6", "topic": None}]
COLUMNS = {"title": ["w5", "w6"], "topic": [3, None]}
TABLES = [
    pyarrow.Table.from_pylist(ROWS),
    pyarrow.RecordBatch.from_pylist(ROWS),
    pandas.DataFrame(COLUMNS, index=[7, 9], dtype=object),
    ROWS,
    iter(ROWS),
    {"title": ("w5", "w6"), "topic": [3, None]},
]


@pytest.mark.parametrize(
    ("data", "names", "columns"),
    [
        *((data, ("text",), COLUMNS) for data in TABLES),
        (["w5", "w6"], ("title",), {"title": ["w5", "w6"]}),
        (("w5",), (), {"text": ["w5"]}),
        (pandas.Series(["w5"], index=[7]), (), {"text": ["w5"]}),
        (pyarrow.chunked_array([["w5"]]), (), {"text": ["w5"]}),
        ([("w5", "w6")], ("question", "answer"), {"question": ["w5"], "answer": ["w6"]}),
        ([("w5", "w6")], (), {"text": ["w5"], "text_pair": ["w6"]}),
        ([{"text": "w5"}, {"id": "x", "text": "w6"}], (), {"text": ["w5", "w6"], "id": [None, "x"]}),
        (pandas.DataFrame({"text": ["w5", None], 7: [1, "x"]}), (), {"text": ["w5", None], "7": [1, "x"]}),
    ],
)
def test_every_kind_of_table_has_the_same_rows_and_texts_get_the_names_of_columns(data, names, columns):
    table = as_table(data, names, "train")
    assert (table.source, table.columns) == ("train", columns)


def test_a_dataset_in_memory_keeps_the_names_of_its_classes():
    """The part of a `datasets.Dataset` that is read: pyarrow's tables of its rows, whose schema names the classes."""
    features = {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    rows = pyarrow.table({"text": ["w5", "w6"], "label": [1, 0]}).replace_schema_metadata(metadata)
    as_arrow = SimpleNamespace(iter=lambda batch_size: iter((rows[:1], rows[1:])))
    dataset = SimpleNamespace(with_format={"arrow": as_arrow}.__getitem__, iter=None)
    assert as_table(dataset, ("text",), "train").labels("label") == ["yes", "no"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("w5", "expected a table, rows or a list of texts, found one text; put it into brackets"),
        (["w5", None], "^train:2 is None, expected a text"),
        ({"title": ["w5"], "topic": [3, 4]}, "^train has columns of different lengths: 1 in 'title', 2 in 'topic'"),
        (["w5", ("w5", "w6")], r"^train:2 is \('w5', 'w6'\), expected a text"),
        ({"title": []}, "^train has no examples"),
    ],
)
def test_what_is_no_table_is_refused(data, message):
    with pytest.raises(electra_tf.UserError, match=message):
        as_table(data, ("title",), "train")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([set("hgfedcba"), frozenset({"c"}), ("d", "e")], [list("abcdefgh"), ["c"], ["d", "e"]]),
        ([2**63, 2**63 + 1, 0.5], [2**63, 2**63 + 1, 0.5]),
        (["x", pandas.NA, 5, float("nan")], ["x", None, 5, None]),
    ],
    ids=["sets", "numbers", "mixed"],
)
def test_sets_are_sorted_lists_and_values_of_several_types_are_exact(values, expected):
    for column in (values, pandas.Series(values, dtype=object)):
        assert as_table({"label": column}, (), "train").columns == {"label": expected}
