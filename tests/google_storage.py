"""A stand-in for Google's store, for TensorFlow's own client of gs://, which takes no address: `start_google_storage`.

In a network namespace, the names of Google's hosts lead to this module, run as a program: the emulator of the package
gcp-storage-emulator behind TLS. It mends two faults of version 2026.7: bodies sent in chunks, and empty ones.
"""

import http.server
import ssl
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from urllib.request import Request, urlopen

from tests.namespaces import listens, start, wait_for

HOSTS = "127.0.0.1 www.googleapis.com storage.googleapis.com"


def start_google_storage(namespace: str, data: Path, directory: Path) -> dict[str, str]:
    """Starts the store in a namespace whose /etc/hosts has `HOSTS`, with the files of `data` in gs://bucket/data.

    Returns: the environment for TensorFlow and gcsfs in the same namespace.
    """
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    names = ",".join(f"DNS:{name}" for name in HOSTS.split()[1:])
    command = ["openssl", "req", "-x509", "-nodes", "-newkey", "rsa:2048", "-subj", "/CN=Google", "-days", "2"]
    command += ["-addext", f"subjectAltName={names}", "-out", str(certificate), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    start(namespace, ["-m", "tests.google_storage", certificate, key, data], directory / "store.log")
    wait_for(lambda: listens(namespace, 443))
    of_tensorflow = {"CURL_CA_BUNDLE": str(certificate), "GOOGLE_AUTH_TOKEN_FOR_TESTING": "anyone"}
    return {**of_tensorflow, "STORAGE_EMULATOR_HOST": "http://localhost", "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}


def serve(certificate: str, key: str, data: str) -> None:
    from gcp_storage_emulator import server
    from gcp_storage_emulator.handlers.buckets import create_bucket

    class Handler(server.RequestHandler):
        def parse_request(self) -> bool:
            is_request = super().parse_request()
            if is_request and self.headers.get("Transfer-Encoding"):
                del self.headers["Content-Length"]  # TensorFlow's client sends both
            return is_request

    def read_body(handler, query, read=server._read_data):
        body = read(handler, query)
        return b"" if body is None and query.get("uploadType") == ["media"] else body

    server._read_data = read_body
    storage = server.Storage(use_memory_fs=True)
    create_bucket("bucket", storage)
    # The address of an upload that the emulator gives begins with http://.
    plain, secure = (
        http.server.ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, storage)) for port in (80, 443)
    )
    threading.Thread(target=plain.serve_forever, daemon=True).start()
    for path in Path(data).iterdir():
        urlopen(Request(f"http://localhost/bucket/data/{path.name}", path.read_bytes(), method="PUT"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    secure.socket = context.wrap_socket(secure.socket, server_side=True)
    secure.serve_forever()


if __name__ == "__main__":
    serve(*sys.argv[1:])
