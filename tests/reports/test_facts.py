"""What a run's directory knows of its weights: data, cost, evaluation, scores of fine-tuning."""

import json

import pytest

from electra_tf.config.errors import UserError
from electra_tf.config.loader import config_to_yaml
from electra_tf.flops.budget import RunCost
from electra_tf.reports.facts import run_facts
from electra_tf.tasks.finetune.config import resolve

HELD_OUT = {4: {"masked_lm_accuracy": 0.1, "auc": None}, 8: {"masked_lm_accuracy": 0.2}}
SUMMARY = {
    "task": "rte",
    "primary_metric": "accuracy",
    "statistics": {"accuracy": {"median": 0.6, "sigma": 0.05, "n": 3}, "loss": {"median": 0.7, "sigma": 0.0, "n": 3}},
}


def test_a_pretraining_run_knows_its_cost_and_its_last_evaluation_at_a_step(write_run, tiny_config):
    directory = write_run("run", HELD_OUT)
    (directory / "data.json").write_text('{"data": ["abc", "def"]}')
    (directory / "warm_start.json").write_text('{"init_from": "runs/other"}')
    spent = RunCost(tiny_config()).spent(6)
    assert run_facts(directory, 6) == {
        "data": ["abc", "def"],
        "init_from": "runs/other",
        "flops": {"paper": float(spent.paper), "hardware": float(spent.hardware.total)},
        "evaluation": {"step": 4, "masked_lm_accuracy": 0.1},
    }


def test_scores_of_a_step_come_with_their_seeds(write_run):
    directory = write_run("run", HELD_OUT)
    rows = [{"step": step, "median": 0.5, "scores": {"0": 0.25, "1": 0.5, "2": 0.75}} for step in (4, 8)]
    content = {"task": "rte", "metric": "accuracy", "output_dir": str(directory / "gone"), "results": rows}
    (directory / "finetuning_rte.json").write_text(json.dumps(content))
    score = {"task": "rte", "metric": "accuracy", "median": 0.5, "sigma": 0.25, "n": 3}
    assert run_facts(directory, 8)["scores"] == [score]
    assert "scores" not in run_facts(directory, 6)


def test_of_several_tasks_each_has_its_own_score(write_run, tmp_path):
    directory, output_dir = write_run("run", HELD_OUT), tmp_path / "ft"
    (output_dir / "step_8").mkdir(parents=True)
    tasks = [SUMMARY, {**SUMMARY, "task": "cola"}]
    (output_dir / "step_8" / "summary.json").write_text(json.dumps({"tasks": tasks}))
    rows = [{"step": 8, "median": 0.5, "scores": {"0": 0.5}}]
    content = {"task": "glue", "metric": "mean", "output_dir": str(output_dir), "results": rows}
    (directory / "finetuning_glue.json").write_text(json.dumps(content))
    assert [score["task"] for score in run_facts(directory, 8)["scores"]] == ["rte", "cola"]


def test_a_damaged_file_of_scores_is_named(write_run):
    directory = write_run("run", HELD_OUT)
    (directory / "finetuning_rte.json").write_text('{"task": "rte"}')
    with pytest.raises(UserError, match=r"finetuning_rte\.json is not what run_finetuning\.py --milestones writes"):
        run_facts(directory, 8)


def test_a_seed_of_fine_tuning_knows_where_it_began_and_what_all_seeds_score(tmp_path, tiny_config):
    sizes = {"num_epochs": 2, "max_seq_length": 13, "num_rows": 9}
    task = {"kind": "classification", "labels": ["a", "b"]}
    encoder = tiny_config().encoder
    config = resolve({}, "a test", name="rte", task=task, encoder=encoder, init_from="runs/tiny", **sizes)
    seed = tmp_path / "seed_0"
    seed.mkdir()
    (seed / "config.yaml").write_text(config_to_yaml(config))
    (seed / "metrics.jsonl").write_text('{"step": 2, "split": "held_out", "accuracy": 0.5}\n')
    (tmp_path / "summary.json").write_text(json.dumps(SUMMARY))
    assert run_facts(seed, 2) == {
        "init_from": "runs/tiny",
        "evaluation": {"step": 2, "accuracy": 0.5},
        "scores": [{"task": "rte", "metric": "accuracy", "median": 0.6, "sigma": 0.05, "n": 3}],
    }


@pytest.mark.parametrize(
    "content", ['{"tasks": 5}', '{"total": 3}', '{"tasks": [7]}', '{"task": "a", "statistics": []}']
)
def test_a_summary_of_another_program_beside_a_seed_is_named(tmp_path, tiny_config, content):
    sizes = {"num_epochs": 2, "max_seq_length": 13, "num_rows": 9, "init_from": None, "encoder": tiny_config().encoder}
    config = resolve({}, "a test", name="rte", task={"kind": "tagging", "labels": ["a", "b"]}, **sizes)
    (tmp_path / "seed_0").mkdir()
    (tmp_path / "seed_0/config.yaml").write_text(config_to_yaml(config))
    (tmp_path / "summary.json").write_text(content)
    with pytest.raises(UserError, match=r"summary\.json is not what run_finetuning\.py writes; move it away, or give"):
        run_facts(tmp_path / "seed_0", 2)
