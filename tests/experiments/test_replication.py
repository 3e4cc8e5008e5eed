import json
import shutil
from types import SimpleNamespace

import pytest

from electra_tf import __version__
from electra_tf.config.loader import config_to_yaml
from electra_tf.flops.budget import RunCost
from experiments import processes
from experiments.processes import PROJECT
from experiments.replication import __main__ as replication
from experiments.replication import plan
from experiments.replication.ladder import Rung, read_rungs, report, slope
from tests.markdown import cells

TASKS = ("truecasing", "stsb", "squad_v1")


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
        run.status = replication.main([*paths, "--budget_steps=64", "--seeds", "3", "5", *flags])
        return list(names)

    monkeypatch.setattr(processes, "start", start)
    run.failing = failing
    return run


def write_run(run: plan.PlannedRun) -> None:
    """The files of a trained run: a report of half a second for each step, and an evaluation."""
    run.directory.mkdir(parents=True)
    (run.directory / "config.yaml").write_text(config_to_yaml(run.config), encoding="utf-8")
    cost, reports, before = RunCost(run.config), [], 0
    for step in range(1, run.num_steps + 1):
        examples = cost.spent(step).examples
        reports.append({"step": step, "split": "train", "examples_per_second": 2.0 * (examples - before)})
        before = examples
    reports.append({"step": run.num_steps, "split": "held_out", "mask_token_loss": 1.0 / 3.0, "unigram_loss": 6.5})
    (run.directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in reports))


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


def test_runs_are_scored_after_all_training_and_what_is_done_is_skipped(replicate, tmp_path):
    last = plan.equal_flops_steps(64)
    runs = {f"{arm}-seed{seed}": last[arm] for seed in (3, 5) for arm in last}
    scores = [f"{run}.{task}.{step}" for run, step in runs.items() for task in TASKS]
    assert replicate() == [*(f"{run}.train" for run in runs), *scores]
    assert replicate.status == 0 and replicate() == []
    shutil.rmtree(tmp_path / "ladder_electra-seed3" / "finetuned" / "stsb" / "step_64")
    assert replicate() == ["ladder_electra-seed3.stsb.64"]


def test_a_failed_run_is_not_scored_and_the_others_are(replicate, capsys):
    replicate.failing.add("ladder_electra-seed3.train")
    names = replicate()
    assert [name for name in names if name.startswith("ladder_electra-seed3")] == ["ladder_electra-seed3.train"]
    assert len(names) == 1 + 3 * 4 and replicate.status == 1
    printed = capsys.readouterr().err
    assert "ladder_electra-seed3.train failed: status 1, the loss is not finite\n" in printed
    assert printed.partition("\nnot done")[2].count("ladder_electra-seed3.") == 4


def test_a_record_has_all_results_of_a_run(replicate, tmp_path):
    replicate("--only", "ladder_bert_mlm", "--seeds", "5")
    text, steps = (tmp_path / "records.jsonl").read_text(), plan.equal_flops_steps(64)["ladder_bert_mlm"]
    record = json.loads(text)
    assert record["name"] == "ladder_bert_mlm-seed5" and str(tmp_path) not in text
    assert (record["config"]["train"]["seed"], record["config"]["train"]["num_steps"]) == (5, steps)
    assert record["held_out"] == {str(steps): {"mask_token_loss": 0.333333, "unigram_loss": 6.5}}  # rounded
    assert {each["task"]: each["metric"] for each in record["finetuned"]} == dict.fromkeys(TASKS, "accuracy")
    (result,) = record["finetuned"][0]["results"]
    assert (result["step"], result["median"], result["scores"]) == (steps, 0.1, {"0": 0.0, "1": 0.1, "2": 0.2})
    assert record["notes"]["started"]["versions"]["electra_tf"] == __version__
    assert record["notes"]["training_seconds"] == pytest.approx(0.5 * steps)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [(["--probe_dir={}"], "train.jsonl"), (["--budget_steps=0"], "--budget_steps=0: expected 64 or more")],
)
def test_a_mistake_is_found_before_training(replicate, tmp_path, capsys, flags, expected):
    assert replicate(*(flag.format(tmp_path) for flag in flags)) == []
    assert replicate.status == 2
    assert expected in capsys.readouterr().err


def test_the_ladders_page_has_the_rows_of_the_records(capsys):
    report(None)
    rows = cells(capsys.readouterr().out.split("stsb")[0])[1:]
    assert len(rows) == len(read_rungs("truecasing")) >= 3
    page = [row[:6] for row in cells((PROJECT / "docs/notes/replication.md").read_text())]
    assert all(row in page for row in rows)


def test_the_slope_is_the_change_of_the_gap_per_tenfold_flops():
    # Gaps of 1 and 4 points a hundredfold apart; the runs of an arm differ by 2 in each rung.
    rungs = [Rung(10, 1e3, ([5.0, 7.0], [4.0, 6.0])), Rung(90, 1e5, ([9.0, 11.0], [5.0, 7.0]))]
    value, low, high = slope(rungs)
    assert value == pytest.approx(1.5)
    # Residuals of 1 in 8 runs and 4 coefficients: s = sqrt(2), its error sqrt(2) / sqrt(2), t of 4 at 95 % 2.776.
    assert (high - low) / 2 == pytest.approx(2.776, abs=1e-3)
