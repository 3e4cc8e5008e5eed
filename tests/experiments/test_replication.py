"""The replication: its plan, skipped and failed processes, and the records of its runs."""

import json
from types import SimpleNamespace

import pytest

from electra_tf import __version__
from electra_tf.config.loader import config_to_yaml
from electra_tf.flops.budget import RunCost
from electra_tf.reports.runs import RunResults, scores_by_step
from electra_tf.tasks.pretrain.config import parse_config
from experiments import processes
from experiments.replication import __main__ as replication
from experiments.replication import plan

SEEDS = (3, 5)


@pytest.fixture(scope="module")
def arms(tiny_config, tmp_path_factory):
    """A directory with the files of the arms: 6 steps of length 8 and 2 of length 10."""
    directory = tmp_path_factory.mktemp("arms")
    stages = [
        {"num_steps": 6, "max_seq_length": 8, "batch_size": 6},
        {"num_steps": 2, "max_seq_length": 10, "batch_size": 4},
    ]
    electra = tiny_config(stages=stages, train={"log_every_steps": 1})
    (directory / "ladder_electra.yaml").write_text(config_to_yaml(electra), encoding="utf-8")
    text = "base: ladder_electra.yaml\nobjective: {name: bert_mlm}\n"
    (directory / "ladder_bert_mlm.yaml").write_text(text, encoding="utf-8")
    return directory


@pytest.fixture
def replicate(arms, monkeypatch, tmp_path):
    """`replicate("--stages", "train")` returns the names of the processes that ran. They only write results.

    `replicate.failing` has the names of processes that fail.
    """
    monkeypatch.setattr(plan, "CONFIGS", arms)
    names, failing, probe = [], set(), tmp_path / "probe"
    probe.mkdir()
    for split in ("train", "dev"):
        (probe / f"{split}.jsonl").touch()

    def start(process: plan.RunProcess, cores) -> SimpleNamespace:
        names.append(process.name)
        process.log_file.parent.mkdir(parents=True, exist_ok=True)
        process.log_file.write_text("started\nthe loss is not finite; lower the rate\n")
        if names[-1] in failing:
            return SimpleNamespace(poll=lambda: 1, returncode=1)
        if process.name.endswith(".train"):
            write_run(process.run)
        else:
            write_scores(process)
        return SimpleNamespace(poll=lambda: 0, returncode=0)

    def run(*flags: str) -> list[str]:
        names.clear()
        paths = ["--data_dir=a", "--data_dir=b", f"--glue_dir={tmp_path}", f"--probe_dir={probe}"]
        paths.append(f"--output_dir={tmp_path}")
        run.status = replication.main([*paths, "--budget_steps=64", "--seeds", *map(str, SEEDS), *flags])
        return list(names)

    monkeypatch.setattr(processes, "start", start)
    run.failing = failing
    return run


def write_run(run: plan.PlannedRun) -> None:
    """The files of a trained run: 50 reports of half a second each, and an evaluation."""
    run.directory.mkdir(parents=True)
    (run.directory / "config.yaml").write_text(config_to_yaml(run.config), encoding="utf-8")
    cost, reports = RunCost(run.config), []
    for step in range(max(1, run.num_steps - 49), run.num_steps + 1):
        examples = cost.spent(step).examples - (cost.spent(step - 1).examples if reports else 0)
        reports.append({"step": step, "split": "train", "loss": 2.0, "examples_per_second": 2.0 * examples})
    reports.append({"step": run.num_steps, "split": "held_out", "mask_token_loss": 1.0 / 3.0, "unigram_loss": 6.5})
    (run.directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in reports))


def record(output_dir: plan.Path, name: str) -> RunResults:
    """The results in the record of a run."""
    lines = map(json.loads, (output_dir / "records.jsonl").read_text().splitlines())
    content = next(each for each in lines if each["name"] == name)
    metrics = {int(step): values for step, values in content["held_out"].items()}
    scores = {each["task"]: scores_by_step(each["results"]) for each in content["finetuned"]}
    config = parse_config(content["config"], name)
    return RunResults(name, config, metrics, content["data"], content["init_from"], scores)


