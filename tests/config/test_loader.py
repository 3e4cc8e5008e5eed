import json

import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.loader import presets, read_values
from electra_tf.tasks.pretrain.config import load_config
from tests.config.conftest import STAGES

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
        ({"temperature": 2.0}, {"name": "electra_15"}, {"temperature": 2.0, "loss_positions": "masked"}),
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


def test_a_child_replaces_the_learning_rate_multipliers_as_a_whole(write, settings):
    optimizer = {"learning_rate": 0.1, "learning_rate_multipliers": {"kernel": 0.5}}
    base = write(settings(optimizer=optimizer), "parent.yaml")
    overrides = [f'optimizer.learning_rate_multipliers={{"{name}": 0.1}}' for name in ("bias", "^e/")]
    assert load_config(base, overrides).optimizer.learning_rate_multipliers == {"^e/": 0.1}


@pytest.mark.parametrize(
    ("pattern", "message"),
    [("(", "matches no variable: missing"), ("a{99999999999}", "matches no variable: "), ("bias:0$", "have no ':0'")],
)
def test_a_pattern_that_can_match_no_name_is_an_error(load, refusal, pattern, message):
    assert message in refusal(f'optimizer.learning_rate_multipliers={{"{pattern}": 2.0}}')
    assert load('optimizer.learning_rate_multipliers={"layer_(?:0|1)/": 2.0}')  # no end of a name


def test_overrides_are_yaml_values_applied_in_order_to_settings_and_groups(load):
    overrides = ["train.num_steps=12", "train.xla=true", "train.num_steps=15", "optimizer.learning_rate=2e-4"]
    config = load(*overrides, "train={batch_size: 6}", "masking.masked_fraction=0.4")
    assert (config.train.num_steps, config.train.xla, config.optimizer.learning_rate) == (15, True, 2e-4)
    assert (config.train.batch_size, config.masking.masked_fraction) == (6, 0.4)


def test_an_override_reaches_into_a_list_of_the_file_or_of_an_earlier_override(load, write, settings):
    path = write(settings(stages=STAGES), "stages.yaml")
    overrides = ["stages.0.batch_size=63", "stages.1={max_seq_length: 9}", "data.max_seq_length=9"]
    assert [stage.model_dump(exclude_none=True) for stage in load_config(path, overrides).stages] == [
        {"num_steps": 5, "max_seq_length": 8, "batch_size": 63},
        {"num_steps": 3, "max_seq_length": 9, "batch_size": 4},
    ]
    assert [stage.batch_size for stage in load_config(path).stages] == [6, 4]
    given = f"stages={json.dumps(STAGES)}"
    assert [stage.batch_size for stage in load(given, "stages.0.batch_size=7").stages] == [7, 4]
    patterns = ["optimizer.exclude_from_weight_decay=[a, b]", "optimizer.exclude_from_weight_decay.1=c"]
    assert list(load(*patterns).optimizer.exclude_from_weight_decay) == ["a", "c"]


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("train.num_steps", "'train.num_steps'"),
        ("train.num_steps=[", "YAML"),
        # The nearest name in its own group, then of any group, then all names.
        ("train.batchsize=3", "train.batchsize is not a setting; did you mean train.batch_size?"),
        ("objective.generator.sizefraction=0.3", "did you mean objective.generator.size_fraction?"),
        ("train.learningrate=1", "did you mean optimizer.learning_rate?"),
        ("evaluation.zzz=3", "there are: evaluation.as_masked_lm, evaluation.batch_size, "),
        ("objective={name: bert_mlm, temperature: 0.5}", "objective.temperature is not a setting"),
        ("stages.2.batch_size=3", "stages is a list of the entries 0, 1, not a group of settings with '2'"),
        ("stages.0.batch_size.more=3", "stages.0.batch_size is a value"),
    ],
)
def test_the_error_for_a_wrong_override_names_the_place_or_the_nearest_setting(refusal, settings, override, named):
    line = refusal(override, content=settings(stages=STAGES))
    assert named in line and line.startswith((repr(override), "config "))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"base": "nowhere.yaml"}, "nowhere.yaml"),
        ("train:\n  num_steps: 3\n  num_steps: 4\n", "the key 'num_steps' is given twice"),
        ("", "expected a mapping"),
        ("train: [3\n", "invalid YAML"),
        ({"encoder": {}}, "data is missing"),
        (f"a: {'[' * 3000}", "invalid YAML: maximum recursion depth exceeded"),
        ("a: !!bool maybe", "invalid YAML: 'maybe'"),
        ("a: !!python/object/apply:os.mkdir [ran]", "invalid YAML: could not determine a constructor"),
        # Each line has nine times the values of the one before.
        (
            "a0: &a0 x\n" + "".join(f"a{i + 1}: &a{i + 1} [{f'*a{i},' * 9}]\n" for i in range(9)),
            "more than 100000 values",
        ),
        ("a0: &a0 {x: 1}\n" + "".join(f"a{i + 1}: &a{i + 1} {{<<: [{f'*a{i},' * 9}]}}\n" for i in range(9)), "values"),
    ],
)
def test_a_file_that_is_not_a_configuration_is_refused(refusal, content, message):
    line = refusal(content=content)
    assert message in line and line.startswith("config ") and ".yaml: " in line


def test_a_key_may_differ_from_that_of_a_merge(write):
    values, _ = read_values(write("b: {c: &a {<<: &b {x: 1, y: 2}, y: 3}}\na: {<<: *a, y: 4}"))
    assert values == {"b": {"c": {"x": 1, "y": 3}}, "a": {"x": 1, "y": 4}}


def test_the_error_for_a_long_value_is_short(refusal):
    line = refusal("train.num_steps='" + 5000 * "x" + "'")
    assert "train.num_steps is 'xxx" in line and len(line) < 400


def test_a_configuration_is_read_from_a_filesystem_of_tensorflow():
    tf.io.gfile.makedirs("ram://configs")
    base = presets()["small"].read_text(encoding="utf-8")
    for name, text in {"base.yaml": base, "run.yaml": "base: base.yaml\ntrain: {seed: 9}\n"}.items():
        with tf.io.gfile.GFile(f"ram://configs/{name}", "w") as stream:
            stream.write(text)
    assert load_config("ram://configs/run.yaml") == load_config("small", ["train.seed=9"])
    with pytest.raises(UserError, match="config ram://configs/absent.yaml"):
        load_config("ram://configs/absent.yaml")


def test_the_name_of_a_preset_is_never_a_file_and_a_path_never_a_preset(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small").write_text("base: small\ntrain: {seed: 9}\n", encoding="utf-8")
    assert load_config("small") == load_config(presets()["small"])
    assert [load_config(name).train.seed for name in ("small", "./small")] == [6, 9]
    assert load_config("ablations/generator_half").objective.generator.size_fraction == 0.5


def test_the_presets_of_fine_tuning_are_others():
    assert set(presets("finetune")) == {"authors", "huggingface_head"}
    assert read_values("authors", kind="finetune")[0]["optimizer"]["learning_rate"] == 1e-4
    with pytest.raises(UserError, match="smal: .*there are: authors, huggingface_head"):
        read_values("smal", kind="finetune")
