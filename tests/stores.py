"""Stores on the loopback that speak their own protocols: Amazon's by moto's server, Google's by gcp-storage-emulator.

`pip install -c constraints.txt -r tests/requirements-stores.txt`; without them, the tests are skipped.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import urlopen

import fsspec
import pytest


@contextmanager
def store_on_loopback(scheme: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Runs the server of s3:// or gs:// and lets fsspec use it, also in new processes. Yields: the URL of a bucket."""
    module = pytest.importorskip({"s3": "moto.server", "gs": "gcp_storage_emulator.server"}[scheme])
    pytest.importorskip({"s3": "s3fs", "gs": "gcsfs"}[scheme])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host, port = free.getsockname()
    if scheme == "s3":
        server = module.ThreadedMotoServer(host, port, verbose=False)
        settings = {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_DEFAULT_REGION": "us-east-1"}
        settings |= {"AWS_ACCESS_KEY_ID": "anyone", "AWS_SECRET_ACCESS_KEY": "anything"}
    else:
        server = module.create_server(host, port, in_memory=True, default_bucket="bucket")
        settings = {"STORAGE_EMULATOR_HOST": f"http://{host}:{port}", "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    filesystem = fsspec.get_filesystem_class(scheme)
    server.start()
    try:
        filesystem.clear_instance_cache()
        if scheme == "s3":
            urlopen(f"http://{host}:{port}/moto-api/reset", b"")  # all its servers in a process share their buckets
            fsspec.filesystem(scheme).mkdir("bucket")
        yield f"{scheme}://bucket"
    finally:
        filesystem.clear_instance_cache()
        server.stop()
