"""Seeds: independent of each other, resumed after a kill, never repeated; results of the kept weights; all of GLUE."""

import json
import logging
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import run_finetuning
from electra_tf.finetuning import seeds
from electra_tf.finetuning.seeds import Job, results_of, run_seeds
from electra_tf.tasks.base import Evaluation
from electra_tf.tasks.finetune.benchmarks import GLUE_TASKS, PAPER_TASKS
from electra_tf.tasks.finetune.data import Predictions
from electra_tf.tasks.finetune.kinds import build_finetuning_task
from electra_tf.text.vocabulary import StoredTokenizer, TextSettings
from electra_tf.train import loop
from electra_tf.train.checkpoints import steps_in
from electra_tf.train.device_loop import DeviceLoop
from electra_tf.train.run_directory import RATES, RunDirectory
from electra_tf.train.step import compile_task
from electra_tf.weights.names import encoder_variables
from electra_tf.weights.source import load_trained
from tests.markdown import cells
from tests.toy import VOCABULARY, toy_finetuning_config
from tests.train.runs import killed_at


def record_of(seed: Path) -> dict:
    """The result of a seed, its predictions and its metrics without what depends on the machine."""
    reports = map(json.loads, (seed / "metrics.jsonl").read_text().splitlines())
    return {
        "result": json.loads((seed / "result.json").read_text()),
        "predictions": (seed / "predictions_validation.tsv").read_text(),
        "metrics": [{name: value for name, value in report.items() if name not in RATES} for report in reports],
    }


@pytest.mark.parametrize(("xla", "lengths"), [(False, (8, 12, 16, 20)), (True, (8, 16, 20))])
def test_a_step_that_is_compiled_as_a_whole_meets_fewer_lengths(job_in, tmp_path, xla, lengths):
    job = job_in(tmp_path, data={"max_seq_length": 20}, train={"xla": xla})
    assert job.stage(0, job.data).lengths == lengths


def test_a_seeds_files_have_each_evaluation_the_scores_of_each_class_and_a_row_for_each_example(three_seeds):
    directory, traces = three_seeds
    assert traces == ["training_terms", "example_outputs"]  # one step is traced for all seeds
    records = [record_of(directory / f"seed_{seed}") for seed in (0, 1, 2)]
    assert [(record["result"]["seed"], record["result"]["step"]) for record in records] == [(0, 6), (1, 6), (2, 6)]
    assert len({record["result"]["metrics"]["loss"] for record in records}) == 3
    assert steps_in(str(directory / "seed_2/checkpoints")) == [3, 6]  # --keep=all
    record = records[1]
    evaluations = [line for line in record["metrics"] if line["split"] == "held_out"]
    assert [line["step"] for line in evaluations] == [3, 6]  # every epoch; the last one is the result
    assert record["result"]["metrics"]["loss"] == evaluations[-1]["loss"]
    reports = record["result"]["reports"]
    assert list(reports) == ["validation"] and set(reports["validation"]) == {"classes", "confusion_matrix"}
    assert {name: row["support"] for name, row in reports["validation"]["classes"].items()} == {"even": 3, "odd": 3}
    header, *lines = (line.split("\t") for line in record["predictions"].splitlines())
    assert header == ["id", "label", "prediction", "probability_even", "probability_odd"]
    assert [line[:2] for line in lines] == [[str(n), "odd" if n % 2 else "even"] for n in range(6)]
    for _, _, prediction, even, odd in lines:
        assert float(even) + float(odd) == pytest.approx(1.0, abs=2e-6)
        assert prediction == ("even" if float(even) >= float(odd) else "odd")


