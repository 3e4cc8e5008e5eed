"""`electra_tf.finetune`: what it takes, and mistakes in its arguments."""

import re

import numpy as np
import pytest

import electra_tf
from electra_tf.finetuning import run

pandas = pytest.importorskip("pandas")  # tf-models-official brings it

TRAIN = {"text": ["w5 w6", "w7", "w5", "w7 w8"], "label": [0, 2, 0, 2]}
TINY = {"data.max_seq_length": 12, "train.num_steps": 1, "train.batch_size": 4, "train.fused_ops": False}


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"settings": {"encoder.num_heads": 4}}, "encoder.num_heads"),
        ({"class_weights": np.ones(3)}, "class_weights has 3 numbers, expected one for each of 0, 2"),
        ({"class_weights": pandas.Series([1.0, 2.0])}, "class_weights has the label '1', expected one of"),
        ({"labels": "ab"}, "put it into brackets"),
        (
            {"train": {"text": ["w5"], "label": [[1, 2]]}},
            "train:1 has [1, 2] in 'label', expected the name of a label (for lists: task=multi_label)",
        ),
        ({"seeds": [0, 2**31]}, "seeds: seed is 2147483648; "),
        ({"seeds": np.array([0.0, 2.5])}, "seeds: seed is 2.5; "),
        ({"seeds": [True]}, "seeds: seed: expected a number"),
        ({"init_from": "none"}, "/none: there is no run"),
        ({"cased": True}, "remove vocab_file, cased,"),
    ],
)
def test_a_mistake_is_one_line(tiny_pretrained, tmp_path, keywords, message):
    arguments = {"task": "classification", "train": TRAIN, "validation": TRAIN, "settings": TINY, **keywords}
    arguments = {"init_from": tiny_pretrained, "output_dir": tmp_path, **arguments}
    with pytest.raises(electra_tf.UserError, match=re.escape(message)) as caught:
        electra_tf.finetune(**arguments)
    assert "\n" not in str(caught.value) and "--" not in str(caught.value)


@pytest.fixture
def seen(monkeypatch) -> list:
    """The configurations of the fine-tunings that would begin."""
    configs = []
    monkeypatch.setattr(run, "run_seeds", lambda job, *_: configs.append(job.config) or 1 / 0)
    return configs


@pytest.mark.parametrize("weights", [np.array([2.0, 1.0]), [2, 1], pandas.Series({2: 2.0, 0: 1.0})], ids=type)
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


def result_of(task: str, metric: str, median: float | None) -> electra_tf.FinetuningResult:
    seeds = [{"seed": 0}, {"seed": 1}]
    summary = {"task": task, "primary_metric": metric, "statistics": {metric: {"median": median}}, "seeds": seeds}
    return electra_tf.FinetuningResult(summary, "ft/x")


def test_a_score_is_a_fraction_of_every_task():
    assert result_of("classification", "accuracy", 0.875).score == 0.875
    assert result_of("squad_v2", "f1", 87.5).score == 0.875
    assert result_of("squad_v1", "f1", None).score is None
    assert electra_tf.FinetuningResult({"glue_average": 0.75}, "ft/x").score == 0.75


@pytest.mark.slow
def test_seeds_labels_settings_and_names_of_columns_may_be_numpys_or_numbers(tiny_pretrained, tmp_path):
    table = pandas.DataFrame({0: TRAIN["text"], 1: TRAIN["label"], "extra": [1, "x", None, 2.5]})
    options = {"text_columns": [0], "label_column": "1", "labels": np.array([2, 0])}
    options |= {"seeds": np.array([3.0, 1.0]), "class_weights": {0: np.float32(2.0)}}
    options |= {"settings": TINY | {"evaluation.batch_size": np.int64(8)}, "init_from": tiny_pretrained}
    result = electra_tf.finetune("classification", table, table, output_dir=tmp_path, **options)
    assert [seed["seed"] for seed in result.summary["seeds"]] == [1, 3]
    model = result.model(seed=3)
    assert {row["prediction"] for row in model.predict(table)} <= {"0", "2"}
    assert list(model.predict(table)[0]) == ["id", "label", "prediction", "probability_2", "probability_0"]
    assert model.predict(table[:0]) == []
    assert model.predict("w5 w6")["prediction"] == model.predict(["w5 w6"])[0]["prediction"]
