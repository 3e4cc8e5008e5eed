"""The threads of an operation: half of the cores where a command computes two batches or halves at once, else all."""

import pytest
import tensorflow as tf

import run_finetuning
import run_pretraining
from electra_tf.api import process
from electra_tf.config.errors import UserError
from electra_tf.config.loader import config_to_yaml

HALF, ALL = [3], []  # of six cores; TensorFlow's default is all
STAGE = "{num_steps: 4, max_seq_length: 10, batch_size: %d}"
PRETRAIN = "--config={here}/tiny.yaml --model_dir={here}/run --data_dir=nothing"
FINETUNE = "--task=classification --init_from=x --output_dir=y"


@pytest.mark.parametrize(
    ("main", "flags", "expected"),
    [
        (run_pretraining.main, [PRETRAIN], HALF),
        (run_pretraining.main, [PRETRAIN, "--set=train.fused_ops=false"], ALL),
        (run_pretraining.main, [PRETRAIN, "--set=train.gradient_accumulation_steps=8"], HALF),
        (run_pretraining.main, [PRETRAIN, "--set=train.gradient_accumulation_steps=16"], ALL),
        (run_pretraining.main, [PRETRAIN, "--strategy=mirrored"], ALL),
        (run_pretraining.main, [PRETRAIN, f"--set=stages=[{STAGE % 6}, {STAGE % 16}]"], HALF),
        (run_pretraining.main, [PRETRAIN, f"--set=stages=[{STAGE % 5}, {STAGE % 16}]"], ALL),
        (run_pretraining.main, [PRETRAIN, "--evaluate", "--set=train.xla=true"], HALF),
        (run_finetuning.main, [FINETUNE], HALF),
        (run_finetuning.main, [FINETUNE, "--task=mrpc"], HALF),
        (run_finetuning.main, [FINETUNE, "--task=similarity"], ALL),  # a batch may be one group of candidates
        (run_finetuning.main, [FINETUNE, "--set=train.batch_size=9"], ALL),
        (run_finetuning.main, [FINETUNE, "--set=train.num_epochs=2", "--set=train.batch_size=8"], HALF),
        (run_finetuning.main, [FINETUNE, "--set=train.batch_size=many"], ALL),
        (run_finetuning.main, [FINETUNE, "--set=train=7"], ALL),
        (run_finetuning.main, [FINETUNE, "--strategy=mirrored"], ALL),
        (run_finetuning.main, ["--predict --model_dir=x --input_file=y --output_file=z"], HALF),
    ],
)
def test_a_command_sets_the_threads_before_it_starts_its_strategy(
    monkeypatch, capsys, tmp_path, tiny_config, main, flags, expected
):
    def end(name: str, tpu: str):
        raise UserError("the strategy would start")

    was_set = []
    config = tiny_config(train={"fused_ops": True, "batch_size": 16})
    (tmp_path / "tiny.yaml").write_text(config_to_yaml(config), encoding="utf-8")
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(6)))
    monkeypatch.setattr(process, "build_strategy", end)
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", was_set.append)
    always = flags[0].format(here=tmp_path).split()
    assert main([*always, *flags[1:]]) == 2 and capsys.readouterr().err == "error: the strategy would start\n"
    assert was_set == expected