@pytest.mark.slow
def test_seeds_killed_twice_and_trained_in_another_order_have_the_same_results(
    job_in, three_seeds, tmp_path, monkeypatch, caplog
):
    caplog.set_level(logging.INFO)
    with killed_at(loop._Training, "evaluate", 3, "before"):  # of seed 0, after its first epoch
        run_seeds(job_in(tmp_path), (1, 0, 2))
    done = (tmp_path / "seed_1/result.json").stat().st_mtime_ns
    assert not (tmp_path / "seed_0/result.json").exists()
    caplog.clear()
    with killed_at(Predictions, "files", 2, "before"):  # of seed 2, which is trained to its end
        run_seeds(job_in(tmp_path), (1, 0, 2))
    assert "continuing at step 3, steps 3 to 6 of 6" in caplog.text
    assert "classification, seed 1" not in caplog.messages
    assert steps_in(str(tmp_path / "seed_2/checkpoints")) == [6]
    monkeypatch.setattr(loop._Training, "begin_stage", None)  # nothing is trained any more
    run_seeds(job_in(tmp_path, keep="none"), (1, 0, 2))
    assert (tmp_path / "seed_1/result.json").stat().st_mtime_ns == done
    for seed in (0, 1, 2):
        assert record_of(tmp_path / f"seed_{seed}") == record_of(three_seeds[0] / f"seed_{seed}")
    for seed in (0, 1):
        ours, theirs = (
            tf.train.load_checkpoint(str(out / f"seed_{seed}/checkpoints/step-6")) for out in (tmp_path, three_seeds[0])
        )
        for name in ours.get_variable_to_shape_map():
            if not name.startswith(("_CHECK", "save_counter")):  # how often a process has saved
                assert np.array_equal(ours.get_tensor(name), theirs.get_tensor(name)), name
        assert steps_in(str(tmp_path / f"seed_{seed}/checkpoints")) == [6]  # as keep was `last`
    assert not (tmp_path / "seed_2/checkpoints").exists()


@pytest.mark.parametrize("untrained", [False, True])
def test_an_untrained_encoder_has_no_weights_of_its_source(job_in, tmp_path, untrained):
    job = job_in(tmp_path)
    job = replace(job, config=job.config.model_copy(update={"untrained": untrained}))
    loop = DeviceLoop(compile_task(build_finetuning_task(job.config)), job.strategy)
    assert seeds._reset(loop, job, 3).startswith("untrained: ") == untrained
    kernels = {name: each.numpy() for name, each in encoder_variables(loop.task.encoder).items() if "kernel" in name}
    same = [np.array_equal(kernel, job.pretrained.weights[name]) for name, kernel in kernels.items()]
    assert len(same) == 7 and same == [not untrained] * 7


def test_a_directory_with_other_settings_data_or_another_task_is_refused(job_in, three_seeds, refusal):
    directory, _ = three_seeds
    job, of_other_data = job_in(directory), job_in(directory, keep="all")
    of_other_data.data.data_hash = "another"
    for other, message in (
        (job_in(directory, optimizer={"learning_rate": 2e-2}), "has optimizer.learning_rate 0.01, this call has 0.02"),
        (replace(job, config=job.config.model_copy(update={"name": "rte"})), "has name classification, this call has"),
        (of_other_data, "was started with another data set"),
    ):
        found = refusal(run_seeds, other, (7,))
        assert f"seed_0 {message}" in found and "output_dir" in found
    assert not (directory / "seed_7").exists() and list(results_of(job)) == [0, 1, 2]


@pytest.fixture
def copied(three_seeds, tmp_path) -> None:
    """A copy of seed 1 of `three_seeds` in `tmp_path`."""
    shutil.copytree(three_seeds[0] / "seed_1", tmp_path / "seed_1")


@pytest.fixture
def tested_job(job_in, own_files, copied, tmp_path) -> Job:
    """A job in that copy, whose test file is the dev set, of which the scores are known."""
    return job_in(tmp_path, keep="all", data={"test_file": own_files["validation_file"]})


