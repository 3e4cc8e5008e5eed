"""An objective outside of the project, in one file: examples/random_token_detection.py."""

import json
import math
import sys
from pathlib import Path

import pytest
import tensorflow as tf
import yaml

from benchmarks.stablehlo_step.static_step import unfit_operations
from electra_tf.cli import export_saved_model, run_pretraining
from electra_tf.cli.configuration import load_module
from electra_tf.config.errors import UserError
from electra_tf.flops.budget import RunCost
from electra_tf.tasks.pretrain import OBJECTIVES, build_objective
from electra_tf.tasks.pretrain.config import OBJECTIVE_SETTINGS, PretrainingConfig, load_config
from electra_tf.train.step import compile_task, evaluation_step

PROJECT = Path(__file__).resolve().parents[1]
NAME = "random_token_detection"


@pytest.fixture(scope="module")
def workplace(tmp_path_factory, write_data, tiny_config) -> Path:
    """A directory with the module, a configuration and a data set; the objective is forgotten afterwards."""
    directory = tmp_path_factory.mktemp("user")
    example = (PROJECT / "examples" / "random_token_detection.py").read_text(encoding="utf-8")
    (directory / "my_objective.py").write_text(example, encoding="utf-8")
    tiny = tiny_config(masking={"mask_token_fraction": 0.0, "random_token_fraction": 1.0}).model_dump(mode="json")
    train = {**tiny["train"], "num_steps": 4, "log_every_steps": 1, "save_every_steps": 2}
    values = {**tiny, "train": train, "objective": {"name": NAME, "replaced_token_loss_weight": 10.0}}
    (directory / "run.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    write_data(directory / "data")
    yield directory
    for names in (OBJECTIVES, OBJECTIVE_SETTINGS, sys.modules):
        for name in (NAME, "my_objective"):
            names.pop(name, None)


def test_the_error_for_an_unknown_objective_names_the_flag_objective_module(workplace):
    with pytest.raises(UserError) as caught:
        load_config(workplace / "run.yaml")
    message = str(caught.value)
    assert f"objective.name is '{NAME}'" in message and "objective_module" in message
    assert "@register_objective" in message and "\n" not in message


@pytest.fixture(scope="module")
def config(workplace) -> PretrainingConfig:
    load_module(str(workplace / "my_objective.py"))
    return load_config(workplace / "run.yaml")


def test_a_user_defined_objective_is_trained_and_evaluated(config, tiny_batch):
    task, batch = compile_task(build_objective(config)), tiny_batch(config, [10, 7, 5, 8])
    step = tf.function(task.train_step)
    metrics = {name: float(value) for name, value in step(batch).items()}
    assert metrics["loss"] == pytest.approx(10 * metrics["replaced_token"], rel=1e-6)
    # One binary decision per token: ln 2, changed by the initial weights of the last layer.
    assert 0.4 < metrics["replaced_token"] < 1.2
    # Three of ten tokens are random, and one random token in 47 is the original.
    assert 0.1 < metrics["replaced_fraction"] < 0.4
    assert unfit_operations(step.get_concrete_function(batch)) == []
    assert RunCost(config).spent(4).hardware.total > 0
    terms, _ = evaluation_step(task, batch, tf.constant(0, tf.int64))
    assert {"replaced_token_loss", "replaced_token_auc", "constant_predictor_loss"} <= set(terms)
    assert math.isfinite(terms["replaced_token_loss"].value())


def test_the_error_of_an_objectives_own_check_is_reported(workplace, config):
    overrides = ["masking.mask_token_fraction=0.2", "masking.random_token_fraction=0.5"]
    with pytest.raises(UserError, match=r"a \[MASK\] is always a replaced token"):
        load_config(workplace / "run.yaml", overrides)


def test_a_second_module_file_with_the_same_name_is_refused(config, tmp_path):
    (tmp_path / "my_objective.py").write_text("raise AssertionError", encoding="utf-8")
    with pytest.raises(UserError, match="a module named my_objective is already imported"):
        load_module(str(tmp_path / "my_objective.py"))


@pytest.mark.slow
def test_the_commands_train_evaluate_and_export_a_user_defined_objective(workplace, capsys):
    module, run = f"--objective_module={workplace / 'my_objective.py'}", f"--model_dir={workplace / 'run'}"
    flags = [f"--config={workplace / 'run.yaml'}", f"--data_dir={workplace / 'data'}", module, run]
    assert run_pretraining.main(flags) == 0
    capsys.readouterr()
    assert run_pretraining.main([*flags, "--evaluate"]) == 0
    assert json.loads(capsys.readouterr().out)["step"] == 4
    assert export_saved_model.main([run, module, f"--output_dir={workplace / 'export'}"]) == 0
    assert (workplace / "export" / "1" / "saved_model.pb").exists()
