"""Each kind of damage to the newest checkpoint: what was damaged, what is said, what is used.

python -m pytest tests/train/test_damaged_checkpoints.py -v -s -k table
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.loader import config_to_yaml
from electra_tf.runs.checkpoint import Checkpoints
from electra_tf.runs.directory import RunDirectory
from electra_tf.runs.load import load_run
from electra_tf.tasks.pretrain import build_objective
from electra_tf.train.step import compile_task

INDEX, DATA, JSON = "step-20.index", "step-20.data-00000-of-00001", "step-20.json"


def _truncate(file: str, length: int | None = None) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        content = (folder / file).read_bytes()
        (folder / file).write_bytes(content[: len(content) // 2 if length is None else length])

    return damage


def _append(file: str) -> Callable[[Path], None]:
    return lambda folder: (folder / file).write_bytes((folder / file).read_bytes() + b"x")


def _flip(file: str, position: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        content = bytearray((folder / file).read_bytes())
        content[position] ^= 1
        (folder / file).write_bytes(content)

    return damage


def _remove(*files: str) -> Callable[[Path], None]:
    return lambda folder: [(folder / file).unlink() for file in files]


def _replace(file: str, other: str) -> Callable[[Path], None]:
    return lambda folder: shutil.copy(folder / other, folder / file)


def _write(file: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / file).write_bytes(content)


def _make_directory(file: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / file).unlink()
        (folder / file).mkdir()

    return damage


# What was damaged: how, and the words in which it is reported.
DAMAGES = {
    "data cut in half": (_truncate(DATA), f"{DATA} has "),
    "data empty": (_truncate(DATA, 0), f"{DATA} has 0 bytes instead of "),
    "data one byte longer": (_append(DATA), f"{DATA} has "),
    "data, a bit flipped in the first byte": (_flip(DATA, 0), f"the content of {DATA} is not what {JSON} says"),
    "data, a bit flipped in the middle": (_flip(DATA, 20_000), f"the content of {DATA} is not what {JSON} says"),
    "data, a bit flipped in the last byte": (_flip(DATA, -1), f"the content of {DATA} is not what {JSON} says"),
    "data missing": (_remove(DATA), f"{DATA} is missing"),
    "data of another step": (
        _replace(DATA, DATA.replace("20", "10")),
        f"the content of {DATA} is not what {JSON} says",
    ),
    "index cut in half": (_truncate(INDEX), f"{INDEX} has "),
    "index, a bit flipped in the middle": (_flip(INDEX, 2000), f"the content of {INDEX} is not what {JSON} says"),
    "index, a bit flipped in the last byte": (_flip(INDEX, -1), f"the content of {INDEX} is not what {JSON} says"),
    "index missing": (_remove(INDEX), f"{INDEX} is missing"),
    "index a directory": (_make_directory(INDEX), f"{INDEX} is missing"),
    "description cut in half": (_truncate(JSON), f"{JSON} is damaged"),
    "description empty": (_truncate(JSON, 0), f"{JSON} is damaged"),
    "description, a bit flipped in a checksum": (_flip(JSON, -20), f"the content of {INDEX} is not what {JSON} says"),
    "description, a bit flipped in the step": (_flip(JSON, 10), f"{JSON} is damaged"),
    "description of another step": (_replace(JSON, "step-10.json"), f"{JSON} is damaged"),
    "description not text": (_write(JSON, b"\xff\xfe\x00\x80"), f"{JSON} is damaged"),
    "description another JSON": (_write(JSON, b"[20]"), f"{JSON} is damaged"),
    "description missing": (_remove(JSON), f"{JSON} is missing"),
    "all but the description missing": (_remove(INDEX, DATA), f"{DATA} is missing"),
    "all but the data missing": (_remove(INDEX, JSON), f"{JSON} is missing"),
}


@pytest.fixture(scope="module")
def config(tiny_config):
    return tiny_config()


@pytest.fixture(scope="module")
def objective(config):
    return compile_task(build_objective(config))


def _mark(objective, step: int) -> None:
    objective.encoder.embeddings.position_embeddings.assign(np.full([13, 12], step, np.float32))
    objective.optimizer.iterations.assign(step)


@pytest.fixture(scope="module")
def saved(objective, config, tmp_path_factory) -> Path:
    """A run's directory with checkpoints of the steps 10 and 20."""
    run = RunDirectory(tmp_path_factory.mktemp("saved") / "run")
    checkpoints = Checkpoints(objective, run, chief=True, keep=2)
    for step in (10, 20):
        _mark(objective, step)
        checkpoints.save(step)
    checkpoints.close()
    run.config_file.write_text(config_to_yaml(config), encoding="utf-8")
    return run.path


