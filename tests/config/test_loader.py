"""Configuration files: parents, overrides, and mistakes in them."""

from pathlib import Path

import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.loader import config_to_yaml
from electra_tf.tasks.pretrain.config import load_config

CONFIGS = Path(__file__).resolve().parents[2] / "configs" / "pretrain"
MASKED_LM = {"name": "bert_mlm", "masked_lm_loss_weight": 1.0}


def test_a_child_changes_only_its_own_settings_and_a_base_is_relative_to_its_file(write, settings, tmp_path):
    (tmp_path / "presets").mkdir()
    write(settings(), "presets/parent.yaml")
    write({"base": "parent.yaml", "train": {"num_steps": 9}}, "presets/child.yaml")
    grandchild = load_config(write({"base": "presets/child.yaml", "train": {"batch_size": 2}}))
    train = grandchild.train
    assert (train.num_steps, train.batch_size, grandchild.encoder.hidden_size) == (9, 2, 16)


@pytest.mark.parametrize(
    ("parent", "child", "inherited"),
    [
        ({"temperature": 0.5}, {"name": "bert_mlm"}, MASKED_LM),
        (
            {"tying": "none", "replaced_token_loss_weight": 20.0},
            {"name": "replace_mlm", "temperature": 0.5},
            {"tying": "none", "temperature": 0.5, "encoder_masked_lm_loss_weight": 1.0},
        ),
        (
            {"temperature": 2.0, "replaced_token_loss_weight": 20.0},
            {"name": "electra_15"},
            {"temperature": 2.0, "replaced_token_loss_weight": 20.0, "loss_positions": "masked"},
        ),
        ({"tying": "none"}, {"name": "electra", "temperature": 0.5}, {"tying": "none", "temperature": 0.5}),
    ],
)
@pytest.mark.parametrize("by_override", [False, True])
def test_a_child_with_another_objective_inherits_the_settings_that_both_have(
    write, settings, parent, child, inherited, by_override
):
    objective = {"name": "electra", "generator": {"size_fraction": 0.5}, **parent}
    base = write(settings(objective=objective), "parent.yaml")
    if by_override:
        config = load_config(base, [f"objective.{name}={value}" for name, value in reversed(child.items())])
    else:
        config = load_config(write({"base": "parent.yaml", "objective": child}))
    values = config.objective.model_dump()
    assert {name: values.get(name) for name in inherited} == inherited
    assert ("generator" in values) == (child["name"] != "bert_mlm")


def test_overrides_are_yaml_values_applied_in_order_to_settings_and_groups(load):
    overrides = ["train.num_steps=12", "train.xla=true", "train.num_steps=15", "optimizer.learning_rate=2e-4"]
    config = load(*overrides, "train={batch_size: 6}", "masking.masked_fraction=0.4")
    assert (config.train.num_steps, config.train.xla, config.optimizer.learning_rate) == (15, True, 2e-4)
    assert (config.train.batch_size, config.masking.masked_fraction) == (6, 0.4)


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("train.num_steps", "'train.num_steps'"),
        ("=3", "'=3'"),
        ("train.num_steps.more=3", "num_steps is a value"),
        ("train.num_steps=[", "YAML"),
        # The nearest name in its own group, then of any group, then all names.
        ("train.batchsize=3", "train.batchsize is not a setting; did you mean batch_size?"),
        ("trian.num_steps=3", "did you mean train?"),
        (
            "objective.generator.sizefraction=0.3",
            "generator.sizefraction is not a setting; did you mean size_",
        ),
        ("train.learningrate=1", "did you mean optimizer.learning_rate?"),
        ("learning_rate=1", "did you mean optimizer.learning_rate?"),
        ("data.size_fraction=1", "did you mean objective.generator.size_fraction?"),
        ("evaluation.zzz=3", "evaluation.zzz is not a setting; there are: as_masked_lm, batch_size, best_metric, "),
        ("objective={name: bert_mlm, temperature: 0.5}", "objective.temperature is not a setting"),
    ],
)
def test_the_error_for_a_wrong_override_names_the_nearest_setting(refusal, override, named):
    line = refusal(override)
    assert named in line
    assert line.startswith(("--set", "config ")) and ("--set" in line)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"base": "run.yaml"}, "form a circle"),
        ({"base": 3}, "base is 3"),
        ({"base": "nowhere.yaml"}, "nowhere.yaml"),
        ("train:\n  num_steps: 3\n  num_steps: 4\n", "the key 'num_steps' is given twice"),
        ("", "expected a mapping"),
        ("train: [3\n", "invalid YAML"),
        ({"encoder": {}}, "data is missing"),
    ],
)
def test_a_file_that_is_not_a_configuration_is_refused(refusal, content, message):
    assert message in refusal(content=content)


def test_the_resolved_configuration_reads_back_equal_and_cannot_be_changed(load, write):
    config = load("masking.selection=with_replacement", "evaluation.batch_size=3")
    assert load_config(write(config_to_yaml(config), "resolved.yaml")) == config
    with pytest.raises(ValueError, match="frozen"):
        config.train.num_steps = 9


def test_a_configuration_is_read_from_a_filesystem_of_tensorflow():
    tf.io.gfile.makedirs("ram://configs")
    base = (CONFIGS / "small.yaml").read_text(encoding="utf-8")
    for name, text in {"base.yaml": base, "run.yaml": "base: base.yaml\ntrain: {seed: 9}\n"}.items():
        with tf.io.gfile.GFile(f"ram://configs/{name}", "w") as stream:
            stream.write(text)
    assert load_config("ram://configs/run.yaml") == load_config(CONFIGS / "small.yaml", ["train.seed=9"])
    with pytest.raises(UserError, match="config ram://configs/absent.yaml"):
        load_config("ram://configs/absent.yaml")
