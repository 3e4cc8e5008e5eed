"""Configuration files: parents, overrides, and what is refused in one line."""

from pathlib import Path

import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.loader import config_to_yaml
from electra_tf.tasks.pretrain.config import load_config, parse_config

CONFIGS = Path(__file__).resolve().parents[2] / "configs" / "pretrain"
MASKED_LM = {"name": "bert_mlm", "masked_lm_loss_weight": 1.0}


def test_a_child_changes_only_what_it_names_and_a_base_is_found_relative_to_its_file(write, settings, tmp_path):
    (tmp_path / "presets").mkdir()
    write(settings(), "presets/parent.yaml")
    write({"base": "parent.yaml", "train": {"num_steps": 9}}, "presets/child.yaml")
    grandchild = load_config(write({"base": "presets/child.yaml", "train": {"batch_size": 2}}))
    train = grandchild.train
    assert (train.num_steps, train.batch_size, grandchild.encoder.hidden_size) == (9, 2, 16)


# Another objective inherits the settings that both have: those of a generator, or none.
@pytest.mark.parametrize(
    ("parent", "child", "found"),
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
@pytest.mark.parametrize("way", ["file", "override"])
def test_a_child_with_another_objective_inherits_what_both_have_in_common(write, settings, parent, child, found, way):
    generator = {"size_fraction": 0.5}
    base = write(settings(objective={"name": "electra", "generator": generator, **parent}), "parent.yaml")
    if way == "file":
        objective = load_config(write({"base": "parent.yaml", "objective": child})).objective
    else:
        objective = load_config(
            base, [f"objective.{name}={value}" for name, value in reversed(child.items())]
        ).objective
    values = objective.model_dump()
    assert {name: values.get(name) for name in found} == found
    assert ("generator" in values) == (child["name"] != "bert_mlm")


def test_naming_the_optimizer_keeps_the_settings_of_a_base_that_does_not_name_it(write, settings):
    write(settings(optimizer={"learning_rate": 1e-3, "warmup_steps": 7}), "parent.yaml")
    child = load_config(write({"base": "parent.yaml", "optimizer": {"name": "lamb"}}))
    assert (child.optimizer.name, child.optimizer.learning_rate, child.optimizer.warmup_steps) == ("lamb", 1e-3, 7)


def test_overrides_are_yaml_values_applied_in_order_to_settings_and_groups(write, settings):
    overrides = ["train.num_steps=12", "train.xla=true", "train.num_steps=15", "optimizer.learning_rate=2e-4"]
    config = load_config(write(settings()), [*overrides, "train={batch_size: 6}", "masking.masked_fraction=0.4"])
    assert (config.train.num_steps, config.train.xla, config.optimizer.learning_rate) == (15, True, 2e-4)
    assert (config.train.batch_size, config.masking.masked_fraction) == (6, 0.4)


# (override, what the message names); after these the nearest name in its own group, then of any group, then all names.
@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("train.num_steps", "'train.num_steps'"),
        ("=3", "'=3'"),
        ("train.num_steps.more=3", "num_steps is a value"),
        ("train.num_steps=[", "YAML"),
        ("train.batchsize=3", "train.batchsize is not a setting; did you mean batch_size?"),
        ("trian.num_steps=3", "did you mean train?"),
        (
            "objective.generator.sizefraction=0.3",
            "objective.generator.sizefraction is not a setting; did you mean size_",
        ),
        ("train.learningrate=1", "did you mean optimizer.learning_rate?"),
        ("learning_rate=1", "did you mean optimizer.learning_rate?"),
        ("data.size_fraction=1", "did you mean objective.generator.size_fraction?"),
        ("evaluation.zzz=3", "evaluation.zzz is not a setting; there are: as_masked_lm, batch_size, best_metric, "),
        ("objective={name: bert_mlm, temperature: 0.5}", "objective.temperature is not a setting"),
        ("train.num_steps=many", "train.num_steps is 'many'"),
        ("train.num_steps=0", "train.num_steps is 0"),
        ("train.batch_size=2.5", "train.batch_size is 2.5"),
        ("encoder.hidden_dropout=1.0", "encoder.hidden_dropout is 1.0"),
        ("optimizer.name=sgd", "optimizer.name is 'sgd'"),
        ("data=", "data is None"),
        ("data.max_seq_length=513", "data.max_seq_length 513"),
        ("encoder.num_heads=3", "num_heads 3"),
        ("objective.generator.num_heads=3", "objective.generator: hidden_size 8"),
        ("objective.generator.layers_fraction=0.1", "objective.generator.num_layers is 0"),
        ("objective.generator.embedding_size=11", "embedding_size is 11"),
        ("masking={mask_token_fraction: 0.8, random_token_fraction: 0.3}", "mask_token_fraction 0.8"),
    ],
)
def test_an_override_with_a_mistake_is_refused_by_its_place(write, settings, refusal, override, named):
    path = write(settings())
    line = refusal(path, override)
    assert named in line
    assert line.startswith(("--set", f"config {path} as changed by --set: "))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"base": "run.yaml"}, "leads back to itself"),
        ({"base": 3}, "base is 3"),
        ({"base": "nowhere.yaml"}, "nowhere.yaml"),
        ("train:\n  num_steps: 3\n  num_steps: 4\n", "the key 'num_steps' is given twice"),
        ("", "expected a mapping"),
        ("train: [3\n", "not readable as YAML"),
        ({"encoder": {}}, "data is missing"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(write, refusal, content, message):
    assert message in refusal(write(content))


def test_tying_all_weights_requires_equal_sizes(write, settings, refusal):
    path, equal = write(settings()), ["objective.tying=all", "objective.generator.size_fraction=1"]
    again = ["objective.generator.num_heads=2", "objective.generator.intermediate_size=20"]
    assert load_config(path, [*equal, *again]).objective.tying == "all"
    for name, message in (
        ("num_heads=4", "its num_heads is 4, the discriminator's 2;"),
        ("intermediate_size=14", "its intermediate_size is 14, the discriminator's 20;"),
        ("num_layers=2", "num_layers is 2"),
    ):
        assert message in refusal(path, *equal, f"objective.generator.{name}")


def test_untied_embeddings_may_differ_and_fractions_may_sum_to_one(write, settings):
    untied = load_config(write(settings()), ["objective.generator.embedding_size=11", "objective.tying=none"])
    assert untied.objective.generator.encoder(untied.encoder).embedding_size == 11
    masking = {"mask_token_fraction": 0.7, "random_token_fraction": 0.3}  # 1 only up to rounding
    assert load_config(write(settings(masking=masking))).masking.random_token_fraction == 0.3


def test_the_resolved_configuration_reads_back_equal_and_cannot_be_changed(write, settings):
    config = load_config(write(settings()), ["masking.selection=with_replacement", "evaluation.batch_size=3"])
    assert load_config(write(config_to_yaml(config), "resolved.yaml")) == config
    with pytest.raises(ValueError, match="frozen"):
        config.train.num_steps = 9


@pytest.mark.parametrize(
    ("length", "fraction", "slots"),
    [(128, 0.15, 19), (512, 0.15, 79), (512, 0.25, 130), (128, 0.25, 32), (9, 0.15, 1), (300, 1.0, 300)],
)
def test_slots_for_masked_positions(settings, length, fraction, slots):
    data = {"max_seq_length": length}
    assert parse_config(settings(data=data, masking={"masked_fraction": fraction}), "test").max_predictions == slots


def test_a_configuration_is_read_from_a_filesystem_of_tensorflow():
    tf.io.gfile.makedirs("ram://configs")
    base = (CONFIGS / "small.yaml").read_text(encoding="utf-8")
    for name, text in {"base.yaml": base, "run.yaml": "base: base.yaml\ntrain: {seed: 9}\n"}.items():
        with tf.io.gfile.GFile(f"ram://configs/{name}", "w") as stream:
            stream.write(text)
    assert load_config("ram://configs/run.yaml") == load_config(CONFIGS / "small.yaml", ["train.seed=9"])
    with pytest.raises(UserError, match="config ram://configs/absent.yaml"):
        load_config("ram://configs/absent.yaml")
