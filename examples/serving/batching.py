"""A SavedModel whose concurrent calls are merged into batches, as TensorFlow Serving merges them."""

import os
import queue
import threading
import time
from concurrent.futures import Future

import grpc
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the tokenizer's operations, which the SavedModel uses)
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef

Arrays = dict[str, np.ndarray]


class ServingError(Exception):
    """The answer to a call that failed. `code` is a `grpc.StatusCode`."""

    def __init__(self, code: grpc.StatusCode, message: str):
        super().__init__(message)
        self.code = code


def invalid(message: str) -> ServingError:
    return ServingError(grpc.StatusCode.INVALID_ARGUMENT, message)


class BatchedModel:
    """The highest version of an export, ready for calls from many threads.

    Args:
        base_path: the directory of the versions, EXPORT for EXPORT/1.
        max_batch_size: the most rows of a merged batch, and of a request.
        batch_timeout: the seconds that a request waits for others to be merged with.
    Raises: ServingError: there is no version.
    """

    def __init__(self, name: str, base_path: str, max_batch_size: int, batch_timeout: float):
        versions = [int(entry) for entry in _entries(base_path) if entry.isdigit()]
        if not versions:
            raise ServingError(grpc.StatusCode.NOT_FOUND, f"{base_path} holds no version such as {base_path}/1")
        self.name, self.version = name, max(versions)
        version_dir = os.path.join(base_path, str(self.version))
        saved = saved_model_pb2.SavedModel()
        try:
            with open(os.path.join(version_dir, "saved_model.pb"), "rb") as file:
                saved.ParseFromString(file.read())
        except OSError as error:
            raise ServingError(grpc.StatusCode.NOT_FOUND, f"{version_dir}: {error.strerror}, saved_model.pb") from None
        self.signatures: dict[str, SignatureDef] = {
            name: signature for name, signature in saved.meta_graphs[0].signature_def.items() if signature.inputs
        }
        self._loaded = tf.saved_model.load(version_dir)  # keeps the variables, which the functions need, alive
        self._batchers = {
            name: _Batcher(self._loaded.signatures[name], max_batch_size, batch_timeout) for name in self.signatures
        }

    def call(self, signature_name: str, inputs: Arrays, timeout: float | None = None) -> Arrays:
        """The outputs of a signature for these inputs, computed in one batch with concurrent calls.

        Raises: ServingError: the inputs do not fit the signature, or `timeout` seconds have passed.
        """
        _check(self.signatures[signature_name], inputs)
        try:
            return self._batchers[signature_name].submit(inputs).result(timeout)
        except TimeoutError:
            raise ServingError(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None


def _entries(path: str) -> list[str]:
    return os.listdir(path) if os.path.isdir(path) else []


def _check(signature: SignatureDef, inputs: Arrays) -> None:
    """Raises: ServingError: names, dtypes, ranks or numbers of rows do not fit the signature."""
    if inputs.keys() != signature.inputs.keys():
        sent, expected = set(inputs), set(signature.inputs)
        raise invalid(
            f"input size does not match signature: {len(sent)}!={len(expected)}. Sent extra: "
            f"{{{','.join(sorted(sent - expected))}}}. Missing but required: {{{','.join(sorted(expected - sent))}}}."
        )
    for name, array in inputs.items():
        dtype, shape = tf.as_dtype(signature.inputs[name].dtype), tf.TensorShape(signature.inputs[name].tensor_shape)
        given = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
        if given != dtype:
            raise invalid(f"input {name} is to be {dtype.name} but {given.name} is provided")
        if not shape.is_compatible_with(array.shape):
            raise invalid(f"input {name} is to be of shape {shape} but {list(array.shape)} is provided")
    if len({len(array) for array in inputs.values()}) != 1:
        raise invalid("Batching session Run() input tensors must have equal 0th-dimension size")


class _Batcher:
    """Runs one signature in a thread of its own, on the merged inputs of the waiting calls."""

    def __init__(self, function, max_batch_size: int, batch_timeout: float):
        self._function, self._max_batch_size, self._batch_timeout = function, max_batch_size, batch_timeout
        self._waiting: queue.Queue[tuple[Arrays, Future]] = queue.Queue()
        threading.Thread(target=self._run_forever, daemon=True).start()

    def submit(self, inputs: Arrays) -> Future:
        num_rows = _num_rows(inputs)
        if num_rows > self._max_batch_size:
            raise invalid(f"Task size {num_rows} is larger than maximum input batch size {self._max_batch_size}")
        future: Future = Future()
        self._waiting.put((inputs, future))
        return future

    def _run_forever(self) -> None:
        left = None  # what did not fit into the last batch
        while True:
            batch, left = self._next_batch(left or self._waiting.get())
            try:
                results = self._run([inputs for inputs, _ in batch])
            except Exception as error:  # the waiting calls get it, and the next batch is served
                for _, future in batch:
                    future.set_exception(_as_serving_error(error))
            else:
                for (_, future), result in zip(batch, results, strict=True):
                    future.set_result(result)

    def _next_batch(self, first):
        """The calls that run together with the first one, in their order, and the call after them."""
        batch, num_rows, deadline = [first], _num_rows(first[0]), time.monotonic() + self._batch_timeout
        while num_rows < self._max_batch_size:
            try:
                request = self._waiting.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            num_rows += _num_rows(request[0])
            # The server refuses to merge rows of different widths, unless it pads them. Here the later call waits.
            if num_rows > self._max_batch_size or _widths(request[0]) != _widths(first[0]):
                return batch, request
            batch.append(request)
        return batch, None

    def _run(self, requests: list[Arrays]) -> list[Arrays]:
        sizes = [_num_rows(inputs) for inputs in requests]
        merged = {name: np.concatenate([inputs[name] for inputs in requests]) for name in requests[0]}
        outputs = self._function(**{name: tf.constant(array) for name, array in merged.items()})
        ends = np.cumsum(sizes)
        for name, output in outputs.items():
            if output.shape.rank == 0 or len(output) != ends[-1]:
                message = f"output {name} has shape {output.shape}: its 0th dimension is not that of the inputs"
                raise ServingError(grpc.StatusCode.FAILED_PRECONDITION, f"Batched {message}")
        arrays = {name: output.numpy() for name, output in outputs.items()}
        return [
            {name: array[end - size : end] for name, array in arrays.items()}
            for size, end in zip(sizes, ends, strict=True)
        ]


def _num_rows(inputs: Arrays) -> int:
    return len(next(iter(inputs.values())))


def _widths(inputs: Arrays) -> dict[str, tuple[int, ...]]:
    return {name: array.shape[1:] for name, array in inputs.items()}


def _as_serving_error(error: Exception) -> ServingError:
    if isinstance(error, ServingError):
        return error
    if isinstance(error, tf.errors.InvalidArgumentError):
        return invalid(str(error.message))
    return ServingError(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")
