"""Pages on training: their commands run as printed, with tiny networks on tiny data."""

import json
import sys
from pathlib import Path
from unittest import mock

import pytest

import electra_tf
from electra_tf.cli.convert_checkpoint import main as convert
from electra_tf.config.loader import config_to_yaml
from electra_tf.tasks.pretrain import OBJECTIVES
from electra_tf.tasks.pretrain.config import OBJECTIVE_SETTINGS
from tests.byte_level import byte_level
from tests.docs.commands import PROJECT, blocks_of, run_page
from tests.markdown import cells
from tests.toy import EQUAL_SIZES, MODERN
from tests.train.test_replicas import worker_environments

pytestmark = pytest.mark.slow


def reports_of(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def last_steps(directory: Path) -> dict[str, int]:
    """The last step of each run in a directory, by its name."""
    return {path.parent.name: reports_of(path.parent)[-1]["step"] for path in directory.glob("[A-Z]*/metrics.jsonl")}


def test_the_commands_on_training_train_evaluate_and_report(tmp_path, tiny_config, write_data):
    write_data(tmp_path / "DATA")
    (tmp_path / "tiny.yaml").write_text(config_to_yaml(tiny_config(train={"num_steps": 2})))
    printed = run_page("training", tmp_path, {"--config=small": "--config=tiny.yaml"})
    held_out = next(report for report in reports_of(tmp_path / "RUN") if report["split"] != "train")
    assert held_out["step"] == 2
    assert f'"replaced_token_auc": {held_out["replaced_token_auc"]}' in printed  # of --evaluate
    heading, row = cells(printed)[-2:]  # of the report
    assert row[heading.index("replaced-token AUC")] == f"{held_out['replaced_token_auc']:.3f}"


def test_the_commands_on_schedules_train_each_run_to_its_end(tmp_path, tiny_config, write_data):
    for name in ("DATA", "DATA128", "DATA512", "wiki", "books"):
        write_data(tmp_path / name)
    train, no_warmup = {"num_steps": 2, "milestone_fractions": [1.0]}, {"warmup_steps": 0}
    stable = no_warmup | {"schedule": "warmup_stable_decay"}
    stages = [{"num_steps": 1, "max_seq_length": 10, "batch_size": 4}] * 2
    untied = {"objective": {"name": "two_stage", "tying": "none"}}
    configs = {
        "small": tiny_config(train=train),
        "base_two_phases": tiny_config(train=train | {"batch_size": 4}, stages=stages),
        "ablations/two_stage": tiny_config(train=train, optimizer=no_warmup, **untied),
        "ablations/adversarial": tiny_config(train=train, objective={"name": "adversarial"}),
        "mine.yaml": tiny_config(train=train | {"num_steps": 10}, optimizer=stable),
    }
    small = {"train.num_steps=200000": "train.num_steps=12", "step-90000": "step-9"}
    for index, (name, config) in enumerate(configs.items()):
        (tmp_path / f"{index}.yaml").write_text(config_to_yaml(config))
        small[f"--config={name} "] = f"--config={index}.yaml "
    run_page("schedules", tmp_path, small)
    twos = dict.fromkeys(("STAGES", "MIXTURE", "TWO", "ADVERSARIAL", "FURTHER"), 2)
    assert last_steps(tmp_path) == twos | {"STABLE": 10, "LONGER": 12}
    assert json.loads((tmp_path / "LONGER/warm_start.json").read_text())["step"] == 9


def test_the_commands_on_scaling_run_on_two_devices_and_as_the_only_worker(tmp_path, write_data):
    write_data(tmp_path / "DATA")
    cluster = json.loads(worker_environments(1)[0]["TF_CONFIG"])["cluster"]
    settings = ["encoder.vocab_size=47", "data.max_seq_length=10", "train.batch_size=4", "train.num_steps=2"]
    settings += ["optimizer.warmup_steps=1", "train.log_every_steps=1"]
    small = {
        "--config=base": f"--config=tiny --set {' --set '.join(settings)}",
        "/shared/data": "DATA",
        "/shared/base": "WORKER",
        '["gpu-a:12345", "gpu-b:12345"]': json.dumps(cluster["worker"]),
    }
    run_page("scaling", tmp_path, small)
    for run in ("RUN", "WORKER"):
        assert [each["step"] for each in reports_of(tmp_path / run) if each["split"] == "train"] == [1, 2]


def test_the_command_on_objectives_trains_one_of_a_file(tmp_path, tiny_config, write_data):
    write_data(tmp_path / "DATA")
    (tmp_path / "examples").symlink_to(PROJECT / "examples")
    (tmp_path / "tiny.yaml").write_text(config_to_yaml(tiny_config(train={"num_steps": 2})))
    ((_, text),) = blocks_of(PROJECT / "docs/objectives.md", "yaml")
    (tmp_path / "run.yaml").write_text(text.replace("base: small", "base: tiny.yaml"))
    with mock.patch.dict(OBJECTIVES), mock.patch.dict(OBJECTIVE_SETTINGS):  # other tests do not know the objective
        run_page("objectives", tmp_path, {})
    sys.modules.pop("random_token_detection")
    last = reports_of(tmp_path / "RUN")[-1]
    assert last["step"] == 2 and "replaced_token_auc" in last and "masked_lm_loss" not in last


def test_the_commands_on_configurations_read_the_pages_file(tmp_path):
    ((_, text),) = blocks_of(PROJECT / "docs/configs.md", "yaml")
    (tmp_path / "mine.yaml").write_text(text)
    printed = run_page("configs", tmp_path, {})
    plan, end = json.JSONDecoder().raw_decode(printed)
    train, generator = plan["config"]["train"], plan["config"]["objective"]["generator"]
    assert (train["num_steps"], train["seed"], generator["size_fraction"]) == (200_000, 1, 0.5)
    assert "the run: 200,000 steps, 25,600,000 examples" in [row[0] for row in cells(printed[end:])]


def test_the_recipes_train_each_run_to_its_end(tmp_path, tiny_config, tiny_pretrained):
    (tmp_path / "corpus").mkdir()
    document = "w5 w{} w8 w9 the cat on w8 w9\nthe w7 cat w8 w9 w8 on w9 w8"
    text = "\n\n".join(document.format(6 + number) for number in range(30))
    (tmp_path / "corpus/a.txt").write_text(text)
    (tmp_path / "corpus/tokenizer.json").write_bytes(byte_level())
    convert([f"--from={tiny_pretrained}", "--to=hugging_face", f"--output_dir={tmp_path}/DIR"])
    for data, vocabulary in {"data512": "DIR/discriminator/vocab.txt", "data1024": "corpus/tokenizer.json"}.items():
        options = {"max_seq_length": 10, "held_out_fraction": 0.2}
        electra_tf.build_dataset(f"text:{tmp_path}/corpus/a.txt", tmp_path / vocabulary, tmp_path / data, **options)
    train = {"train": {"num_steps": 2}}
    modern = MODERN | {"vocab_size": 288, "embedding_size": 16}  # 273 tokens and padding
    configs = {
        "small": tiny_config(**train, encoder={"vocab_size": 60, "max_position_embeddings": 16}),
        "base": tiny_config(**train, encoder={"max_position_embeddings": 20}),
        "modern_base": tiny_config(**train, encoder=modern, objective={"generator": EQUAL_SIZES}),
        "masked_lm": tiny_config(**train, encoder=modern, objective={"name": "bert_mlm"}),
    }
    for name, config in configs.items():
        (tmp_path / f"{name}.yaml").write_text(config_to_yaml(config))
    electra_tf.pretrain(tmp_path / "masked_lm.yaml", tmp_path / "data1024", tmp_path / "BERT")
    convert([f"--from={tmp_path}/BERT", "--to=hugging_face", f"--output_dir={tmp_path}/FOLDER"])
    small = {f"--config={name} ": f"--config={name}.yaml " for name in ("small", "base", "modern_base")} | {
        "--vocab_size=30522": "--vocab_size=60",
        "--max_seq_length=128 --num_processes=8": "--max_seq_length=10 --held_out_fraction=0.2",
        "train.num_steps=20000": "train.num_steps=2",
        "num_layers: 7": "num_layers: 1",
        "--flops_budget=1e15": "--flops_budget=1e6",
        "replaced_token_loss_weight=20,50 --seeds 0 1": "replaced_token_loss_weight=20 --seeds 0",
    }
    printed = run_page("recipes", tmp_path, small)
    assert last_steps(tmp_path) == dict.fromkeys(("BERT", "RUN", "CONTINUED", "MODERN"), 2)
    assert (tmp_path / "OUT/generator/config.json").is_file()
    assert len(list((tmp_path / "SEARCH").glob("*/metrics.jsonl"))) == 2, printed
