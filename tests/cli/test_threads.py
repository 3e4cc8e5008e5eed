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


@pytest.fixture
def threads(monkeypatch, capsys):
    """`threads(main, *flags)`: the numbers of threads that a command sets before it starts its strategy."""

    def of_command(main, *flags: str) -> list[int]:
        was_set = []
        monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", was_set.append)
        assert main(list(flags)) == 2 and capsys.readouterr().err == "error: the strategy would start\n"
        return was_set

    def end(name: str, tpu: str):
        raise UserError("the strategy would start")

    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(6)))
    monkeypatch.setattr(process, "build_strategy", end)
    return of_command


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], HALF),
        (["--set=train.precision=bfloat16"], HALF),
        (["--set=train.xla=true"], ALL),
        (["--set=train.fused_ops=false"], ALL),
        (["--set=train.batch_size=15"], ALL),
        (["--set=train.gradient_accumulation_steps=8"], HALF),
        (["--set=train.gradient_accumulation_steps=16"], ALL),
        (["--strategy=mirrored"], ALL),
        ([f"--set=stages=[{STAGE % 6}, {STAGE % 16}]"], HALF),
        ([f"--set=stages=[{STAGE % 5}, {STAGE % 16}]"], ALL),
        (["--evaluate", "--set=train.xla=true"], HALF),
    ],
)
def test_pretraining(threads, tmp_path, tiny_config, flags, expected):
    config = tiny_config(train={"fused_ops": True, "batch_size": 16})
    (tmp_path / "tiny.yaml").write_text(config_to_yaml(config), encoding="utf-8")
    always = [f"--config={tmp_path / 'tiny.yaml'}", f"--model_dir={tmp_path / 'run'}", "--data_dir=nothing"]
    assert threads(run_pretraining.main, *always, *flags) == expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], HALF),
        (["--task=mrpc"], HALF),
        (["--task=similarity"], ALL),  # a batch may be one group of candidates
        (["--set=train.xla=true"], ALL),
        (["--set=train.fused_ops=false"], ALL),
        (["--set=train.batch_size=9"], ALL),
        (["--set=train.gradient_accumulation_steps=32"], ALL),
        (["--set=train.num_epochs=2", "--set=train.batch_size=8"], HALF),
        (["--set=train.batch_size=many"], ALL),
        (["--set=train=7"], ALL),
        (["--strategy=mirrored"], ALL),
    ],
)
def test_finetuning(threads, flags, expected):
    assert threads(run_finetuning.main, "--task=classification", "--init_from=x", "--output_dir=y", *flags) == expected


def test_predictions(threads):
    assert threads(run_finetuning.main, "--predict", "--model_dir=x", "--input_file=y", "--output_file=z") == HALF
