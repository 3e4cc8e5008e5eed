import dataclasses

import pytest

from electra_tf.config.errors import UserError
from electra_tf.reports.runs import Point, group_runs, read_run, read_runs

HELD_OUT = {8: {"masked_lm_accuracy": 0.1}}


def test_a_run_is_read_with_its_evaluations(write_run):
    held_out = {4: {"masked_lm_accuracy": 0.1, "replaced_token_precision": None}, 8: {"masked_lm_accuracy": 0.2}}
    run = read_run(write_run("run", held_out))
    assert run.metrics == {4: {"masked_lm_accuracy": 0.1}, 8: {"masked_lm_accuracy": 0.2}}
    assert (run.name, run.last_step) == ("run", 8)


def test_a_run_without_an_evaluation_is_skipped_with_a_warning_or_refused_if_it_is_the_only_one(write_run, caplog):
    young, other = write_run("young", {}), write_run("other", HELD_OUT)
    assert [run.name for run in read_runs([young, other])] == ["other"]
    assert caplog.messages == [f"{young} is skipped: it lacks an evaluation"]
    with pytest.raises(UserError, match="all runs lack an evaluation"):
        read_runs([young])


def test_runs_that_differ_only_in_their_seed_are_one_group(write_run):
    runs = [read_run(write_run(f"electra-seed{seed}", HELD_OUT, train={"seed": seed})) for seed in (3, 0, 5)]
    other = read_run(write_run("hot-0", HELD_OUT, objective={"temperature": 2.0}))
    assert [(group.label, group.seeds) for group in group_runs([*runs, other])] == [
        ("electra", [0, 3, 5]),
        ("hot", [0]),
    ]


@pytest.mark.parametrize(
    ("names", "label"),
    [
        (["electra_15-seed0", "electra_15-seed1"], "electra_15"),
        (["electra_0"], "electra"),
        (["base-a", "base-b"], "base"),
        (["0", "1"], "0"),
    ],
)
def test_a_label_omits_the_seed_at_the_end_of_the_names(write_run, names, label):
    runs = [read_run(write_run(name, HELD_OUT, train={"seed": seed})) for seed, name in enumerate(names)]
    assert [group.label for group in group_runs(runs)] == [label]


def test_a_group_has_median_and_range_at_steps_where_all_runs_have_a_value(write_run):
    values = {0: {4: 0.5, 8: 0.1}, 1: {4: 0.7, 8: 0.4}, 2: {8: 0.2}}
    runs = []
    for seed, by_step in values.items():
        held_out = {step: {"replaced_token_auc": value} for step, value in by_step.items()}
        runs.append(read_run(write_run(f"run-{seed}", held_out, train={"seed": seed})))
    (group,) = group_runs(runs)
    assert group.points("replaced_token_auc") == [Point(8, 0.2, 0.1, 0.4)]
    assert group.last("replaced_token_auc").median == 0.2
    assert group.last("masked_lm_accuracy") is None


@pytest.mark.parametrize(
    ("file", "contents"),
    [
        ("data.json", ('{"data": ["wikipedia"]}', '{"data": ["books"]}')),
        ("warm_start.json", ('{"init_from": "/base", "report": []}', None)),
    ],
)
def test_runs_on_other_data_or_from_other_weights_are_separate_groups(write_run, file, contents):
    runs = []
    for seed, content in enumerate(contents):
        directory = write_run(f"electra-{seed}", HELD_OUT, train={"seed": seed})
        if content is not None:
            (directory / file).write_text(content, encoding="utf-8")
        runs.append(read_run(directory))
    assert [group.label for group in group_runs(runs)] == ["electra (electra-0)", "electra (electra-1)"]


def test_groups_with_equal_labels_and_names_are_numbered(write_run):
    runs = [read_run(write_run(f"run{steps}", HELD_OUT, train={"num_steps": steps})) for steps in (8, 16)]
    labels = [group.label for group in group_runs(dataclasses.replace(run, name="run") for run in runs)]
    assert labels == ["run (run) (1)", "run (run) (2)"]


def test_settings_that_a_continued_run_may_change_do_not_separate_seeds(write_run):
    changes = {"train": {"seed": 1, "peak_flops": 1e12, "keep_checkpoints": 1}, "evaluation": {"every_steps": 4}}
    (group,) = group_runs([read_run(write_run("run-0", HELD_OUT)), read_run(write_run("run-1", HELD_OUT, **changes))])
    assert group.seeds == [0, 1]


def test_a_run_given_twice_is_refused(write_run):
    run = read_run(write_run("run", HELD_OUT))
    with pytest.raises(UserError, match="run, run have the same configuration and seed"):
        group_runs([run, run])
