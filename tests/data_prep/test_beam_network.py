"""Beam's job service and two of its worker pools, each in its own network namespace, as on three machines."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.data_prep.reading import contents
from tests.namespaces import ip, kill_all, listens, namespace, needs_namespaces, start, wait_for

PORT, POOL_PORT = 8099, 50000
JOB_ADDRESS, *POOL_ADDRESSES = "10.213.0.1", "10.213.1.2", "10.213.2.2"

# Beam's job service with two workers, each of the next pool; its own has one.
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

pytestmark = [pytest.mark.slow, needs_namespaces]


@pytest.fixture(scope="module")
def network() -> Iterator[tuple[str, ...]]:
    """The namespace of the job service, linked to one for each pool. Pools know the name of the service's host."""
    hosts = f"{JOB_ADDRESS} {os.uname().nodename}"
    with ExitStack() as stack:
        job, *pools = (stack.enter_context(namespace(name, hosts)) for name in ("job", "pool1", "pool2"))
        ip("-n", job, "address", "add", f"{JOB_ADDRESS}/32", "dev", "lo")
        for pool, address in zip(pools, POOL_ADDRESSES, strict=True):
            device, gateway = pool[-5:], address[:-1] + "1"
            ip("-n", job, "link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", pool)
            for end, name, own in ((job, device, gateway), (pool, "eth0", address)):
                ip("-n", end, "address", "add", f"{own}/24", "dev", name)
                ip("-n", end, "link", "set", name, "up")
            ip("-n", pool, "route", "add", "default", "via", gateway)
        yield job, *pools


def start_beam(namespace: str, arguments: list[str], log: Path) -> subprocess.Popen:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # a pool starts `python`
    return start(namespace, arguments, log, PATH=path, GRPC_DNS_RESOLVER="native")  # a namespace has no name server


def start_pool(pool: str, directory: Path) -> Path:
    """Starts a worker pool. Returns: its log."""
    log = directory / f"{pool}.log"
    start_beam(pool, ["-m", "apache_beam.runners.worker.worker_pool_main", f"--service_port={POOL_PORT}"], log)
    wait_for(lambda: listens(pool, POOL_PORT))
    return log


@contextmanager
def job_service(job: str, directory: Path) -> Iterator[None]:
    start_beam(job, ["-c", TWO_WORKERS], directory / "job.log")
    try:
        wait_for(lambda: listens(job, PORT))
        yield
    finally:
        kill_all(job)


def test_a_lost_machine_ends_the_build_in_one_line_and_the_same_command_builds_it_again(
    network, source_settings, build_command, expected, tmp_path
):
    job, *pools = network
    settings = source_settings(tmp_path / "data")
    command, log = [*build_command(settings)[1:], *RUNNER], tmp_path / "build.log"
    pool_logs = [start_pool(pool, tmp_path) for pool in pools]

    def num_connections() -> int:
        return len(ip("netns", "exec", pools[1], "ss", "-Htn", "state", "established").splitlines())

    with job_service(job, tmp_path):
        failing = start_beam(job, command, log)
        wait_for(lambda: num_connections() >= 3)  # for control, data and state: its worker has a part of the work
        kill_all(pools[1])
        assert failing.wait(300) == 2
        (error,) = [line for line in log.read_text().splitlines() if line.startswith("error:")]
        assert "PortableRunner" in error
        start_pool(pools[1], tmp_path)
        assert start_beam(job, command, log).wait(300) == 0
    assert all(b"Starting worker" in log.read_bytes() for log in pool_logs)
    assert contents(settings.output_dir) == expected
