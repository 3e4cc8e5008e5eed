"""Connects to a TPU; every failure is an error of one line.

TensorFlow waits for ever for a TPU that does not answer, so each call that waits has a time-out here.
"""

import socket
import threading
import urllib.error
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeVar
from urllib.parse import urlsplit

import tensorflow as tf

from electra_tf.config.errors import EXIT_USER_ERROR, UserError, end_without_teardown, first_line

_LISTEN_SECONDS = 10
_CONNECT_SECONDS = 60
_START_SECONDS = 300  # all cores of a large slice together
_HELP = (
    "run on a TPU VM with tensorflow-tpu installed and --tpu=local, or give the TPU's name or grpc://HOST:PORT; "
    "--strategy=one_device runs without a TPU"
)
_ERRORS = (ValueError, tf.errors.OpError, urllib.error.URLError, OSError, RuntimeError)

Result = TypeVar("Result")


def tpu_strategy(tpu: str) -> tf.distribute.Strategy:
    """Every core of a TPU, started.

    Args:
        tpu: `local` on a TPU VM, a TPU's name, or grpc://HOST:PORT.
    Raises: UserError: if no TPU answers.
    """
    if not tpu:
        raise UserError(f"--strategy=tpu: --tpu is empty; {_HELP}")
    if tpu.startswith("grpc://"):
        _require_listening(tpu)
    tf.get_logger().setLevel("ERROR")  # its notes on the search would bury the line below
    try:
        resolver = _within(_CONNECT_SECONDS, tpu, lambda: _connect(tpu))
        _within(_START_SECONDS, tpu, lambda: tf.tpu.experimental.initialize_tpu_system(resolver))
        return tf.distribute.TPUStrategy(resolver)
    except _ERRORS as error:
        raise UserError(f"--strategy=tpu: no TPU answers as {tpu!r} ({first_line(error)}); {_HELP}") from None


def _connect(tpu: str) -> tf.distribute.cluster_resolver.TPUClusterResolver:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=tpu)
    if tpu != "local":
        tf.config.experimental_connect_to_cluster(resolver)
    return resolver


def _within(seconds: float, tpu: str, call: Callable[[], Result]) -> Result:
    """The result of a call that may never return.

    Raises: UserError: if it has not returned after `seconds`. It continues in a thread, which cannot be ended; the
        process ends without waiting for it.
    """
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)  # for the thread that asked

    threading.Thread(target=run, name="tpu", daemon=True).start()
    try:
        return future.result(timeout=seconds)
    except FutureTimeoutError:
        if future.done():  # the call's own error
            raise
        end_without_teardown(EXIT_USER_ERROR)
        raise UserError(f"--strategy=tpu: no TPU answers as {tpu!r} within {seconds:g} s; {_HELP}") from None


def _require_listening(address: str) -> None:
    """Raises: UserError: if nothing listens at grpc://HOST:PORT, after seconds instead of a minute."""
    try:
        parts = urlsplit(address)
        socket.create_connection((parts.hostname or "", parts.port or 8470), timeout=_LISTEN_SECONDS).close()
    except (OSError, ValueError) as error:
        raise UserError(f"--strategy=tpu: nothing listens at {address} ({error}); {_HELP}") from None
