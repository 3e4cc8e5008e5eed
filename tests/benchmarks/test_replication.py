"""The replication: what it plans, what it leaves alone, and the page it writes of runs that are there."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from benchmarks import replication
from benchmarks.replication import PAPER_SCORES, equal_flops_steps, plan
from electra_tf.config.errors import UserError
from electra_tf.config.loader import config_to_yaml
from electra_tf.flops.budget import RunCost


@pytest.fixture
def finish(monkeypatch):
    """Stands for the processes: writes what they would leave behind, and keeps their commands."""
    commands, scores = [], {}

    def call(command: list[str]) -> None:
        commands.append(command)
        run = next(run for run in plans if any(str(run.directory) in part for part in command))
        run.directory.mkdir(parents=True, exist_ok=True)
        if "run_pretraining.py" in command[1]:
            (run.directory / "config.yaml").write_text(config_to_yaml(run.config()), encoding="utf-8")
            report = {"step": run.num_steps, "split": "held_out", "masked_lm_accuracy": 0.25}
            (run.directory / "metrics.jsonl").write_text(json.dumps(report) + "\n", encoding="utf-8")
            (run.directory / "checkpoints").mkdir()
            for suffix in ("index", "json"):
                (run.directory / "checkpoints" / f"step-{run.num_steps}.{suffix}").write_text("{}")
            return
        results = [
            {
                "step": step,
                "cola": {"matthews_correlation": 0.0, "strength": 1.0},
                # Untrained all are alike.
                "sst2": {
                    "accuracy": scores.get(run.objective, 0.5) + 0.04 * run.seed if step else 0.5,
                    "strength": 1.0,
                },
            }
            for step in (0, *run.milestones())
        ]
        (run.directory / "linear_probe.json").write_text(json.dumps({"results": results}), encoding="utf-8")

    plans: list = []
    monkeypatch.setattr(replication, "_call", call)

    def run(tmp_path, *flags: str, **of_objectives: float) -> list[list[str]]:
        plans[:] = plan(tmp_path / "runs", [0, 1], 40)
        commands.clear()
        scores.update(of_objectives)
        common = ["--data_dir=data", "--glue_dir=glue", f"--output_dir={tmp_path / 'runs'}", "--electra_steps=40"]
        assert replication.main([*common, "--seeds", "0", "1", *flags]) == 0
        return list(commands)

    return run


def test_every_objective_gets_the_steps_that_electras_flops_pay_for():
    steps = equal_flops_steps(1000)
    assert steps["electra"] == steps["electra_15"] == 1000
    # No discriminator over all tokens, but a vocabulary head: fewer with a generator, more without.
    assert steps["all_tokens_mlm"] < steps["replace_mlm"] < 1000 < steps["bert_mlm"]
    configs = [run.config() for run in plan(Path("runs"), [0], 1000)]
    spent = [float(RunCost(config).spent(config.train.num_steps).hardware.total) for config in configs]
    assert max(spent) < 1.005 * min(spent)


def test_the_runs_differ_in_objective_masking_rule_steps_and_seed_alone():
    runs = plan(Path("runs"), [3, 4], 1000)
    assert [(run.objective, run.seed) for run in runs] == [(name, seed) for seed in (3, 4) for name in PAPER_SCORES]
    reference = runs[0].config()
    for run in runs:
        config = run.config()
        assert config.objective.name == run.objective
        assert (config.train.seed, config.train.num_steps) == (run.seed, run.num_steps)
        assert (config.encoder, config.optimizer, config.data) == (
            reference.encoder,
            reference.optimizer,
            reference.data,
        )
        assert config.train.batch_size == reference.train.batch_size
        if run.objective != "bert_mlm":
            assert config.masking == reference.masking
            assert config.objective.generator == reference.objective.generator


def test_a_second_call_leaves_alone_what_is_finished_and_makes_up_for_what_is_not(finish, tmp_path, capsys):
    assert len(finish(tmp_path)) == 2 * 2 * len(PAPER_SCORES)
    assert finish(tmp_path) == []
    shutil.rmtree(tmp_path / "runs" / "electra-seed1" / "checkpoints")
    (tmp_path / "runs" / "bert_mlm-seed0" / "linear_probe.json").unlink()
    probing, training = finish(tmp_path)
    assert "benchmarks.linear_probe" in probing and "--step=0" in probing
    assert "run_pretraining.py" in training[1] and "train.seed=1" in training


def test_without_a_page_the_table_is_printed(finish, tmp_path, capsys):
    finish(tmp_path, electra=0.75)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [line.split(" | ")[0] for line in lines[2:]] == [f"| {name}" for name in PAPER_SCORES]
    assert "| 0.385 (0.375 to 0.395) |" in lines[2]


def test_the_page_says_how_many_pairs_are_ordered_as_in_the_paper(finish, tmp_path):
    """ELECTRA far above all, BERT above the three between: four pairs as in table 4, and three the other way round."""
    page = tmp_path / "replication.md"
    finish(tmp_path, f"--markdown={page}", electra=0.9, bert_mlm=0.7, electra_15=0.5, replace_mlm=0.5)
    text = page.read_text(encoding="utf-8")
    assert "Of the 9 pairs that table 4 orders, the medians of the probe's mean score order 4 as there" in text
    assert "for 4 of these the ranges over seeds do not overlap. 3 are the other way round" in text
    assert "| electra (85.0) | bert_mlm (82.2) | yes: 0.460 and 0.360 | apart |" in text
    assert "Of the 5 objectives, 2 end above every untrained encoder with all seeds.\n" in text
    assert "![Scores and held-out metrics over FLOPs](replication.png)" in text
    assert "--seeds 0 1" in text and "--electra_steps=40" in text
    assert (tmp_path / "replication.png").read_bytes()[:4] == b"\x89PNG"


def test_the_page_says_when_nothing_was_learnt_that_could_be_ordered(finish, tmp_path):
    page = tmp_path / "replication.md"
    finish(tmp_path, f"--markdown={page}")
    text = page.read_text(encoding="utf-8")
    assert "0 end above every untrained encoder with all seeds. So at this size the score tells nothing" in text


def test_a_process_that_fails_ends_it_in_one_line():
    with pytest.raises(UserError, match="ended with status 3"):
        replication._call([sys.executable, "-c", "raise SystemExit(3)"])


def test_too_few_steps_are_refused(tmp_path, capsys):
    flags = ["--data_dir=data", "--glue_dir=glue", f"--output_dir={tmp_path}", "--electra_steps=3"]
    assert replication.main(flags) == 2
    assert "--electra_steps=3: expected 4 or more" in capsys.readouterr().err
