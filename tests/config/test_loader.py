from pathlib import Path

import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.loader import config_to_yaml
from electra_tf.tasks.pretrain.config import load_config, parse_config

CONFIGS = Path(__file__).resolve().parents[2] / "configs" / "pretrain"


def test_a_child_changes_only_what_it_names(write, settings):
    write(settings(), "parent.yaml")
    child = load_config(write({"base": "parent.yaml", "train": {"batch_size": 6}}))
    assert (child.train.batch_size, child.train.num_steps, child.encoder.hidden_size) == (6, 8, 16)


def test_a_base_is_found_relative_to_the_file_that_names_it(write, settings, tmp_path):
    (tmp_path / "presets").mkdir()
    write(settings(), "presets/parent.yaml")
    write({"base": "parent.yaml", "train": {"num_steps": 9}}, "presets/child.yaml")
    grandchild = load_config(write({"base": "presets/child.yaml", "train": {"batch_size": 2}}))
    assert (grandchild.train.num_steps, grandchild.train.batch_size) == (9, 2)


def test_another_objective_replaces_the_settings_of_the_first(write, settings):
    write(settings(), "parent.yaml")
    child = load_config(write({"base": "parent.yaml", "objective": {"name": "bert_mlm"}}))
    assert child.objective.model_dump() == {"name": "bert_mlm", "masked_lm_loss_weight": 1.0}


def test_another_objective_keeps_what_the_first_says_about_the_generator(write, settings):
    objective = {"name": "electra", "generator": {"size_fraction": 0.5}, "replaced_token_loss_weight": 20.0}
    write(settings(objective={**objective, "tying": "none"}), "parent.yaml")
    child = load_config(write({"base": "parent.yaml", "objective": {"name": "replace_mlm", "temperature": 0.5}}))
    assert (child.objective.generator.size_fraction, child.objective.tying) == (0.5, "none")
    assert (child.objective.temperature, child.objective.encoder_masked_lm_loss_weight) == (0.5, 1.0)
    grandchild = load_config(write({"base": "run.yaml", "objective": {"name": "bert_mlm"}}, "grandchild.yaml"))
    assert grandchild.objective.model_dump() == {"name": "bert_mlm", "masked_lm_loss_weight": 1.0}


def test_an_objective_that_extends_the_first_keeps_all_its_settings(write, settings):
    path = write(settings(objective={"name": "electra", "generator": {"size_fraction": 0.5}, "temperature": 2.0}))
    overrides = ["objective.replaced_token_loss_weight=20", "objective.name=electra_15"]
    objective = load_config(path, overrides).objective
    assert (objective.generator.size_fraction, objective.temperature) == (0.5, 2.0)
    assert (objective.replaced_token_loss_weight, objective.loss_positions) == (20.0, "masked")


def test_the_same_objective_named_again_keeps_its_settings(write, settings):
    write(settings(), "parent.yaml")
    child = load_config(write({"base": "parent.yaml", "objective": {"name": "electra", "temperature": 0.5}}))
    assert (child.objective.generator.size_fraction, child.objective.temperature) == (0.5, 0.5)


def test_naming_the_optimizer_keeps_the_settings_of_a_base_that_does_not_name_it(write, settings):
    write(settings(optimizer={"learning_rate": 1e-3, "warmup_steps": 7}), "parent.yaml")
    child = load_config(write({"base": "parent.yaml", "optimizer": {"name": "lamb"}}))
    assert (child.optimizer.name, child.optimizer.learning_rate, child.optimizer.warmup_steps) == ("lamb", 1e-3, 7)


def test_a_base_that_leads_back_to_itself_is_refused(write, refusal):
    write({"base": "second.yaml"}, "first.yaml")
    assert "leads back to itself" in refusal(write({"base": "first.yaml"}, "second.yaml"))


def test_a_base_that_is_no_path_is_refused(write, refusal):
    assert "base is 3" in refusal(write({"base": 3}))


def test_a_missing_base_is_named(write, refusal, tmp_path):
    assert str(tmp_path / "nowhere.yaml") in refusal(write({"base": "nowhere.yaml"}))


def test_overrides_are_yaml_values_applied_in_order(write, settings):
    overrides = ["train.num_steps=12", "train.xla=true", "train.num_steps=15", "optimizer.learning_rate=2e-4"]
    config = load_config(write(settings()), overrides)
    assert (config.train.num_steps, config.train.xla, config.optimizer.learning_rate) == (15, True, 2e-4)


def test_an_override_reaches_a_group_that_the_file_does_not_name(write, settings):
    assert load_config(write(settings()), ["masking.masked_fraction=0.4"]).masking.masked_fraction == 0.4


def test_an_override_that_names_another_objective_replaces_the_first_whole(write, settings):
    config = load_config(write(settings()), ["objective.name=bert_mlm", "objective.masked_lm_loss_weight=0.75"])
    assert config.objective.model_dump() == {"name": "bert_mlm", "masked_lm_loss_weight": 0.75}


