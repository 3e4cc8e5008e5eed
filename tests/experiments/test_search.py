import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from electra_tf.config.loader import config_to_yaml
from electra_tf.data.manifest import Manifest
from electra_tf.flops.budget import RunCost
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config
from experiments import processes, search
from tests.markdown import cells

RATES = "optimizer.learning_rate=1e-4,0.02"


@pytest.fixture(scope="module")
def toy(tiny_config, write_data, tmp_path_factory):
    """A directory with tiny.yaml and data of length 10; `budget` pays for three and a half steps of tiny.yaml."""
    directory = tmp_path_factory.mktemp("toy")
    config = tiny_config(train={"log_every_steps": 1, "save_every_steps": 2})
    (directory / "tiny.yaml").write_text(config_to_yaml(config), encoding="utf-8")
    write_data(directory / "data")
    return SimpleNamespace(directory=directory, budget=3.5 * float(RunCost(config).of_step(1).paper))


@pytest.fixture
def command(toy, tmp_path):
    """`command("--vary=...")`: the flags of a search in `tmp_path`/runs."""

    def build(*further: str) -> list[str]:
        flags = [f"--config={toy.directory / 'tiny.yaml'}", f"--data_dir={toy.directory / 'data'}"]
        return [*flags, f"--output_dir={tmp_path / 'runs'}", f"--flops_budget={toy.budget}", *further]

    return build


@pytest.fixture
def started(monkeypatch, toy):
    """The started processes. They only write results; at a learning rate of 9 they fail."""
    all_started = []

    def start(process: processes.Process, cores) -> SimpleNamespace:
        all_started.append(process)
        process.log_file.parent.mkdir(parents=True, exist_ok=True)
        if "--set=optimizer.learning_rate=9" in process.command:
            process.log_file.write_text("step 2\ntraining stopped: step 3: the loss is not finite; lower the rate\n")
            return SimpleNamespace(poll=lambda: 1, returncode=1)
        overrides = [flag.removeprefix("--set=") for flag in process.command if flag.startswith("--set=")]
        config = load_config(toy.directory / "tiny.yaml", overrides)
        write_run(process.log_file.with_suffix(""), config, replaced_token_loss=0.25)
        return SimpleNamespace(poll=lambda: 0, returncode=0)

    monkeypatch.setattr(processes, "start", start)
    return all_started


def write_run(directory: Path, config: PretrainingConfig, **metrics: float) -> None:
    """The files of a finished run that a search reads."""
    directory.mkdir(parents=True)
    (directory / "config.yaml").write_text(config_to_yaml(config), encoding="utf-8")
    report = {"step": config.train.num_steps, "split": "held_out", **metrics}
    (directory / "metrics.jsonl").write_text(json.dumps(report) + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "values"),
    [("a.b=1e-4, 5e-4", ("1e-4", "5e-4")), ("a.b={b: 1, c: {d: 2}},null,[3]", ("{b: 1, c: {d: 2}}", "null", "[3]"))],
)
def test_values_are_split_at_commas_outside_of_brackets(text, values):
    assert search.values_of(text) == ("a.b", values)


def test_a_setting_is_named_by_the_last_part_of_its_path_unless_it_is_ambiguous():
    keys = ("encoder.num_heads", "objective.generator.num_heads", "optimizer.learning_rate", "encoder")
    assert search.name_of(keys, ("2", "1", "1e-4", "{hidden_size: 128, num_layers: 3}")) == (
        "encoder.num_heads=2,objective.generator.num_heads=1,learning_rate=1e-4,encoder=hidden_size_128_num_layers_3"
    )


def test_every_combination_is_a_run_with_as_many_steps_as_the_budget_pays_for(command, started, capsys):
    vary = [f"--vary={RATES}", "--vary=train.batch_size=4,2"]
    assert search.main(command(*vary, "--seeds", "3", "5", "3")) == 0
    combinations = [f"learning_rate={rate},batch_size={size}" for rate in ("1e-4", "0.02") for size in "42"]
    assert [process.name for process in started] == [f"{each}-seed{seed}" for seed in (3, 5) for each in combinations]
    rows = cells(capsys.readouterr().out)[1:]
    steps = {"4": "3", "2": "7"}  # 3.5 steps of 4 examples
    assert [row[:3] for row in rows] == [[each, "3, 5", steps[each[-1]]] for each in combinations]


