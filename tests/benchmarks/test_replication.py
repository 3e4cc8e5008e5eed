"""The replication: its plan, what it skips, its results; and the linear probe of a run of two steps."""

import json
import shutil
from pathlib import Path

import pytest
import tensorflow as tf

from benchmarks import linear_probe
from benchmarks.linear_probe import ProbedRun, sentence_features
from benchmarks.replication import __main__ as replication
from benchmarks.replication.plan import PAPER_SCORES, equal_flops_steps, plan
from electra_tf.cli import run_pretraining
from electra_tf.config.loader import config_to_yaml
from electra_tf.flops.budget import RunCost

pytestmark = pytest.mark.slow


@pytest.fixture
def replicate(monkeypatch, tmp_path):
    """`replicate(electra=0.9)`: runs the command with processes that only write results; returns their commands."""
    commands, scores = [], {}
    runs = plan(tmp_path / "runs", [0, 1], 40)

    def call(command: list[str]) -> None:
        commands.append(command)
        run = next(run for run in runs if any(str(run.directory) in part for part in command))
        if "run_pretraining.py" in command[1]:
            (run.directory / "checkpoints").mkdir(parents=True)
            (run.directory / "config.yaml").write_text(config_to_yaml(run.config()), encoding="utf-8")
            report = {"step": run.num_steps, "split": "held_out", "masked_lm_accuracy": 0.25}
            (run.directory / "metrics.jsonl").write_text(json.dumps(report) + "\n", encoding="utf-8")
            for suffix in ("index", "json"):
                (run.directory / "checkpoints" / f"step-{run.num_steps}.{suffix}").write_text("{}")
            return
        accuracy = scores.get(run.objective, 0.5) + 0.04 * run.seed
        results = [
            {
                "step": step,
                "cola": {"matthews_correlation": 0.0, "strength": 1.0},
                "sst2": {"accuracy": accuracy if step else 0.5, "strength": 1.0},
            }
            for step in run.probed_steps()
        ]
        run.probe_file.write_text(json.dumps({"results": results}), encoding="utf-8")

    monkeypatch.setattr(replication, "_call", call)

    def build(**of_objectives: float) -> list[list[str]]:
        commands.clear()
        scores.update(of_objectives)
        flags = ["--data_dir=data", "--glue_dir=glue", f"--output_dir={tmp_path / 'runs'}", "--electra_steps=40"]
        assert replication.main([*flags, "--seeds", "0", "1", f"--markdown={tmp_path / 'results.md'}"]) == 0
        return list(commands)

    return build


def test_every_objective_gets_the_steps_that_electras_flops_allow():
    steps = equal_flops_steps(1000)
    assert steps["electra"] == steps["electra_15"] == 1000
    assert steps["all_tokens_mlm"] < steps["replace_mlm"] < 1000 < steps["bert_mlm"]
    configs = [run.config() for run in plan(Path("runs"), [0], 1000)]
    spent = [float(RunCost(config).spent(config.train.num_steps).hardware.total) for config in configs]
    assert max(spent) < 1.005 * min(spent)


def test_a_second_call_skips_what_is_finished(replicate, tmp_path):
    assert len(replicate()) == 2 * 2 * len(PAPER_SCORES)
    assert replicate() == []
    shutil.rmtree(tmp_path / "runs" / "electra-seed1")
    (tmp_path / "runs" / "bert_mlm-seed0" / "linear_probe.json").unlink()
    probing, *others = replicate()
    assert "benchmarks.linear_probe" in probing and "--step=0" in probing
    assert "run_pretraining.py" in others[0][1] and "train.seed=1" in others[0]


def test_the_results_count_the_pairs_in_the_order_of_the_paper(replicate, tmp_path, capsys):
    """ELECTRA far above all, BERT above three: four pairs in the order of table 4, three in the opposite order."""
    replicate(electra=0.9, bert_mlm=0.7, electra_15=0.5, replace_mlm=0.5)
    text = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "Of the 9 pairs that table 4 orders, the medians of the probe's mean score have 4 in the same order" in text
    assert "4 of them with ranges apart. 3 are in the opposite order with ranges apart." in text
    assert "| electra (85.0) | bert_mlm (82.2) | yes: 0.460 and 0.360 | apart |" in text
    assert "Of the 5 objectives, 2 end above every untrained encoder with all seeds.\n" in text
    assert (tmp_path / "results.png").read_bytes()[:4] == b"\x89PNG"
    assert capsys.readouterr().out == text


@pytest.fixture(scope="module")
def run(tiny_config, write_data, tmp_path_factory):
    """A run of two steps, with a milestone after the first."""
    directory = tmp_path_factory.mktemp("run")
    config = tiny_config(train={"num_steps": 2, "milestone_fractions": (0.5,)})
    (directory / "tiny.yaml").write_text(config_to_yaml(config), encoding="utf-8")
    flags = [f"--config={directory / 'tiny.yaml'}", f"--data_dir={write_data(directory / 'data')}"]
    assert run_pretraining.main([*flags, f"--model_dir={directory / 'run'}"]) == 0
    return directory / "run"


def test_features_are_the_mean_of_the_real_tokens_in_the_order_of_the_sentences(run):
    probed = ProbedRun(str(run))
    objective = probed.load(1)
    eight = " ".join(["w5"] * 8)  # with [CLS] and [SEP] as long as the run's sequences
    found = sentence_features(objective, probed.tokenizer, ["w5 w6 w7 w8 w9", "w10", f"{eight} w6 w7"])
    for sentence, features in zip(["w5 w6 w7 w8 w9", "w10", eight], found, strict=True):
        ids = [2, *(int(word[1:]) for word in sentence.split()), 3]  # w5 has id 5
        inputs = {"input_ids": [ids], "input_mask": [[1] * len(ids)], "segment_ids": [[0] * len(ids)]}
        hidden = objective({name: tf.constant(rows) for name, rows in inputs.items()}).sequence_output
        assert features == pytest.approx(hidden.numpy()[0].mean(axis=0), abs=1e-5)


def test_a_run_is_probed_at_its_steps_with_the_same_result_again(run, tmp_path, capsys):
    words = [f"w{6 + index} {'w5 w5 w5' if index % 2 else 'w30 w31'}" for index in range(20)]
    cola = "".join(f"x\t{index % 2}\t\t{text}\n" for index, text in enumerate(words))
    sst2 = "sentence\tlabel\n" + "".join(f"{text}\t{index % 2}\n" for index, text in enumerate(words))
    for folder, text in (("CoLA", cola), ("SST-2", sst2)):
        (tmp_path / folder).mkdir()
        for split in ("train", "dev"):
            (tmp_path / folder / f"{split}.tsv").write_text(text, encoding="utf-8")
    flags = [f"--model_dir={run}", f"--glue_dir={tmp_path}", "--step=0", "--step=1", "--step=2"]
    assert linear_probe.main([*flags, f"--output={tmp_path / 'probe.json'}"]) == 0
    printed = capsys.readouterr().out
    results = json.loads(printed)["results"]
    assert [result["step"] for result in results] == [0, 1, 2]
    assert all(result["sst2"]["accuracy"] > 0.9 for result in results)  # the classes have different words
    assert (tmp_path / "probe.json").read_text() == printed
    assert linear_probe.main(flags) == 0
    assert capsys.readouterr().out == printed
