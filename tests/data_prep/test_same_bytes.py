"""The documents, the vocabulary and the settings alone determine every byte of a data set: one set, built in many ways.

The source of the set has copies of documents, also ones that are divided in two ways, and faulty records.
"""

import errno
import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest

from data_prep import archives, directory
from data_prep import build as build_module
from data_prep.archives import ReadError
from data_prep.build import build
from data_prep.manifest import verify
from electra_tf.config.errors import EXIT_INTERRUPTED
from electra_tf.data.manifest import MANIFEST_FILE, Manifest
from electra_tf.files import names_in
from tests.data_prep.reading import contents
from tests.data_prep.stopping import build_until
from tests.data_prep.texts import PACKERS, inputs_of, tar
from tests.stores import store_on_loopback

PROJECT = Path(__file__).resolve().parents[2]
SLOW = pytest.mark.slow


@pytest.fixture
def settings(source_settings, tmp_path):
    return source_settings(tmp_path / "data")


@pytest.fixture
def in_small_units(monkeypatch):
    monkeypatch.setattr("data_prep.inputs._MIN_UNIT_BYTES", 400)


@pytest.mark.parametrize(
    ("unit_bytes", "num_processes"), [(1, 1), (100, 1), (700, 1), pytest.param(150, 2, marks=SLOW)]
)
def test_units_and_processes(settings, expected, monkeypatch, unit_bytes, num_processes):
    monkeypatch.setattr("data_prep.inputs._MIN_UNIT_BYTES", unit_bytes)
    monkeypatch.setattr("data_prep.store._RUN_BYTES", unit_bytes)
    build(settings.model_copy(update={"num_processes": num_processes}))
    assert contents(settings.output_dir) == expected


@pytest.mark.parametrize("packing", ["plain", "bzip2 streams", "tar"])
def test_names_order_and_packing(source, source_settings, data_dir, expected, tmp_path, in_small_units, packing):
    (tmp_path / "in").mkdir()
    for number, path in enumerate(sorted(source.iterdir(), reverse=True)):
        text = archives.unpack(io.BytesIO(path.read_bytes())).read()
        packed = tar({"a/1": text}) if packing == "tar" else PACKERS[packing](text)
        (tmp_path / f"in/{number}{path.suffix}").write_bytes(packed)
    settings = source_settings(tmp_path / "data", inputs=inputs_of(tmp_path / "in")[::-1])
    manifest, of_source = build(settings), Manifest.load(data_dir)
    assert {**contents(settings.output_dir), MANIFEST_FILE: b""} == {**expected, MANIFEST_FILE: b""}
    for name in ("counts", "splits", "token_counts"):
        assert getattr(manifest, name) == getattr(of_source, name)


FULL = {"failure": OSError(errno.ENOSPC, "No space left on device"), "match": "output_dir=.*No space left on device"}
UNREADABLE = {"failure": ReadError("cannot read a.txt"), "match": "cannot read a.txt; the same command continues"}