def test_a_finished_run_is_skipped_and_an_unfinished_one_is_started_again(command, started, tmp_path, capsys):
    flags = command(f"--vary={RATES}")
    assert search.main(flags) == 0
    table = capsys.readouterr().out
    assert search.main(flags) == 0
    assert len(started) == 2 and capsys.readouterr().out == table
    shutil.rmtree(tmp_path / "runs" / "learning_rate=1e-4-seed0")
    assert search.main(flags) == 0
    assert [process.name for process in started[2:]] == ["learning_rate=1e-4-seed0"]
    assert search.main([*flags, "--set=optimizer.beta_1=0.5"]) == 2
    assert "optimizer.beta_1" in capsys.readouterr().err and len(started) == 3


def test_a_failed_run_is_noted_and_the_others_continue(command, started, capsys):
    assert search.main(command("--vary=optimizer.learning_rate=9,1e-4")) == 1
    captured = capsys.readouterr()
    failure = "learning_rate=9-seed0 failed: status 1, training stopped: step 3: the loss is not finite\n"
    assert captured.out.startswith("| run ") and captured.out.endswith(f"\n\n- {failure}")
    assert captured.out.count("| learning_rate=") == 1
    assert failure in captured.err and "learning_rate=1e-4-seed0 done\n" in captured.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--vary=optimizer.learning_rate=1e-4,fast"], "'fast'"),
        (["--vary=data.max_seq_length=10,12"], "max_seq_length=12 "),
        ([f"--vary={RATES}", "--set=train.num_steps=5"], "--flops_budget"),
        ([f"--vary={RATES}", "--flops_budget=1"], "--flops_budget=1 "),
        ([f"--vary={RATES}", "--data_dir={without_held_out}"], "held-out"),
        ([f"--vary={RATES}", "--jobs=0"], "--jobs=0"),
    ],
)
def test_a_mistake_is_found_before_the_first_run(command, started, write_data, tmp_path, capsys, flags, message):
    data = write_data(tmp_path / "without_held_out", held_out=())
    assert search.main(command(*(flag.format(without_held_out=data) for flag in flags))) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert started == []


def test_a_run_reads_the_data_that_was_built_for_its_length(command, started, write_data, tmp_path):
    longer = write_data(tmp_path / "longer")
    manifest = Manifest.load(longer).model_copy(update={"max_seq_length": 12})
    (longer / "manifest.json").write_text(manifest.to_json(), encoding="utf-8")
    assert search.main(command("--vary=data.max_seq_length=12,10", f"--data_dir={longer}")) == 0
    data_dirs = [flag for run in started for flag in run.command if flag.startswith("--data_dir=")]
    assert [flag.rpartition("/")[2] for flag in data_dirs] == ["longer", "data"]


@pytest.mark.parametrize(
    ("metric", "order"),
    [
        (None, ["a=1", "a=2", "a=3"]),
        ("replaced_token_loss", ["a=3", "a=1", "a=2"]),
        ("replaced_token_auc", ["a=2", "a=1", "a=3"]),
    ],
)
def test_rows_are_medians_with_the_lowest_loss_or_the_highest_other_metric_first(tiny_config, tmp_path, metric, order):
    results = [("a=1", 0, 0.2, 0.5), ("a=2", 0, 0.3, 0.8), ("a=1", 3, 0.3, 0.6), ("a=3", 0, 0.1, None)]
    for name, seed, loss, auc in results:
        metrics = {"replaced_token_loss": loss, "replaced_token_auc": auc}
        write_run(tmp_path / f"{name}-seed{seed}", tiny_config(train={"seed": seed}), **metrics)
    directories = [tmp_path / f"{name}-seed{seed}" for name, seed, *_ in results]
    rows = {name: row for name, *row in cells(search.results_markdown(directories, {}, metric))[1:]}
    assert list(rows) == order
    assert rows["a=1"][0] == "0, 3" and "0.250 (0.200 to 0.300)" in rows["a=1"]


@pytest.mark.slow
def test_real_runs_finish(command, tmp_path, capsys):
    assert search.main(command("--vary=optimizer.learning_rate=1e-3,0.02", "--jobs=1")) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("2 processes to run\n1/2 after ")
    rows = cells(captured.out)[1:]
    assert [row[:3] for row in rows] == [["learning_rate=1e-3", "0", "3"], ["learning_rate=0.02", "0", "3"]]
    checkpoints = tmp_path / "runs" / "learning_rate=0.02-seed0" / "checkpoints"
    assert [file.name for file in checkpoints.glob("*.index")] == ["step-3.index"]
