"""Concurrent clients of examples/serving/serve_locally.py, whose answers are compared with those of a single client."""

import contextlib
import itertools
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.harness import PROJECT, last_line
from electra_tf.config.errors import UserError

_EXAMPLES = PROJECT / "examples" / "serving"
_TIMEOUT = 300.0  # seconds of a request, also on a busy machine

Answer = dict[str, np.ndarray]


@dataclass(frozen=True)
class ClientsRun:
    """The result of simultaneous clients.

    Attributes:
        num_merged: the number of answers that are wider than their text, because a longer text was in the same batch.
        num_lost: the number of requests without an answer.
        largest_difference: the largest difference between an answer and that to the same text from a single client.
    """

    num_clients: int
    requests_per_second: float
    num_merged: int
    num_lost: int
    largest_difference: float


def measure_clients(
    version_dir: str, texts: Sequence[str], numbers_of_clients: Sequence[int], num_requests: int
) -> list[ClientsRun]:
    """Requests the vectors of texts, one text per request, from one client and from several at the same time.

    Args:
        numbers_of_clients: must begin with 1, whose answers are compared with all others.
    """
    requests = list(itertools.islice(itertools.cycle(texts), num_requests))
    runs, single = [], []
    with serve_locally(Path(version_dir).parent) as address:
        _ask_all(address, requests[: max(numbers_of_clients)], max(numbers_of_clients))  # first calls are slow
        for num_clients in numbers_of_clients:
            start = time.perf_counter()
            answers = _ask_all(address, requests, num_clients)
            seconds = time.perf_counter() - start
            single = single or answers
            pairs = [(mine, alone) for mine, alone in zip(answers, single, strict=True) if mine and alone]
            differences = [difference(mine, alone) for mine, alone in pairs]
            largest, num_lost = max(differences, default=float("inf")), num_requests - len(pairs)
            num_merged = sum(mine["tokens"].shape[1] > int(mine["num_tokens"][0]) for mine, _ in pairs)
            runs.append(ClientsRun(num_clients, num_requests / seconds, num_merged, num_lost, largest))
    return runs


@contextlib.contextmanager
def serve_locally(export: Path) -> Iterator[str]:
    """The gRPC address of a local server. Raises: UserError: if it does not start."""
    command = [sys.executable, str(_EXAMPLES / "serve_locally.py"), str(export), "--port=0", "--rest_api_port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        address = re.search(r"gRPC on (\S+),", process.stdout.readline())
        if not address:
            raise UserError(f"serve_locally.py does not start: {last_line(process.stderr.read())}")
        try:
            yield address[1]
        finally:
            process.terminate()


def difference(answer: Answer, alone: Answer) -> float:
    """The largest difference between two answers for a text; infinite if their tokens differ.

    An answer is as wide as the longest text of its batch. Its first `num_tokens` tokens are compared.
    """
    length = int(answer["num_tokens"][0])
    tokens, expected = (each["tokens"][0, :length].tolist() for each in (answer, alone))
    if length != alone["num_tokens"][0] or tokens != expected:
        return float("inf")
    pairs = [(answer["pooled_output"], alone["pooled_output"])]
    pairs.append((answer["sequence_output"][:, :length], alone["sequence_output"][:, :length]))
    return max(float(np.abs(mine - other).max()) for mine, other in pairs)


def _ask_all(address: str, texts: Sequence[str], num_clients: int) -> list[Answer | None]:
    """The answers in the order of the texts, None for a failed request. Each client sends one request at a time."""
    client = _grpc_client()
    import grpc

    def ask(text: str) -> Answer | None:
        try:
            return client.predict(channel, "electra", "embed", {"text": [text]}, _TIMEOUT)
        except grpc.RpcError as error:
            print(f"{error.code().name}: {error.details()}", file=sys.stderr)
            return None

    with client.open_channel(address) as channel, ThreadPoolExecutor(num_clients) as pool:
        return list(pool.map(ask, texts))


def _grpc_client():
    if str(_EXAMPLES) not in sys.path:
        sys.path.insert(0, str(_EXAMPLES))
    import grpc_client

    return grpc_client