@pytest.mark.parametrize("after", [pytest.param(False, marks=SLOW), True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("module", "name", "call", "end"),
    [
        (build_module, "write_unit", 5, {}),
        (build_module, "write_unit", 2, FULL),
        (build_module, "write_unit", 2, UNREADABLE),
        (build_module, "require_text", 1, {}),
        (build_module, "write_shard", 1, {}),
        (build_module, "write_shard_of_spills", 2, {}),
        (build_module, "write_shard_of_spills", 2, FULL),
        (build_module, "write_atomically", 2, {}),
        (build_module, "write_manifest", 1, {}),
        (directory.shutil, "rmtree", 1, {}),
        (directory, "remove_intermediate", 1, {}),
    ],
)
def test_a_kill_at_any_moment_a_full_disk_and_an_unreadable_input(
    settings, expected, in_small_units, module, name, call, end, after
):
    build_until(settings, module, name, call, after=after, **end)
    assert not end or list(settings.build_dir.glob("unit-*"))
    build(settings)
    assert contents(settings.output_dir) == expected


def test_a_damaged_shard(settings, expected, in_small_units):
    build_until(settings, build_module, "write_shard_of_spills", 2)
    (shard, *_) = Path(settings.output_dir).glob("*.tfrecord")
    shard.write_bytes(b"junk")
    build(settings)
    assert contents(settings.output_dir) == expected


# The command, with small units. At the tenth it does what its first argument says.
COMMAND = """
import multiprocessing, os, signal, sys
import data_prep.build, data_prep.inputs
from data_prep.cli.build_pretraining_dataset import main

def interrupted_units(*arguments):
    for index, unit in enumerate(plan_units(*arguments)):
        if index == 9:
            exec(interrupt)
        yield unit

data_prep.inputs._MIN_UNIT_BYTES = 1
plan_units, data_prep.build.plan_units = data_prep.build.plan_units, interrupted_units
interrupt = sys.argv.pop(1)
sys.exit(main(sys.argv[1:]))
"""
KILL_A_WORKER = "os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)"
# As a terminal does: every process gets the signal, also where it is ignored, as in the background.
CTRL_C = """
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    signal.raise_signal(signal.SIGINT)
finally:
    [os.kill(each.pid, signal.SIGINT) for each in multiprocessing.active_children()]
"""
KILL_ITSELF = "os.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture
def start(build_command):
    """`start(settings, interrupt)`: starts the command."""

    def start(settings, interrupt: str = "pass", **variables: str) -> subprocess.Popen:
        command = [sys.executable, "-c", COMMAND, interrupt, *build_command(settings)[2:]]
        return subprocess.Popen(command, cwd=PROJECT, stderr=subprocess.PIPE, text=True, env=os.environ | variables)

    return start


@SLOW
@pytest.mark.parametrize(
    ("interrupt", "status", "message"),
    [
        (KILL_A_WORKER, 2, "error: a worker process was killed, .*; the same command continues the build"),
        (CTRL_C, EXIT_INTERRUPTED, "unfinished: the same command continues the build\ninterrupted"),
        (KILL_ITSELF, -signal.SIGKILL, ""),
    ],
    ids=["a killed worker", "ctrl-c", "a killed command"],
)
def test_an_interrupted_command(source_settings, start, expected, tmp_path, interrupt, status, message):
    settings = source_settings(tmp_path / "data", num_processes=2)
    interrupted = start(settings, interrupt)
    lines = interrupted.communicate()[1].replace("\r", "\n").splitlines()
    assert interrupted.returncode == status
    if message:  # a killed command has none, and its workers may have their own
        assert re.fullmatch(message, "\n".join(lines[-len(message.splitlines()) :]))
        assert [line for line in lines if line.startswith(("error:", "Traceback"))] == lines[-1:] * (status == 2)
    assert list(settings.build_dir.glob("unit-*"))
    continued = start(settings)
    assert "work units were already done" in continued.communicate()[1]
    assert continued.returncode == 0 and contents(settings.output_dir) == expected


@SLOW
def test_three_machines_at_once_of_which_one_is_killed(source_settings, start, expected, tmp_path):
    def start_machine(number: int, interrupt: str = "pass") -> subprocess.Popen:
        machine = {"work_dir": str(tmp_path / "work"), "machine": f"{number}/3"}
        (tmp_path / f"tmp{number}").mkdir(exist_ok=True)
        return start(source_settings(tmp_path / "data", **machine), interrupt, TMPDIR=f"{tmp_path}/tmp{number}")

    killed, *others = start_machine(1, KILL_ITSELF), start_machine(0), start_machine(2)
    assert killed.wait() == -signal.SIGKILL
    assert [each.wait() for each in (start_machine(1), *others)] == [0, 0, 0]
    assert contents(tmp_path / "data") == expected


@pytest.fixture
def store(request, tmp_path, monkeypatch):
    """The URL of a directory in a store."""
    if request.param == "memory":
        yield f"memory:/{tmp_path}"
        fsspec.filesystem("memory").store.clear()
        return
    with store_on_loopback(request.param, monkeypatch) as url:
        yield url


def put_source(source: Path, vocab_file: str, url: str) -> dict[str, str]:
    """Copies the source to `in/` in a store, and the vocabulary. Returns: the settings that name them."""
    filesystem = fsspec.filesystem(url.partition(":")[0])
    filesystem.put(f"{source}/", f"{url}/in/", recursive=True)
    filesystem.put_file(vocab_file, f"{url}/vocab.txt")
    return {"source": f"{url}/in", "vocab_file": f"{url}/vocab.txt"}


@pytest.mark.parametrize("store", ["memory"], indirect=True)
def test_a_store_and_a_kill(store, source, source_settings, vocab_file, expected, tmp_path, in_small_units):
    changes = put_source(source, vocab_file, store) | {"work_dir": str(tmp_path / "work")}
    settings = source_settings(f"{store}/out", **changes)
    build_until(settings, build_module, "write_manifest", 1, after=False)
    assert {name.rpartition(".")[2] for name in names_in(settings.output_dir)} == {"tfrecord"}
    build(settings)
    assert contents(settings.output_dir) == expected
    assert not settings.build_dir.exists()


@SLOW
@pytest.mark.parametrize("store", ["s3", "gs"], indirect=True)
def test_two_processes_and_a_store(store, source, source_settings, build_command, vocab_file, expected, tmp_path):
    changes = put_source(source, vocab_file, store) | {"work_dir": str(tmp_path), "num_processes": 2}
    # Its workers get the address of the store.
    subprocess.run(build_command(source_settings(f"{store}/out", **changes)), check=True)
    assert contents(f"{store}/out") == expected
    verify(f"{store}/out")


@SLOW
def test_files_of_the_hugging_face_hub(hub, source, source_settings, expected, tmp_path):
    hub.add("datasets/me/texts", source)
    build(source_settings(tmp_path / "data", "hf://datasets/me/texts"))
    assert contents(tmp_path / "data") == expected


IN_PROCESS = ["--runner=DirectRunner"]
TWO_PROCESSES = [*IN_PROCESS, "--direct_running_mode=multi_processing", "--direct_num_workers=2"]
REPEATED_STEPS = [*IN_PROCESS, "--direct_runner_bundle_repeat=2"]


@SLOW
@pytest.mark.parametrize("arguments", [IN_PROCESS, TWO_PROCESSES, REPEATED_STEPS])
def test_beam(settings, expected, tmp_path, monkeypatch, in_small_units, arguments):
    from data_prep import beam

    monkeypatch.chdir(tmp_path)  # this package cannot be imported from here without help
    beam.run(settings, arguments)
    assert contents(settings.output_dir) == expected


@SLOW
@pytest.mark.parametrize("store", ["memory"], indirect=True)
@pytest.mark.parametrize("is_remote", [False, True])
def test_beam_after_a_failure(store, is_remote, settings, source, source_settings, vocab_file, expected, monkeypatch):
    from data_prep import beam

    if is_remote:
        settings = source_settings(f"{store}/out", **put_source(source, vocab_file, store))
    with monkeypatch.context() as patch:
        patch.setattr(beam, "write_manifest", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            beam.run(settings, IN_PROCESS)
    beam.run(settings.model_copy(update={"overwrite": is_remote}), IN_PROCESS)  # at a URL the same command is refused
    assert contents(settings.output_dir) == expected


@pytest.mark.parametrize(
    "commands",
    [
        ["1/3", ""],  # one machine alone finishes
        pytest.param(["1/3 write_unit", "0/3", "2/3", "1/3"], marks=SLOW),
        pytest.param(["0/3", "2/3", "1/3 write_shard_of_spills", "1/3"], marks=SLOW),
    ],
)
def test_machines_and_a_kill_of_one(source_settings, expected, tmp_path, in_small_units, commands):
    manifests = []
    for command in commands:
        machine, _, killed_at = command.partition(" ")
        settings = source_settings(tmp_path / "data", work_dir=str(tmp_path / "work"), machine=machine)
        if killed_at:
            build_until(settings, build_module, killed_at, 3, after=False)
        else:
            manifests.append(build(settings))
            assert manifests[-1] or names_in(tmp_path / "data") == []
    assert manifests[:-1] == [None] * (len(manifests) - 1)
    assert contents(tmp_path / "data") == expected
    assert os.listdir(tmp_path / "work") == []
    assert build(settings.model_copy(update={"machine": "0/3"})) == manifests[-1]  # it is finished now
