"""`electra_tf.finetune`: what it takes, and mistakes in its arguments."""

import re

import numpy as np
import pytest

import electra_tf

pandas = pytest.importorskip("pandas")  # tf-models-official brings it

TRAIN = {"text": ["w5 w6", "w7", "w5", "w7 w8"], "label": [0, 2, 0, 2]}
TINY = {"data.max_seq_length": 12, "train.num_steps": 1, "train.batch_size": 4, "train.fused_ops": False}


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"seeds": [0.5]}, "seeds is [0.5], expected a list of integers"),
        ({"seeds": 3}, "seeds is 3, expected a list of integers"),
        ({"seeds": [True]}, "seeds True: expected distinct integers"),
        ({"seeds": [4, 4]}, "seeds 4 4: expected distinct integers"),
        ({"seeds": []}, "expected distinct integers"),
        ({"settings": {"train.seed": 3}}, "train.seed has no effect"),
        ({"settings": {"train.keep_checkpoints": 7}}, "train.keep_checkpoints has no effect; remove it"),
        ({"settings": ["train"]}, "expected a dictionary"),
        ({"settings": {"train.num_epochs": object()}}, "expected a number, a text, a list or a dictionary"),
        ({"settings": {"encoder.num_heads": 3}}, "encoder.num_heads"),
        ({"class_weights": "balance"}, "'balance': expected weights by label, or balanced"),
        ({"class_weights": {0: "x"}}, "the weight 'x' is not a positive number"),
        ({"keep": "some"}, "keep is 'some'"),
        ({"strategy": "some"}, "strategy is 'some'"),
        ({"task": None}, "task is None"),
        ({"label_column": ["label"]}, "label_column is ['label']"),
        ({"labels": "ab"}, "put it into brackets"),
        ({"text_columns": "text"}, "put it into brackets"),
    ],
)
def test_a_mistake_is_one_line(tiny_pretrained, tmp_path, keywords, message):
    arguments = {"task": "classification", "train": TRAIN, "validation": TRAIN, "settings": TINY, **keywords}
    with pytest.raises(electra_tf.UserError, match=re.escape(message)) as caught:
        electra_tf.finetune(init_from=tiny_pretrained, output_dir=tmp_path, **arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_seeds_labels_settings_and_names_of_columns_may_be_numpys_or_numbers(tiny_pretrained, tmp_path):
    table = pandas.DataFrame({0: TRAIN["text"], 1: TRAIN["label"], "extra": [1, "x", None, 2.5]})
    result = electra_tf.finetune(
        "classification",
        table,
        table,
        init_from=tiny_pretrained,
        output_dir=tmp_path,
        seeds=np.array([3, 1]),
        text_columns=[0],
        label_column="1",
        labels=np.array([2, 0]),
        class_weights={0: np.float32(2.0)},
        settings=TINY | {"evaluation.batch_size": np.int64(8)},
    )
    assert [seed["seed"] for seed in result.summary["seeds"]] == [1, 3]
    model = result.model(seed=3)
    assert {row["prediction"] for row in model.predict(table)} <= {"0", "2"}
    assert list(model.predict(table)[0]) == ["id", "label", "prediction", "probability_2", "probability_0"]
    assert model.predict(table[:0]) == []
