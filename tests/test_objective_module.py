"""An objective from outside of the project, in one file: that of docs/objectives.md, as the normal commands take it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import yaml

import export_saved_model
import run_pretraining
from electra_tf.cli.modules import load_module
from electra_tf.config.errors import UserError
from electra_tf.tasks.pretrain import OBJECTIVES
from electra_tf.tasks.pretrain.config import OBJECTIVE_SETTINGS

PROJECT = Path(__file__).resolve().parents[1]
NAME = "random_token_detection"
CONFIG = {
    "encoder": {
        "vocab_size": 47,
        "embedding_size": 12,
        "hidden_size": 16,
        "num_layers": 1,
        "num_heads": 2,
        "intermediate_size": 20,
        "max_position_embeddings": 13,
    },
    "objective": {"name": NAME, "replaced_token_loss_weight": 10.0},
    "masking": {"masked_fraction": 0.3, "mask_token_fraction": 0.0, "random_token_fraction": 1.0},
    "data": {"max_seq_length": 10},
    "optimizer": {"learning_rate": 1e-3, "warmup_steps": 0},
    "train": {"num_steps": 4, "batch_size": 4, "log_every_steps": 1, "save_every_steps": 2},
}


def example_of_the_documentation() -> str:
    """The one block of docs/objectives.md that registers an objective."""
    blocks = (PROJECT / "docs" / "objectives.md").read_text(encoding="utf-8").split("```python\n")[1:]
    (example,) = [block.split("```")[0] for block in blocks if "@register_objective" in block]
    return example


@pytest.fixture(scope="module")
def workplace(tmp_path_factory, write_data) -> Path:
    """A directory with the module, a configuration and a data set; the objective is forgotten afterwards."""
    directory = tmp_path_factory.mktemp("user")
    (directory / "my_objective.py").write_text(example_of_the_documentation(), encoding="utf-8")
    (directory / "run.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    write_data(directory / "data")
    yield directory
    for names in (OBJECTIVES, OBJECTIVE_SETTINGS, sys.modules):
        for name in (NAME, "my_objective"):
            names.pop(name, None)


@pytest.fixture(scope="module")
def flags(workplace) -> list[str]:
    return [
        f"--config={workplace / 'run.yaml'}",
        f"--data_dir={workplace / 'data'}",
        f"--model_dir={workplace / 'run'}",
        f"--objective_module={workplace / 'my_objective.py'}",
    ]


@pytest.fixture(scope="module")
def trained(workplace, flags) -> Path:
    """The run: two steps by the command, in a process of its own, then the same command's other two."""
    command = [sys.executable, str(PROJECT / "run_pretraining.py"), *flags, "--stop_at_step=2"]
    finished = subprocess.run(command, cwd=workplace, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr[-2000:]
    assert run_pretraining.main(flags) == 0
    return workplace / "run"


def reports(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def test_it_trains_and_resumes_by_the_normal_command(trained):
    train = [report for report in reports(trained) if report["split"] == "train"]
    assert [report["step"] for report in train] == [1, 2, 3, 4]
    # One binary decision a token, of weight 10: ln 2, spread by the last layer's initial values.
    assert train[0]["loss"] == pytest.approx(10 * train[0]["replaced_token"], rel=1e-6)
    assert 0.4 < train[0]["replaced_token"] < 1.2
    # Three of ten tokens are drawn anew, and one draw of 47 may hit the token that was there.
    assert 0.1 < train[0]["replaced_fraction"] < 0.4


def test_it_is_evaluated(trained, flags, capsys):
    assert run_pretraining.main([*flags, "--evaluate"]) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert metrics["step"] == 4
    assert {"replaced_token_loss", "replaced_token_auc", "constant_predictor_loss"} <= set(metrics)


def test_two_steps_and_two_more_are_four_steps_bit_for_bit(trained, flags, workplace):
    whole = [flag.replace("/run", "/whole") if "--model_dir" in flag else flag for flag in flags]
    assert run_pretraining.main(whole) == 0
    first, second = (tf.train.load_checkpoint(str(workplace / run / "checkpoints/step-4")) for run in ("run", "whole"))
    names = [name for name in first.get_variable_to_shape_map() if name.startswith("objective/")]
    assert len(names) > 20
    assert all(np.array_equal(first.get_tensor(name), second.get_tensor(name)) for name in names)


def test_its_encoder_is_exported(trained, workplace, capsys):
    export = ["--objective_module", str(workplace / "my_objective.py"), "--output_dir", str(workplace / "export")]
    assert export_saved_model.main(["--model_dir", str(trained), *export]) == 0
    assert "embed" in capsys.readouterr().out
    assert (workplace / "export" / "1" / "saved_model.pb").exists()


def test_what_does_not_fit_it_is_refused_in_its_own_words(flags, capsys):
    half = ["--set", "masking.random_token_fraction=0.5"]
    assert run_pretraining.main([*flags, "--dry_run", "--set", "masking.mask_token_fraction=0.2", *half]) == 2
    assert "a [MASK] gives its place away" in capsys.readouterr().err


def test_without_its_module_a_run_is_refused_and_the_flag_named(workplace, flags):
    command = [sys.executable, str(PROJECT / "run_pretraining.py"), *flags[:3], "--dry_run"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
    assert f"objective.name is '{NAME}'" in refused.stderr and "--objective_module" in refused.stderr


def test_settings_without_an_objective_are_refused_and_the_decorator_named(workplace, flags):
    (workplace / "unregistered.py").write_text(
        example_of_the_documentation().replace(f'@register_objective("{NAME}")', ""), encoding="utf-8"
    )
    module = f"--objective_module={workplace / 'unregistered.py'}"
    command = [sys.executable, str(PROJECT / "run_pretraining.py"), *flags[:3], module, "--dry_run"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert refused.returncode == 2 and "Traceback" not in refused.stderr
    assert f"put @register_objective('{NAME}') over that class" in refused.stderr.splitlines()[-1]


def test_another_file_of_the_same_name_is_refused(trained, tmp_path):
    (tmp_path / "my_objective.py").write_text("raise AssertionError", encoding="utf-8")
    with pytest.raises(UserError, match="a module my_objective is imported already; give the file another name"):
        load_module(str(tmp_path / "my_objective.py"))