def write_scores(process: plan.RunProcess) -> None:
    """The summary of a fine-tuning, in which seed n has the score n / 10."""
    flags = list(process.command)
    seeds = flags[flags.index("--seeds") + 1 :]
    directory = next(flag.removeprefix("--output_dir=") for flag in flags if flag.startswith("--output_dir="))
    results = [{"seed": int(seed), "metrics": {"accuracy": int(seed) / 10.0}} for seed in seeds]
    plan.Path(directory).mkdir(parents=True)
    summary = {"task": "any", "primary_metric": "accuracy", "seeds": results}
    (plan.Path(directory) / "summary.json").write_text(json.dumps(summary))


def test_bert_gets_as_many_steps_as_electras_flops_pay_for():
    assert plan.equal_flops_steps(90000) == {"ladder_electra": 90000, "ladder_bert_mlm": 98420}  # as registered
    steps = plan.equal_flops_steps(64)

    def spent(arm: str, num_steps: int) -> float:
        arguments = SimpleNamespace(output_dir=plan.Path("runs"), data_dirs=[])
        return RunCost(plan.PlannedRun(arm, 0, num_steps, arguments).config).spent(num_steps).flops("hardware")

    length = steps["ladder_bert_mlm"]
    budget = spent("ladder_electra", 64)
    assert spent("ladder_bert_mlm", length) <= budget < spent("ladder_bert_mlm", length + 1)


def test_runs_are_scored_after_all_training(replicate):
    names = replicate("--seeds", "3")
    bert_steps = plan.equal_flops_steps(64)["ladder_bert_mlm"]
    steps = {"ladder_electra-seed3": 64, "ladder_bert_mlm-seed3": bert_steps}
    expected = [f"{run}.train" for run in steps]
    expected += [f"{run}.{task}.{last}" for run, last in steps.items() for task in ("truecasing", "stsb", "squad_v1")]
    assert names == expected
    assert replicate.status == 0


def test_finished_processes_are_skipped_and_others_are_repeated(replicate, tmp_path):
    assert len(replicate()) == 2 * 2 * 4
    assert replicate() == []
    (tmp_path / "ladder_electra-seed3" / "finetuned" / "stsb" / "step_64" / "summary.json").unlink()
    (tmp_path / "ladder_electra-seed3" / "finetuned" / "stsb" / "step_64").rmdir()
    assert replicate() == ["ladder_electra-seed3.stsb.64"]


def test_a_failed_run_is_not_scored_and_the_others_are(replicate, capsys):
    replicate.failing.add("ladder_electra-seed3.train")
    names = replicate()
    assert [name for name in names if name.startswith("ladder_electra-seed3")] == ["ladder_electra-seed3.train"]
    assert len(names) == 1 + 3 * 4
    assert replicate.status == 1
    printed = capsys.readouterr().err
    assert "ladder_electra-seed3.train failed: status 1, the loss is not finite\n" in printed
    not_done = printed.partition("\nnot done")[2]
    assert not_done.count("ladder_electra-seed3.") == 4


def test_a_record_has_all_results_of_a_run(replicate, tmp_path):
    replicate("--only", "ladder_bert_mlm", "--seeds", "5")
    steps = plan.equal_flops_steps(64)["ladder_bert_mlm"]
    run, file = record(tmp_path, "ladder_bert_mlm-seed5"), tmp_path / "records.jsonl"
    assert (run.config.train.seed, run.config.train.num_steps) == (5, steps)
    assert run.metrics == {steps: {"mask_token_loss": 0.333333, "unigram_loss": 6.5}}  # rounded
    assert run.scores["truecasing"] == {steps: (0.0, 0.1, 0.2)}
    notes = json.loads(file.read_text())["notes"]
    assert notes["started"]["versions"]["electra_tf"] == __version__
    assert notes["training_seconds"] == pytest.approx(0.5 * 49 + 0.5, abs=1e-6)
    assert [report["step"] for report in notes["training"]] == list(range(steps - 48, steps + 1, 2))
    assert str(tmp_path) not in file.read_text() and len(file.read_bytes()) < 60_000


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--probe_dir={}"], "train.jsonl"),
        (["--budget_steps=0"], "--budget_steps=0: expected 64 or more"),
    ],
)
def test_a_mistake_is_found_before_training(replicate, tmp_path, capsys, flags, expected):
    assert replicate(*(flag.format(tmp_path) for flag in flags)) == []
    assert replicate.status == 2
    assert expected in capsys.readouterr().err
