"""What runs store: the settings of a seed, which run again, and the scores of milestones with FLOPs."""

import json
import math
import operator
import shutil
from pathlib import Path

import pytest
import tensorflow as tf
import yaml

from electra_tf.config.errors import UserError
from electra_tf.config.loader import read_values
from electra_tf.finetuning import milestones
from electra_tf.finetuning.milestones import finetune_milestones, seed_scores
from electra_tf.finetuning.seeds import run_seeds
from electra_tf.flops.budget import RunCost
from electra_tf.train.run_directory import RunDirectory
from electra_tf.weights.source import load_trained
from tests.markdown import cells

PAIRS = {"question": ["w5", "w6 w7", "w8"], "answer": ["w9", "w5", "w6"]}
TEXTS = {"text": [f"w{5 + number}" for number in range(7)]}
LABELLED = TEXTS | {"label": ["a", "b", "c", "a", "b", "c", "a"]}


def test_a_seeds_config_has_the_users_settings_alone_and_resolved_has_all(three_seeds, own_files, tiny_encoder):
    seed = three_seeds[0] / "seed_2"
    stored = {name: yaml.safe_load((seed / f"{name}.yaml").read_text()) for name in ("config", "resolved")}
    train = {"num_epochs": 2, "batch_size": 4, "log_every_steps": 2, "fused_ops": False, "keep": "all", "seed": 2}
    assert stored["config"] == {
        "data": {**own_files, "max_seq_length": 12},
        "optimizer": {"learning_rate": 0.01},
        "train": train,
        "name": "classification",
        "init_from": tiny_encoder.origin,
    }
    resolved = stored["resolved"]
    assert (resolved["train"]["num_steps"], resolved["evaluation"]["every_steps"]) == (6, 3)
    assert resolved["task"]["labels"] == ["even", "odd"] and resolved["train"]["seed"] == 2


def test_a_seed_of_an_early_0_3_with_config_alone_is_read_and_continued(three_seeds, job_in, tmp_path):
    shutil.copytree(three_seeds[0] / "seed_1", tmp_path / "seed_1")
    (tmp_path / "seed_1/resolved.yaml").replace(tmp_path / "seed_1/config.yaml")
    former, today = (load_trained(place / "seed_1").finetuned for place in (tmp_path, three_seeds[0]))
    assert former == today
    run_seeds(job_in(tmp_path, keep="all"), (1,))  # finished: nothing to do
    (tmp_path / "seed_1/result.json").unlink()
    run_seeds(job_in(tmp_path, keep="all"), (1,))
    results = [(place / "seed_1/result.json").read_text() for place in (tmp_path, three_seeds[0])]
    assert results[0] == results[1]


@pytest.fixture
def again(tmp_path, task_of):
    """`again(task, first, second, settings, overrides)`: the configuration of a task by the config.yaml of a first one.

    `first` and `second` are the data of both; `encoder` changes the sizes of the second encoder.
    """

    def build(task, first, second, settings=(), overrides=(), **encoder):
        texts = {} if task == "classification" else {"task.text_columns": ["question", "answer"]}
        given = task_of(task, read_values(None, [*texts.items(), *settings])[0], train=first)
        run = RunDirectory(tmp_path / "seed_0")
        run.create()
        run.write_config(given.config_for(5), given.given)
        values, _ = read_values(run.config_file, overrides)
        return task_of(task, values, encoder, train=second).config_for(500)

    return build


@pytest.mark.parametrize(
    ("overrides", "encoder", "place", "expected"),
    [
        ([], {}, "optimizer.warmup_fraction", 0.1),
        (["optimizer.warmup_fraction=0.25"], {}, "optimizer.warmup_fraction", 0.25),
        (["optimizer.warmup_steps=4"], {}, "optimizer.warmup_fraction", 0.0),
        (["train.num_epochs=2"], {}, "train.num_steps", 32),  # 16 steps an epoch
        (["train.num_steps=7"], {}, "train.num_epochs", None),
        (["train.num_epochs=null"], {}, "train.num_steps", 48),  # the task's default
        (["train.batch_size=50"], {}, "evaluation.every_steps", 10),
        ([], {"num_layers": 5}, "encoder.num_layers", 5),
        (["encoder.num_layers=null"], {"num_layers": 5}, "encoder.num_layers", 5),
        (["optimizer.learning_rate=null"], {}, "optimizer.learning_rate", 3e-4),
        ([], {"hidden_size": 512}, "optimizer.learning_rate", 1e-4),
        ([], {"max_position_embeddings": 512}, "data.max_seq_length", 128),
        ([], {"max_position_embeddings": 64}, "data.max_seq_length", 64),
        ([], {"hidden_dropout": 0.0}, "encoder.hidden_dropout", 0.1),
        ([], {}, "task.labels", ("a", "b", "c")),
        (["task.class_weights=balanced"], {}, "task.class_weights", pytest.approx((7 / 9, 7 / 6, 7 / 6))),
        (["evaluation.best_metric=accuracy"], {}, "train.keep", "best"),
    ],
)
def test_what_followed_from_data_and_encoder_follows_anew(again, overrides, encoder, place, expected):
    config = again("classification", TEXTS | {"label": list("xyxyxyx")}, LABELLED, [], overrides, **encoder)
    assert operator.attrgetter(place)(config) == expected


