"""The exit status and the error output of a command, its threads, and the versions of libtpu that it refuses."""

import contextlib
import functools
import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

import run_finetuning
import run_pretraining
from electra_tf.cli import process
from electra_tf.cli.process import run_command
from electra_tf.config.errors import TrainingStopped, UserError, first_line
from electra_tf.config.loader import config_to_yaml

PROJECT = Path(__file__).parents[2]


exhausted = functools.partial(tf.errors.ResourceExhaustedError, None, None)


def raising(error: BaseException):
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (UserError("no such\nfile"), 2, "error: no such file\n"),
        (TrainingStopped("the loss is\nnot finite"), 1, "training stopped: the loss is not finite\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (FileNotFoundError(2, "No such file or directory", "a.txt"), 2, "error: a.txt: No such file or directory\n"),
        (exhausted("OOM [7,5]\nmore"), 2, "error: out of memory: OOM [7,5]; see docs/questions.md#out-of-memory\n"),
        (
            exhausted("allocating [7,5]"),
            2,
            "error: out of memory: allocating [7,5]; see docs/questions.md#out-of-memory\n",
        ),
        (exhausted("a/step-3; No space left on device"), 2, "error: a/step-3; No space left on device\n"),
        (tf.errors.DataLossError(None, None, "a.tfrecord: corrupted\nmore"), 2, "error: a.tfrecord: corrupted\n"),
    ],
)
def test_an_error_ends_a_command_with_one_line_and_its_status(capsys, error, status, line):
    assert run_command(raising(error)) == status
    assert capsys.readouterr().err == line


def test_an_error_that_quotes_a_file_is_cut_before_its_names_are_searched():
    assert first_line(ValueError("{{" * 100_000)) == "{{" * 1000


def test_a_command_has_status_zero_or_one_if_it_returns_false(capsys):
    assert run_command(lambda: None) == 0
    assert run_command(lambda: False) == 1
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("error", [ZeroDivisionError(), tf.errors.InvalidArgumentError(None, None, "shapes differ")])
def test_an_unexpected_exception_keeps_its_stack_trace(error):
    with pytest.raises(type(error)):
        run_command(raising(error))


def test_a_closed_output_pipe_ends_a_command_without_a_stack_trace():
    print_much = "lambda: print('x' * 2**20)"  # more than a pipe holds
    code = f"import sys; from electra_tf.cli.process import run_command; sys.exit(run_command({print_much}))"
    reader = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    reader.stdout.close()
    assert reader.stderr.read() == b""
    assert reader.wait() == 141


# Logs, shows a bar and prints, as a run does; then names its descriptors 0 to 2, and a file that it opens.
WORK = """
import os, sys, logging
from electra_tf.cli import process
def work():
    for number in range(3):
        logging.getLogger("a run").info("x" * 2**17)
    from tqdm import tqdm
    list(tqdm(range(3), mininterval=0, leave=not sys.stderr.isatty()))
    print("a result")
    descriptors = [os.fstat(each).st_ino for each in range(3)]
    with open(sys.argv[1], "w") as file:
        assert file.fileno() > 2
        file.write("evaluated")
"""
COMMAND = "sys.exit(process.run_command(work))"
TRAINING = "with process.training_process('one_device', ends_process=True): work()"


@pytest.mark.parametrize("call", [COMMAND, TRAINING], ids=["command", "training"])
@pytest.mark.parametrize("redirections", [">&-", "2>&-", "<&- >&- 2>&-", "2>&1 >/dev/null | head -c 9"])
def test_standard_streams_that_nobody_reads_do_not_end_a_command(tmp_path, call, redirections):
    (tmp_path / "code.py").write_text(WORK + call)
    script = f"{{ {sys.executable} code.py out; echo $? > status; }} {redirections}"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT)}
    subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True)
    assert (tmp_path / "out").read_text() == "evaluated"
    assert (tmp_path / "status").read_text() == "0\n"


@pytest.mark.parametrize(
    ("libtpu", "is_refused"), [("0.0.30", False), ("0.0.31", False), ("0.0.32.1", True), ("1.0", True), (None, True)]
)
def test_a_libtpu_that_aborts_the_import_of_tensorflow_is_refused(monkeypatch, libtpu, is_refused):
    def version(name: str) -> str:
        if name == "libtpu" and libtpu is None:
            raise importlib.metadata.PackageNotFoundError
        return libtpu if name == "libtpu" else "2.20.0"

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.delitem(sys.modules, "tensorflow")
    monkeypatch.setattr(process, "_import_fast", lambda hidden: sys.modules.update(tensorflow=tf))
    with pytest.raises(UserError, match="libtpu==0.0.30") if is_refused else contextlib.nullcontext():
        process.import_tensorflow()


# The threads of an operation on two cores: one where a command computes two parts or batches at once, else TensorFlow's
# default, all.
ONE, ALL = [1], []
STAGE = "{num_steps: 4, max_seq_length: 10, batch_size: %d}"
PRETRAIN = "--config={here}/tiny.yaml --model_dir={here}/run --data_dir=nothing"
FINETUNE = "--task=classification --init_from=x --output_dir=y"


@pytest.mark.parametrize(
    ("main", "flags", "expected"),
    [
        (run_pretraining.main, [PRETRAIN], ONE),
        (run_pretraining.main, [PRETRAIN, "--set=train.cpu_parts=1"], ALL),
        (run_pretraining.main, [PRETRAIN, "--set=train.fused_ops=false"], ALL),
        (run_pretraining.main, [PRETRAIN, "--set=train.gradient_accumulation_steps=16"], ALL),
        (run_pretraining.main, [PRETRAIN, "--strategy=mirrored"], ALL),
        (run_pretraining.main, [PRETRAIN, f"--set=stages=[{STAGE % 6}, {STAGE % 16}]"], ONE),
        (run_pretraining.main, [PRETRAIN, f"--set=stages=[{STAGE % 5}, {STAGE % 16}]"], ALL),
        (run_pretraining.main, [PRETRAIN, "--evaluate", "--set=train.xla=true"], ONE),
        (run_finetuning.main, [FINETUNE], ONE),
        (run_finetuning.main, [FINETUNE, "--task=similarity"], ALL),  # a batch may be one group of candidates
        (run_finetuning.main, [FINETUNE, "--set=train.batch_size=9"], ALL),
        (run_finetuning.main, [FINETUNE, "--set=train.num_epochs=2", "--set=train.batch_size=8"], ONE),
        (run_finetuning.main, [FINETUNE, "--set=train.batch_size=many"], ALL),
        (run_finetuning.main, [FINETUNE, "--set=train=7"], ALL),
        (run_finetuning.main, [FINETUNE, "--strategy=mirrored"], ALL),
        (run_finetuning.main, ["--predict --model_dir=x --input_file=y --output_file=z"], ONE),
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
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr("electra_tf.api.process.build_strategy", end)
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", was_set.append)
    always = flags[0].format(here=tmp_path).split()
    assert main([*always, *flags[1:]]) == 2 and capsys.readouterr().err == "error: the strategy would start\n"
    assert was_set == expected