def test_settings_of_the_new_objective_may_come_before_its_name(write, settings):
    config = load_config(write(settings()), ["objective.masked_lm_loss_weight=0.75", "objective.name=bert_mlm"])
    assert config.objective.masked_lm_loss_weight == 0.75


def test_an_override_that_names_the_same_objective_keeps_its_settings(write, settings):
    config = load_config(write(settings()), ["objective.name=electra", "objective.temperature=0.5"])
    assert (config.objective.generator.size_fraction, config.objective.temperature) == (0.5, 0.5)


def test_an_override_of_a_group_keeps_what_an_earlier_one_set_in_it(write, settings):
    config = load_config(write(settings()), ["train.num_steps=9", "train={batch_size: 6}"])
    assert (config.train.num_steps, config.train.batch_size) == (9, 6)


@pytest.mark.parametrize("override", ["train.num_steps", "=3"])
def test_an_override_without_name_or_value_is_refused(write, settings, refusal, override):
    assert f"--set '{override}': expected a.b=value" in refusal(write(settings()), override)


def test_an_override_below_a_value_is_refused(write, settings, refusal):
    assert "num_steps is a value, not a group" in refusal(write(settings()), "train.num_steps.more=3")


def test_an_override_that_is_no_yaml_is_refused(write, settings, refusal):
    assert "not readable as YAML" in refusal(write(settings()), "train.num_steps=[3")