@pytest.mark.parametrize(("first", "second"), [({}, {"label": [1.5, 4.0, 2.0]}), ({"label": [1.5, 4.0, 2.0]}, {})])
def test_whether_pairs_have_scores_follows_from_the_new_file(again, first, second):
    task = again("similarity", PAIRS | first, PAIRS | second).task
    assert (task.is_contrastive, task.max_value) == ((False, 4.0) if second else (True, 1.0))


@pytest.mark.parametrize("override", ["train.seed=null", "train.num_epoch=null"])
def test_a_null_for_what_follows_from_nothing_is_refused(again, override):
    with pytest.raises(UserError, match=override.removesuffix("=null")):
        again("classification", LABELLED, LABELLED, [], [override])


def test_weights_of_classes_and_layers_that_the_user_gave_stay(again):
    settings = ["task.class_weights={a: 2, b: 3}", "encoder.num_layers=1", "task.labels=[c, b, a]"]
    config = again("classification", LABELLED, LABELLED, settings, num_layers=4)
    assert (config.task.class_weights, config.task.labels) == ((1.0, 3.0, 2.0), ("c", "b", "a"))
    assert config.encoder.num_layers == 1


@pytest.fixture
def pretraining_run(tmp_path, tiny_config):
    """`pretraining_run(milestones=[2, 4], checkpoints=[7])`: a run's directory with these, without a model."""

    def build(milestones: list[int], checkpoints: tuple[int, ...] = ()) -> RunDirectory:
        run = RunDirectory(tmp_path / "run")
        run.create()
        for directory, steps in ((run.milestones, milestones), (run.checkpoints, checkpoints)):
            for step in steps:
                tf.train.Checkpoint(step=tf.Variable(0)).write(f"{directory}/step-{step}")
        run.write_config(tiny_config())
        return run

    return build


@pytest.fixture
def fine_tuned(monkeypatch) -> list[tuple]:
    """The calls of `finetune`, which here only writes a summary: seeds 3 and 5 score step / 8 + seed / 64."""
    calls = []

    def finetune(values, source, init_from, output_dir, strategy, seeds, **options):
        calls.append((values["name"], init_from, output_dir, values["train"]["keep"]))
        step = int(init_from.rpartition("-")[2])
        results = [{"seed": seed, "metrics": {"accuracy": step / 8 + seed / 64}} for seed in seeds]
        tf.io.gfile.makedirs(output_dir)
        with open(f"{output_dir}/summary.json", "w", encoding="utf-8") as file:
            json.dump({"task": values["name"], "primary_metric": "accuracy", "seeds": results}, file)

    monkeypatch.setattr(milestones, "finetune", finetune)
    monkeypatch.setattr(milestones, "load_pretrained", lambda path, values: path)
    return calls


def fine_tune(run: RunDirectory, output_dir, untrained: bool = False, seeds: tuple[int, ...] = (3, 5), **train) -> str:
    values = {"name": "rte", "init_from": run.path, "untrained": untrained, "train": train}
    return finetune_milestones(values, "", str(output_dir), tf.distribute.OneDeviceStrategy("CPU:0"), seeds=seeds)


