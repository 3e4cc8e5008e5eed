"""Asks an exported model over gRPC, from TensorFlow Serving or from serve_locally.py beside this file.

    python examples/serving/grpc_client.py "Some text." "Another one."
    python examples/serving/grpc_client.py --signature=answer --input question="Who?" --input context="It was Ann."

It needs grpcio, numpy and tensorflow-serving-api (the messages, and the stubs that send them), and nothing of
electra_tf. TensorFlow must be installed, as tensorflow-serving-api takes messages from it, but is not started.
"""

import argparse
import functools
import importlib.util
import sys
import types
from collections.abc import Mapping, Sequence

# 64 texts of 128 tokens with a vector of 256 numbers each are 8 MB; clients of gRPC refuse more than 4 MB by default.
MAX_MESSAGE_BYTES = 1 << 30


def read_flags(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="*", help="a row of the input `text`")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=TEXT", help="a row of another input")
    parser.add_argument("--server", default="127.0.0.1:8500", help="host and gRPC port (default: %(default)s)")
    parser.add_argument("--model_name", default="electra", help="name at the server (default: %(default)s)")
    parser.add_argument("--signature", default="embed", help="signature to call (default: %(default)s)")
    parser.add_argument(
        "--timeout", type=float, default=10.0, help="seconds to wait for the answer (default: %(default)s)"
    )
    flags = parser.parse_args(argv)
    flags.inputs = {"text": flags.text} if flags.text else {}
    for item in flags.input:
        name, equals, text = item.partition("=")
        if not equals:
            parser.error(f"--input={item}: expected NAME=TEXT")
        flags.inputs.setdefault(name, []).append(text)
    if not flags.inputs:
        parser.error("give a text, or --input NAME=TEXT for a signature with other inputs")
    return flags


@functools.cache
def import_messages():
    """The messages and stubs of tensorflow-serving-api.

    They import messages from TensorFlow's package, which takes seconds to import. An empty package in its place makes
    these imports find the messages without it.
    """
    started = sys.modules.get("tensorflow")
    if started is None:
        found = importlib.util.find_spec("tensorflow")
        if found is None:
            raise ImportError("tensorflow-serving-api takes messages from tensorflow, which is not installed")
        sys.modules["tensorflow"] = types.ModuleType("tensorflow")
        sys.modules["tensorflow"].__path__ = list(found.submodule_search_locations)
    try:
        from tensorflow.core.framework import tensor_pb2, types_pb2
        from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc
    finally:
        if started is None:
            del sys.modules["tensorflow"]
    return tensor_pb2, types_pb2, predict_pb2, prediction_service_pb2_grpc


def open_channel(server: str):
    """A connection that takes large messages. Keep it for further requests."""
    import grpc

    names = ("grpc.max_send_message_length", "grpc.max_receive_message_length")
    return grpc.insecure_channel(server, [(name, MAX_MESSAGE_BYTES) for name in names])


def predict(
    channel, model_name: str, signature: str, inputs: Mapping[str, Sequence[str | bytes]], timeout: float
) -> dict:
    """The outputs of a signature, arrays by name.

    Args:
        inputs: the rows of each input, all of the same number.
        timeout: seconds.
    Raises: grpc.RpcError: with the server's `code()` and `details()`.
    """
    tensor_pb2, types_pb2, predict_pb2, prediction_service_pb2_grpc = import_messages()
    request = predict_pb2.PredictRequest(model_spec={"name": model_name, "signature_name": signature})
    for name, rows in inputs.items():
        rows = [row.encode() if isinstance(row, str) else row for row in rows]
        shape = {"dim": [{"size": len(rows)}]}
        tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, tensor_shape=shape, string_val=rows)
        request.inputs[name].CopyFrom(tensor)
    response = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=timeout)
    return {name: as_array(tensor, types_pb2) for name, tensor in response.outputs.items()}


def as_array(tensor, types_pb2):
    """A TensorProto as an array. A program that imports TensorFlow can call `tf.make_ndarray` instead."""
    import numpy as np

    fields = {
        types_pb2.DT_STRING: ("string_val", object),
        types_pb2.DT_FLOAT: ("float_val", np.float32),
        types_pb2.DT_INT32: ("int_val", np.int32),
        types_pb2.DT_INT64: ("int64_val", np.int64),
        types_pb2.DT_BOOL: ("bool_val", np.bool_),
    }
    field, dtype = fields[tensor.dtype]
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    if tensor.tensor_content:
        return np.frombuffer(tensor.tensor_content, dtype).reshape(shape)
    values = list(getattr(tensor, field))
    array = np.empty(len(values), dtype)
    array[:] = values
    if len(values) == 1:  # the format of a tensor that is filled with one value
        array = np.repeat(array, np.prod(shape, dtype=int))
    return array.reshape(shape)


def main(argv: list[str] | None = None) -> int:
    flags = read_flags(argv)
    import grpc

    try:
        with open_channel(flags.server) as channel:
            outputs = predict(channel, flags.model_name, flags.signature, flags.inputs, flags.timeout)
    except grpc.RpcError as error:
        print(f"error: {flags.server}: {error.code().name}: {error.details()}", file=sys.stderr)
        return 1
    import numpy as np

    for name in sorted(outputs):
        array = outputs[name]
        if array.dtype == object:  # strings come as bytes
            array = np.vectorize(lambda value: value.decode("utf-8", "replace"), otypes=[object])(array)
        print(f"{name} {list(array.shape)}: {np.array2string(array, threshold=24, edgeitems=4, precision=4)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
