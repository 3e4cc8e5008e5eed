"""Several machines share the work on a data set, which has the bytes of one machine's."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from data_prep import build as build_module
from data_prep import directory
from data_prep.build import build
from data_prep.inputs import BuildInputs
from data_prep.locks import taking_turns
from electra_tf.config.errors import UserError
from electra_tf.data.manifest import Manifest

PROJECT = Path(__file__).resolve().parents[2]


class Killed(BaseException):
    """Stands for SIGKILL."""


@pytest.fixture(scope="module")
def source(tmp_path_factory, one_word_documents, packers):
    """A text file, and the same documents but some in a bzip2 file of many blocks."""
    directory = tmp_path_factory.mktemp("source")
    documents = one_word_documents(40)
    (directory / "a.txt").write_text("\n\n".join(documents))
    (directory / "b.txt").write_bytes(packers["bzip2 streams"]("\n\n".join(documents[5:]).encode()))
    return directory


@pytest.fixture
def machines(build_settings, source, tmp_path, monkeypatch):
    """`machines["1/3"]`: the settings of a machine, `machines[""]`: those of one machine alone."""
    monkeypatch.setattr("data_prep.inputs._MIN_UNIT_BYTES", 600)
    settings = build_settings([f"text:{source}/*.txt"], tmp_path / "data", work_dir=str(tmp_path / "work"))
    return {machine: settings.model_copy(update={"machine": machine}) for machine in ("", "0/3", "1/3", "2/3")}


@pytest.fixture(scope="module")
def expected(build_settings, source, tmp_path_factory, contents):
    """The data set of one machine, which has no other."""
    output_dir = tmp_path_factory.mktemp("expected") / "data"
    build(build_settings([f"text:{source}/*.txt"], output_dir))
    return contents(output_dir)


@contextlib.contextmanager
def at_work(settings):
    """Another process is at work with these settings."""
    inputs = BuildInputs.find(settings)
    configuration = inputs.configuration(inputs.with_text_settings(settings))
    with directory.open_output(settings, configuration, []):
        yield


@pytest.mark.slow
def test_the_last_of_several_machines_writes_the_data_set_of_one(machines, expected, tmp_path, contents):
    assert build(machines["2/3"]) is None and build(machines["0/3"]) is None
    assert os.listdir(tmp_path / "data") == []
    assert build(machines["1/3"]) == build(machines["0/3"])  # it is finished now
    assert contents(tmp_path / "data") == expected
    assert os.listdir(tmp_path / "work") == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["write_unit", "write_shard_of_spills"])
def test_a_machine_that_is_killed_is_started_again(machines, expected, tmp_path, contents, monkeypatch, name):
    calls = []

    def killed(task):
        calls.append(task)
        if len(calls) == 3:
            raise Killed
        return function(task)

    if name == "write_shard_of_spills":
        build(machines["0/3"])
        build(machines["2/3"])
    with monkeypatch.context() as patch:
        function = getattr(build_module, name)
        patch.setattr(build_module, name, killed)
        with pytest.raises(Killed):
            build(machines["1/3"])
    if name == "write_unit":
        build(machines["0/3"])
        assert build(machines["2/3"]) is None
    build(machines["1/3"])
    assert contents(tmp_path / "data") == expected


def test_one_machine_finishes_what_others_began(machines, expected, tmp_path, contents):
    build(machines["1/3"])
    build(machines[""])
    assert contents(tmp_path / "data") == expected


def test_a_number_that_is_taken_and_another_build_meanwhile_are_refused(machines):
    with at_work(machines["1/3"]):
        assert build(machines["2/3"]) is None
        with pytest.raises(UserError, match="another process is doing machine=1/3"):
            build(machines["1/3"])
        with pytest.raises(UserError, match="machine-1"):
            build(machines[""])
        with pytest.raises(UserError, match="another seed"):
            build(machines["0/3"].model_copy(update={"seed": 5}))
    with taking_turns(machines["1/3"]), pytest.raises(UserError, match="another process is building"):
        build(machines[""])


@pytest.fixture
def lock_until_wait(machines, monkeypatch):
    """`lock_until_wait(then)`: machine 0/3 has its turn until another one waits; this calls `then`, and tries again."""

    def lock(then):
        turn = contextlib.ExitStack()
        turn.enter_context(taking_turns(machines["0/3"]))

        def sleep(_):
            turn.close()
            then()

        monkeypatch.setattr("data_prep.locks.time.sleep", sleep)

    return lock


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_machine_that_is_done_waits_for_its_turn_and_then_sees_what_others_did(
    machines, expected, tmp_path, contents, monkeypatch, lock_until_wait, is_finished
):
    build(machines["0/3"])
    if not is_finished:  # machine 0/3 counts, having passed a work unit that 1/3 has just written
        build(machines["2/3"])
    write_spills = build_module.Build._write_spills

    def write_then_lock(own_build, run_all):
        spills = write_spills(own_build, run_all)
        if own_build._settings.machine == "1/3":
            lock_until_wait(lambda: build(machines["2/3"]) if is_finished else None)
        return spills

    monkeypatch.setattr(build_module.Build, "_write_spills", write_then_lock)
    assert build(machines["1/3"]) == Manifest.load(str(tmp_path / "data"))
    assert contents(tmp_path / "data") == expected
    assert os.listdir(tmp_path / "work") == []


def test_a_machine_started_again_while_another_writes_the_shards_finds_them(machines, tmp_path, lock_until_wait):
    build(machines["0/3"])
    build(machines["1/3"])
    manifests = []
    lock_until_wait(lambda: manifests.append(build(machines["2/3"])))
    assert [build(machines["1/3"])] == manifests
    assert os.listdir(tmp_path / "work") == []


@pytest.mark.parametrize("changes", [{"machine": "3/3"}, {"machine": "a"}, {"work_dir": ""}, {"overwrite": True}])
def test_machines_that_cannot_share_the_work_are_refused(build_settings, tmp_path, changes):
    with pytest.raises(UserError, match="machine"):
        build_settings(["text:*"], tmp_path / "data", **{"machine": "1/3", "work_dir": str(tmp_path), **changes})


@pytest.mark.slow
def test_three_machines_at_once_of_which_one_is_killed_give_the_bytes_of_one(source, vocab_file, tmp_path, contents):
    text = "\n\n".join(path.read_text() for path in [source / "a.txt"] * 300)
    for number in range(9):
        (tmp_path / f"{number}.txt").write_text(text.replace("w1 ", f"w{number} "))
    command = [sys.executable, "build_pretraining_dataset.py", f"--input=text:{tmp_path}/*.txt"]
    command += [f"--vocab_file={vocab_file}", "--seed=3", "--no-drop_duplicates"]
    subprocess.run([*command, f"--output_dir={tmp_path}/one"], cwd=PROJECT, check=True)
    command += [f"--output_dir={tmp_path}/data", f"--work_dir={tmp_path}/work"]

    def start(machine: str) -> subprocess.Popen:
        (tmp_path / f"tmp{machine[0]}").mkdir(exist_ok=True)
        environment = os.environ | {"TMPDIR": f"{tmp_path}/tmp{machine[0]}"}
        return subprocess.Popen([*command, f"--machine={machine}"], cwd=PROJECT, env=environment)

    started = [start(machine) for machine in ("0/3", "1/3", "2/3")]
    while not list((tmp_path / "work").glob("*/unit-*")):
        time.sleep(0.05)
    started[1].send_signal(signal.SIGKILL)
    started[1].wait()
    started[1] = start("1/3")
    assert [machine.wait() for machine in started] == [0, 0, 0]
    assert contents(tmp_path / "data") == contents(tmp_path / "one")