def test_milestones_and_then_the_newest_checkpoint_are_fine_tuned_once(pretraining_run, fine_tuned, tmp_path):
    run, out = pretraining_run(milestones=[4, 2], checkpoints=(6, 7)), tmp_path / "out"
    fine_tune(run, out)
    prefixes = {2: f"{run.milestones}/step-2", 4: f"{run.milestones}/step-4", 7: f"{run.checkpoints}/step-7"}
    assert fine_tuned == [("rte", prefix, f"{out}/step_{step}", "none") for step, prefix in prefixes.items()]
    fine_tune(pretraining_run(milestones=[7]), tmp_path / "again", keep="best")
    again = [(init_from.rpartition("/")[2], keep) for _, init_from, _, keep in fine_tuned[3:]]
    assert again == [("step-2", "best"), ("step-4", "best"), ("step-7", "best")]


def test_scores_are_written_to_the_output_and_to_the_run(pretraining_run, fine_tuned, tmp_path, tiny_config):
    run, out = pretraining_run(milestones=[2, 4]), tmp_path / "out"
    table = cells(fine_tune(run, out))
    text = (out / "scores.json").read_text()
    assert (tmp_path / "run" / "finetuning_rte.json").read_text() == text
    content = json.loads(text)
    results = content.pop("results")
    assert content == {"task": "rte", "metric": "accuracy", "init_from": run.path, "output_dir": str(out)}
    scores = [{"3": 0.296875, "5": 0.328125}, {"3": 0.546875, "5": 0.578125}]
    assert [(row["step"], row["scores"]) for row in results] == list(zip((2, 4), scores, strict=True))
    spent = RunCost(tiny_config()).spent(4)
    assert results[1]["paper_flops"] == float(spent.paper)
    flops = [f"{float(spent.paper):.3e}", f"{spent.hardware.total:.3e}"]
    assert table[2] == ["4", *flops, "0.5625", "0.5469", "0.5781", "2"]


def test_scores_that_cannot_be_written_to_the_run_are_in_the_output_with_a_warning(
    pretraining_run, fine_tuned, tmp_path, caplog
):
    run = pretraining_run(milestones=[2])
    (tmp_path / "run" / "finetuning_rte.json" / "in the way").mkdir(parents=True)
    fine_tune(run, tmp_path / "out")
    assert (tmp_path / "out" / "scores.json").exists()
    assert "finetuning_rte.json cannot be" in caplog.text


def test_a_second_output_leaves_the_scores_in_the_run_as_they_are(
    pretraining_run, fine_tuned, tmp_path, caplog, monkeypatch
):
    run, stored = pretraining_run(milestones=[2, 4]), tmp_path / "run" / "finetuning_rte.json"
    monkeypatch.chdir(tmp_path)
    fine_tune(run, "out")
    before = stored.read_text()
    fine_tune(run, tmp_path / "second", seeds=(7,))
    assert stored.read_text() == before and "7" in (tmp_path / "second/scores.json").read_text()
    assert f"{stored} has the scores of output_dir={tmp_path}/out and stays" in caplog.text
    fine_tune(run, f"{tmp_path}/out", seeds=(3, 5, 7))  # the same output, by another name
    assert stored.read_text() == (tmp_path / "out/scores.json").read_text() != before


def test_no_pre_training_run_and_no_trained_encoder_are_refused(pretraining_run, fine_tuned, refusal, tmp_path):
    run, out = pretraining_run(milestones=[2]), tmp_path / "out"
    assert "untrained has no effect" in refusal(fine_tune, run, out, True)
    Path(run.settings_file).write_text("task: {kind: tagging}")
    assert "no pre-training run with checkpoints" in refusal(fine_tune, run, out)
    (tmp_path / "run/config.yaml").unlink()
    assert "no pre-training run with checkpoints" in refusal(fine_tune, run, out)
    (tmp_path / "config.yaml").write_text("train: {}")
    assert "no pre-training run with checkpoints" in refusal(fine_tune, RunDirectory(tmp_path), out)
    assert fine_tuned == []


def test_a_seeds_score_of_several_tasks_is_the_mean_of_their_primary_metrics():
    tasks = []
    for metric, values in (("accuracy", (0.5, 0.75, 0.5, 0.5)), ("f1", (0.25, 0.5, None))):  # seed 6 lacks the second
        seeds = [{"seed": seed, "metrics": {metric: value, "loss": 9.0}} for seed, value in enumerate(values, 3)]
        tasks.append({"primary_metric": metric, "seeds": seeds})
    scores = seed_scores({"tasks": tasks})
    assert (scores[3], scores[4]) == (0.375, 0.625)
    assert math.isnan(scores[5]) and len(scores) == 3