def test_a_finished_seed_is_scored_on_a_test_file_that_is_added_later(tested_job, three_seeds, tmp_path):
    run_seeds(tested_job, (1,))
    before, after = record_of(three_seeds[0] / "seed_1"), record_of(tmp_path / "seed_1")
    test, report = after["result"].pop("test"), after["result"]["reports"].pop("test")
    assert after == before
    metrics = pytest.approx(before["result"]["metrics"], rel=1e-6)
    assert test == {"file": tested_job.test.source, "data": tested_job.test.data_hash, "metrics": metrics}
    assert report == before["result"]["reports"]["validation"]
    lines = (tmp_path / "seed_1/predictions_test.tsv").read_text().splitlines(), before["predictions"].splitlines()
    ours, theirs = ([line.split("\t")[:3] for line in each] for each in lines)
    assert ours == theirs


def test_a_result_that_a_power_cut_has_left_is_written_anew(job_in, copied, tmp_path, caplog):
    before = record_of(tmp_path / "seed_1")
    (tmp_path / "seed_1/result.json").write_text('{"seed": 1, "st')
    run_seeds(job_in(tmp_path, keep="all"), (1,))
    assert record_of(tmp_path / "seed_1")["result"]["metrics"] == before["result"]["metrics"]
    assert any("seed_1/result.json is damaged" in message for message in caplog.messages)


def test_the_seeds_stay_with_their_test_file(tested_job, refusal, tmp_path):
    result = {"seed": 1, "step": 6, "metrics": {}, "test": {"file": "old.csv", "data": "a hash", "metrics": {}}}
    (tmp_path / "seed_1/result.json").write_text(json.dumps(result))
    message = refusal(run_seeds, tested_job, (1, 2))
    assert "seed_1/result.json has the scores of test_file=old.csv, but " in message
    assert tested_job.test.source in message
    assert "test_file=old.csv, but no test file" in refusal(run_seeds, replace(tested_job, test=None), (1, 2))
    assert not (tmp_path / "seed_2").exists()


def test_a_test_file_needs_the_checkpoint_of_a_finished_seeds_result(tested_job, refusal, tmp_path):
    for file in (tmp_path / "seed_1/checkpoints").glob("step-6*"):
        file.unlink()
    assert "seed_1 lacks the checkpoint of step 6" in refusal(run_seeds, tested_job, (1, 2))
    shutil.rmtree(tmp_path / "seed_1/checkpoints")
    assert "seed_1 is a run without a checkpoint" in refusal(run_seeds, tested_job, (1, 2))
    assert not (tmp_path / "seed_2").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keep", "folders", "scored"),
    [
        (None, {"best": [3]}, "best/step-3"),
        ("all", {"best": [3], "checkpoints": [3, 6]}, "best/step-3"),
        ("none", {}, None),
    ],
)
def test_a_best_metric_keeps_and_reports_the_best_epoch(job_in, own_files, tmp_path, keep, folders, scored):
    changes = {"train": {"num_epochs": 4}, "evaluation": {"best_metric": "matthews_correlation", "patience": 1}}
    changes["data"] = {"max_seq_length": 12, "test_file": own_files["validation_file"]}
    job = job_in(tmp_path, keep=keep, **changes, optimizer={"learning_rate": 1e-9})
    run_seeds(job, (0,))
    record = record_of(tmp_path / "seed_0")
    assert record["result"]["test"]["metrics"] == record["result"]["metrics"]
    # Nothing is learnt, so the second epoch is no better and ends the training; the first of equal epochs is the best.
    evaluations = [line for line in record["metrics"] if line["split"] == "held_out"]
    assert [line["step"] for line in evaluations] == [3, 6]
    assert record["result"]["step"] == 3
    assert record["result"]["metrics"]["loss"] == evaluations[0]["loss"] != evaluations[1]["loss"]
    found = {name: steps_in(str(tmp_path / "seed_0" / name)) for name in ("best", "checkpoints")}
    assert {name: steps for name, steps in found.items() if steps} == folders
    if scored is not None:
        assert load_trained(tmp_path / "seed_0").source == str(tmp_path / "seed_0" / scored)


def test_an_impossible_best_metric_is_refused_before_training(job_in, tmp_path, refusal):
    message = refusal(job_in, tmp_path, evaluation={"best_metric": "acuracy"})
    assert "best_metric=acuracy is not a metric; did you mean accuracy?" in message
    message = refusal(job_in, tmp_path, "last", evaluation={"best_metric": "accuracy"})
    assert "train.keep is last, but evaluation.best_metric" in message


