"""Machines of a network on this one: network namespaces of Linux, each with its own addresses and names."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip"), reason="network namespaces need root and `ip` (apt install iproute2)"
)


def ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


@contextmanager
def namespace(purpose: str, hosts: str) -> Iterator[str]:
    """Makes a namespace with `hosts` in its /etc/hosts; its processes are killed at the end. Yields: its name."""
    name = f"electra-{os.getpid()}-{purpose}"
    directory = Path("/etc/netns", name)
    directory.mkdir(parents=True)
    (directory / "hosts").write_text(f"127.0.0.1 localhost\n{hosts}\n")
    ip("netns", "add", name)
    try:
        ip("-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        kill_all(name)
        ip("netns", "delete", name)
        shutil.rmtree(directory)


def start(namespace: str, arguments: list, log: Path, **variables: str) -> subprocess.Popen:
    """Starts Python in a namespace, in the directory of its log."""
    with open(log, "ab") as stream:
        command = ["ip", "netns", "exec", namespace, sys.executable, *map(str, arguments)]
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": paths, **variables}
        return subprocess.Popen(command, stdout=stream, stderr=stream, env=environment, cwd=log.parent)


def kill_all(namespace: str) -> None:
    """Kills all processes of a namespace, as the end of its machine would."""
    for pid in ip("netns", "pids", namespace).split():
        os.kill(int(pid), signal.SIGKILL)


def wait_for(is_true: Callable[[], object], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.1)


def listens(namespace: str, port: int) -> bool:
    return bool(ip("netns", "exec", namespace, "ss", "-Hltn", f"sport = {port}"))