@pytest.mark.parametrize(
    ("override", "path", "nearest"),
    [
        ("train.batchsize=3", "train.batchsize", "batch_size"),
        ("trian.num_steps=3", "trian", "train"),
        ("objective.generator.sizefraction=0.3", "objective.generator.sizefraction", "size_fraction"),
        ("objective.temprature=0.3", "objective.temprature", "temperature"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_one(write, settings, refusal, override, path, nearest):
    message = refusal(write(settings()), override)
    assert f"{path} is not a setting; did you mean {nearest}?" in message


def test_an_unknown_key_like_no_other_lists_what_there_is(write, settings, refusal):
    message = refusal(write(settings()), "evaluation.zzz=3")
    assert "evaluation.zzz is not a setting; there are: as_masked_lm, batch_size, every_steps, max_batches" in message


def test_a_setting_of_another_objective_is_unknown(write, settings, refusal):
    path = write(settings(objective={"name": "bert_mlm"}))
    assert "objective.temperature is not a setting" in refusal(path, "objective.temperature=0.5")


@pytest.mark.parametrize(
    ("override", "found"),
    [
        ("train.num_steps=many", "train.num_steps is 'many'"),
        ("train.num_steps=0", "train.num_steps is 0"),
        ("train.batch_size=2.5", "train.batch_size is 2.5"),
        ("encoder.hidden_dropout=1.0", "encoder.hidden_dropout is 1.0"),
        ("masking.masked_fraction=0", "masking.masked_fraction is 0"),
        ("optimizer.name=sgd", "optimizer.name is 'sgd'"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(write, settings, refusal, override, found):
    assert found in refusal(write(settings()), override)


def test_a_missing_required_setting_is_named(write, settings, refusal):
    incomplete = settings()
    del incomplete["data"]
    assert "data is missing" in refusal(write(incomplete))


def test_a_key_given_twice_is_refused_with_its_line(write, refusal):
    message = refusal(write("train:\n  num_steps: 3\n  num_steps: 4\n"))
    assert "'num_steps' is given twice" in message
    assert "line 2" in message


@pytest.mark.parametrize("text", ["- a\n- b\n", "", "just words\n"])
def test_a_file_without_a_mapping_is_refused(write, refusal, text):
    assert "expected a mapping" in refusal(write(text))


def test_broken_yaml_is_refused(write, refusal):
    assert "not readable as YAML" in refusal(write("train: [3\n"))


def test_a_file_that_is_not_there_is_refused(refusal, tmp_path):
    assert str(tmp_path / "nothing.yaml") in refusal(tmp_path / "nothing.yaml")


def test_a_sequence_longer_than_the_position_table_is_refused(write, settings, refusal):
    message = refusal(write(settings()), "data.max_seq_length=513")
    assert "data.max_seq_length 513" in message
    assert "encoder.max_position_embeddings 512" in message


def test_heads_that_do_not_divide_the_hidden_size_are_refused(write, settings, refusal):
    assert "hidden_size 16 does not divide into num_heads 3" in refusal(write(settings()), "encoder.num_heads=3")


def test_generator_heads_that_do_not_divide_its_hidden_size_are_refused_in_one_line(write, settings, refusal):
    message = refusal(write(settings()), "objective.generator.num_heads=3")
    assert "objective.generator" in message
    assert "hidden_size 8 does not divide into num_heads 3" in message


def test_a_generator_that_rounds_to_nothing_is_refused_in_one_line(write, settings, refusal):
    message = refusal(write(settings()), "objective.generator.layers_fraction=0.1")
    assert "objective.generator" in message
    assert "num_layers" in message


def test_tying_everything_needs_equal_hidden_sizes(write, settings, refusal):
    message = refusal(write(settings()), "objective.tying=all")
    assert "its hidden_size is 8, the discriminator's 16" in message
    assert "size_fraction to 1.0" in message


def test_tying_everything_needs_equal_depth(write, settings, refusal):
    overrides = ["objective.tying=all", "objective.generator.size_fraction=1", "objective.generator.num_layers=2"]
    message = refusal(write(settings()), *overrides)
    assert "num_layers" in message
    assert "2" in message and "3" in message


def test_tying_everything_is_allowed_at_equal_sizes(write, settings):
    config = load_config(write(settings()), ["objective.tying=all", "objective.generator.size_fraction=1"])
    assert config.objective.tying == "all"


@pytest.mark.parametrize(("name", "value", "encoder"), [("num_heads", 4, 2), ("intermediate_size", 14, 20)])
def test_tying_everything_refuses_a_generator_given_another_size(write, settings, refusal, name, value, encoder):
    overrides = ["objective.tying=all", "objective.generator.size_fraction=1", f"objective.generator.{name}={value}"]
    message = refusal(write(settings()), *overrides)
    assert f"objective.generator.{name} is {value} and encoder.{name} {encoder};" in message


def test_tying_everything_allows_the_sizes_of_the_discriminator_given_again(write, settings):
    given = ["objective.generator.num_heads=2", "objective.generator.intermediate_size=20"]
    config = load_config(write(settings()), ["objective.tying=all", "objective.generator.size_fraction=1", *given])
    assert config.objective.tying == "all"


def test_shared_embeddings_of_two_sizes_are_refused(write, settings, refusal):
    message = refusal(write(settings()), "objective.generator.embedding_size=11")
    assert "embedding_size is 11 and encoder.embedding_size 12" in message


def test_separate_embeddings_may_have_two_sizes(write, settings):
    config = load_config(write(settings()), ["objective.generator.embedding_size=11", "objective.tying=none"])
    assert config.objective.generator.encoder(config.encoder).embedding_size == 11


def test_shares_of_masked_tokens_beyond_one_are_refused(write, settings, refusal):
    path = write(settings(masking={"mask_token_fraction": 0.8, "random_token_fraction": 0.3}))
    assert "sum to more than 1" in refusal(path)


def test_shares_that_sum_to_one_only_up_to_rounding_are_allowed(write, settings):
    path = write(settings(masking={"mask_token_fraction": 0.7, "random_token_fraction": 0.3}))
    assert load_config(path).masking.random_token_fraction == 0.3


def test_the_resolved_configuration_reads_back_equal(write, settings):
    config = load_config(write(settings()), ["masking.selection=with_replacement", "evaluation.batch_size=3"])
    assert load_config(write(config_to_yaml(config), "resolved.yaml")) == config


def test_a_configuration_cannot_be_changed_after_loading(settings):
    config = parse_config(settings(), source="test")
    with pytest.raises(ValueError, match="frozen"):
        config.train.num_steps = 9


def test_a_mistake_beside_the_file_is_not_blamed_on_it(write, settings, refusal):
    path = write(settings())
    assert refusal(path, "train.num_stepss=3").startswith(f"config {path} as changed by --set: train.num_stepss is not")


@pytest.mark.parametrize(
    ("length", "fraction", "slots"),
    [(128, 0.15, 19), (512, 0.15, 79), (512, 0.25, 130), (128, 0.25, 32), (9, 0.15, 1), (300, 1.0, 300)],
)
def test_slots_for_masked_positions(settings, length, fraction, slots):
    config = parse_config(
        settings(data={"max_seq_length": length}, masking={"masked_fraction": fraction}), source="test"
    )
    assert config.max_predictions == slots


@pytest.mark.parametrize(
    "setting, meant",
    [
        ("train.learningrate", "optimizer.learning_rate"),
        ("learning_rate", "optimizer.learning_rate"),
        ("train.hidden_size", "encoder.hidden_size"),
        ("data.size_fraction", "objective.generator.size_fraction"),
        ("train.num_step", "num_steps"),
    ],
)
def test_a_setting_in_the_wrong_group_is_found_in_its_own(setting, meant):
    with pytest.raises(UserError, match=rf"{setting} is not a setting; did you mean {meant}\?"):
        load_config(CONFIGS / "small.yaml", [f"{setting}=1"])


def test_a_configuration_is_read_from_a_filesystem_of_tensorflow():
    tf.io.gfile.makedirs("ram://configs")
    base = (CONFIGS / "small.yaml").read_text(encoding="utf-8")
    for name, text in {"base.yaml": base, "run.yaml": "base: base.yaml\ntrain: {seed: 9}\n"}.items():
        with tf.io.gfile.GFile(f"ram://configs/{name}", "w") as stream:
            stream.write(text)
    assert load_config("ram://configs/run.yaml") == load_config(CONFIGS / "small.yaml", ["train.seed=9"])
    with pytest.raises(UserError, match="config ram://configs/absent.yaml"):
        load_config("ram://configs/absent.yaml")
