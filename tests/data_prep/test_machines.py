"""Several machines that are at work on a data set at once; for its bytes, see `test_same_bytes`."""

import contextlib
import itertools
import os

import pytest

from data_prep import build as build_module
from data_prep import directory
from data_prep.build import build
from data_prep.inputs import BuildInputs
from data_prep.locks import taking_turns
from electra_tf.config.errors import UserError
from electra_tf.data.manifest import Manifest
from tests.data_prep.reading import contents


@pytest.fixture
def machines(source_settings, tmp_path, monkeypatch):
    """`machines["1/3"]`: the settings of a machine, `machines[""]`: those of one machine alone."""
    monkeypatch.setattr("data_prep.inputs._MIN_UNIT_BYTES", 600)
    settings = source_settings(tmp_path / "data", work_dir=str(tmp_path / "work"))
    return {machine: settings.model_copy(update={"machine": machine}) for machine in ("", "0/3", "1/3", "2/3")}


def test_a_number_that_is_taken_and_another_build_meanwhile_are_refused(machines):
    inputs = BuildInputs.find(machines["1/3"])
    configuration = inputs.configuration(inputs.with_text_settings(machines["1/3"]))
    with directory.open_output(machines["1/3"], configuration, []):
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
    machines, expected, tmp_path, monkeypatch, lock_until_wait, is_finished
):
    build(machines["0/3"])
    if not is_finished:  # machine 0/3 counts, having passed a work unit that 1/3 has just written
        build(machines["2/3"])
    turns = itertools.count()

    def lock_before_second_turn(settings):
        if settings.machine == "1/3" and next(turns) == 1:
            lock_until_wait(lambda: build(machines["2/3"]) if is_finished else None)
        return taking_turns(settings)

    monkeypatch.setattr(build_module, "taking_turns", lock_before_second_turn)
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
