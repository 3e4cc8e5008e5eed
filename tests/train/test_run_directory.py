"""A run's directory: which paths and calls it accepts, its lock, recorded code, and files that a power cut has left."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml

import electra_tf
from electra_tf.cli.configuration import load_module
from electra_tf.config.errors import UserError
from electra_tf.config.schema import RunConfig
from electra_tf.config.settings import is_free
from electra_tf.config.validation import settings_of
from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.text.vocabulary import StoredTokenizer
from electra_tf.train.checkpoints import steps_in
from electra_tf.train.code import changed_versions, code_of
from electra_tf.train.run_directory import RunDirectory, lasting_settings
from tests import toy
from tests.toy import VOCABULARY, Regression, toy_config, toy_finetuning_config, toy_run
from tests.train.runs import lines, train_toy

FACTS = ("data.json", "tokenizer_settings.json")


def test_new_directory_and_one_left_by_a_killed_start_are_accepted(tmp_path):
    run = tmp_path / "new" / "run"
    RunDirectory(run).create()
    for name in (".config.yaml.tmp", "resolved.yaml", ".lock"):
        (run / name).write_text("encoder: {}")
    RunDirectory(run).create()


@pytest.mark.parametrize(
    ("model_dir", "message"),
    [
        ("file", "Not a directory"),
        ("thesis", "is not empty and holds no run"),
        ("file/run", "cannot be written"),
        ("nowhere://bucket/run", "nowhere"),
        ("a?[1]", r"'\?\[' in it"),  # TensorFlow takes it for a pattern
    ],
)
def test_path_that_cannot_hold_a_run_is_an_error(tmp_path, monkeypatch, model_dir, message):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    Path("thesis").mkdir()
    Path("thesis", "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match=f"^(model_dir=)?{re.escape(model_dir)}.*{message}"):
        RunDirectory(model_dir).create()
    assert set(os.listdir()) == {"file", "thesis"}


BOTH = pytest.mark.parametrize("checkpoint", [8, None])


@BOTH
@pytest.mark.parametrize("text", ["train: [1,\n", "train: 3\n", "train: {save_every_steps: x}\n", "1: 2\n"])
def test_stored_configuration_that_is_none_is_an_error_with_its_path(tmp_path, text, checkpoint):
    (tmp_path / "config.yaml").write_text(text)
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "split": "train"}\n')
    with pytest.raises(UserError, match=str(tmp_path)):
        RunDirectory(tmp_path).require_startable(toy_config(), checkpoint)


@BOTH
@pytest.mark.parametrize("left", [b"", b"train:\n  num_st", bytes(200)], ids=["empty", "half", "zeros"])
def test_a_configuration_that_a_power_cut_has_left_is_named_and_not_compared(tmp_path, caplog, left, checkpoint):
    (tmp_path / "config.yaml").write_bytes(left)
    (tmp_path / "metrics.jsonl").write_text('{"step": 4, "split": "train"}\n')
    RunDirectory(tmp_path).require_startable(toy_config(), checkpoint)
    (message,) = caplog.messages
    assert message.startswith(f"{tmp_path}/config.yaml is damaged")


@pytest.mark.parametrize(
    ("name", "left"),
    [
        *(("vocab.txt", left) for left in (b"", VOCABULARY[:17], VOCABULARY[:17].ljust(len(VOCABULARY), b"\0"))),
        *((name, left) for name in FACTS for left in (b"", b'{"data": ["hash', bytes(20))),
    ],
)
def test_facts_that_a_power_cut_has_left_are_named_and_not_compared(tmp_path, caplog, name, left):
    directory = RunDirectory(tmp_path)
    directory.write_tokenizer(StoredTokenizer(VOCABULARY))
    (tmp_path / name).write_bytes(left)
    directory.require_same_data(["hash"])
    directory.require_same_tokenizer(StoredTokenizer(VOCABULARY))
    (message,) = caplog.messages
    assert message.startswith(f"{tmp_path}/{name} is damaged")
    if name == "vocab.txt":
        with pytest.raises(UserError, match="vocab.txt"):
            directory.require_same_tokenizer(StoredTokenizer(VOCABULARY.replace(b"[UNK]", b"[XXX]")))


def test_missing_stored_setting_counts_as_its_default_and_an_unknown_one_as_changed(tmp_path):
    directory, stored = RunDirectory(tmp_path), toy_config().model_dump(mode="json")

    def store() -> None:
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(stored))

    del stored["optimizer"]["warmup_fraction"]
    store()
    directory.require_same_run(toy_config())
    with pytest.raises(UserError, match=r"has optimizer.warmup_fraction 0.0, this call has 0.25"):
        directory.require_same_run(toy_config(optimizer={"warmup_fraction": 0.25}))
    stored["optimizer"]["momentum"] = 0.5
    store()
    with pytest.raises(UserError, match=r"has optimizer.momentum 0.5, this call has None"):
        directory.require_same_run(toy_config())


def test_the_best_metric_may_change_in_pretraining_and_not_in_finetuning():
    values = {"evaluation": {"best_metric": "loss", "patience": 3, "every_steps": 5, "as_masked_lm": {"seed": 1}}}
    assert lasting_settings(RunConfig, values) == {}
    of_finetuning = {"evaluation.best_metric": "loss", "evaluation.patience": 3}
    assert lasting_settings(FinetuningConfig, values) == of_finetuning


def test_the_page_on_training_names_all_settings_that_may_change():
    page = (Path(__file__).parents[2] / "docs/training.md").read_text(encoding="utf-8")
    first, second = re.findall(r"^\| `train\.([a-z_`, ]+)` \| yes \|$", page, re.MULTILINE)
    named = {f"train.{name}" for row in (first, second) for name in row.split("`, `")}
    free = {path for path, field in settings_of(PretrainingConfig).items() if is_free(field)}
    assert named == {path for path in free if path.startswith("train.")}
    evaluation = {path for path in settings_of(PretrainingConfig) if re.fullmatch(r"evaluation\.\w+", path)}
    assert free - named == {"data.vocab_file", *evaluation} and "| `data.vocab_file`, all of `evaluation` " in page


def test_settings_of_how_a_step_is_computed_do_not_change_in_a_run():
    train = {"gradient_accumulation_steps": 8, "precision": "bfloat16", "rematerialize": True}
    values = {"train": train | {"xla": True}, "data": {"max_seq_length": 128, "vocab_file": "vocab.txt"}}
    lasting = {f"train.{name}": train[name] for name in train}
    assert lasting_settings(RunConfig, values) == lasting | {"data.max_seq_length": 128}


def test_a_run_of_another_kind_is_refused(tmp_path):
    finetuning = toy_finetuning_config({"kind": "tagging", "labels": ["O", "B-X"]})
    for stored, config in ((finetuning, toy_config()), (toy_config(), finetuning)):
        directory = RunDirectory(tmp_path)
        directory.write_config(stored)
        for checkpoint in (None, 1):
            with pytest.raises(UserError, match="holds a run of"):
                directory.require_startable(config, checkpoint)


def test_a_changed_vocabulary_of_a_run_is_refused_by_all_who_read_it(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.write_tokenizer(StoredTokenizer(VOCABULARY))
    assert directory.read_tokenizer() == StoredTokenizer(VOCABULARY)
    (tmp_path / "vocab.txt").write_bytes(VOCABULARY.replace(b"w9", b"w8"))
    for read in (directory.read_tokenizer, lambda: directory.require_same_tokenizer(StoredTokenizer(VOCABULARY))):
        with pytest.raises(UserError, match=f"^{tmp_path}/vocab.txt is missing, edited or damaged"):
            read()


def test_a_run_that_lost_its_vocabulary_is_not_taken_for_a_new_one(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.write_tokenizer(StoredTokenizer(b"\n\x0c\n\x05[PAD]"))  # begins as a model does
    (tmp_path / "spm.model").unlink()
    with pytest.raises(UserError, match=f"^{tmp_path}: .*spm.model.* is missing"):
        directory.read_tokenizer()


@pytest.mark.parametrize("written", ["file://{}", "file://localhost{}", "{}/", "{}/../run"])
def test_a_local_directory_is_locked_however_it_is_written(tmp_path, written):
    path = tmp_path / "run"
    path.mkdir()
    with RunDirectory(path).locked(), pytest.raises(UserError, match=f"process {os.getpid()} on .* since .* UTC"):
        RunDirectory(written.format(path)).locked().__enter__()


def test_filesystem_without_locks_gives_a_warning(tmp_path, monkeypatch, caplog):
    def refuse(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", refuse)
    with RunDirectory(tmp_path).locked():
        assert str(tmp_path) in caplog.text


@pytest.fixture
def load(tmp_path, monkeypatch):
    """`load(name, text)`: the class `name` of a module in a file, of which there is one after the other."""

    def call(name: str, more: str = "", file: str = "a_users_objective.py") -> type[Regression]:
        path = tmp_path / file
        path.write_text(f"from tests.toy import Regression\nclass {name}(Regression):\n    pass\n{more}")
        monkeypatch.delitem(sys.modules, path.stem, raising=False)
        load_module(str(path))
        monkeypatch.setitem(sys.modules, path.stem, sys.modules[path.stem])  # deleted at the end
        return getattr(sys.modules[path.stem], name)

    return call


def code_after(task: type[Regression]) -> dict:
    return code_of(task(toy_config()))


def test_another_module_of_the_objective_is_an_error_that_names_both(load, tmp_path):
    directory = RunDirectory(tmp_path)
    before = code_after(load("First"))
    assert changed_versions(directory, before) == {}  # an older version's run has no record
    Path(directory.code_file).write_text(json.dumps(before))
    assert changed_versions(directory, code_after(load("First"))) == {}
    assert changed_versions(directory, code_after(load("First", file="moved.py"))) == {}
    after = code_after(load("First", "SIGN = -1\n"))
    old, new = (code["objective_module"]["a_users_objective"] for code in (before, after))
    with pytest.raises(UserError, match=f"a_users_objective.py .*sha256 is {new[:12]}, the run's {old[:12]}"):
        changed_versions(directory, after)


def test_a_class_that_another_module_inherits_from_counts(load, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    load("Base", file="a_users_base.py")
    derived = load("Other", "from a_users_base import Base\nclass Derived(Base):\n    pass\n")
    module = sys.modules[derived.__module__]
    assert {"a_users_base", "a_users_objective"} <= set(code_after(module.Derived)["objective_module"])


def test_a_run_records_its_code_and_refuses_another_objective_without_changing_a_file(load, tmp_path):
    run = toy_run(toy_config(), tmp_path / "run")
    toy.train_toy(run, task=load("First"), stop_at_step=3)
    recorded = json.loads((tmp_path / "run/code.json").read_text())
    assert len(recorded["objective_module"]["a_users_objective"]) == 64
    assert recorded["electra_tf"] == electra_tf.__version__
    with pytest.raises(UserError, match="a_users_objective.py"):
        toy.train_toy(run, task=load("First", "SIGN = -1\n"))
    assert json.loads((tmp_path / "run/code.json").read_text()) == recorded


@pytest.mark.parametrize("package", ["electra_tf", "tensorflow"])
def test_another_version_is_a_line_in_the_log_and_in_the_reports(copied, monkeypatch, caplog, package):
    before = json.loads(Path(copied, "code.json").read_text())[package]
    monkeypatch.setattr(f"{package}.__version__", "9.8.7")
    for _ in range(2):
        train_toy(copied)
    assert sum(f"{package} {before} before, 9.8.7 now" in message for message in caplog.messages) == 1
    (line,) = [line for line in lines(copied) if line["split"] == "versions"]
    assert (line["step"], line[package]) == (8, "9.8.7")


CONFIG = toy_config(
    train={"save_every_steps": 2, "alarm_after_steps": 2},
    evaluation={"best_metric": "squared_error", "every_steps": 2},
)
START = {"init_from": "/the/source", "initialize": lambda task, source, tokenizer: ["weights of the source"]}


def cut(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> Path:
    """A run that was stopped after half of its steps, not to be changed."""
    model_dir = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Regression, "plateau", lambda task, metrics: "it learns nothing")
        train_toy(model_dir, CONFIG, stop_at_step=4, **START)
    return model_dir


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize(
    "patterns",
    [
        ("*.yaml", "*.json", "*.txt"),
        ("*.jsonl", "milestones/*", "best/*"),
        *((f"checkpoints/{name}",) for name in ("checkpoint", "step-4.index", "step-4.data*")),
    ],
)
def test_a_run_goes_on_with_files_that_a_power_cut_has_left(stopped, tmp_path, caplog, patterns, share):
    run = Path(shutil.copytree(stopped, tmp_path / "run"))
    whole = {file: file.read_bytes() for pattern in patterns for file in run.glob(pattern)}
    assert len(whole) >= len(patterns)
    for file in whole:
        cut(file, share)
    assert train_toy(run, CONFIG, **START)
    assert steps_in(f"{run}/checkpoints")[-1] == 8
    for file, content in whole.items() if "*.json" in patterns else ():
        assert any(str(file) in message for message in caplog.messages)
        # What cannot be known anew of the initial weights is the log of their loading.
        assert file.read_bytes() == content or file.name == "warm_start.json"
    train_toy(run, CONFIG, **START)  # the source that the run has recorded anew


def test_a_refused_call_leaves_a_damaged_configuration_as_it_is(stopped, tmp_path, monkeypatch):
    run = Path(shutil.copytree(stopped, tmp_path / "run"))
    for name in ("config.yaml", "resolved.yaml", "code.json"):
        cut(run / name, 0.0)
    monkeypatch.setattr(Regression, "num_hidden", 4)
    with pytest.raises(UserError, match="step-2 does not fit this run|step-4 does not fit this run"):
        train_toy(run, CONFIG, **START)
    assert (run / "config.yaml").read_bytes() == b""
