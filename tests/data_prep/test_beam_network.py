"""Beam's job service and two of its worker pools, each in its own network namespace, as on three machines."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from data_prep.build import build

ROOT = Path(__file__).parents[2]
PORT, POOL_PORT = 8099, 50000
JOB, *POOLS = (f"electra-{os.getpid()}-{name}" for name in ("job", "pool1", "pool2"))
JOB_ADDRESS, *POOL_ADDRESSES = "10.213.0.1", "10.213.1.2", "10.213.2.2"

JOB_SERVICE = ["-m", "apache_beam.runners.portability.local_job_service_main", f"--port={PORT}"]
# The same with two workers, each of the next pool; Beam's own has one.
TWO_WORKERS = f"""
import itertools
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability import local_job_service_main
from apache_beam.runners.portability.fn_api_runner import fn_runner, worker_handlers

class TwoWorkers(fn_runner.FnApiRunner):
    def __init__(self, **given):
        super().__init__(**given)
        self._num_workers = 2

class NextPool(worker_handlers.ExternalWorkerHandler):
    pools = itertools.cycle({POOL_ADDRESSES})

    def start_worker(self):
        self._external_payload.endpoint.url = next(self.pools) + ":{POOL_PORT}"
        super().start_worker()

fn_runner.FnApiRunner = TwoWorkers
payload = beam_runner_api_pb2.ExternalPayload
worker_handlers.WorkerHandler.register_environment(common_urns.environments.EXTERNAL.urn, payload)(NextPool)
local_job_service_main.run(["--port={PORT}"])
"""
RUNNER = ["--runner=PortableRunner", f"--job_endpoint=localhost:{PORT}", "--environment_type=EXTERNAL"]
RUNNER.append(f"--environment_config={POOL_ADDRESSES[0]}:{POOL_PORT}")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(not any(map(os.path.exists, ("/sbin/ip", "/usr/sbin/ip"))), reason="apt-get install iproute2"),
]


def ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


def start(namespace: str, arguments: list, log: Path) -> subprocess.Popen:
    """Starts Python in a namespace, which has no name server: names are in its /etc/hosts."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # a pool starts `python`
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, "GRPC_DNS_RESOLVER": "native"}
    with open(log, "ab") as stream:
        command = ["ip", "netns", "exec", namespace, sys.executable, *map(str, arguments)]
        return subprocess.Popen(command, stdout=stream, stderr=stream, env=environment, cwd=log.parent)


def wait_for(is_true, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.1)


def kill_all(namespace: str) -> None:
    """Kills all processes of a namespace, as the end of its machine would."""
    for pid in ip("netns", "pids", namespace).split():
        os.kill(int(pid), signal.SIGKILL)


@pytest.fixture(scope="module")
def network() -> Iterator[None]:
    """A namespace for the job service, linked to one for each pool. Pools know the name of the job service's host."""
    hosts = f"127.0.0.1 localhost\n{JOB_ADDRESS} {os.uname().nodename}\n"
    try:
        for namespace in (JOB, *POOLS):
            ip("netns", "add", namespace)
            ip("-n", namespace, "link", "set", "lo", "up")
            (directory := Path("/etc/netns", namespace)).mkdir(parents=True)
            (directory / "hosts").write_text(hosts)
        ip("-n", JOB, "address", "add", f"{JOB_ADDRESS}/32", "dev", "lo")
        for pool, address in zip(POOLS, POOL_ADDRESSES, strict=True):
            device, gateway = f"to{pool[-1]}", address[:-1] + "1"
            ip("-n", JOB, "link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", pool)
            for namespace, name, own in ((JOB, device, gateway), (pool, "eth0", address)):
                ip("-n", namespace, "address", "add", f"{own}/24", "dev", name)
                ip("-n", namespace, "link", "set", name, "up")
            ip("-n", pool, "route", "add", "default", "via", gateway)
        yield
    finally:
        for namespace in (JOB, *POOLS):
            kill_all(namespace)
            ip("netns", "delete", namespace)
            (Path("/etc/netns", namespace) / "hosts").unlink()
            Path("/etc/netns", namespace).rmdir()


def start_pool(index: int, directory: Path) -> Path:
    """Starts a worker pool. Returns: its log."""
    log = directory / f"pool{index}.log"
    log.write_bytes(b"")
    start(POOLS[index], ["-m", "apache_beam.runners.worker.worker_pool_main", f"--service_port={POOL_PORT}"], log)
    wait_for(lambda: b"Started worker pool" in log.read_bytes())
    return log


@contextmanager
def job_service(arguments: list[str], directory: Path) -> Iterator[None]:
    log = directory / "job.log"
    start(JOB, arguments, log)
    try:
        wait_for(lambda: ip("netns", "exec", JOB, "ss", "-Hltn", f"sport = {PORT}"))
        yield
    finally:
        kill_all(JOB)


@pytest.fixture
def settings(tmp_path, build_settings, one_word_documents):
    """The build of 29 documents in four files."""
    (tmp_path / "in").mkdir()
    for i in range(4):
        (tmp_path / f"in/{i}.txt").write_text("\n\n".join(one_word_documents(29)[i::4]))
    return build_settings([f"text:{tmp_path}/in/*"], tmp_path / "remote")


@pytest.fixture
def expected(settings, tmp_path, contents):
    """The files of a local build."""
    build(settings.model_copy(update={"output_dir": str(tmp_path / "local")}))
    return contents(tmp_path / "local")


def test_the_job_service_of_beam_and_a_pool_on_another_machine_write_the_bytes_of_a_local_build(
    network, settings, build_command, expected, contents, tmp_path
):
    start_pool(0, tmp_path)
    with job_service(JOB_SERVICE, tmp_path):
        assert start(JOB, [*build_command(settings)[1:], *RUNNER], tmp_path / "build.log").wait(300) == 0
    kill_all(POOLS[0])
    assert contents(settings.output_dir) == expected


def test_a_lost_machine_ends_the_build_in_one_line_and_the_same_command_builds_it_again(
    network, settings, build_command, expected, contents, tmp_path
):
    command, log = [*build_command(settings)[1:], *RUNNER], tmp_path / "build.log"
    pool_logs = [start_pool(index, tmp_path) for index in range(2)]

    def num_connections() -> int:
        return len(ip("netns", "exec", POOLS[1], "ss", "-Htn", "state", "established").splitlines())

    with job_service(["-c", TWO_WORKERS], tmp_path):
        failing = start(JOB, command, log)
        wait_for(lambda: num_connections() >= 3)  # for control, data and state: its worker has a part of the work
        kill_all(POOLS[1])
        assert failing.wait(300) == 2
        (error,) = [line for line in log.read_text().splitlines() if line.startswith("error:")]
        assert "PortableRunner" in error
        start_pool(1, tmp_path)
        assert start(JOB, command, log).wait(300) == 0
    assert all(b"Starting worker" in log.read_bytes() for log in pool_logs)
    assert contents(settings.output_dir) == expected
