"""Phases of a training with inputs of their own."""

import pytest

from electra_tf.config.errors import UserError
from electra_tf.train.stages import evaluation_stage, open_stages, stages_of, training_stage


@pytest.fixture
def staged_config(tiny_config):
    stages = [
        {"num_steps": 3, "max_seq_length": 10, "batch_size": 6},
        {"num_steps": 5, "max_seq_length": 10, "batch_size": 4},
    ]
    return tiny_config(stages=stages)


@pytest.fixture
def opened(staged_config, write_data, tmp_path):
    data_dirs = [write_data(tmp_path / "first"), write_data(tmp_path / "second")]
    return open_stages(stages_of(staged_config), data_dirs)


def batch_ids(entry, first_step: int) -> list:
    import tensorflow as tf

    dataset = entry.training(first_step, tf.distribute.InputContext())
    return next(iter(dataset))["input_ids"].numpy().tolist()


def test_a_run_without_stages_is_one_with_its_own_settings(tiny_config):
    config = tiny_config(train={"seed": 7})
    (stage,) = stages_of(config)
    assert (stage.name, stage.first_step, stage.last_step, stage.seed) == ("", 0, 8, 7)
    assert stage.config == config


def test_stages_follow_each_other_with_their_own_sizes(staged_config):
    stages = stages_of(staged_config)
    assert [(stage.name, stage.first_step, stage.last_step) for stage in stages] == [
        ("stages.0", 0, 3),
        ("stages.1", 3, 8),
    ]
    assert [stage.batch_size for stage in stages] == [6, 4]
    assert [stage.config.data.max_seq_length for stage in stages] == [10, 10]


def test_the_last_step_of_a_stage_is_evaluated_on_its_own_data_and_trained_on_no_more(opened):
    assert [entry.stage.name for entry in (training_stage(opened, step) for step in (0, 2, 3, 8))] == [
        "stages.0",
        "stages.0",
        "stages.1",
        "stages.1",
    ]
    assert [entry.stage.name for entry in (evaluation_stage(opened, step) for step in (1, 3, 4, 8))] == [
        "stages.0",
        "stages.0",
        "stages.1",
        "stages.1",
    ]


def test_a_stage_begins_its_own_data_in_an_order_of_its_own(opened):
    first, second = opened
    # Equal data and sizes: only the stage tells the two apart.
    assert batch_ids(first, 0)[:4] != batch_ids(second, 3)
    assert batch_ids(second, 3) == batch_ids(second, 3)


def test_evaluation_takes_the_batch_of_the_stage_unless_one_is_set(tiny_config, staged_config):
    assert [stage.evaluation_batch_size for stage in stages_of(staged_config)] == [6, 4]
    fixed = staged_config.model_copy(
        update={"evaluation": staged_config.evaluation.model_copy(update={"batch_size": 2})}
    )
    assert [stage.evaluation_batch_size for stage in stages_of(fixed)] == [2, 2]


def test_a_data_set_for_each_stage_is_asked_for(staged_config, write_data, tmp_path):
    with pytest.raises(UserError, match="--data_dir is given 1 times, the run has 2 stages"):
        open_stages(stages_of(staged_config), [write_data(tmp_path / "only")])


def test_stages_of_two_vocabularies_are_refused(staged_config, write_data, tmp_path):
    data_dirs = [write_data(tmp_path / "first"), write_data(tmp_path / "second")]
    text = (data_dirs[1] / "vocab.txt").read_text().replace("w46", "other")
    (data_dirs[1] / "vocab.txt").write_text(text)
    with pytest.raises(UserError, match="vocab"):
        open_stages(stages_of(staged_config), data_dirs)


def test_a_batch_that_does_not_divide_among_the_replicas_is_refused(tiny_config, two_replicas):
    config = tiny_config(stages=[{"num_steps": 8, "max_seq_length": 10, "batch_size": 4}])
    stages_of(config)[0].require_divisible(two_replicas)
    config = tiny_config(train={"batch_size": 5}, stages=[{"num_steps": 8, "max_seq_length": 10, "batch_size": 5}])
    with pytest.raises(UserError, match=r"stages\.0\.batch_size is 5"):
        stages_of(config)[0].require_divisible(two_replicas)


def test_each_replica_must_have_whole_micro_batches(tiny_config, two_replicas):
    parts = {"gradient_accumulation_steps": 4}
    stages_of(tiny_config(train={"batch_size": 16, **parts}))[0].require_divisible(two_replicas)
    with pytest.raises(UserError, match=r"2 replicas with 4 micro-batches each; give --set train\.batch_size=8"):
        stages_of(tiny_config(train={"batch_size": 12, **parts}))[0].require_divisible(two_replicas)
