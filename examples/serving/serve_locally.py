"""Serves an export over gRPC and REST on this machine's loopback address: a stand-in for TensorFlow Serving.

    python examples/serving/serve_locally.py EXPORT                 # in one terminal
    python examples/serving/grpc_client.py "Some text."             # in another one

Use it to try clients without the server: it has the same protocols, names, batching and kinds of errors. It is written
in Python and not for production: use tensorflow/serving there (docs/serving.md).

It needs tensorflow, tensorflow_text and tensorflow-serving-api, but nothing of electra_tf.
"""

import argparse
import os
import signal
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow's start-up notes would bury the addresses

HOST = "127.0.0.1"


def read_flags(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("export", help="the directory that electra-tf export wrote; its highest version is served")
    parser.add_argument("--model_name", default="electra", help="name in requests (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8500, help="port of gRPC; 0: any free one (default: %(default)s)")
    parser.add_argument(
        "--rest_api_port", type=int, default=8501, help="port of REST; 0: any free one (default: %(default)s)"
    )
    parser.add_argument(
        "--max_batch_size",
        type=int,
        default=128,
        help="most rows of a request or a merged batch (default: %(default)s)",
    )
    parser.add_argument(
        "--batch_timeout_micros",
        type=int,
        default=1000,
        help="microseconds that a request waits for others to be merged with (default: %(default)s)",
    )
    return parser.parse_args(argv)


class Server:
    """Serves a model over both protocols within a `with` block.

    Attributes:
        port, rest_api_port: the ports of gRPC and of REST.
    """

    def __init__(self, model, port: int, rest_api_port: int):
        import grpc
        from grpc_service import add_services
        from rest_service import rest_server

        unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        # Without SO_REUSEPORT, a second server on the port is an error.
        self._grpc = grpc.server(ThreadPoolExecutor(64), options=[*unlimited, ("grpc.so_reuseport", 0)])
        add_services(self._grpc, model)
        self.port = self._grpc.add_insecure_port(f"{HOST}:{port}")
        self._rest = rest_server(model, (HOST, rest_api_port))
        self.rest_api_port = self._rest.server_address[1]

    def __enter__(self) -> "Server":
        self._grpc.start()
        threading.Thread(target=self._rest.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self._rest.shutdown()
        self._rest.server_close()
        self._grpc.stop(grace=1.0).wait()


def main(argv: list[str] | None = None) -> int:
    flags = read_flags(argv)
    # A client library warns of the Python's age at every start.
    warnings.filterwarnings("ignore", message="You are using a", category=FutureWarning)
    from batching import BatchedModel, ServingError

    try:
        model = BatchedModel(flags.model_name, flags.export, flags.max_batch_size, flags.batch_timeout_micros / 1e6)
        server = Server(model, flags.port, flags.rest_api_port)
    except (ServingError, OSError, RuntimeError) as error:  # gRPC raises a RuntimeError for a port that is taken
        print(f"error: {error}", file=sys.stderr)
        return 2
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with server:
        print(f"{model.name} version {model.version}: signatures {', '.join(sorted(model.signatures))}")
        print(f"gRPC on {HOST}:{server.port}, REST on http://{HOST}:{server.rest_api_port}/v1/models/{model.name}")
        print("a stand-in for TensorFlow Serving, to try clients; Ctrl-C ends it", flush=True)
        stopped.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