@pytest.fixture
def run(saved, tmp_path) -> RunDirectory:
    return RunDirectory(shutil.copytree(saved, tmp_path / "run"))


def _restored_by(objective, run: RunDirectory) -> tuple[int, float]:
    """The step that a resumed run stands at, and a weight of that step."""
    _mark(objective, 99)
    step = Checkpoints(objective, run, chief=True, keep=2).restore_latest()
    assert int(objective.optimizer.iterations.numpy()) == step
    return step, float(objective.encoder.embeddings.position_embeddings.numpy()[12, 11])


def test_an_undamaged_newest_checkpoint_is_used_without_a_word(objective, run, caplog):
    assert _restored_by(objective, run) == (20, 20.0)
    assert caplog.messages == []


@pytest.mark.parametrize("damaged", DAMAGES)
def test_table_of_damages_what_is_said_and_what_is_used(objective, run, caplog, damaged):
    damage, said = DAMAGES[damaged]
    damage(run.checkpoints)
    used = _restored_by(objective, run)
    (message,) = caplog.messages
    assert message.startswith(f"{run.checkpoints}/step-20 is damaged: {said}")
    assert message.endswith("; step-10 is used instead")
    assert "\n" not in message
    assert used == (10, 10.0)
    print(f"\n| {damaged} | {message.partition('/checkpoints/')[2]} | step-{used[0]} |")


@pytest.mark.parametrize("damaged", DAMAGES)
def test_the_only_checkpoint_damaged_is_an_error_and_no_start_from_scratch(objective, run, damaged):
    DAMAGES[damaged][0](run.checkpoints)
    for file in run.checkpoints.glob("step-10.*"):
        file.unlink()
    before = sorted(path.name for path in run.checkpoints.iterdir())
    with pytest.raises(UserError, match=r"checkpoints holds no whole checkpoint \(step-20: ") as caught:
        _restored_by(objective, run)
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in run.checkpoints.iterdir()) == before


def test_with_all_of_them_damaged_each_is_named(objective, run):
    (run.checkpoints / "step-20.index").unlink()
    (run.checkpoints / "step-10.json").write_bytes(b"{}")
    with pytest.raises(UserError, match=r"\(step-20: step-20\.index is missing, step-10: step-10\.json is damaged\)"):
        _restored_by(objective, run)


def test_two_newer_ones_damaged_are_two_lines(objective, run, caplog):
    _mark(objective, 30)
    checkpoints = Checkpoints(objective, run, chief=True, keep=3)
    checkpoints.save(30)
    (run.checkpoints / "step-30.index").write_bytes(b"")
    (run.checkpoints / "step-20.index").unlink()
    assert _restored_by(objective, run)[0] == 10
    assert [message.partition("/checkpoints/")[2].partition(" has ")[0] for message in caplog.messages] == [
        "step-30 is damaged: step-30.index",
        "step-20 is damaged: step-20.index is missing; step-10 is used instead",
    ]


@pytest.mark.parametrize("damaged", ["data cut in half", "index a directory", "description missing"])
def test_a_run_that_goes_on_replaces_what_was_damaged(objective, run, caplog, damaged):
    DAMAGES[damaged][0](run.checkpoints)
    checkpoints = Checkpoints(objective, run, chief=True, keep=2)
    checkpoints.restore_latest()
    _mark(objective, 20)
    checkpoints.save(20)
    caplog.clear()
    assert _restored_by(objective, run) == (20, 20.0)
    assert caplog.messages == []


def test_a_file_that_may_not_be_read_is_damaged(objective, run, monkeypatch, caplog):
    from electra_tf.runs import checkpoint_files

    def refuse(file):
        if file.name == INDEX:
            raise PermissionError(13, "Permission denied", str(file))
        return original(file)

    original = checkpoint_files._sha256
    monkeypatch.setattr(checkpoint_files, "_sha256", refuse)
    assert _restored_by(objective, run)[0] == 10
    assert f"{INDEX} cannot be read (Permission denied)" in caplog.text


def test_a_trained_model_is_read_from_the_newest_whole_checkpoint(run, caplog):
    (run.checkpoints / INDEX).unlink()
    positions = load_run(run.path).encoder.embeddings.position_embeddings
    assert tf.reduce_all(positions == 10.0)
    assert f"{INDEX} is missing; step-10 is used instead" in caplog.text
    with pytest.raises(UserError, match=r"step-20 is no whole checkpoint: step-20\.index is missing"):
        load_run(run.path, 20)
