"""The REST endpoint of `serve_locally.py`, with TensorFlow Serving's RESTful API.

    GET /v1/models/NAME[/versions/V]            its status
    GET /v1/models/NAME[/versions/V]/metadata   its signatures
    POST /v1/models/NAME[/versions/V]:predict   {"signature_name": .., "instances": ..} or {.., "inputs": ..}

`instances` is a list with an object for each row, or with bare values if the signature has one input. The answer is
`predictions`, also an object or a bare value for each row. `inputs` is an object of columns, or one bare column; its
answer is `outputs`. Bytes are {"b64": ".."} in requests, and in answers for outputs named `.._bytes`. Errors are
{"error": ".."}.
"""

import base64
import binascii
import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import numpy as np
import tensorflow as tf
from batching import Arrays, BatchedModel, ServingError, invalid
from google.protobuf.json_format import MessageToDict
from grpc_service import check_model, metadata, status
from tensorflow_serving.apis import model_pb2

_PATH = re.compile(r"/v1/models/(?P<name>[^/:]+)(/versions/(?P<version>\d{1,18}))?(?P<rest>/metadata|:\w+)?")
_HTTP_STATUS = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 412,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}


def rest_server(model: BatchedModel, address: tuple[str, int]) -> ThreadingHTTPServer:
    """A server that listens on the address; call its `serve_forever`. Raises: OSError: the port is taken."""

    class Handler(_Handler):
        served = model

    return ThreadingHTTPServer(address, Handler)


class _Handler(BaseHTTPRequestHandler):
    served: BatchedModel
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        self._answer({None: self._status, "/metadata": self._metadata})

    def do_POST(self) -> None:
        self._answer({":predict": self._predict})

    def log_message(self, *_) -> None:
        """Requests are not logged."""

    def _answer(self, methods: dict) -> None:
        code = 200
        try:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = _PATH.fullmatch(self.path)
            if not path or path["rest"] not in methods:
                raise invalid(f"Malformed request: {self.command} {self.path}")
            spec = model_pb2.ModelSpec(name=path["name"])
            if path["version"]:
                spec.version.value = int(path["version"])
            check_model(self.served, spec)
            answer = methods[path["rest"]](body)
        except ServingError as error:
            code, answer = _HTTP_STATUS.get(error.code, 500), {"error": str(error)}
        content = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _status(self, _: bytes) -> dict:
        return MessageToDict(status(self.served), preserving_proto_field_name=True)

    def _metadata(self, _: bytes) -> dict:
        answer = MessageToDict(metadata(self.served), preserving_proto_field_name=True)
        answer["metadata"]["signature_def"].pop("@type")
        return answer

    def _predict(self, body: bytes) -> dict:
        request = _parsed(body)
        signature_name = request.get("signature_name", tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY)
        signature = self.served.signatures.get(signature_name) if isinstance(signature_name, str) else None
        if signature is None:
            raise invalid(f'Serving signature name: "{signature_name}" not found in signature def')
        by_row = "instances" in request
        values = request["instances"] if by_row else request["inputs"]
        columns = _columns_of_rows(values, signature) if by_row else _columns(values, signature)
        dtypes = {name: tf.as_dtype(info.dtype) for name, info in signature.inputs.items()}
        inputs = {name: _array(name, column, dtypes.get(name, tf.string)) for name, column in columns.items()}
        outputs = _json_values(self.served.call(signature_name, inputs))
        if not by_row:
            return {"outputs": next(iter(outputs.values())) if len(outputs) == 1 else outputs}
        if len(outputs) == 1:
            return {"predictions": next(iter(outputs.values()))}
        return {"predictions": [dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True)]}


def _parsed(body: bytes) -> dict:
    try:
        request = json.loads(body)
    except ValueError as error:
        raise invalid(f"JSON Parse error: {error}") from None
    if not isinstance(request, dict) or ("instances" in request) == ("inputs" in request):
        raise invalid('expected a JSON object with either "instances" (rows) or "inputs" (columns)')
    return request


def _columns_of_rows(rows, signature) -> dict[str, list]:
    if not isinstance(rows, list) or not rows:
        raise invalid('"instances" is to be a list with at least one row')
    if not all(_is_object(row) for row in rows):
        if len(signature.inputs) != 1 or any(_is_object(row) for row in rows):
            raise invalid(f'each of "instances" is to be an object with {", ".join(sorted(signature.inputs))}')
        return {next(iter(signature.inputs)): rows}
    if any(row.keys() != rows[0].keys() for row in rows):
        raise invalid('all of "instances" are to have the same inputs')
    return {name: [row[name] for row in rows] for name in rows[0]}


def _columns(values, signature) -> dict:
    if _is_object(values):
        return values
    if len(signature.inputs) != 1:
        raise invalid(f'"inputs" is to be an object with {", ".join(sorted(signature.inputs))}')
    return {next(iter(signature.inputs)): values}


def _is_object(value) -> bool:
    return isinstance(value, dict) and value.keys() != {"b64"}


def _array(name: str, values, dtype: tf.DType) -> np.ndarray:
    """A JSON value as an array of the signature's dtype. Raises: ServingError: it does not fit."""
    kinds = (str, dict) if dtype == tf.string else (int,) if dtype.is_integer else (int, float)
    flat = list(_leaves(values))
    for leaf in flat:
        if not isinstance(leaf, kinds) or isinstance(leaf, bool) != (dtype == tf.bool):
            raise invalid(f"JSON Value: {json.dumps(leaf)[:80]} of input {name} is not of expected type: {dtype.name}")
    try:
        shape = _shape(values)
        if dtype == tf.string:
            array = np.empty(len(flat), object)
            array[:] = [_bytes(leaf) for leaf in flat]
        else:
            array = np.array(flat, dtype.as_numpy_dtype)
        array = array.reshape(shape)
    except (ValueError, OverflowError, binascii.Error) as error:
        raise invalid(f"input {name}: {error}") from None
    if array.ndim == 0:
        raise invalid(f"input {name} is to be a list")
    return array


def _leaves(values):
    if isinstance(values, list):
        for value in values:
            yield from _leaves(value)
    else:
        yield values


def _shape(values) -> tuple[int, ...]:
    """The shape of nested lists. Raises: ValueError: lists of one level have different lengths."""
    if not isinstance(values, list):
        return ()
    shapes = {_shape(value) for value in values}
    if len(shapes) > 1:
        raise ValueError(f"lists of one level differ in shape: {sorted(shapes)[:2]}")
    return (len(values), *(shapes.pop() if shapes else ()))


def _bytes(leaf: str | dict) -> bytes:
    if isinstance(leaf, str):
        return leaf.encode("utf-8", "replace")
    if not isinstance(leaf.get("b64"), str):
        raise ValueError('an object in place of a string is to be {"b64": ".."}')
    return base64.b64decode(leaf["b64"], validate=True)


def _json_values(outputs: Arrays) -> dict[str, list]:
    def text(value: bytes, as_base64: bool):
        if as_base64:
            return {"b64": base64.b64encode(value).decode()}
        return value.decode("utf-8", "replace")

    values = {}
    for name, array in outputs.items():
        if array.dtype == object:
            array = np.vectorize(lambda value, name=name: text(value, name.endswith("_bytes")), otypes=[object])(array)
        values[name] = array.tolist()
    return values