def test_a_metric_without_a_value_is_null_in_json(job_in, tmp_path, monkeypatch):
    job = job_in(tmp_path)
    monkeypatch.setattr(Predictions, "metrics", {"accuracy": math.nan, "loss": 0.5})
    monkeypatch.setattr(seeds, "train", lambda *_, **__: Evaluation({}))
    run_seeds(job, (0,))
    text = (tmp_path / "seed_0/result.json").read_text()
    assert "NaN" not in text and json.loads(text)["metrics"] == {"accuracy": None, "loss": 0.5}


def test_an_unfinished_seed_has_the_null_threshold_of_its_last_evaluation(tmp_path, caplog):
    task = {"kind": "question_answering", "version_2": True, "head_size": 6}
    run = RunDirectory(tmp_path)
    run.write_tokenizer(StoredTokenizer(VOCABULARY, TextSettings()))
    tf.train.Checkpoint(task=build_finetuning_task(toy_finetuning_config(task))).write(f"{tmp_path}/checkpoints/step-5")
    for steps, given, threshold in (((2, 4, 8), None, 4.5), ((8,), None, None), ((), 0.25, 0.25)):
        run.write_config(toy_finetuning_config({**task, "null_threshold": given}))
        lines = [json.dumps({"step": step, "split": "held_out", "null_threshold": step + 0.5}) for step in steps]
        (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
        caplog.clear()
        assert load_trained(tmp_path).finetuned.task.null_threshold == threshold
        assert ("null_threshold" in caplog.text) == (threshold is None)


@pytest.mark.slow
def test_two_replicas_give_the_results_of_one_device(job_in, three_seeds, tmp_path, two_replicas):
    run_seeds(job_in(tmp_path, strategy=two_replicas, train={"gradient_accumulation_steps": 2}), (1,))
    ours, theirs = record_of(tmp_path / "seed_1"), record_of(three_seeds[0] / "seed_1")
    for one, other in zip(ours["metrics"], theirs["metrics"], strict=True):
        assert one.pop("split") == other.pop("split")
        assert one == pytest.approx(other, rel=2e-4, abs=1e-6)


@pytest.mark.slow
def test_the_output_directory_may_be_a_store_that_cannot_append(job_in, three_seeds, tmp_path):
    run_seeds(job_in("ram://finetuned"), (2,))
    for name in ("result.json", "metrics.jsonl", "predictions_validation.tsv"):
        (tmp_path / name).write_bytes(tf.io.gfile.GFile(f"ram://finetuned/seed_2/{name}", "rb").read())
    assert record_of(tmp_path) == record_of(three_seeds[0] / "seed_2")


@pytest.mark.slow
def test_the_task_glue_prints_one_table(write_parquet, tiny_pretrained, tmp_path, capsys):
    for task in GLUE_TASKS.values():
        texts = {name: [f"w{5 + n} w{7 + n} w9" for n in range(6)] for name in task.parquet_texts}
        for split in task.files:
            write_parquet(f"{task.name}/{split}-00000-of-00001.parquet", texts | {"label": [0, 1] * 3})
    settings = ("data.max_seq_length=12", "train.num_steps=1", "train.batch_size=4", "train.fused_ops=false")
    flags = [f"--data_dir={tmp_path}", f"--init_from={tiny_pretrained}", "--task=glue"]
    flags += [f"--output_dir={tmp_path / 'out'}", "--keep=best"]
    assert run_finetuning.main([*flags, *(f"--set={setting}" for setting in settings)]) == 0
    captured = capsys.readouterr()
    assert [task for task, metric, *_ in cells(captured.out) if metric.endswith(" *")] == list(PAPER_TASKS)
    assert "retracing" not in captured.err
    together = json.loads((tmp_path / "out/summary.json").read_text())
    assert set(together["medians"]) == set(PAPER_TASKS) and len(together["tasks"]) == 8
